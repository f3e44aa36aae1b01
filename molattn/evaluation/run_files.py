"""The folder of a training run: model, scores, predictions, plots and report."""

import platform
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from molattn.config.yaml_file import write_config_file
from molattn.data.dataset import TrainingTable
from molattn.data.table import escape_formula, free_name, write_table
from molattn.evaluation.metrics import format_score, metrics_of
from molattn.evaluation.plots import (
    PNG,
    TaskResults,
    calibration_plot,
    coverage_plot,
    learning_curve,
    parity_plot,
    roc_pr_plot,
    similarity_plot,
    task_results,
)
from molattn.evaluation.report import write_run_page
from molattn.evaluation.scoring import RunScores
from molattn.model.prediction_columns import (
    PredictionColumns,
    number_text,
    standardized_cells,
    standardized_columns,
)
from molattn.model.uncertainty.model_uncertainty import Prediction
from molattn.training.history import write_history
from molattn.training.run import TrainingRun
from molattn.training.run_folder import CONFIG_FILE, PAGE_FILE, RESULT_FILE, member_folders
from molattn.utils.files import write_json

__all__ = ["write_run", "write_skipped"]

_PACKAGES = ("molattn", "torch", "torch-geometric", "lightning", "rdkit", "numpy", "scikit-learn")


def write_run(run: TrainingRun, scores: RunScores, folder: Path) -> None:
    """Write the results of a run into a folder.

    These are the model (``model/``), ``config.yaml``, ``metrics.json``, ``history.csv`` (of an
    ensemble in ``member_1/`` and so on), ``predictions.csv`` (test rows), ``skipped.csv``,
    ``report.html`` and plots: ``learning_curve.png``; ``parity.png``, ``coverage.png`` and
    ``similarity.png`` of regressions; ``roc_pr.png`` and ``calibration.png`` of classifications.
    Without test rows, there are no such plots of predictions.
    """
    run.model.save_pretrained(
        folder / "model", model_card_kwargs={"scores": _card_scores(run, scores)}
    )
    write_config_file(folder / CONFIG_FILE, run.config)
    members = member_folders(folder, len(run.histories))
    for member, history in zip(members, run.histories, strict=True):
        member.mkdir(exist_ok=True)
        write_history(member, history.epochs)
    write_skipped(run.table, folder)
    _write_predictions(run, scores.prediction, folder / "predictions.csv")
    labels = run.table.targets[run.parts.test]
    predicted, tasks = scores.prediction, run.table.tasks
    results = (
        [] if scores.test is None else task_results(predicted, labels, tasks, scores.test.tasks)
    )
    with warnings.catch_warnings():
        # The font of the plots may lack characters of a column's name.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        for name, figure in _figures(run, scores, results):
            figure.savefig(folder / name, **PNG)
        metrics = _metrics(run, scores)
        write_run_page(run, scores, results, metrics, folder / PAGE_FILE)
    write_json(folder / RESULT_FILE, metrics)


def write_skipped(table: TrainingTable, folder: Path) -> None:
    """Write ``skipped.csv``: the rows of a table that cannot be used, with their reasons."""
    with write_table(folder / "skipped.csv", ("line", "smiles", "code", "reason")) as write:
        for row in table.skipped:
            write(row._replace(smiles=escape_formula(row.smiles)))


def _card_scores(run: TrainingRun, scores: RunScores) -> dict[str, str]:
    card, given = {}, scores.test or scores.validation
    if given is None:
        return card
    for task in run.table.tasks:
        found = given.tasks[task.name]
        shown = metrics_of(task.kind, with_heading=True)
        values = (f"{metric.heading} {format_score(found[name])}" for name, metric in shown.items())
        part = (
            "validation molecules (there was no test)" if scores.test is None else "test molecules"
        )
        card[task.name] = f"{', '.join(values)} on {found['count']} {part}"
    return card


def _figures(
    run: TrainingRun, scores: RunScores, results: Sequence[TaskResults]
) -> Iterator[tuple[str, Figure]]:
    tasks = run.table.tasks
    if run.histories:
        yield "learning_curve.png", learning_curve(run.histories)
    if not results:
        return
    if any(task.kind == "regression" for task in tasks):
        yield "parity.png", parity_plot(results)
        if any("coverage" in given for given in scores.uncertainty.values()):
            yield "coverage.png", coverage_plot(tasks, scores.uncertainty)
            yield "similarity.png", similarity_plot(results)
    if any(task.kind != "regression" for task in tasks):
        yield "roc_pr.png", roc_pr_plot(results)
        yield "calibration.png", calibration_plot(results)


def _metrics(run: TrainingRun, scores: RunScores) -> dict[str, Any]:
    parts = zip(("rows_train", "rows_validation", "rows_test"), run.parts, strict=True)
    return {
        **scores.to_dict(),
        **{f"{name}_seconds": round(seconds, 3) for name, seconds in scores.seconds.items()},
        "uncertainty": scores.uncertainty,
        "censored": scores.censored,
        "rows_test_not_finite": scores.not_finite,
        "interval_level": run.config.report.interval,
        "tasks": [task.to_dict() for task in run.table.tasks],
        "target_transforms": {
            task.name: transform.describe()
            for task, transform in zip(
                run.table.tasks, run.model.config.target_transforms, strict=True
            )
            if transform.kind != "none"
        },
        "rows_in": run.table.rows_in,
        "rows_used": len(run.table.rows),
        "rows_skipped": len(run.table.skipped),
        "rows_standardized": run.table.standardized,
        **{name: len(rows) for name, rows in parts},
        "leakage": run.leakage.to_dict(),
        "members": [*_members(run, scores)],
        "seconds": round(run.seconds, 3),
        "seed": run.config.training.seed,
        "threads": run.config.training.threads,
        "init_from_sha256": run.init_from_digest,
        "data_sha256": run.table.digest,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }


def _members(run: TrainingRun, scores: RunScores) -> Iterator[dict[str, Any]]:
    for index, history in enumerate(run.histories):
        own = scores.members[index] if scores.members else None
        yield {
            "seed": run.config.training.seed + index,
            "epochs": len(history.epochs),
            "kept_epoch": history.best,
            "frozen_weights": history.frozen_weights,
            "seconds": round(history.seconds, 3),
            **({} if own is None else {"test": own.tasks, "test_mean": own.mean}),
        }


def _write_predictions(run: TrainingRun, prediction: Prediction, path: Path) -> None:
    table, output = run.table, PredictionColumns(run.model, run.config.report.interval)
    config = run.model.config
    columns = [*output.columns, *standardized_columns(config), "split"]
    header = [*table.header, *(free_name(name, table.header) for name in columns)]
    with write_table(path, [escape_formula(name) for name in header]) as write:
        for index, row in enumerate(run.parts.test):
            molecules = (table.smiles[row], table.partners and table.partners[row])
            given = table.rows[row].cells
            own = (cell if cell in molecules else escape_formula(cell) for cell in given)
            is_finite = np.isfinite(prediction.prediction[index]).all()
            cells = output.cells(prediction, index) if is_finite else [None] * len(output.columns)
            cells += standardized_cells(table.records[row], config)
            write([*own, *map(_text, cells), "test"])


def _text(cell: float | str | None) -> str:
    if cell is None:
        return ""
    return escape_formula(cell) if isinstance(cell, str) else number_text(cell)
