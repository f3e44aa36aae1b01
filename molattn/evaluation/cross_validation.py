"""Cross-validation: a run for each round, and the mean of their scores."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig, check_same_digest
from molattn.config.yaml_file import check_unchanged, writing_config
from molattn.data.dataset import TrainingTable
from molattn.data.splitting import split_rows, undivided
from molattn.data.table import free_name, open_table, write_table
from molattn.evaluation.metrics import fold_note, format_mean, metrics_of
from molattn.evaluation.report import write_fold_page
from molattn.evaluation.run_files import (
    member_facts,
    write_histories,
    write_run,
    write_skipped,
)
from molattn.evaluation.scoring import score_run
from molattn.evaluation.tables import MODELS
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.training.fine_tuning import PretrainedWeights, load_pretrained
from molattn.training.loop import check_processes
from molattn.training.out_of_fold import (
    OUT_OF_FOLD_FILE,
    OutOfFold,
    calibrate_out_of_fold,
    out_of_fold_coverage,
)
from molattn.training.run import (
    TrainingJob,
    TrainingRun,
    read_rows,
    train_model,
    train_split,
    training_molecules,
)
from molattn.training.run_folder import (
    CONFIG_FILE,
    PAGE_FILE,
    RESULT_FILE,
    run_folder,
)
from molattn.utils.console import print_line
from molattn.utils.files import UNFINISHED, locked, read_json, write_json
from molattn.utils.process_group import broadcast, process_rank
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
    follows, in ``model/``: the scores are those of the folds, as no row is left to test it.

    Args:
        config: Options with ``folds``.
        folder: The folder to write.
        console: Reports progress; None = silent.
        make_model: Makes a new model of a config, for each member of each round; see
            :func:`molattn.train`.

    Returns:
        The content of ``metrics.json``; nothing in another of several processes than the first.

    Raises:
        InputError: If the table is invalid, or it or an option has changed since a round was
            finished.
        MolattnError: If training diverges.
    """
    check_processes(config.training)
    config, pretrained = load_pretrained(config)
    rank = process_rank()
    with nullcontext() if rank else writing_config(folder / CONFIG_FILE, config):
        table = read_rows(config, console)
        split_rows(table, config.data, config.training.seed)  # refuses more folds than rows
        todo = rounds(config)
        # All splits first, so that an invalid one is found before the first round is trained.
        splits = [split_rows(table, one.config.data, one.config.training.seed) for one in todo]
        finished = broadcast(
            {one.name for one in todo if (folder / one.name / RESULT_FILE).exists()}
        )
        work = _Work(config, table, pretrained, folder, console, make_model, finished)
        if rank:  # of several processes, the first one does the rest
            for one, parts in zip(todo, splits, strict=True):
                if one.name not in finished:
                    train_split(work.job(one.config, parts))
            if config.data.final:
                train_model(work.job(config, undivided(table)))
            return {}
        done: list[dict[str, Any]] = []
        predicted: list[OutOfFold] = []
        for group in _groups(todo, config):
            is_first = todo[group[0]].repeat == 1
            predict = config.data.validation_size == 0.0 or (config.data.final and is_first)
            trained = []
            for index in group:
                print_line(console, f"{todo[index].name} ({index + 1} of {len(todo)})")
                trained.append(work.train(todo[index], splits[index], predict=predict))
            for index, (run, own) in zip(group, trained, strict=True):
                others = [other for _, other in trained if other is not None and other is not own]
                done.append(work.finish(todo[index], run, own, others))
            if is_first:
                predicted += [own for _, own in trained if own is not None]
        summary = _summary(todo, done)
        if config.data.final:
            print_line(console, "final model of all rows")
            summary["final"] = work.train_final(predicted, summary)
    _write_predictions(todo, folder)
    write_skipped(table, folder)
    write_fold_page(config, table, summary, folder / PAGE_FILE)
    write_json(folder / RESULT_FILE, summary)
    return summary


def _groups(todo: Sequence[Round], config: TrainConfig) -> list[list[int]]:
    """Return the indices of rounds that are calibrated together: one, or all of a repetition."""
    if config.data.validation_size > 0.0:
        return [[index] for index in range(len(todo))]
    repeats = range(1, config.data.repeats + 1)
    return [[at for at, one in enumerate(todo) if one.repeat == repeat] for repeat in repeats]


