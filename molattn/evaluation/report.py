"""The HTML reports of a run and of a cross-validation; each is one file without dependencies."""

import io
import platform
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from molattn.chem.draw import draw_molecule
from molattn.config import DataConfig, TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.data.leakage import leakage_warnings
from molattn.errors import MolattnError, reason_meaning
from molattn.evaluation.metrics import main_metric
from molattn.evaluation.plots import TaskResults, learning_curve, task_plots
from molattn.evaluation.tables import (
    format_score,
    interval_table,
    is_exchangeable,
    score_tables,
    scored_rows,
    target_label,
    tasks_of,
)
from molattn.training.run import TrainingRun
from molattn.utils.files import write_file
from molattn.utils.html import page_environment

__all__ = ["interval_promise", "molecule_image", "write_fold_page", "write_run_page"]

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_TASKS = 12
_MOST_SMILES = 300  # characters; the drawing of a larger molecule is not readable
_WORST = 8
_ROUND = ("folder", "rows_train", "rows_validation", "rows_test", "seconds")
_SPLITS = {"training": "rows_train", "validation": "rows_validation", "test": "rows_test"}
_UNDRAWN = Markup('<p class="undrawn">{}</p>')
_IMAGE = Markup('<img class="{}" alt="{}" src="data:image/svg+xml;base64,{}">')


def write_run_page(
    run: TrainingRun, metrics: Mapping[str, Any], results: Sequence[TaskResults], path: Path
) -> None:
    """Write the report of a run, given the content of ``metrics.json``.

    It contains the scores of all tasks, and plots and the 8 worst test predictions of the first 12.
    """
    tasks, data, level = run.table.tasks, run.config.data, run.config.report.interval
    kept, learning, promise = _kept_epochs(run), Markup(), ""
    has_test, known = "test" in metrics, run.model.uncertainty
    intervals = interval_table(tasks, metrics, run.config)
    if not intervals.frame.empty or (
        not has_test and any(task.kind == "regression" for task in tasks)
    ):
        promise = interval_promise(data, tested=has_test)
    if run.histories:
        curve = learning_curve(run.histories)
        curve.set_size_inches(5.2, 3.5)
        curve.axes[0].set_title("")
        learning = _figure_image(curve, f"Training and validation loss by epoch. {kept}")
    _write_page(
        path,
        "run.html",
        run.config,
        run.table,
        metrics,
        score_tables=score_tables(tasks, metrics),
        scored=scored_rows(metrics),
        has_intervals=has_test and bool(metrics["test_mean"]["intervals"]),
        kept=kept,
        curve=learning,
        tasks=[_task_section(run, result) for result in results[:_MOST_TASKS]],
        task_count=len(tasks),
        parts=[(name, metrics[key]) for name, key in _SPLITS.items()],
        split=_split_text(data),
        promise=promise,
        uncalibrated=known.calibration.shortfalls(level)[:_MOST_TASKS] if known else [],
        intervals=intervals,
        labels=[*_labels(run)],
        leakage=run.leakage.lines(),
        forest_seconds=metrics.get("random_forest_seconds"),
    )


def write_fold_page(
    config: TrainConfig, table: TrainingTable, summary: Mapping[str, Any], path: Path
) -> None:
    """Write the report of a cross-validation, beside its rounds, to whose reports it links."""
    folds, tasks = summary["folds"], tasks_of(summary)
    shown = [(task, *main_metric(task.kind)) for task in tasks[:_MOST_TASKS]]
    final = summary.get("final", {})
    _write_page(
        path,
        "folds.html",
        config,
        table,
        folds[0],
        score_tables=score_tables(tasks, summary),
        headings=[f"{target_label(task)}, {metric.heading}" for task, _, metric in shown],
        promise=interval_promise(config.data),
        intervals=interval_table(tasks, summary, config),
        level=f"{config.report.interval:g}",
        exchangeable=is_exchangeable(config.data),
        repeats=config.data.repeats,
        censored=summary["censored"],
        leakage=leakage_warnings([fold["leakage"] for fold in folds]),
        final=final,
        final_coverage=[
            (target_label(task), format_score(scores["coverage"]), scores["count"])
            for task in tasks
            if (scores := final.get("uncertainty", {}).get(task.name))
        ],
        rounds=[
            {
                **{name: fold[name] for name in _ROUND},
                "best": ", ".join(str(member["kept_epoch"]) for member in fold["members"]),
                "cells": [format_score(fold["test"][task.name].get(key)) for task, key, _ in shown],
            }
            for fold in folds
        ],
        shown=len(shown),
        task_count=len(tasks),
    )


def _write_page(
    path: Path,
    template: str,
    config: TrainConfig,
    table: TrainingTable,
    metrics: Mapping[str, Any],
    **content: Any,
) -> None:
    """Write a report from a template and its variables. Text is escaped, ``Markup`` is not."""
    page = page_environment(_TEMPLATES).get_template(template)
    text = page.render(
        name=Path(config.file).name,
        options=yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True),
        made=datetime.now(UTC),
        system=platform.platform(terse=True),
        metrics=metrics,
        skipped=Counter(row.code for row in table.skipped).most_common(),
        meaning=reason_meaning,
        **content,
    )
    write_file(path, text.encode(errors="replace"))


