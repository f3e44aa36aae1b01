"""The folder of a training run: model, scores, predictions, plots and report."""

import platform
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from molattn.config.yaml_file import write_config_file
from molattn.data.dataset import TrainingTable
from molattn.data.table import escape_formula, free_name, write_table
from molattn.evaluation.metrics import format_score, metrics_of
from molattn.evaluation.plots import (
    PNG,
    learning_curve,
    run_plots,
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
from molattn.model.uncertainty import Prediction
from molattn.training.history import History, write_history
from molattn.training.run import TrainingRun
from molattn.training.run_folder import CONFIG_FILE, PAGE_FILE, RESULT_FILE, member_folders
from molattn.utils.files import write_json

__all__ = ["member_facts", "run_metrics", "write_histories", "write_run", "write_skipped"]

_PACKAGES = ("molattn", "torch", "torch-geometric", "lightning", "rdkit", "numpy", "scikit-learn")


def write_run(run: TrainingRun, scores: RunScores, folder: Path) -> dict[str, Any]:
    """Write the results of a run into a folder.

    These are the model (``model/``), ``config.yaml``, ``metrics.json``, ``history.csv`` (of an
    ensemble in ``member_1/`` and so on), ``predictions.csv`` (test rows), ``skipped.csv``,
    ``report.html``, ``learning_curve.png`` and, of test rows, the plots of
    :func:`molattn.evaluation.plots.run_plots`.

    Returns:
        The content of ``metrics.json``.
    """
    run.model.save_pretrained(
        folder / "model", model_card_kwargs={"scores": _card_scores(run, scores)}
    )
    write_config_file(folder / CONFIG_FILE, run.config)
    write_histories(run.histories, folder)
    write_skipped(run.table, folder)
    _write_predictions(run, scores.prediction, folder / "predictions.csv")
    results = []
    if scores.test is not None:
        labels, tasks = run.table.targets[run.parts.test], run.table.tasks
        given = scores.test.tasks, scores.uncertainty
        results = task_results(scores.prediction, labels, tasks, *given)
    metrics = run_metrics(run, scores)
    with _any_font():
        for name, figure in run_plots(results).items():
            figure.savefig(folder / name, **PNG)
        write_run_page(run, scores, results, metrics, folder / PAGE_FILE)
    write_json(folder / RESULT_FILE, metrics)
    return metrics


@contextmanager
def _any_font() -> Iterator[None]:
    """Draw without warnings: the font of the plots may lack characters of a column's name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def write_histories(histories: Sequence[History], folder: Path) -> None:
    """Write ``history.csv`` of each member, and ``learning_curve.png``."""
    for member, history in zip(member_folders(folder, len(histories)), histories, strict=True):
        member.mkdir(exist_ok=True)
        write_history(member, history.epochs)
    if histories:
        with _any_font():
            learning_curve(histories).savefig(folder / "learning_curve.png", **PNG)


def member_facts(histories: Sequence[History], seed: int) -> list[dict[str, Any]]:
    """Return the epochs and the time of each member of a model, for ``metrics.json``."""
    return [
        {
            "seed": seed + index,
            "epochs": len(history.epochs),
            "kept_epoch": history.best,
            "frozen_weights": history.frozen_weights,
            "seconds": round(history.seconds, 3),
        }
        for index, history in enumerate(histories)
    ]


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


def run_metrics(run: TrainingRun, scores: RunScores) -> dict[str, Any]:
    """Return the content of ``metrics.json``."""
    members = member_facts(run.histories, run.config.training.seed)
    for facts, own in zip(members, scores.members, strict=False):  # none of a single model
        facts.update(test=own.tasks, test_mean=own.mean)
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
        "members": members,
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


def _write_predictions(run: TrainingRun, prediction: Prediction, path: Path) -> None:
    table, output = run.table, PredictionColumns(run.model)
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
