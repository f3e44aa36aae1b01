"""A search for options: an Optuna study in a folder, which can be resumed."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import optuna
import pandas as pd
from matplotlib.figure import Figure
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization.matplotlib import plot_optimization_history
from rich.console import Console
from sqlalchemy import URL

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
from molattn.errors import InputError, MolattnError
from molattn.nn.registry import check_head_width, check_network
from molattn.training.fine_tuning import PretrainedWeights
from molattn.training.loop import check_processes
from molattn.training.resolve import load_pretrained, resolve
from molattn.training.run import TrainingJob, fit_networks, read_rows
from molattn.training.run_folder import CONFIG_FILE, Epoch
from molattn.tuning.search_space import (
    Space,
    check_space,
    default_space,
    read_space,
    with_options,
    write_space,
)
from molattn.utils.console import print_line
from molattn.utils.files import write_file

STUDY_FILE = "study.db"
BEST_FILE = "best.yaml"
SPACE_FILE = "space.yaml"
_TRIALS_FILE = "trials.csv"
_PLOT_FILE = "study.png"
_FILES = (STUDY_FILE, BEST_FILE, SPACE_FILE, CONFIG_FILE, _TRIALS_FILE, _PLOT_FILE)
_TRIALS = 50
_SHOWN = 5
_RANDOM_TRIALS = 10
_PRUNER_STARTUP_TRIALS = 5
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

    Each trial trains one network on the training rows; its loss is the validation loss of the
    weights that it keeps. After 10 random trials, options are suggested by the tree-structured
    Parzen estimator (Bergstra et al. 2011). The suggestions depend only on the seed and the trials
    before, so that a resumed study has the same ones.

    Without a ``space`` of options, it is that of the study in the folder, or the default. A study
    in the folder, which no other process may use, is resumed, or with ``overwrite`` replaced once
    the table and the options are valid.
    """
    start = time.perf_counter()
    is_new = overwrite or not (folder / CONFIG_FILE).exists()
    search = _search(config, space, folder, is_new)
    table, parts = search.rows(search.config.data, console)
    if is_new:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        write_space(folder / SPACE_FILE, search.space)
        write_config_file(folder / CONFIG_FILE, search.config)
    # The same for all trials, whatever their batch size, so that their losses can be compared.
    training = search.config.training
    epochs = resolve(search.config, table, parts, search.base).training.epochs
    search.config = replace(search.config, training=replace(training, epochs=epochs))
    job = TrainingJob(search.config, table, parts, search.base)
    with _opened(folder / STUDY_FILE) as study:
        wanted = _begin(study, job, folder, tuning)
        while (done := len(_finished_trials(study))) < wanted:
            if tuning.timeout is not None and time.perf_counter() - start >= tuning.timeout:
                print_line(console, f"Stopped after {tuning.timeout:g} s (--timeout)")
                break
            seed = int(np.random.SeedSequence([training.seed, done]).generate_state(1)[0])
            study.sampler = optuna.samplers.TPESampler(n_startup_trials=_RANDOM_TRIALS, seed=seed)
            search.run_trial(study)
            trials = _finished_trials(study)
            print_line(console, f"{done + 1}/{wanted}  {_summary(trials[-1])}")
            _write_trials(folder, trials)
        return _finish(study, search, folder, wanted)


def trials_table(result: StudyResult) -> str:
    """Return the best trials and their options as text."""
    frame = _frame(result.trials)
    best = frame[frame["state"] == "complete"].nsmallest(_SHOWN, "validation_loss")
    columns = best.drop(columns=["state", "epochs", "seconds", "error"]).astype(object)
    columns = columns.map(lambda value: f"{value:.4g}" if isinstance(value, float) else value)
    return columns.rename(columns=lambda name: name.replace("_", " ")).T.to_string(header=False)