def _figure_image(figure: Figure, label: str) -> Markup:
    """Return a figure as an image of a page, described for screen readers by the label."""
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "molattn"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return _IMAGE.format("figure", label, b64encode(file.getvalue()).decode())


def molecule_image(smiles: str, label: str) -> Markup:
    """Return a molecule as an image of a page, or why it is not drawn as a paragraph."""
    try:
        drawing = draw_molecule(smiles) if len(smiles) <= _MOST_SMILES else None
    except MolattnError as error:
        return _UNDRAWN.format(error)
    if drawing is None:
        return _UNDRAWN.format("too large to draw")
    return _IMAGE.format("molecule", label, b64encode(drawing.encode()).decode())


def interval_promise(data: DataConfig, *, tested: bool = True) -> str:
    """Return what the intervals of a run promise for its test rows, if any, and what not."""
    rows, condition = "the validation rows", ""
    if data.validation_size == 0.0:
        rows = "the predictions of the other folds' models for the rows that they have not seen"
        condition = ", if the model hardly depends on single rows"
    text = (
        f"Intervals are calibrated on {rows}. Their nominal coverage is promised on average for "
        f"molecules that are drawn as those (exchangeable){condition}, and nothing for others, "
        "such as a new chemical series."
    )
    if not tested:
        return f"{text} There are no test rows on which it could be measured."
    if is_exchangeable(data):
        return f"{text} The test rows are drawn at random as those are."
    how = f"the split {data.split!r}" if data.split_column is None else "a column of the table"
    return (
        f"{text} The test rows are chosen by {how}: no coverage is promised for them, and the "
        "measured coverage shows what the intervals are worth for such molecules."
    )


def _task_section(run: TrainingRun, result: TaskResults) -> dict[str, Any]:
    label, figures = target_label(result.task), task_plots(result)
    return {
        "label": label,
        "is_regression": result.task.kind == "regression",
        "figures": [
            (name, _figure_image(figure, f"{name} of {label}")) for name, figure in figures.items()
        ],
        "worst": [*_worst(run, result)],
    }


def _worst(run: TrainingRun, result: TaskResults) -> Iterator[dict[str, Any]]:
    """Yield the test molecules with the largest errors, or the least probable measured class."""
    task, prediction, target, *_ = result
    is_regression = task.kind == "regression"
    if is_regression:
        errors = prediction[:, 0] - target
    else:
        both = np.hstack([1 - prediction, prediction]) if task.kind == "binary" else prediction
        errors = 1.0 - both[np.arange(len(target)), target.astype(int)]
    for index in np.argsort(-np.abs(errors), kind="stable")[:_WORST]:
        row = int(run.split.test[result.rows[index]])
        predicted, truth = task.cells(prediction[index].tolist())[0], float(target[index])
        smiles, where = run.table.smiles[row], run.table.where(row)
        sign = "+" if errors[index] > 0 else ""
        yield {
            "drawing": molecule_image(smiles, f"Structure of the molecule in {where}"),
            "smiles": [smiles, *(run.table.partners[row : row + 1] if run.table.partners else [])],
            "where": where,
            "measured": format_score(truth) if is_regression else task.classes[int(truth)],
            "predicted": predicted if isinstance(predicted, str) else format_score(predicted),
            "error": f"{sign}{format_score(float(errors[index]))}"
            if is_regression
            else f"{1.0 - errors[index]:.3f}",
        }


def _kept_epochs(run: TrainingRun) -> str:
    if not run.histories:
        return "No network was trained: the predictions are those of a Gaussian process."
    epochs = ", ".join(f"{history.best} of {len(history.epochs)}" for history in run.histories)
    is_last = run.config.training.checkpoint == "last"
    return f"Checkpoint: epoch {epochs} ({'last epoch' if is_last else 'lowest validation loss'})."


def _split_text(data: DataConfig) -> str:
    if data.split_column is not None:
        return f"column {data.split_column!r}"
    if data.folds is not None:
        return f"fold {data.only_fold} of {data.folds}, {data.split or 'random'}"
    return str(data.split or "random")


def _labels(run: TrainingRun) -> Iterator[tuple[str, list[str]]]:
    """Yield each task with the number of labels in each split."""
    bounds = run.table.bounds
    for index, task in enumerate(run.table.tasks):
        counts = []
        for rows in run.split:
            counts.append(f"{np.count_nonzero(~np.isnan(run.table.targets[rows, index])):,}")
            if bounds is not None and (censored := np.sum(~np.isnan(bounds[:, rows, index]))):
                counts[-1] += f", {censored:,} censored"
        yield target_label(task), counts
