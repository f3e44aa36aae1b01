"""Cross-validation: a run for each round, and the mean of their scores."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from molattn.chem.split import Split
from molattn.config import TrainConfig, check_same_digest
from molattn.config.yaml_file import check_unchanged, writing_config
from molattn.data.dataset import TrainingTable
from molattn.data.splitting import split_rows, undivided
from molattn.data.table import Table, escape_formula, free_name, open_table, write_table
from molattn.evaluation.report.model_card import save_with_card
from molattn.evaluation.report.plots import TaskResults, task_results
from molattn.evaluation.report.run_files import (
    write_fold_page,
    write_histories,
    write_run,
    write_skipped,
)
from molattn.evaluation.scores.metrics import TaskScores, score_tasks, scored_kind
from molattn.evaluation.scores.run_metrics import CrossValidationMetrics, FinalMetrics, FoldMetrics
from molattn.evaluation.scores.scoring import member_facts, score_run
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.uncertainty import Prediction
from molattn.training.loop import check_processes
from molattn.training.out_of_fold import (
    OUT_OF_FOLD_FILE,
    OutOfFold,
    calibrate_out_of_fold,
    out_of_fold_coverage,
)
from molattn.training.resolve import load_pretrained
from molattn.training.run import (
    TrainingJob,
    TrainingRun,
    fit_model,
    log_targets,
    read_rows,
    train_on_split,
    training_fingerprints,
)
from molattn.training.run_folder import CONFIG_FILE, PAGE_FILE, RESULT_FILE, run_folder
from molattn.utils.console import print_line, step_progress
from molattn.utils.devices import exclusive
from molattn.utils.files import UNFINISHED, locked, read_json
from molattn.utils.process_group import broadcast, process_rank


class Round(NamedTuple):
    """One round of a cross-validation: its folder, repetition and test fold (from 1), options."""

    name: str
    repeat: int
    fold: int
    config: TrainConfig


def rounds(config: TrainConfig) -> list[Round]:
    """Return the rounds of a cross-validation; each repetition increments the seed."""
    plan = []
    for repeat in range(1, config.data.repeats + 1):
        training = replace(config.training, seed=config.training.seed + repeat - 1)
        for fold in range(1, (config.data.folds or 0) + 1):
            name = f"fold_{fold}" if config.data.repeats == 1 else f"repeat_{repeat}_fold_{fold}"
            data = replace(config.data, only_fold=fold, repeats=1, final=True)
            plan.append(Round(name, repeat, fold, replace(config, data=data, training=training)))
    return plan


@exclusive()
def cross_validate(
    config: TrainConfig,
    folder: Path,
    console: Console | None = None,
    *,
    make_model: Callable[[MolAttnConfig], MolAttn] = MolAttn,
) -> CrossValidationMetrics | None:
    """Train and score a model for each round; finished rounds in the folder are kept.

    Writes ``config.yaml``, the run folder of each round, ``metrics.json`` with the scores of all
    rounds, their means and standard deviations, ``report.html`` with the same, ``predictions.csv``
    with the test rows of every round, and ``skipped.csv``.

    Without validation rows, the model of a round is calibrated by the predictions of the other
    rounds of its repetition for their test rows, see
    :func:`molattn.training.out_of_fold.calibrate_out_of_fold`. With ``final``, a model of all rows
    follows, in ``model/``: the scores are those of the folds, as no row is left to test it.

    Returns:
        The scores, as in ``metrics.json``; None in other processes than the first.

    Raises:
        InputError: The table is invalid, or it or an option changed since a round was finished.
        MolattnError: If training diverges.
    """
    check_processes(config.training)
    config, base = load_pretrained(config)
    rank = process_rank()
    with nullcontext() if rank else writing_config(folder / CONFIG_FILE, config):
        table = read_rows(config, console)
        split_rows(table, config.data, config.training.seed)  # refuses more folds than rows
        todo = rounds(config)
        # All splits first, so that an invalid one is found before the first round is trained.
        splits = [
            split_rows(table, planned.config.data, planned.config.training.seed) for planned in todo
        ]
        finished = {
            planned.name for planned in todo if (folder / planned.name / RESULT_FILE).exists()
        }
        job = TrainingJob(config, table, undivided(table), base, console, folder, make_model)
        logs = [
            log_targets(replace(job, config=planned.config, split=split))
            for planned, split in zip(todo, splits, strict=True)
        ]
        work = _CrossValidation(job, folder, broadcast(finished), set().union(*logs))
        if rank:  # of several processes, the first one does the rest
            work.join(todo, splits)
            return None
        done, predicted = work.run(todo, splits)
        summary = _summary(done)
        if config.data.trains_final:
            print_line(console, "final model of all rows")
            summary = replace(summary, final=work.train_final(predicted, summary))
    predictions = [open_table(folder / planned.name / "predictions.csv") for planned in todo]
    _write_predictions(todo, predictions, len(table.header), folder / "predictions.csv")
    write_skipped(table, folder)
    results = _out_of_fold_results(todo, splits, table, summary, predictions)
    write_fold_page(config, table, summary, results, folder / PAGE_FILE)
    summary.write(folder)
    return summary


@dataclass(frozen=True)
class _CrossValidation:
    """What the rounds of a cross-validation share: the training on all rows, which others vary.

    The targets ``logarithms`` are scored on log10 in all rounds, as some learn their logarithm.
    """

    job: TrainingJob
    folder: Path
    finished: set[str]
    logarithms: set[str]

    def join(self, todo: Sequence[Round], splits: Sequence[Split]) -> None:
        """Train the models together with the first process."""
        for planned, split in zip(todo, splits, strict=True):
            if planned.name not in self.finished:
                train_on_split(replace(self.job, config=planned.config, split=split, folder=None))
        if self.job.config.data.trains_final:
            fit_model(replace(self.job, folder=None))

    def run(
        self, todo: Sequence[Round], splits: Sequence[Split]
    ) -> tuple[list[FoldMetrics], list[OutOfFold]]:
        """Return the metrics of the rounds, and predictions of those of the first repetition."""
        done = list[FoldMetrics]()
        predicted = list[OutOfFold]()
        for start in range(0, len(todo), self.group_size):
            group = [*zip(todo, splits, strict=True)][start : start + self.group_size]
            trained = []
            for number, (planned, split) in enumerate(group, start=start + 1):
                print_line(self.job.console, f"{planned.name} ({number} of {len(todo)})")
                trained.append(self.train(planned, split))
            for (planned, _), (run, out_of_fold) in zip(group, trained, strict=True):
                others = [
                    other for _, other in trained if other is not None and other is not out_of_fold
                ]
                done.append(self.finish(planned, run, out_of_fold, others))
            predicted += [
                out_of_fold
                for _, out_of_fold in trained
                if out_of_fold is not None and todo[start].repeat == 1
            ]
        return done, predicted

    @property
    def group_size(self) -> int:
        """How many rounds calibrate each other: without validation rows those of a repetition."""
        return 1 if self.job.config.data.validation_size > 0.0 else self.job.config.data.folds or 1

    def train(self, planned: Round, split: Split) -> tuple[TrainingRun | None, OutOfFold | None]:
        """Train the model of a round and predict its test rows, unless the round is finished."""
        path = self.folder / planned.name
        predict = self.group_size > 1 or (self.job.config.data.trains_final and planned.repeat == 1)
        if planned.name in self.finished:
            self.metrics(planned)
            return None, OutOfFold.read(path / OUT_OF_FOLD_FILE) if predict else None
        unfinished = path.with_name(path.name + UNFINISHED)
        unfinished.mkdir(exist_ok=True)
        with locked(unfinished), writing_config(unfinished / CONFIG_FILE, planned.config):
            run = train_on_split(
                replace(self.job, config=planned.config, split=split, folder=unfinished)
            )
        if not predict:
            return run, None
        fingerprints = training_fingerprints(planned.config, run.table, split)
        return run, OutOfFold.of_model(run.model, run.table, split.test, fingerprints)

    def finish(
        self,
        planned: Round,
        run: TrainingRun | None,
        out_of_fold: OutOfFold | None,
        others: Sequence[OutOfFold],
    ) -> FoldMetrics:
        """Score a round and write its folder, unless it is finished; return its metrics."""
        console = self.job.console
        if run is not None:
            if not len(run.split.val):
                fingerprints = training_fingerprints(planned.config, run.table, run.split)
                print_line(console, f"{planned.name}: calibration by the other folds")
                calibrate_out_of_fold(
                    run.model, planned.config, run.table, others, fingerprints, console
                )
            with run_folder(self.folder / planned.name, resume=True) as unfinished:
                if out_of_fold is not None:
                    out_of_fold.write(unfinished / OUT_OF_FOLD_FILE)
                with step_progress(console, "scoring, writing the results"):
                    scores = score_run(run, console, logarithms=self.logarithms)
                    write_run(run, scores, unfinished)
        return self.metrics(planned)

    def metrics(self, planned: Round) -> FoldMetrics:
        """Return the metrics of a finished round, whose options and data must be the same."""
        path = self.folder / planned.name
        content = read_json(path / RESULT_FILE)
        check_unchanged(path / CONFIG_FILE, planned.config)
        for name, (what, digest) in self.job.sources.items():
            check_same_digest(f"{what} has", digest, content[f"{name}_sha256"], path)
        folder = {"folder": planned.name, "repeat": planned.repeat, "fold": planned.fold}
        return FoldMetrics.from_dict({**content, **folder})

    def train_final(
        self, folds: Sequence[OutOfFold], summary: CrossValidationMetrics
    ) -> FinalMetrics:
        """Train a model on all rows, calibrate it by the models of the folds, and write it."""
        start = time.perf_counter()
        config = self.job.config
        table = self.job.table
        split = self.job.split
        model, histories, *_ = fit_model(self.job)
        fingerprints = training_fingerprints(config, table, split)
        calibrate_out_of_fold(model, config, table, folds, fingerprints, self.job.console)
        seconds = max(time.perf_counter() - start, sum(history.seconds for history in histories))
        level = config.report.interval
        is_rolling = config.data.split == "time"
        coverage = {}
        if table.tasks:
            coverage = out_of_fold_coverage(model, table, folds, level, is_rolling)
        save_with_card(model, config, summary, self.folder)
        write_histories(histories, self.folder)
        return FinalMetrics(
            rows_train=len(split.train),
            members=member_facts(histories, config.training.seed),
            interval_level=level,
            uncertainty=coverage,
            seconds=round(seconds, 3),
        )


def _summary(folds: Sequence[FoldMetrics]) -> CrossValidationMetrics:
    """Return the mean scores of folds that have scores of the same models."""
    scores = {}
    for name in folds[0].scores:
        model_scores = [fold.scores[name] for fold in folds]
        tasks = {
            task: _means([fold_scores.tasks[task] for fold_scores in model_scores])
            for task in model_scores[0].tasks
        }
        scores[name] = TaskScores(tasks, _means([fold_scores.mean for fold_scores in model_scores]))
    intervals = folds[0].uncertainty
    censored: dict[str, Counter[str]] = {}
    for fold in folds:
        for task, counts in fold.censored.items() if fold.repeat == 1 else ():
            censored.setdefault(task, Counter()).update(counts)
    return CrossValidationMetrics(
        scores=scores,
        uncertainty={
            task: _means([fold.uncertainty[task] for fold in folds]) for task in intervals
        },
        censored=censored,
        folds=folds,
        seconds=round(sum(fold.seconds for fold in folds), 3),
    )


def _means(scores: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | int | None]]:
    """Return mean and standard deviation of each score over the rounds where it is defined."""
    means = {}
    for name in dict.fromkeys(name for of_round in scores for name in of_round):
        if values := [
            of_round[name] for of_round in scores if isinstance(of_round.get(name), float)
        ]:
            sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
            means[name] = {"mean": float(np.mean(values)), "sd": sd, "rounds": len(values)}
    return means


def _out_of_fold_results(
    todo: Sequence[Round],
    splits: Sequence[Split],
    table: TrainingTable,
    summary: CrossValidationMetrics,
    predictions: Sequence[Table],
) -> list[TaskResults]:
    """Return the predictions of all rows, each by the round of the first repeat that tested it."""
    tasks = table.tasks
    rows = len(table.rows)
    predicted = np.full((rows, sum(task.num_outputs for task in tasks)), np.nan)
    similarity = np.full((rows, len(tasks)), np.nan)
    labels = np.full((rows, len(tasks)), np.nan)
    names = [name for task in tasks for name in task.output_names]
    names += [*(f"{task.name}_training_similarity" for task in tasks), "training_similarity"]
    columns = [escape_formula(free_name(name, table.header)) for name in names]
    for planned, split, written in zip(todo, splits, predictions, strict=True):
        if planned.repeat == 1:
            cells = [dict(zip(written.header, row.cells, strict=True)) for row in written]
            texts = [[row.get(name) or "nan" for name in columns] for row in cells]
            values = np.array(texts, dtype=float).reshape(-1, len(columns))
            predicted[split.test], of_tasks = np.split(values[:, :-1], [predicted.shape[1]], axis=1)
            similarity[split.test] = np.where(np.isnan(of_tasks), values[:, -1:], of_tasks)
            labels[split.test] = table.targets[split.test]
    labels[~np.isfinite(predicted).all(axis=1)] = np.nan
    means = summary.scores["test"].tasks
    logs = [task.name for task in tasks if scored_kind(task, means[task.name]) == "log10"]
    scores = score_tasks(predicted, labels, tasks, logarithms=logs).tasks
    levels = dict[str, Any]()
    for task in tasks:
        facts = [fold.uncertainty.get(task.name, {}) for fold in summary.folds]
        mean = pd.DataFrame([fact.get("coverage_at", {}) for fact in facts]).mean()
        levels[task.name] = {"coverage_at": {str(level): float(x) for level, x in mean.items()}}
    unknown = np.full_like(labels, np.nan)
    prediction = Prediction(
        prediction=predicted,
        low=unknown,
        high=unknown,
        std=unknown,
        similarity=np.full(rows, np.nan),
        task_similarity=similarity,
        confidence=unknown.astype(str),
        expected_error=unknown,
        closeness=similarity,
    )
    return task_results(prediction, labels, tasks, scores, levels)


def _write_predictions(
    todo: Sequence[Round], predictions: Sequence[Table], width: int, path: Path
) -> None:
    """Join the predictions of all rounds, for a table of ``width`` columns, which may be alike."""
    # A model whose training labels were complete lacks the similarities of each task.
    header = max((table.header for table in predictions), key=len)
    with write_table(path, [*header, free_name("round", header)]) as write:
        for planned, table in zip(todo, predictions, strict=True):
            for row in table:
                added = dict(zip(table.header, row.cells, strict=True))
                more = [added.get(name, "") for name in header[width:]]
                write([*row.cells[:width], *more, planned.name])
