"""Cross-validation: a run for each round, and the mean of their scores."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig, check_same_digest
from molattn.config.yaml_file import check_unchanged, writing_config
from molattn.data.dataset import TrainingTable
from molattn.data.splitting import split_rows
from molattn.data.table import free_name, open_table, write_table
from molattn.evaluation.final_model import train_final
from molattn.evaluation.report import write_fold_page
from molattn.evaluation.run_files import write_run, write_skipped
from molattn.evaluation.score_tables import MODELS
from molattn.evaluation.scoring import score_run
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.fine_tuning import PretrainedWeights, load_pretrained
from molattn.training.lightning.loop import check_processes
from molattn.training.out_of_fold import OUT_OF_FOLD_FILE, OutOfFold, calibrate_out_of_fold
from molattn.training.run import TrainingRun, read_rows, train_split, training_molecules
from molattn.training.run_folder import (
    CONFIG_FILE,
    PAGE_FILE,
    RESULT_FILE,
    locked_folder,
    run_folder,
)
from molattn.utils.console import print_line
from molattn.utils.files import UNFINISHED, read_json, write_json
from molattn.utils.progress import step_progress
from molattn.utils.reproducibility import exclusive

__all__ = ["Round", "cross_validate", "rounds"]


class Round(NamedTuple):
    """One round of a cross-validation: its folder, repetition and test fold (from 1), options."""

    name: str
    repeat: int
    fold: int
    config: TrainConfig


def rounds(config: TrainConfig) -> list[Round]:
    """Return the rounds of a cross-validation; each repetition increments the seed."""
    found = []
    for repeat in range(1, config.data.repeats + 1):
        seed = config.training.seed + repeat - 1
        for fold in range(1, (config.data.folds or 0) + 1):
            name = f"fold_{fold}" if config.data.repeats == 1 else f"repeat_{repeat}_fold_{fold}"
            one = replace(
                config,
                data=replace(config.data, only_fold=fold, repeats=1, final=False),
                training=replace(config.training, seed=seed),
            )
            found.append(Round(name, repeat, fold, one))
    return found


@exclusive()
def cross_validate(
    config: TrainConfig,
    folder: Path,
    console: Console | None = None,
    *,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
) -> dict[str, Any]:
    """Train and score a model for each round; finished rounds in the folder are kept.

    Writes ``config.yaml``, the run folder of each round, ``metrics.json`` with the scores of all
    rounds, their means and standard deviations, ``report.html`` with the same, ``predictions.csv``
    with the test rows of every round, and ``skipped.csv``.

    Without validation rows, the model of a round is calibrated by the predictions of the other
    rounds of its repetition for their test rows, see
    :func:`molattn.training.out_of_fold.calibrate_out_of_fold`. With ``final``, a model of all rows
    follows, see :func:`molattn.evaluation.final_model.train_final`.

    Args:
        config: Options with ``folds``.
        folder: The folder to write.
        console: Reports progress; None = silent.
        make_model: Makes a new model of a config, for each member of each round; see
            :func:`molattn.train`.

    Returns:
        The content of ``metrics.json``.

    Raises:
        InputError: If the table is invalid, or it or an option has changed since a round was
            finished.
        MolattnError: If training diverges.
    """
    check_processes(config.training)
    config, pretrained = load_pretrained(config)
    with writing_config(folder / CONFIG_FILE, config):
        rows = read_rows(config, console)
        split_rows(rows, config.data, config.training.seed)  # refuses more folds than rows
        todo = rounds(config)
        # All splits first, so that an invalid one is found before the first round is trained.
        parts = [split_rows(rows, one.config.data, one.config.training.seed) for one in todo]
        done: list[dict[str, Any]] = []
        predicted: list[OutOfFold] = []
        for group in _groups(todo, config):
            trained = []
            is_first = todo[group[0]].repeat == 1
            predict = config.data.validation_size == 0.0 or (config.data.final and is_first)
            for place in group:
                one = todo[place]
                print_line(console, f"{one.name} ({place + 1} of {len(todo)})")
                path = folder / one.name
                given = one.config, rows, parts[place], pretrained
                trained.append(_train(path, *given, console, make_model, predict=predict))
            for place, one in zip(group, trained, strict=True):
                others = [
                    other.predicted for other in trained if other.predicted and other is not one
                ]
                path = folder / todo[place].name
                done.append(
                    _finish(one, path, todo[place].config, rows, pretrained, others, console)
                )
            if is_first:
                predicted += [one.predicted for one in trained if one.predicted is not None]
        summary = _summary(todo, done)
        if config.data.final:
            print_line(console, "final model of all rows")
            given = config, rows, pretrained, predicted, summary
            summary["final"] = train_final(*given, folder, console, make_model=make_model)
    _write_predictions(todo, folder)
    write_skipped(rows, folder)
    write_fold_page(config, rows, summary, folder / PAGE_FILE)
    write_json(folder / RESULT_FILE, summary)
    return summary


def _groups(todo: Sequence[Round], config: TrainConfig) -> list[list[int]]:
    """Return the places of rounds that are calibrated together: one, or all of a repetition."""
    if config.data.validation_size > 0.0:
        return [[place] for place in range(len(todo))]
    repeats = range(1, config.data.repeats + 1)
    return [[at for at, one in enumerate(todo) if one.repeat == repeat] for repeat in repeats]


class _Trained(NamedTuple):
    """A round whose model is trained.

    Args:
        run: The run; None if the round is finished.
        predicted: Predictions of its test rows, if another model is calibrated by them.
    """

    run: TrainingRun | None
    predicted: OutOfFold | None


def _train(
    path: Path,
    config: TrainConfig,
    rows: TrainingTable,
    parts: Split,
    pretrained: PretrainedWeights | None,
    console: Console | None,
    make_model: Callable[[MolAttnConfig], MolAttn],
    *,
    predict: bool,
) -> _Trained:
    """Train the model of a round and predict its test rows, unless the round is finished."""
    if (path / RESULT_FILE).exists():
        _scores(path, config, rows, pretrained)
        return _Trained(None, OutOfFold.read(path / OUT_OF_FOLD_FILE) if predict else None)
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.mkdir(exist_ok=True)
    with locked_folder(unfinished), writing_config(unfinished / CONFIG_FILE, config):
        given = config, rows, parts, pretrained, console, unfinished
        run = train_split(*given, make_model=make_model)
    if not predict:
        return _Trained(run, None)
    known = training_molecules(config, rows, parts)
    return _Trained(run, OutOfFold.of_model(run.model, rows, parts.test, known))


def _finish(
    trained: _Trained,
    path: Path,
    config: TrainConfig,
    rows: TrainingTable,
    pretrained: PretrainedWeights | None,
    others: Sequence[OutOfFold],
    console: Console | None,
) -> dict[str, Any]:
    """Score a round and write its folder, unless it is finished; return its metrics."""
    run = trained.run
    if run is not None:
        if not len(run.parts.val):
            known = training_molecules(config, rows, run.parts)
            print_line(console, f"{path.name}: calibration by the other folds")
            calibrate_out_of_fold(run.model, config, rows, others, known, console)
        with run_folder(path, resume=True) as unfinished:
            if trained.predicted is not None:
                trained.predicted.write(unfinished / OUT_OF_FOLD_FILE)
            with step_progress(console, "scoring, writing the results"):
                write_run(run, score_run(run, console), unfinished)
    return _scores(path, config, rows, pretrained)


def _scores(
    path: Path, config: TrainConfig, rows: TrainingTable, pretrained: PretrainedWeights | None
) -> dict[str, Any]:
    metrics = read_json(path / RESULT_FILE)
    check_unchanged(path / CONFIG_FILE, config)
    check_same_digest(f"{rows.path}: the file has", rows.digest, metrics["data_sha256"], path)
    model = f"--init-from: the model {config.fine_tuning.init_from} has"
    check_same_digest(model, pretrained and pretrained.digest, metrics["init_from_sha256"], path)
    return metrics


def _summary(todo: Sequence[Round], done: Sequence[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for key in (*MODELS, "validation", "uncertainty"):
        if key in done[0]:
            summary[key] = {
                task: _means([metrics[key][task] for metrics in done]) for task in done[0][key]
            }
        if f"{key}_mean" in done[0]:
            summary[f"{key}_mean"] = _means([metrics[f"{key}_mean"] for metrics in done])
    censored: dict[str, Counter[str]] = {}
    of_repeat = [one for one, made in zip(done, todo, strict=True) if made.repeat == 1]
    for metrics in of_repeat:
        for task, counts in metrics["censored"].items():
            censored.setdefault(task, Counter()).update(counts)
    return {
        **summary,
        "censored": censored,
        "folds": [
            {"folder": one.name, "repeat": one.repeat, "fold": one.fold, **metrics}
            for one, metrics in zip(todo, done, strict=True)
        ],
        "seconds": round(sum(metrics["seconds"] for metrics in done), 3),
    }


def _means(scores: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | int | None]]:
    """Return mean and standard deviation of each score over the rounds where it is defined.

    A score that is defined in one round only has no standard deviation.
    """
    means = {}
    for name in dict.fromkeys(name for given in scores for name in given):
        if values := [given[name] for given in scores if isinstance(given.get(name), float)]:
            sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
            means[name] = {"mean": float(np.mean(values)), "sd": sd, "rounds": len(values)}
    return means


def _write_predictions(todo: Sequence[Round], folder: Path) -> None:
    tables = [open_table(folder / one.name / "predictions.csv") for one in todo]
    # A model whose training labels were complete lacks the similarities of each task.
    header = max((table.header for table in tables), key=len)
    with write_table(folder / "predictions.csv", [*header, free_name("round", header)]) as write:
        for one, table in zip(todo, tables, strict=True):
            left = iter(enumerate(header))
            places = [next(i for i, other in left if other == name) for name in table.header]
            for row in table:
                cells = [""] * len(header)
                for place, cell in zip(places, row.cells, strict=True):
                    cells[place] = cell
                write([*cells, one.name])
