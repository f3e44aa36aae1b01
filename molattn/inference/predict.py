"""Predictions for the molecules in a table."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.config import PredictConfig
from molattn.data.labels import LabelError, label_values
from molattn.data.table import Row, Table, listed, open_table
from molattn.errors import InputError, ReasonCode, quoted
from molattn.inference.parts import Tally
from molattn.inference.streaming import (
    Cells,
    OutputSpec,
    ReadRow,
    Reads,
    RowCounts,
    check_stream,
    open_with_model,
    stream_table,
)
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns
from molattn.task import Task

__all__ = [
    "DOMAIN_SIMILARITY",
    "Screening",
    "predict_table",
    "prediction_spec",
    "screen_table",
]

DOMAIN_SIMILARITY = 0.4
"""A molecule less similar to the nearest training molecule is beyond the domain of the model."""


class Screening(NamedTuple):
    """The result of predicting a table.

    Args:
        tally: The rows ``done``; those with each ``error``; those ``outside`` the domain of the
            model and, if they are not the same for all tasks, ``outside_by_task``; those
            ``trained``, whose fingerprint is that of a training molecule with a label of a task
            that they have a label of. By task the cells that are ``unusable``, with examples, and
            the ``censored`` labels, which are not among ``target``.
        tasks: The T tasks of the model.
        prediction: Predictions ``[n, outputs]`` of the rows with a label, as from
            :meth:`molattn.MolAttn.predict`.
        target: Their labels ``[n, T]``, NaN where missing.
    """

    tally: Tally
    tasks: tuple[Task, ...]
    prediction: NDArray[np.float64]
    target: NDArray[np.float64]

    @property
    def counts(self) -> RowCounts:
        """Numbers of rows with a prediction and with an error."""
        return RowCounts.of(self.tally)


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
    a row without a prediction. One of these that has the name of a column of the table gets an
    underscore. The file is written completely or not at all; with ``config.resume``, that goes on
    after an interruption.

    With ``config.neighbors`` it has for each task NAME and that number of training rows, those that
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
    :func:`predict_table`; an error is also a relation column that is missing, or the wrong number
    of them.
    """
    config = config or PredictConfig()
    table = open_table(source)
    check_stream(table, output, config)
    table, model = open_with_model(table, model_folder, config, console)
    spec = prediction_spec(model, config.interval, config.neighbors)
    labels = _Labels(model, table, config.relation_columns, [*spec.columns])
    spec = replace(spec, remarks=[*spec.remarks, *labels.remarks])
    tally = stream_table(table, model, output, spec, config, console, labels.count)
    tasks = model.config.tasks
    width = len(model.config.output_names)
    numbers = np.array(tally.labeled).reshape(-1, width + len(tasks))
    return Screening(tally, tasks, numbers[:, :width], numbers[:, width:])


class _Labels:
    """The labels of a table beside their predictions, and the molecules beyond the domain.

    Attributes:
        remarks: Lines on columns of labels or of relations that are not read.
    """

    def __init__(
        self, model: MolAttn, table: Table, relations: Sequence[str], output: Sequence[str]
    ) -> None:
        self._tasks = model.config.tasks
        if len(relations) not in (0, len(self._tasks)):
            raise InputError(
                f"--relation-columns: got {len(relations)} values for the {len(self._tasks)} "
                "targets of the model, expected one for each"
            )
        self.remarks: list[str] = []
        self._columns = [self._label_column(table, task) for task in self._tasks]
        self._relations = self._relation_columns(table, relations, model.config.relation_columns)
        self._outputs = [output.index(name) for name in model.config.output_names]
        index = {name: number for number, name in enumerate(output)}
        self._similarity = index.get("training_similarity")
        self._by_task = [index.get(f"{task.name}_training_similarity") for task in self._tasks]

    def count(self, tally: Tally, row: Row, cells: Cells) -> None:
        """Count a row, given its cells and those of its prediction."""
        similarities = [_number(cells, index) for index in self._by_task]
        similarity = _number(cells, self._similarity)
        if similarity < DOMAIN_SIMILARITY:
            tally.count("outside")
        for task, own in zip(self._tasks, similarities, strict=True):
            if own < DOMAIN_SIMILARITY:
                tally.count("outside_by_task", task.name)
        if all(column is None for column in self._columns):
            return
        labels = [self._label(tally, row.cells, index) for index in range(len(self._tasks))]
        known = [not math.isnan(label) for label in labels]
        if any(known):
            tally.labeled.extend([*(_number(cells, index) for index in self._outputs), *labels])
            nearest = [
                similarity if math.isnan(own) else own
                for own, is_known in zip(similarities, known, strict=True)
                if is_known
            ]
            if max(nearest) >= 1.0:
                tally.count("trained")

    def _label(self, tally: Tally, cells: Sequence[str], index: int) -> float:
        column, task, relation = self._columns[index], self._tasks[index], self._relations[index]
        if column is None:
            return math.nan
        try:
            values, bounds = label_values(
                [cells[column]], task, ["" if relation is None else cells[relation]]
            )
        except LabelError as error:
            tally.count("unusable", task.name)
            expected = error.expected.partition("; ")[0]  # without advice for the training
            example = f"got {quoted(error.text)}, expected {expected}"
            tally.examples.setdefault(task.name, example)
            return math.nan
        if not np.isnan(bounds).all():
            tally.count("censored", task.name)
        return float(values[0])

    def _relation_columns(
        self, table: Table, named: Sequence[str], trained: Sequence[str]
    ) -> list[int | None]:
        """Return the columns that are named, else those of the training that the table has."""
        if named:
            return [table.column(name, "--relation-columns") for name in named]
        if not trained:
            return [None] * len(self._tasks)
        columns = [_column(table, name) for name in trained]
        for labels, column, name in zip(self._columns, columns, trained, strict=True):
            if labels is not None and column is None:
                self.remarks.append(
                    f"{table.path}: expected one column {quoted(name)} of relations, as in the "
                    "training (--relation-columns); without it the labels of "
                    f"{quoted(table.header[labels])} count as measured, except those such as >10"
                )
        return columns

    def _label_column(self, table: Table, task: Task) -> int | None:
        column = _column(table, task.name)
        found = [name for name in table.header if name.lower() == task.name.lower()]
        if column is None and found:
            self.remarks.append(
                f"{table.path}: {len(found)} columns could be the labels of {quoted(task.name)} "
                f"({listed(found)}), expected one; its predictions are not scored"
            )
        return column


