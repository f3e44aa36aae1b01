"""A search for options: an Optuna study in a folder, which can be resumed."""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.exceptions import StorageInternalError
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization.matplotlib import plot_optimization_history, plot_param_importances
from rich.console import Console
from rich.table import Table as TextTable
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from molattn.chem.split import Split
from molattn.config import (
    DataConfig,
    GaussianProcessConfig,
    TrainConfig,
    TuneConfig,
    check_same_digest,
)
from molattn.config.yaml_file import check_unchanged, write_config_file
from molattn.data.dataset import TrainingTable
from molattn.data.splitting import split_rows
from molattn.data.table import write_table
from molattn.errors import InputError, MolattnError
from molattn.nn.registry import check_heads, check_network
from molattn.training.fine_tuning import PretrainedWeights, load_pretrained
from molattn.training.history import Epoch
from molattn.training.lightning.loop import check_processes
from molattn.training.run import number_of_epochs, read_rows, train_model
from molattn.training.run_folder import CONFIG_FILE
from molattn.tuning.search_space import (
    Space,
    check_space,
    default_space,
    read_space,
    suggest,
    write_space,
)
from molattn.utils.console import print_line

__all__ = ["BEST_FILE", "SPACE_FILE", "STUDY_FILE", "StudyResult", "run_study", "trials_table"]

STUDY_FILE = "study.db"
BEST_FILE = "best.yaml"
SPACE_FILE = "space.yaml"
_TRIALS_FILE = "trials.csv"
_PLOTS = ("study.png", "importance.png")
_FILES = (STUDY_FILE, BEST_FILE, SPACE_FILE, CONFIG_FILE, _TRIALS_FILE, *_PLOTS)
_NAME = "molattn"
_TRIALS = 50
_SHOWN = 5
_ERROR, _DATA, _INIT_FROM, _WANTED = "error", "data", "init_from", "trials"
_RANDOM_TRIALS = 10
_MEDIAN_OF = 5
_NETWORK = GaussianProcessConfig(predictor="network")  # options are chosen by the loss of networks
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


class StudyResult(NamedTuple):
    """The result of a search."""

    config: TrainConfig
    loss: float
    trials: list[FrozenTrial]


