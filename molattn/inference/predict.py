"""Predictions for the molecules in a table."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import PredictConfig
from molattn.data.labels import LabelError, label_values
from molattn.data.table import Table, open_table
from molattn.errors import InputError, ReasonCode
from molattn.inference.streaming import Cells, OutputSpec, ReadRow, RowCounts, stream_table
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns
from molattn.model.uncertainty.model_uncertainty import Prediction
from molattn.task import Task

__all__ = ["DOMAIN_SIMILARITY", "Screening", "predict_table", "screen_table"]

DOMAIN_SIMILARITY = 0.4
"""A molecule less similar to the nearest training molecule is beyond the domain of the model."""


class Screening(NamedTuple):
    """The result of predicting a table.

    Args:
        counts: Number of rows with a prediction and with an error.
        seconds: The time that it took.
        outside: Number of molecules beyond the domain of the model; None if it does not know its
            training molecules.
        trained: Number of rows with a label whose fingerprint is that of a training molecule.
        tasks: The T tasks of the model.
        prediction: Predictions ``[n, outputs]`` of the rows with a label, as from
            :meth:`molattn.MolAttn.predict`.
        target: Their labels ``[n, T]``, NaN where missing.
        unusable: For each task, the number of cells that are no labels of it.
    """

    counts: RowCounts
    seconds: float
    outside: int | None
    trained: int
    tasks: tuple[Task, ...]
    prediction: NDArray[np.float64]
    target: NDArray[np.float64]
    unusable: Counter[str]


def predict_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> RowCounts:
    """Predict every row of a table.

    The output has all rows and columns of the table, in order, the columns of the prediction (see
    :class:`molattn.model.prediction_columns.PredictionColumns`), and ``error``, the reason code of
    a row without a prediction. The file is written completely or not at all.

    With ``config.neighbors`` it has for each task NAME and so many training rows, those that
    contribute most to its prediction (:meth:`molattn.MolAttn.neighbors`), the columns
    ``NAME_neighbor_1_row``, ``NAME_neighbor_1_similarity``, ``NAME_neighbor_1_contribution`` and,
    if the model keeps SMILES, ``NAME_neighbor_1_smiles``.

    Args:
        model_folder: The folder of a run or of a saved model, or a model.
        source: The table, in any format that :func:`molattn.data.table.open_table` reads or an
            open one, with the columns of the model's second molecule and extra features if it has
            any.
        output: The file to write, in the format of its name; an existing file is replaced. A binary
            stream gets CSV, row by row.
        config: The options.
        console: Where to show progress; None = nowhere.

    Raises:
        InputError: The model, the table or the output cannot be used.
    """
    return screen_table(model_folder, source, output, config, console).counts


def screen_table(
    model_folder: str | Path | MolAttn,
    source: str | Path | Table,
    output: str | Path | IO[bytes],
    config: PredictConfig | None = None,
    console: Console | None = None,
) -> Screening:
    """Predict every row of a table as :func:`predict_table` does, and compare with its labels.

    A column with the name of a target has labels. The arguments and errors are those of
    :func:`predict_table`.
    """
    start = time.perf_counter()
    config, table = config or PredictConfig(), open_table(source)
    found: list[_Found] = []

    def make_spec(model: MolAttn) -> OutputSpec:
        found.append(_Found(model, table))
        return _prediction_spec(model, config.interval, config.neighbors, found[0])

    counts = stream_table(model_folder, table, output, make_spec, config, console)
    return found[0].screening(counts, time.perf_counter() - start)


class _Found:
    """The labels of a table beside their predictions, and the molecules beyond the domain."""

    def __init__(self, model: MolAttn, table: Table) -> None:
        self._tasks = model.config.tasks
        self._places = [_place(table, task) for task in self._tasks]
        self._outside = None if model.uncertainty is None else 0
        self._trained = 0
        self._unusable: Counter[str] = Counter()
        self._width = sum(len(task.output_names) for task in self._tasks)
        self._predictions: list[NDArray[np.float64]] = []
        self._targets: list[list[float]] = []

    def add(self, rows: Sequence[ReadRow], prediction: Prediction) -> None:
        if self._outside is not None:
            self._outside += int((prediction.similarity < DOMAIN_SIMILARITY).sum())
        if any(place is not None for place in self._places):
            for number, (row, predicted) in enumerate(
                zip(rows, prediction.prediction, strict=True)
            ):
                labels = [self._label(row.row.cells, k) for k in range(len(self._tasks))]
                if not np.isnan(labels).all():
                    if self._outside is not None:
                        self._trained += int(prediction.similarity[number] >= 1.0)
                    self._predictions.append(predicted)
                    self._targets.append(labels)

    def screening(self, counts: RowCounts, seconds: float) -> Screening:
        predictions = np.array(self._predictions).reshape(-1, self._width)
        targets = np.array(self._targets).reshape(-1, len(self._tasks))
        return Screening(
            counts,
            seconds,
            self._outside,
            self._trained,
            self._tasks,
            predictions,
            targets,
            self._unusable,
        )

    def _label(self, cells: Sequence[str], number: int) -> float:
        place, task = self._places[number], self._tasks[number]
        if place is None:
            return np.nan
        try:
            return float(label_values([cells[place]], task)[0])
        except LabelError:
            self._unusable[task.name] += 1
            return np.nan


def _place(table: Table, task: Task) -> int | None:
    try:
        return table.column(task.name, "")
    except InputError:
        return None


def _prediction_spec(
    model: MolAttn, level: float, neighbors: int | None, found: _Found
) -> OutputSpec:
    columns = PredictionColumns(model, level)
    of_neighbors: dict[str, str] = {}
    fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
    if neighbors is not None:
        if model.check_neighbors(neighbors, "--neighbors").smiles:
            fields["smiles"] = "string"
        of_neighbors = {
            f"{task.name}_neighbor_{number}_{name}": kind
            for task in model.config.tasks
            for number in range(1, neighbors + 1)
            for name, kind in fields.items()
        }

    def compute(molecules: Sequence[ReadRow]) -> Iterator[Sequence[Cells] | ReasonCode]:
        features = [molecule.features for molecule in molecules] if model.config.features else None
        records = [molecule.record for molecule in molecules if molecule.record is not None]
        outputs = model.predict_outputs(records, len(records), features=features)
        is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(outputs).all(axis=(0, 2)))
        # An array of None, which is not used, if the model has no training fingerprints.
        fingerprints = np.array([record.fingerprint for record in records])
        prediction = columns.predict_with_uncertainty(
            outputs[:, is_finite], fingerprints[is_finite]
        )
        rows = iter(range(len(prediction.prediction)))
        near = {}
        if neighbors is not None:
            near = model.neighbors_of_records(records, neighbors, len(records), features=features)
        finite = [row for row, good in zip(molecules, is_finite, strict=True) if good]
        found.add(finite, prediction)
        for number, good in enumerate(is_finite):
            if not good:
                yield "not_finite"
                continue
            nearest = [one for of_task in near.values() for one in of_task[number]]
            cells: list[Any] = [getattr(one, name) for one in nearest for name in fields]
            yield [[*columns.cells(prediction, next(rows)), *cells]]

    return OutputSpec(
        verb="predicting",
        columns={**columns.columns, **of_neighbors},
        compute=compute,
        reads_similarity=model.uncertainty is not None,
        remarks=columns.lines(),
    )
