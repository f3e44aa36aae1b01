"""Predictions of a table that has labels: their scores, and the molecules beyond the domain."""

from collections import Counter
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
from molattn.evaluation.tables import rich_table, score_tables
from molattn.inference.parts import Tally
from molattn.inference.predict import DOMAIN_SIMILARITY, predict_and_count
from molattn.inference.streaming import Cells, open_with_model
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns
from molattn.task import Task
from molattn.utils.console import counted, print_line

__all__ = ["Screening", "print_screening", "screen_table"]

_RESAMPLES = 1000  # of the bootstrap
_MOST_TARGETS = 5  # whose molecules beyond the domain are listed


class Screening(NamedTuple):
    """What is counted in a table that is predicted.

    Args:
        tally: What :func:`molattn.inference.streaming.map_table` counts; the molecules ``outside``
            the domain of the model, and ``outside_by_task`` if that differs; the rows ``trained``,
            whose fingerprint is that of a training molecule with a label of a task that they have a
            label of; by task the cells that are ``unusable``, with ``examples``, and the
            ``censored`` labels; and ``labeled``, the outputs and the labels of each row with one.
        tasks: The T tasks of the model.
    """

    tally: Tally
    tasks: tuple[Task, ...]

    @property
    def labeled(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predictions ``[n, outputs]`` of the rows with a label, and the labels ``[n, T]``."""
        width = sum(task.num_outputs for task in self.tasks)
        numbers = np.array(self.tally.get("labeled", ())).reshape(-1, width + len(self.tasks))
        return numbers[:, :width], numbers[:, width:]


def screen_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> Screening:
    """Predict every row of a table, and compare with its labels in columns named like targets.

    The arguments and errors are those of :func:`molattn.inference.predict_table`; an error is also
    a relation column that is missing, or the wrong number of them.
    """
    config = config or PredictConfig()
    table, model = open_with_model(source, model_folder, config, console, output)
    count = _LabelCounter(model, table, config.relation_columns, console)
    tally = predict_and_count(model, table, output, config, console, count)
    return Screening(tally, model.config.tasks)


class _LabelCounter:
    """Counts labels beside their predictions, and molecules beyond the domain."""

    def __init__(
        self, model: MolAttn, table: Table, relations: Sequence[str], console: Console | None
    ) -> None:
        self._tasks = tasks = model.config.tasks
        if len(relations) not in (0, len(tasks)):
            raise InputError(
                f"got {len(relations)} values for the {len(tasks)} targets of the model, expected "
                "one for each",
                option="relation_columns",
            )
        self._labels = [_column(table, task.name) for task in tasks]
        self._relations = [table.column(name, "--relation-columns") for name in relations]
        if not relations and (trained := model.config.relation_columns):
            self._relations = [_column(table, name) for name in trained]
            for task, label, own in zip(tasks, self._labels, self._relations, strict=True):
                if label is not None and own is None:
                    print_line(
                        console,
                        f"{table.path}: no column of relations of {quoted(task.name)} as in the "
                        "training (--relation-columns): labels count as measured, except for those "
                        "such as >10",
                    )
        columns = [*PredictionColumns(model).columns]
        self._outputs = [columns.index(name) for name in model.config.output_names]
        index = {name: place for place, name in enumerate(columns)}
        self._similarity = index.get("training_similarity")
        self._by_task = [index.get(f"{task.name}_training_similarity") for task in tasks]

    def __call__(self, rows: Sequence[tuple[Row, Cells]]) -> Tally:
        """Count rows, given their cells and those of their predictions."""
        similarity = _numbers(rows, [self._similarity] * len(self._tasks))
        by_task = _numbers(rows, self._by_task)
        outside = (by_task < DOMAIN_SIMILARITY).sum(axis=0).tolist()
        tally: Tally = {
            "outside": int((similarity[:, 0] < DOMAIN_SIMILARITY).sum()),
            "outside_by_task": {
                task.name: count for task, count in zip(self._tasks, outside, strict=True) if count
            },
        }
        labels = np.full(by_task.shape, np.nan)
        for index, (task, column) in enumerate(zip(self._tasks, self._labels, strict=True)):
            if column is None:
                continue
            own = self._relations[index] if self._relations else None
            relations = None if own is None else [row.cells[own] for row, _ in rows]
            wrong: dict[int, LabelError] = {}
            cells = [row.cells[column] for row, _ in rows]
            labels[:, index], bounds = label_values(cells, task, relations, wrong)
            for error in wrong.values():
                expected = error.expected.partition("; ")[0]  # without advice for the training
                example = f"got {quoted(error.text)}, expected {expected}"
                tally.setdefault("examples", {}).setdefault(task.name, example)
            for name, count in ("unusable", len(wrong)), ("censored", (~np.isnan(bounds)).sum()):
                if count:
                    tally.setdefault(name, {})[task.name] = int(count)
        is_known = ~np.isnan(labels)
        nearest = np.where(is_known, np.where(np.isnan(by_task), similarity, by_task), 0.0)
        tally["trained"] = int((nearest.max(axis=1) >= 1.0).sum())
        found = np.hstack([_numbers(rows, self._outputs), labels])[is_known.any(axis=1)]
        return {**tally, "labeled": found.ravel().tolist()}


def _column(table: Table, name: str) -> int | None:
    """Return the index of a column, None if there is not exactly one."""
    try:
        return table.column(name, "")
    except InputError:
        return None


def _numbers(rows: Sequence[tuple[Row, Cells]], columns: Sequence[int | None]) -> NDArray:
    """Return columns of predictions ``[n, columns]``, NaN where there is no number."""
    found = [
        [np.nan if column is None else cells[column] for column in columns] for _, cells in rows
    ]
    return np.array(found, dtype=float).reshape(len(rows), len(columns))


def print_screening(screening: Screening, console: Console) -> None:
    """Print the molecules beyond the domain of a model, and the scores if there are labels."""
    tally, (prediction, target) = screening.tally, screening.labeled
    if outside := tally.get("outside"):
        print_line(
            console,
            f"{counted(outside, 'molecule')} beyond the domain of the model "
            f"(training_similarity below {DOMAIN_SIMILARITY})",
        )
    if by_task := Counter(tally.get("outside_by_task", {})):
        counts = [f"{name} {count:,}" for name, count in by_task.most_common(_MOST_TARGETS)]
        if (others := len(by_task) - _MOST_TARGETS) > 0:
            counts.append(f"and {counted(others, 'more target')}")
        print_line(
            console,
            f"of {counted(tally['done'], 'molecule')}, beyond the domain of a target "
            f"(NAME_training_similarity below {DOMAIN_SIMILARITY}): {', '.join(counts)}",
        )
    for name, count in tally.get("unusable", {}).items():
        first = f"{counted(count, 'label')} cannot be read (first: {tally['examples'][name]})"
        print_line(console, f"{quoted(name)}: {first}")
    for name, count in tally.get("censored", {}).items():
        print_line(console, f"{quoted(name)}: {counted(count, 'censored label')} not scored")
    if not len(target):
        return
    line = f"{counted(len(target), 'row')} with labels"
    if trained := tally["trained"]:
        line += (
            f"; {trained:,} with the fingerprint of a training molecule, whose errors are smaller "
            "than those of new molecules"
        )
    print_line(console, f"{line}:")
    scores = score_tasks(prediction, target, screening.tasks, resamples=_RESAMPLES)
    known = [task for task in screening.tasks if scores.tasks[task.name]["count"]]
    for table in score_tables(known, {"test": scores.tasks, "test_mean": scores.mean}):
        console.print(rich_table(table), markup=False)
