"""The folder of a training run: model, scores, predictions, plots and report."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from molattn.config.yaml_file import write_config_file
from molattn.data.dataset import TrainingTable
from molattn.data.table import escape_formula, free_name, write_table
from molattn.evaluation.metrics import metrics_of
from molattn.evaluation.plots import PNG, learning_curve, run_plots, task_results
from molattn.evaluation.report import write_run_page
from molattn.evaluation.scoring import RunScores
from molattn.evaluation.tables import format_score, scored_rows
from molattn.model.prediction_columns import (
    PredictionColumns,
    number_text,
    standardized_cells,
    standardized_columns,
)
from molattn.model.uncertainty import Prediction
from molattn.training.run import TrainingRun
from molattn.training.run_folder import (
    CONFIG_FILE,
    RESULT_FILE,
    History,
    member_folders,
    write_history,
)
from molattn.utils.files import write_json


def write_run(run: TrainingRun, scores: RunScores, folder: Path) -> None:
    """Write the results of a run into a folder.

    These are the model (``model/``), ``config.yaml``, ``metrics.json``, ``history.csv`` (of an
    ensemble in ``member_1/`` and so on), ``predictions.csv`` (test rows), ``skipped.csv``,
    ``report.html``, ``learning_curve.png`` and, of test rows, the plots of
    :func:`molattn.evaluation.plots.run_plots`.
    """
    card = {"scores": _card_scores(run, scores.metrics)}
    run.model.save_pretrained(folder / "model", model_card_kwargs=card)
    write_config_file(folder / CONFIG_FILE, run.config)
    write_histories(run.histories, folder)
    write_skipped(run.table, folder)
    _write_predictions(run, scores.prediction, folder / "predictions.csv")
    results = []
    if len(run.split.test):
        labels = run.table.targets[run.split.test]
        results = task_results(scores.prediction, labels, run.table.tasks, scores.metrics)
    with _any_font():
        for name, figure in run_plots(results).items():
            figure.savefig(folder / name, **PNG)
    write_run_page(run, scores.metrics, results, folder)
    write_json(folder / RESULT_FILE, scores.metrics)


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


def write_skipped(table: TrainingTable, folder: Path) -> None:
    """Write ``skipped.csv``: the rows of a table that cannot be used, with their reasons."""
    with write_table(folder / "skipped.csv", ("line", "smiles", "code", "reason")) as write:
        for row in table.skipped:
            write(row._replace(smiles=escape_formula(row.smiles)))


def _card_scores(run: TrainingRun, metrics: Mapping[str, Any]) -> dict[str, str]:
    split, card = scored_rows(metrics), {}
    rows = "test molecules" if split == "test" else "validation molecules (there was no test)"
    for task in run.table.tasks if split in metrics else ():
        scores = metrics[split][task.name]
        shown = metrics_of(task.kind, with_heading=True)
        values = (f"{metric.heading} {format_score(scores[key])}" for key, metric in shown.items())
        card[task.name] = f"{', '.join(values)} on {scores['count']} {rows}"
    return card


def _write_predictions(run: TrainingRun, prediction: Prediction, path: Path) -> None:
    table, output = run.table, PredictionColumns(run.model)
    columns = [*output.columns, *standardized_columns(run.model.config), "split"]
    header = [*table.header, *(free_name(name, table.header) for name in columns)]
    with write_table(path, [escape_formula(name) for name in header]) as write:
        for index, row in enumerate(run.split.test):
            is_finite = np.isfinite(prediction.prediction[index]).all()
            cells = output.cells(prediction, index) if is_finite else [None] * len(output.columns)
            cells += standardized_cells(table.records[row], run.model.config)
            texts = ["" if cell is None else _text(cell) for cell in cells]
            write([escape_formula(cell) for cell in (*table.rows[row].cells, *texts, "test")])


def _text(cell: float | str) -> str:
    return cell if isinstance(cell, str) else number_text(cell)