def run_study(
    config: TrainConfig,
    tuning: TuneConfig,
    space: Space | None,
    folder: Path,
    console: Console | None = None,
    *,
    overwrite: bool = False,
) -> StudyResult:
    """Search for the options with the best validation loss.

    Each trial trains one model on the training rows; its loss is the validation loss of the weights
    that it keeps. The test rows are not used. After 10 random trials, options are suggested by the
    tree-structured Parzen estimator (Bergstra et al. 2011). The suggestions of a trial depend only
    on the seed and the trials before it, so that a resumed study gives the same trials as one that
    was not interrupted.

    Args:
        config: The table, and the options that are not varied.
        tuning: How long to search.
        space: The options that are varied; None = those of the study in the folder, or by default
            :func:`molattn.tuning.search_space.default_space`.
        folder: Folder of the study: ``study.db``, ``config.yaml``, ``space.yaml``, ``best.yaml``,
            ``trials.csv``, ``study.png`` and ``importance.png``. A study in it is resumed; no other
            process may use it.
        console: Console for progress; silent without one.
        overwrite: Replace a study in the folder, once the table and the options are valid.

    Raises:
        InputError: An invalid table or option, a table or pretrained model other than at the start
            of the study, a study without its trials, or no trial that succeeded.
    """
    if config.data.folds is not None:
        raise InputError("--folds cannot be used with molattn tune, which uses one split")
    if config.gaussian_process.predictor == "gaussian_process":
        raise InputError("--predictor gaussian_process trains no network, and has nothing to tune")
    check_processes(config.training)
    start = time.perf_counter()
    is_new = overwrite or not (folder / CONFIG_FILE).exists()
    if not is_new and (folder / _TRIALS_FILE).exists() and not (folder / STUDY_FILE).exists():
        raise InputError(f"{folder / STUDY_FILE}: no such file; it holds the trials of the study")
    if space is None and not is_new:
        space = read_space(folder / SPACE_FILE)
    # Once, as all trials start from the same weights.
    config, pretrained = load_pretrained(config, space or ())
    if space is None:
        space = default_space(config)
    if not is_new:
        check_unchanged(folder / CONFIG_FILE, config)
    chosen = partial(_chosen, config)
    check_space(space, chosen)
    rows = _Rows(config, console)
    table, parts = rows(config.data)
    if is_new:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        write_space(folder / SPACE_FILE, space)
        write_config_file(folder / CONFIG_FILE, config)
    # The same for all trials, whatever their batch size, so that their losses can be compared.
    epochs = number_of_epochs(config.training, table.tasks, len(parts.train))
    config = replace(config, training=replace(config.training, epochs=epochs))
    chosen = partial(_chosen, config)
    with _opened(folder / STUDY_FILE) as study:
        former = study.user_attrs.get(_DATA, table.digest)
        check_same_digest(f"{table.path}: the file has", table.digest, former, folder)
        wanted = tuning.trials or study.user_attrs.get(_WANTED, _TRIALS)
        model = f"--init-from: the model {config.fine_tuning.init_from} has"
        digest = pretrained and pretrained.digest
        check_same_digest(model, digest, study.user_attrs.get(_INIT_FROM, digest), folder)
        study.set_user_attr(_DATA, table.digest)
        study.set_user_attr(_INIT_FROM, digest)
        study.set_user_attr(_WANTED, wanted)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)  # interrupted with its process
        startup = _MEDIAN_OF if tuning.prune else wanted
        study.pruner = optuna.pruners.MedianPruner(startup, config.training.num_epochs // 5)
        while (done := len(_ended(study))) < wanted:
            if tuning.timeout is not None and time.perf_counter() - start >= tuning.timeout:
                print_line(console, f"Stopped after {tuning.timeout:g} s (--timeout)")
                break
            seed = np.random.SeedSequence([config.training.seed, done]).generate_state(1)[0]
            study.sampler = optuna.samplers.TPESampler(
                n_startup_trials=_RANDOM_TRIALS, seed=int(seed)
            )
            objective = partial(
                _objective, space=space, chosen=chosen, rows=rows, pretrained=pretrained
            )
            study.optimize(objective, n_trials=1, catch=(MolattnError,))
            latest = _ended(study)[-1]
            print_line(console, f"{done + 1}/{wanted}  {_summary(latest)}")
            _write_trials(folder / _TRIALS_FILE, study, space)
        return _finish(study, space, chosen, folder)


def trials_table(result: StudyResult) -> TextTable:
    """Return a table of the best trials and their options, for the terminal."""
    complete = [trial for trial in result.trials if trial.state == TrialState.COMPLETE]
    best = sorted(complete, key=_loss)[:_SHOWN]
    table = TextTable(box=None, pad_edge=False)
    table.add_column("trial")
    for trial in best:
        number = str(result.trials.index(trial) + 1)
        table.add_column(number, justify="right", overflow="fold")
    table.add_row("validation loss", *(f"{_loss(trial):.4f}" for trial in best))
    for name in best[0].params:
        table.add_row(name, *(_shown(trial.params[name]) for trial in best))
    return table


class _Rows:
    """The rows of the table and their split, read once for each set of options of the data."""

    def __init__(self, config: TrainConfig, console: Console | None) -> None:
        self._config, self._console = config, console
        self._read: dict[DataConfig, tuple[TrainingTable, Split]] = {}

    def __call__(self, data: DataConfig) -> tuple[TrainingTable, Split]:
        if data not in self._read:
            config = self._config
            no_forest = replace(config.report, baselines=False)
            config = replace(config, data=data, report=no_forest, gaussian_process=_NETWORK)
            table = read_rows(config, self._console)
            self._read[data] = table, split_rows(table, data, self._config.training.seed)
            self._console = None  # report it once
        return self._read[data]


def _objective(
    trial: optuna.Trial,
    space: Space,
    chosen: Any,
    rows: _Rows,
    pretrained: PretrainedWeights | None,
) -> float:
    options = {name: suggest(trial, name, of) for name, of in space.items()}
    losses: list[float] = []

    def report(epoch: Epoch) -> None:
        loss = cast(float, epoch.validation_loss)  # a search has validation rows
        losses.append(loss)
        trial.report(loss, epoch.epoch)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        config = chosen(options)  # values that are valid one by one, but perhaps not together
        check_network(config.network)
        check_heads(config.network)
        one = replace(
            config, training=replace(config.training, ensemble=1), gaussian_process=_NETWORK
        )
        train_model(one, *rows(one.data), pretrained, on_epoch=report)
    except MolattnError as error:
        trial.set_user_attr(_ERROR, str(error))
        raise
    return losses[-1] if config.training.checkpoint == "last" else min(losses)


def _chosen(config: TrainConfig, options: Mapping[str, Any]) -> TrainConfig:
    """Return the run with other values of some options."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        sections.setdefault(TrainConfig.options()[name].section, {})[name] = value
    return replace(
        config,
        **{name: replace(getattr(config, name), **values) for name, values in sections.items()},
    )


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have ended, except interrupted ones."""
    return [
        trial
        for trial in study.get_trials(deepcopy=False)
        if trial.state in _ENDED or _ERROR in trial.user_attrs
    ]


def _finish(study: optuna.Study, space: Space, chosen: Any, folder: Path) -> StudyResult:
    trials = _ended(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        failure = "no trial started before the time limit (--timeout)"
        if trials:
            reason = trials[-1].user_attrs.get(_ERROR, "pruned")
            failure = f"none of {len(trials)} trials succeeded (reason of the last: {reason})"
        more = ""
        if len(trials) >= study.user_attrs[_WANTED]:
            more = f" --trials N with N above {len(trials)}"
        raise InputError(f"{folder}: {failure}; --resume {folder}{more} continues the study")
    best = min(complete, key=_loss)
    result = StudyResult(chosen({name: best.params[name] for name in space}), _loss(best), trials)
    write_config_file(folder / BEST_FILE, result.config)
    _write_trials(folder / _TRIALS_FILE, study, space)
    figures = {*plt.get_fignums()}
    try:
        with plt.rc_context():  # Optuna changes the style of all later plots
            varies = len({_loss(trial) for trial in complete}) > 1
            _plot(study, folder, with_importance=varies and len(complete) >= _RANDOM_TRIALS)
    finally:  # a plot that fails leaves its figure open
        for number in {*plt.get_fignums()} - figures:
            plt.close(number)
    return result


def _plot(study: optuna.Study, folder: Path, *, with_importance: bool) -> None:
    axes = plot_optimization_history(study, target_name="validation loss")
    axes.set_yscale("log")
    _save(axes, folder / _PLOTS[0])
    if with_importance:
        with suppress(ValueError, RuntimeError):  # losses that hardly vary
            evaluator = FanovaImportanceEvaluator(seed=0)
            _save(plot_param_importances(study, evaluator=evaluator), folder / _PLOTS[1])


def _save(axes: Axes, path: Path) -> None:
    cast(Figure, axes.figure).savefig(path, dpi=150, bbox_inches="tight")


def _write_trials(path: Path, study: optuna.Study, space: Space) -> None:
    header = ("trial", "state", "validation_loss", "epochs", "seconds", _ERROR, *space)
    with write_table(path, header) as write:
        for number, trial in enumerate(_ended(study), start=1):
            seconds = trial.duration.total_seconds() if trial.duration else 0.0
            loss = f"{_loss(trial):.7g}" if trial.intermediate_values else ""
            options = [trial.params.get(name, "") for name in space]
            about = (len(trial.intermediate_values), f"{seconds:.1f}")
            reason = trial.user_attrs.get(_ERROR, "")
            write([number, trial.state.name.lower(), loss, *about, reason, *options])


def _loss(trial: FrozenTrial) -> float:
    given = trial.value  # None for a trial that did not finish
    return min(trial.intermediate_values.values()) if given is None else given


def _summary(trial: FrozenTrial) -> str:
    options = ", ".join(f"{name} {_shown(value)}" for name, value in trial.params.items())
    if _ERROR in trial.user_attrs:
        return f"failed: {trial.user_attrs[_ERROR]}  ({options})"
    pruned = trial.state == TrialState.PRUNED
    ending = f", pruned after epoch {len(trial.intermediate_values)}" if pruned else ""
    return f"validation loss {_loss(trial):.4f}{ending}  ({options})"


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@contextmanager
def _opened(path: Path) -> Iterator[optuna.Study]:
    """Open or create the study in a file."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                storage = optuna.storages.RDBStorage(str(URL.create("sqlite", database=str(path))))
            except Exception as error:
                reason = str(error).partition("\n")[0]
                raise InputError(f"{path}: not a readable study: {reason}") from error
            try:
                yield optuna.create_study(storage=storage, study_name=_NAME, load_if_exists=True)
            except (SQLAlchemyError, StorageInternalError) as error:
                reason = str(error.__cause__ or error).partition("\n")[0]
                raise MolattnError(f"{path}: {reason}") from error
            finally:
                storage.remove_session()
                storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)