@dataclass(frozen=True)
class _Work:
    """What the rounds of a cross-validation share."""

    config: TrainConfig
    table: TrainingTable
    pretrained: PretrainedWeights | None
    folder: Path
    console: Console | None
    make_model: Callable[[MolAttnConfig], MolAttn]
    finished: set[str]

    def job(self, config: TrainConfig, parts: Split, folder: Path | None = None) -> TrainingJob:
        """Return the training of a model."""
        given = config, self.table, parts, self.pretrained, self.console, folder
        return TrainingJob(*given, self.make_model)

    def train(
        self, one: Round, parts: Split, *, predict: bool
    ) -> tuple[TrainingRun | None, OutOfFold | None]:
        """Train the model of a round and predict its test rows, unless the round is finished."""
        path = self.folder / one.name
        if one.name in self.finished:
            self.metrics(one)
            return None, OutOfFold.read(path / OUT_OF_FOLD_FILE) if predict else None
        unfinished = path.with_name(path.name + UNFINISHED)
        unfinished.mkdir(exist_ok=True)
        with locked(unfinished), writing_config(unfinished / CONFIG_FILE, one.config):
            run = train_split(self.job(one.config, parts, unfinished))
        if not predict:
            return run, None
        known = training_molecules(one.config, self.table, parts)
        return run, OutOfFold.of_model(run.model, self.table, parts.test, known)

    def finish(
        self,
        one: Round,
        run: TrainingRun | None,
        own: OutOfFold | None,
        others: Sequence[OutOfFold],
    ) -> dict[str, Any]:
        """Score a round and write its folder, unless it is finished; return its metrics."""
        if run is not None:
            if not len(run.parts.val):
                known = training_molecules(one.config, self.table, run.parts)
                print_line(self.console, f"{one.name}: calibration by the other folds")
                given = run.model, one.config, self.table, others, known, self.console
                calibrate_out_of_fold(*given)
            with run_folder(self.folder / one.name, resume=True) as unfinished:
                if own is not None:
                    own.write(unfinished / OUT_OF_FOLD_FILE)
                with step_progress(self.console, "scoring, writing the results"):
                    write_run(run, score_run(run, self.console), unfinished)
        return self.metrics(one)

    def metrics(self, one: Round) -> dict[str, Any]:
        """Return the metrics of a finished round, whose options and data must be the same."""
        path = self.folder / one.name
        metrics = read_json(path / RESULT_FILE)
        check_unchanged(path / CONFIG_FILE, one.config)
        data = f"{self.table.path}: the file has"
        check_same_digest(data, self.table.digest, metrics["data_sha256"], path)
        model = f"--init-from: the model {one.config.fine_tuning.init_from} has"
        digest = self.pretrained and self.pretrained.digest
        check_same_digest(model, digest, metrics["init_from_sha256"], path)
        return metrics

    def train_final(self, folds: Sequence[OutOfFold], summary: Mapping[str, Any]) -> dict[str, Any]:
        """Train a model on all rows, calibrate it by the models of the folds, and write it.

        The model has no score of its own, as no row is left to test it; its model card has those of
        the cross-validation.
        """
        start = time.perf_counter()
        config, table, parts = self.config, self.table, undivided(self.table)
        model, histories, _ = train_model(self.job(config, parts, self.folder))
        known = training_molecules(config, table, parts)
        calibrate_out_of_fold(model, config, table, folds, known, self.console)
        seconds = max(time.perf_counter() - start, sum(history.seconds for history in histories))
        card = {"scores": _card_scores(table, summary)}
        model.save_pretrained(self.folder / "model", model_card_kwargs=card)
        write_histories(histories, self.folder)
        return {
            "rows_train": len(parts.train),
            "members": member_facts(histories, config.training.seed),
            "interval_level": config.report.interval,
            "uncertainty": out_of_fold_coverage(model, table, folds, config.report.interval),
            "seconds": round(seconds, 3),
        }


def _card_scores(table: TrainingTable, summary: Mapping[str, Any]) -> dict[str, str]:
    folds = len(summary["folds"])
    card = {}
    for task in table.tasks:
        found = summary["test"][task.name]
        values = [
            f"{metric.heading} {format_mean(found[name])}"
            + (f" ({note})" if (note := fold_note(found[name], folds)) else "")
            for name, metric in metrics_of(task.kind, with_heading=True).items()
            if name in found
        ]
        card[task.name] = (
            f"{', '.join(values)}: mean and standard deviation over {folds} folds of "
            "a cross-validation; this model, of all rows, was not tested itself"
        )
    return card


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
            known = iter(enumerate(header))
            columns = [next(i for i, name in known if name == own) for own in table.header]
            for row in table:
                cells = [""] * len(header)
                for column, cell in zip(columns, row.cells, strict=True):
                    cells[column] = cell
                write([*cells, one.name])
