"""The report of a run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from molattn.evaluation.metrics import format_interval, format_score, main_metric
from molattn.evaluation.plots import TaskResults, learning_curve, task_plots
from molattn.evaluation.report.render import (
    figure_image,
    interval_promise,
    molecule_image,
    skipped_rows,
    write_page,
)
from molattn.evaluation.scoring import RunScores
from molattn.evaluation.tables import (
    MODELS,
    interval_table,
    model_label,
    score_tables,
    scored_rows,
    target_label,
)
from molattn.task import Task
from molattn.training.run import TrainingRun

__all__ = ["write_run_page"]

_MOST_TASKS = 12
_WORST = 8
_PARTS = {"training": "rows_train", "validation": "rows_validation", "test": "rows_test"}


def write_run_page(
    run: TrainingRun,
    scores: RunScores,
    results: Sequence[TaskResults],
    metrics: Mapping[str, Any],
    path: Path,
) -> None:
    """Write the report of a run.

    It contains the scores of all tasks, and plots and the 8 worst test predictions of the first 12.
    """
    table = run.table
    kept = _kept_epochs(run)
    learning, promise = Markup(), ""
    intervals = interval_table(table.tasks, metrics, run.config)
    if intervals.rows:
        promise = interval_promise(run.config.data)
    elif scores.test is None and any(task.kind == "regression" for task in table.tasks):
        promise = interval_promise(run.config.data, tested=False)
    if run.histories:
        curve = learning_curve(run.histories)
        curve.set_size_inches(5.2, 3.5)
        curve.axes[0].set_title("")
        learning = figure_image(curve, f"Training and validation loss by epoch. {kept}")
    write_page(
        path,
        "run.html",
        run.config,
        metrics=metrics,
        headlines=[*_headlines(table.tasks, metrics)],
        score_tables=score_tables(table.tasks, metrics),
        scored=scored_rows(metrics),
        has_intervals=scores.test is not None and bool(scores.test.mean["intervals"]),
        kept=kept,
        curve=learning,
        tasks=[_task_part(run, one) for one in results[:_MOST_TASKS]],
        task_count=len(table.tasks),
        parts=[(part, metrics[key]) for part, key in _PARTS.items()],
        split=_split_words(run),
        promise=promise,
        uncalibrated=_shortfalls(run)[:_MOST_TASKS],
        intervals=intervals,
        labels=[*_labels(run)],
        leakage=run.leakage.lines(),
        skipped=skipped_rows(table),
        forest_seconds=scores.seconds.get("random_forest"),
        unit=table.unit,
        versions=metrics["versions"],
        digest=metrics["data_sha256"],
    )


def _headlines(
    tasks: Sequence[Task], metrics: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield task, metric, value, and confidence interval and baselines, of the first tasks."""
    for task in tasks[:4]:
        key, metric = main_metric(task.kind)
        given = metrics[scored_rows(metrics)][task.name]
        interval = (given.get("intervals") or {}).get(key)
        others = [
            (model_label(name, task.kind), format_score(metrics[name][task.name].get(key)))
            for name in MODELS
            if name != "test" and name in metrics
        ]
        if interval:
            others.insert(0, ("95% CI", format_interval(*interval)))
        yield target_label(task), metric.heading, format_score(given.get(key)), others


def _task_part(run: TrainingRun, result: TaskResults) -> dict[str, Any]:
    label, figures = target_label(result.task), task_plots(result)
    return {
        "label": label,
        "is_regression": result.task.kind == "regression",
        "figures": [
            (name, figure_image(one, f"{name} of {label}")) for name, one in figures.items()
        ],
        "worst": [*_worst(run, result)],
    }


def _worst(run: TrainingRun, result: TaskResults) -> Iterator[dict[str, Any]]:
    """Yield the test molecules with the largest errors, or the least probable measured class."""
    task, prediction, target, *_ = result
    if task.kind == "regression":
        errors = prediction[:, 0] - target
    else:
        probabilities = (
            prediction if task.kind == "multiclass" else np.hstack([1 - prediction, prediction])
        )
        errors = 1.0 - probabilities[np.arange(len(target)), target.astype(int)]
    for index in np.argsort(-np.abs(errors), kind="stable")[:_WORST]:
        row = int(run.parts.test[result.rows[index]])
        outputs, truth = prediction[index].tolist(), float(target[index])
        if task.kind == "regression":
            measured, predicted = format_score(truth), format_score(outputs[0])
            off = float(errors[index])
            error = f"{'+' if off > 0 else ''}{format_score(off)}"
        else:
            measured, predicted = task.classes[int(truth)], str(task.cells(outputs)[0])
            error = f"{1.0 - errors[index]:.3f}"
        smiles, where = run.table.smiles[row], run.table.where(row)
        drawing = molecule_image(smiles, f"Structure of the molecule in {where}")
        partners = [] if run.table.partners is None else [run.table.partners[row]]
        yield {
            "drawing": drawing,
            "smiles": [smiles, *partners],
            "where": where,
            "measured": measured,
            "predicted": predicted,
            "error": error,
        }


def _kept_epochs(run: TrainingRun) -> str:
    if not run.histories:
        return "No network was trained: the predictions are those of a Gaussian process."
    epochs = [f"{history.best} of {len(history.epochs)}" for history in run.histories]
    is_last = run.config.training.checkpoint == "last"
    which = "last epoch" if is_last else "lowest validation loss"
    return f"Checkpoint: epoch {', '.join(epochs)} ({which})."


def _shortfalls(run: TrainingRun) -> list[str]:
    known = run.model.uncertainty
    return [] if known is None else known.calibration.shortfalls(run.config.report.interval)


def _split_words(run: TrainingRun) -> str:
    data = run.config.data
    if data.split_column is not None:
        return f"column {data.split_column!r}"
    if data.folds is not None:
        return f"fold {data.only_fold} of {data.folds}, {data.split or 'random'}"
    return str(data.split or "random")


def _labels(run: TrainingRun) -> Iterator[tuple[str, list[str]]]:
    """Yield each task with the number of labels in each split, and of each class."""
    for index, task in enumerate(run.table.tasks):
        counts = []
        for rows in run.parts:
            labels = run.table.targets[rows, index]
            labels = labels[~np.isnan(labels)]
            text = f"{len(labels):,}"
            if task.kind != "regression":
                shares = (
                    f"{name} {int((labels == number).sum()):,}"
                    for number, name in enumerate(task.classes[:4])
                )
                more = ", …" if len(task.classes) > 4 else ""
                text += f" ({', '.join(shares)}{more})"
            if run.table.bounds is not None:
                censored = int((~np.isnan(run.table.bounds[:, rows, index])).sum())
                text += f", {censored:,} censored" if censored else ""
            counts.append(text)
        yield target_label(task), counts
