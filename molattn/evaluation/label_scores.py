"""Predictions of a table that has labels: their scores, and the molecules beyond the domain."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import PredictConfig
from molattn.data.labels import LabelError, label_values
from molattn.data.table import Row, Table
from molattn.errors import InputError, quoted
from molattn.evaluation.metrics import score_tasks
from molattn.evaluation.tables import print_tables, score_tables
from molattn.inference.parts import Tally
from molattn.inference.predict import DOMAIN_SIMILARITY, open_prediction
from molattn.inference.streaming import Cells, map_table
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns
from molattn.task import Task
from molattn.utils.console import counted, print_line

__all__ = ["Screening", "print_screening", "screen_table"]

_RESAMPLES = 1000  # of the bootstrap


class Screening(NamedTuple):
    """What is counted in a table that is predicted.

    Args:
        tally: What :func:`molattn.inference.streaming.map_table` counts; the molecules ``outside``
            the domain of the model, the labeled ones ``trained``, which have the fingerprint of a
            training molecule, and by task the ``unusable`` and the ``censored`` labels.
        tasks: The T tasks of the model.
        prediction: Predictions ``[n, outputs]`` of the rows with a label.
        target: The labels ``[n, T]``, NaN where missing.
    """

    tally: Tally
    tasks: tuple[Task, ...]
    prediction: NDArray[np.float64]
    target: NDArray[np.float64]


def screen_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> Screening:
    """Predict every row of a table, and compare with its labels in columns named like targets.

    Censored labels are not scored: those such as ``>10``, and those with a relation in the columns
    of relations of the training. Arguments and errors are those of
    :func:`molattn.inference.predict_table`.
    """
    config = config or PredictConfig()
    table, model, spec = open_prediction(model_folder, source, output, config, console)
    count = _LabelCounter(model, table)
    tally = map_table(table, model, output, spec, config, console, count)
    tasks, width = model.config.tasks, len(model.config.output_names)
    numbers = np.array(tally.get("labeled", ())).reshape(-1, width + len(tasks))
    return Screening(tally, tasks, numbers[:, :width], numbers[:, width:])


class _LabelCounter:
    """Counts labels beside their predictions, and molecules beyond the domain."""

    def __init__(self, model: MolAttn, table: Table) -> None:
        self._tasks = model.config.tasks
        self._labels = [_column(table, task.name) for task in self._tasks]
        relations = model.config.relation_columns or [""] * len(self._tasks)
        self._relations = [_column(table, name) for name in relations]
        columns = [*PredictionColumns(model).columns]
        self._outputs = [columns.index(name) for name in model.config.output_names]
        name = "training_similarity"
        self._similarity = columns.index(name) if name in columns else None

    def __call__(self, rows: Sequence[tuple[Row, Cells]]) -> Tally:
        """Count rows, given their cells and those of their predictions."""
        similarity = np.full(len(rows), np.nan)
        if self._similarity is not None:
            similarity[:] = [cells[self._similarity] for _, cells in rows]
        outputs = np.array([[cells[n] for n in self._outputs] for _, cells in rows], dtype=float)
        labels = np.full((len(rows), len(self._tasks)), np.nan)
        tally: Tally = {"unusable": {}, "censored": {}}
        for index, task in enumerate(self._tasks):
            column, relation = self._labels[index], self._relations[index]
            if column is None:
                continue
            cells = [row.cells[column] for row, _ in rows]
            relations = None if relation is None else [row.cells[relation] for row, _ in rows]
            wrong: dict[int, LabelError] = {}
            labels[:, index], bounds = label_values(cells, task, relations, wrong)
            tally["unusable"][task.name] = len(wrong)
            tally["censored"][task.name] = int((~np.isnan(bounds)).sum())
        is_labeled = ~np.isnan(labels).all(axis=1)
        tally["outside"] = int((similarity < DOMAIN_SIMILARITY).sum())
        tally["trained"] = int((similarity[is_labeled] >= 1.0).sum())
        if rows:
            tally["labeled"] = np.hstack([outputs, labels])[is_labeled].ravel().tolist()
        return tally


def _column(table: Table, name: str) -> int | None:
    """Return the index of a column, None if there is not exactly one."""
    try:
        return table.column(name, "")
    except InputError:
        return None


def print_screening(screening: Screening, console: Console) -> None:
    """Print the molecules beyond the domain of a model, and the scores if there are labels."""
    tally, tasks, target = screening.tally, screening.tasks, screening.target
    if outside := tally.get("outside"):
        print_line(
            console,
            f"{counted(outside, 'molecule')} beyond the domain of the model "
            f"(training_similarity below {DOMAIN_SIMILARITY})",
        )
    for kind, text in (("unusable", "cannot be read"), ("censored", "censored, not scored")):
        for name, count in tally.get(kind, {}).items():
            if count:
                print_line(console, f"{quoted(name)}: {counted(count, 'label')} {text}")
    if len(target):
        line = f"{counted(len(target), 'row')} with labels"
        if trained := tally["trained"]:
            line += (
                f"; {trained:,} with the fingerprint of a training molecule, whose errors are "
                "smaller than those of new molecules"
            )
        print_line(console, f"{line}:")
        scores = score_tasks(screening.prediction, target, tasks, resamples=_RESAMPLES)
        known = [task for task in tasks if scores.tasks[task.name]["count"]]
        metrics = {"test": scores.tasks, "test_mean": scores.mean}
        print_tables(score_tables(known, metrics), console)