def _column(table: Table, name: str) -> int | None:
    try:
        return table.column(name, "")
    except InputError:
        return None


def _number(cells: Cells, index: int | None) -> float:
    cell = None if index is None else cells[index]
    return cell if isinstance(cell, float) else math.nan


def prediction_spec(model: MolAttn, level: float, neighbors: int | None = None) -> OutputSpec:
    """Return the predictions of a model as an output; see :func:`predict_table`.

    Args:
        model: The model.
        level: Level of the intervals, between 0 and 1.
        neighbors: Number of training rows for each target; None = no columns of them.

    Raises:
        InputError: A number of neighbors that the model does not have.
    """
    columns, fields, names = PredictionColumns(model), dict[str, str](), dict[str, str]()
    remarks = [] if model.uncertainty is None else model.uncertainty.calibration.shortfalls(level)
    if neighbors is not None:
        process = model.check_neighbors(neighbors, "--neighbors")
        fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
        kept = model.training_set and model.training_set.molecules
        if kept:
            fields["smiles"] = "string"
        remarks += [
            f"{quoted(task.name)}: the Gaussian process has no share in the predictions, so that "
            "neighbors contribute 0"
            for task, share in zip(model.config.tasks, process.shares, strict=True)
            if share == 0.0
        ]
        names = {
            f"{task.name}_neighbor_{number}_{name}": kind
            for task in model.config.tasks
            for number in range(1, neighbors + 1)
            for name, kind in fields.items()
        }
    return OutputSpec(
        "predicting",
        {**columns.columns, **names},
        partial(_predictions, model, columns, level, neighbors, [*fields]),
        Reads(similarity=model.uncertainty is not None),
        remarks=remarks,
    )


def _predictions(
    model: MolAttn,
    columns: PredictionColumns,
    level: float,
    neighbors: int | None,
    fields: Sequence[str],
    molecules: Sequence[ReadRow],
) -> Iterator[Sequence[Cells] | ReasonCode]:
    features = [molecule.features for molecule in molecules] if model.config.features else None
    records = [molecule.record for molecule in molecules if molecule.record is not None]
    networks, inputs = model.network_outputs(records, len(records), features=features)
    outputs = model.combined(networks, inputs)
    is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(outputs).all(axis=(0, 2)))
    # None, which is not used, if the model has no training fingerprints.
    fingerprints: list[Any] = [record.fingerprint for record in records]
    known = [*compress(fingerprints, is_finite)]
    prediction = model.prediction(outputs[:, is_finite], known, level)
    rows = iter(range(len(prediction.prediction)))
    near = {} if neighbors is None else model.neighbors_of_inputs(inputs, neighbors)
    for index, good in enumerate(is_finite):
        if not good:
            yield "not_finite"
            continue
        nearest = [one for by_row in near.values() for one in by_row[index]]
        cells: list[Any] = [getattr(one, name) for one in nearest for name in fields]
        yield [[*columns.cells(prediction, next(rows)), *cells]]