@dataclass
class _Search:
    """What the trials of a search share; the rows of the table are read once for each split."""

    config: TrainConfig
    space: Space
    base: PretrainedWeights | None
    read: dict[DataConfig, tuple[TrainingTable, Split]] = field(default_factory=dict)

    def rows(self, data: DataConfig, console: Console | None = None) -> tuple[TrainingTable, Split]:
        """Return the rows with these options, and their split."""
        if data not in self.read:
            table = read_rows(_network_alone(replace(self.config, data=data)), console)
            self.read[data] = table, split_rows(table, data, self.config.training.seed)
        return self.read[data]

    def run_trial(self, study: optuna.Study) -> None:
        """Train a network with options that the study suggests, and tell it the loss."""
        trial = study.ask(dict(self.space))
        losses = list[float]()

        def report(epoch: Epoch) -> None:
            losses.append(cast(float, epoch.validation_loss))  # a search has validation rows
            trial.report(losses[-1], epoch.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        try:
            # Values that are valid one by one, but perhaps not together.
            config = _network_alone(with_options(self.config, trial.params))
            check_network(config.network)
            check_head_width(config.network)
            table, split = self.rows(config.data)
            job = TrainingJob(config, table, split, self.base)
            fit_networks(job, resolve(config, table, split, self.base), report)
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except MolattnError as error:
            trial.set_user_attr("error", str(error))
            study.tell(trial, state=TrialState.FAIL)
        else:
            keeps_last = config.training.checkpoint == "last"
            study.tell(trial, losses[-1] if keeps_last else min(losses))


def _search(config: TrainConfig, space: Space | None, folder: Path, is_new: bool) -> _Search:
    """Return a search with valid options."""
    if config.data.folds is not None:
        raise InputError("cannot be used with molattn tune, which uses one split", option="folds")
    if not config.trains_network:
        raise InputError("--predictor gaussian_process trains no network, and has nothing to tune")
    check_processes(config.training)
    if space is None and not is_new:
        space = read_space(folder / SPACE_FILE)
    # Once, as all trials start from the same weights.
    config, base = load_pretrained(config, space or ())
    if space is None:
        space = default_space(config)
    if not is_new:
        check_unchanged(folder / CONFIG_FILE, config)
    check_space(space, config)
    return _Search(config, space, base)


def _network_alone(config: TrainConfig) -> TrainConfig:
    """Return a run of one network, by the loss of which options are chosen."""
    return replace(
        config,
        report=replace(config.report, baselines=False),
        training=replace(config.training, ensemble=1),
        gaussian_process=GaussianProcessConfig(predictor="network"),
    )


def _begin(study: optuna.Study, job: TrainingJob, folder: Path, tuning: TuneConfig) -> int:
    """Check that a study is of these data, and return how many trials it is to have."""
    attributes = study.user_attrs
    for name, (what, digest) in job.sources.items():
        check_same_digest(f"{what} has", digest, attributes.get(name, digest), folder)
    wanted = tuning.trials or attributes.get("trials", _TRIALS)
    study.set_user_attr("trials", wanted)
    for name, (_, digest) in job.sources.items():
        study.set_user_attr(name, digest)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)  # interrupted with its process
    median = optuna.pruners.MedianPruner(
        _PRUNER_STARTUP_TRIALS, job.config.training.num_epochs // 5
    )
    study.pruner = median if tuning.prune else optuna.pruners.NopPruner()
    return wanted


def _finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have ended, except interrupted ones."""
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state in _ENDED or "error" in trial.user_attrs]


def _finish(study: optuna.Study, search: _Search, folder: Path, wanted: int) -> StudyResult:
    trials = _finished_trials(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        failure = "no trial started before the time limit (--timeout)"
        if trials:
            reason = trials[-1].user_attrs.get("error", "pruned")
            failure = f"none of {len(trials)} trials succeeded (reason of the last: {reason})"
        more = f" --trials N with N above {len(trials)}" if len(trials) >= wanted else ""
        raise InputError(f"{folder}: {failure}; --resume {folder}{more} continues the study")
    best = min(complete, key=_loss)
    config = with_options(search.config, {name: best.params[name] for name in search.space})
    write_config_file(folder / BEST_FILE, config)
    _write_trials(folder, trials)
    # Optuna changes the style of all later plots.
    with plt.rc_context(), warnings.catch_warnings(action="ignore"):
        axes = plot_optimization_history(study, target_name="validation loss")
        axes.set_yscale("log")
        figure = cast(Figure, axes.figure)
        figure.savefig(folder / _PLOT_FILE, dpi=150, bbox_inches="tight")
        plt.close(figure)
    return StudyResult(config, _loss(best), trials)


def _frame(trials: Sequence[FrozenTrial]) -> pd.DataFrame:
    """Return a row for each trial, with its options."""
    return pd.DataFrame(
        {
            "trial": number,
            "state": trial.state.name.lower(),
            "validation_loss": _loss(trial),
            "epochs": len(trial.intermediate_values),
            "seconds": round(trial.duration.total_seconds() if trial.duration else 0.0, 1),
            "error": trial.user_attrs.get("error", ""),
            **trial.params,
        }
        for number, trial in enumerate(trials, start=1)
    )


def _write_trials(folder: Path, trials: Sequence[FrozenTrial]) -> None:
    text = _frame(trials).to_csv(index=False, lineterminator="\n")
    write_file(folder / _TRIALS_FILE, text.encode())


def _loss(trial: FrozenTrial) -> float:
    """Return the loss of a trial, of one that did not finish the best so far."""
    value = trial.value
    return min(trial.intermediate_values.values(), default=np.nan) if value is None else value


def _summary(trial: FrozenTrial) -> str:
    options = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in trial.params.items()
    )
    if "error" in trial.user_attrs:
        return f"failed: {trial.user_attrs['error']}  ({options})"
    pruned = trial.state == TrialState.PRUNED
    ending = f", pruned after epoch {len(trial.intermediate_values)}" if pruned else ""
    return f"validation loss {_loss(trial):.4f}{ending}  ({options})"


@contextmanager
def _opened(path: Path) -> Iterator[optuna.Study]:
    """Open or create the study in a file."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = None
    try:
        try:
            storage = optuna.storages.RDBStorage(str(URL.create("sqlite", database=str(path))))
            study = optuna.create_study(storage=storage, study_name="molattn", load_if_exists=True)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{path}: not a readable study: {reason}") from error
        yield study
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        optuna.logging.set_verbosity(verbosity)
