"""Predictions for the molecules in a table."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from molattn.inference.streaming import (
    Cells,
    OutputSpec,
    ReadRow,
    RowCounts,
    Streamed,
    stream_table,
)
from molattn.model.model import MolAttn
from molattn.model.prediction_columns import PredictionColumns
from molattn.model.uncertainty.model_uncertainty import Prediction
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

_MOST_NUMBERS = 2_000_000  # of labeled rows: 16 MB


class Screening(NamedTuple):
    """The result of predicting a table.

    Args:
        counts: Number of rows with a prediction and with an error.
        seconds: The time that it took, including that before an interruption.
        outside: Number of molecules beyond the domain of the model; None if it does not know its
            training molecules.
        outside_by_task: For each task, the number of molecules less similar than that to the
            nearest training molecule with a label of it; empty if these are the same for all tasks.
        trained: Number of rows whose fingerprint is that of a training molecule with a label of a
            task that they have a label of.
        labeled: Number of rows with a label.
        tasks: The T tasks of the model.
        prediction: Predictions ``[n, outputs]`` of the rows with a label, as from
            :meth:`molattn.MolAttn.predict`; if these would be more than 16 MB with the labels, of a
            random sample of them.
        target: Their labels ``[n, T]``, NaN where missing.
        unusable: For each task, the number of cells that are no labels of it.
        first_unusable: For each of these tasks, the first such cell and what was expected.
        censored: For each task, the number of censored labels, which are not among ``target``.
    """

    counts: RowCounts
    seconds: float
    outside: int | None
    outside_by_task: Counter[str]
    trained: int
    labeled: int
    tasks: tuple[Task, ...]
    prediction: NDArray[np.float64]
    target: NDArray[np.float64]
    unusable: Counter[str]
    first_unusable: dict[str, str]
    censored: Counter[str]


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
    :func:`predict_table`; an error is also a relation column that is missing, or the wrong number
    of them.
    """
    config, table = config or PredictConfig(), open_table(source)
    found = _Found()
    columns = _Columns(table.path, table.header)
    spec = partial(_screening_spec, columns=columns, config=config)
    return found.screening(
        stream_table(model_folder, table, output, spec, config, console, found.add)
    )


class _Columns(Table):
    """The columns of a table without its rows, for other processes."""

    def __init__(self, path: Path, header: list[str]) -> None:
        self.path, self.header = path, header

    def __iter__(self) -> Iterator[Row]:
        return iter(())


def _screening_spec(model: MolAttn, columns: Table, config: PredictConfig) -> OutputSpec:
    labels = _Labels(model, columns, config.relation_columns)
    return prediction_spec(model, config.interval, config.neighbors, labels)


class _Labels:
    """The labels of a table beside their predictions, and the molecules beyond the domain.

    Attributes:
        remarks: Lines on columns of labels or of relations that are not read.
    """

    def __init__(self, model: MolAttn, table: Table, relations: Sequence[str]) -> None:
        self._tasks = model.config.tasks
        if len(relations) not in (0, len(self._tasks)):
            raise InputError(
                f"--relation-columns: got {len(relations)} values for the {len(self._tasks)} "
                "targets of the model, expected one for each"
            )
        self.remarks: list[str] = []
        self._places = [self._place(table, task) for task in self._tasks]
        self._relations = self._relation_places(table, relations, model.config.relation_columns)
        self._knows_molecules = model.uncertainty is not None
        known = model.uncertainty and model.uncertainty.molecules
        self._differs_by_task = known is not None and known.labeled is not None
        self._new: dict[str, Any] = _nothing_new()

    def add(self, rows: Sequence[ReadRow], prediction: Prediction) -> None:
        new = self._new
        if self._knows_molecules:
            new["counts"]["outside"] += int((prediction.similarity < DOMAIN_SIMILARITY).sum())
        if self._differs_by_task:
            numbers = (prediction.task_similarity < DOMAIN_SIMILARITY).sum(axis=0).tolist()
            names = (task.name for task in self._tasks)
            new["outside"].update(dict(zip(names, numbers, strict=True)))
        if all(place is None for place in self._places):
            return
        for number, (row, predicted) in enumerate(zip(rows, prediction.prediction, strict=True)):
            labels = [self._label(row.row.cells, k) for k in range(len(self._tasks))]
            if any(label is not None for label in labels):
                if self._knows_molecules:
                    has_label = [label is not None for label in labels]
                    similarity = prediction.task_similarity[number, has_label].max()
                    new["counts"]["trained"] += int(similarity >= 1.0)
                new["labeled"].append([*predicted.tolist(), *labels])

    def take(self) -> dict[str, Any]:
        """Return what was found since the last call, as JSON types."""
        new, self._new = self._new, _nothing_new()
        return new

    def _label(self, cells: Sequence[str], number: int) -> float | None:
        place, task = self._places[number], self._tasks[number]
        if place is None:
            return None
        relation = self._relations[number]
        try:
            values, bounds = label_values(
                [cells[place]], task, ["" if relation is None else cells[relation]]
            )
        except LabelError as error:
            self._new["unusable"][task.name] += 1
            expected = error.expected.partition("; ")[0]  # without advice for the training
            told = f"got {quoted(error.text)}, expected {expected}"
            self._new["first_unusable"].setdefault(task.name, told)
            return None
        if not np.isnan(bounds).all():
            self._new["censored"][task.name] += 1
        label = float(values[0])
        return None if math.isnan(label) else label

    def _relation_places(
        self, table: Table, named: Sequence[str], trained: Sequence[str]
    ) -> list[int | None]:
        """Return the columns that are named, else those of the training that the table has."""
        if named:
            return [table.column(name, "--relation-columns") for name in named]
        if not trained:
            return [None] * len(self._tasks)
        places = [_column(table, name) for name in trained]
        for labels, place, name in zip(self._places, places, trained, strict=True):
            if labels is not None and place is None:
                self.remarks.append(
                    f"{table.path}: expected one column {quoted(name)} of relations, as in the "
                    "training (--relation-columns); without it the labels of "
                    f"{quoted(table.header[labels])} count as measured, except those such as >10"
                )
        return places

    def _place(self, table: Table, task: Task) -> int | None:
        place = _column(table, task.name)
        if place is None:
            alike = [name for name in table.header if name.lower() == task.name.lower()]
            if alike:
                self.remarks.append(
                    f"{table.path}: {len(alike)} columns could be the labels of "
                    f"{quoted(task.name)} ({listed(alike)}), expected one; its predictions are not "
                    "scored"
                )
        return place


def _column(table: Table, name: str) -> int | None:
    try:
        return table.column(name, "")
    except InputError:
        return None


def _nothing_new() -> dict[str, Any]:
    counters = {name: Counter[str]() for name in ("counts", "outside", "unusable", "censored")}
    return {**counters, "first_unusable": {}, "labeled": []}


class _Found:
    """What :class:`_Labels` found in all blocks of a table."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()
        self._unusable: Counter[str] = Counter()
        self._first_unusable: dict[str, str] = {}
        self._censored: Counter[str] = Counter()
        self._rows = _LabeledRows()

    def add(self, found: Mapping[str, Any]) -> None:
        self._counts.update(found["counts"])
        self._outside.update(found.get("outside", {}))
        for name, told in found.get("first_unusable", {}).items():
            if name not in self._unusable:  # in rows of an earlier version the first is unknown
                self._first_unusable[name] = told
        self._unusable.update(found["unusable"])
        self._censored.update(found["censored"])
        for row in found["labeled"]:
            self._rows.add([math.nan if number is None else number for number in row])

    def screening(self, streamed: Streamed) -> Screening:
        model, tasks = streamed.model, streamed.model.config.tasks
        width = sum(len(task.output_names) for task in tasks)
        numbers = self._rows.table(width + len(tasks))
        return Screening(
            streamed.counts,
            streamed.seconds,
            None if model.uncertainty is None else self._counts["outside"],
            self._outside,
            self._counts["trained"],
            self._rows.count,
            tasks,
            numbers[:, :width],
            numbers[:, width:],
            self._unusable,
            self._first_unusable,
            self._censored,
        )


class _LabeledRows:
    """Rows of numbers; if there are too many, a random sample in which each is as likely.

    Attributes:
        count: Number of rows, those left out included.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers = array("d")
        self._chance = 1.0
        self._rng = np.random.default_rng(0)

    def add(self, row: Sequence[float]) -> None:
        self.count += 1
        if self._rng.random() >= self._chance:
            return
        self._numbers.extend(row)
        while len(self._numbers) > max(_MOST_NUMBERS, len(row)):
            self._chance /= 2.0
            kept = self._rng.random(len(self._numbers) // len(row)) < 0.5
            self._numbers = array("d", self.table(len(row))[kept].tobytes())

    def table(self, width: int) -> NDArray[np.float64]:
        return np.array(self._numbers).reshape(-1, width)


def prediction_spec(
    model: MolAttn, level: float, neighbors: int | None = None, labels: _Labels | None = None
) -> OutputSpec:
    """Return the predictions of a model as an output; see :func:`predict_table`.

    Args:
        model: The model.
        level: Level of the intervals, between 0 and 1.
        neighbors: Number of training rows for each target; None = no columns of them.
        labels: Takes the labels of the rows; None = they are not read.

    Raises:
        InputError: A number of neighbors that the model does not have.
    """
    columns = PredictionColumns(model, level)
    of_neighbors: dict[str, str] = {}
    fields = {"row": "int64", "similarity": "float64", "contribution": "float64"}
    remarks = [*columns.lines(), *(labels.remarks if labels else ())]
    if neighbors is not None:
        process = model.predictor.check_neighbors(neighbors, "--neighbors")
        kept = model.training_set and model.training_set.molecules
        if kept:
            fields["smiles"] = "string"
        remarks += [
            f"{quoted(task.name)}: the Gaussian process has no share in the predictions, so that "
            "neighbors contribute 0"
            for task, share in zip(model.config.tasks, process.shares, strict=True)
            if share == 0.0
        ]
        of_neighbors = {
            f"{task.name}_neighbor_{number}_{name}": kind
            for task in model.config.tasks
            for number in range(1, neighbors + 1)
            for name, kind in fields.items()
        }

    def compute(molecules: Sequence[ReadRow]) -> Iterator[Sequence[Cells] | ReasonCode]:
        features = [molecule.features for molecule in molecules] if model.config.features else None
        records = [molecule.record for molecule in molecules if molecule.record is not None]
        networks, inputs = model.network_outputs(records, len(records), features=features)
        outputs = model.predictor.combined(networks, inputs)
        is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(outputs).all(axis=(0, 2)))
        # None, which is not used, if the model has no training fingerprints.
        fingerprints: list[Any] = [record.fingerprint for record in records]
        prediction = columns.predict_with_uncertainty(
            outputs[:, is_finite], [*compress(fingerprints, is_finite)]
        )
        rows = iter(range(len(prediction.prediction)))
        near = {} if neighbors is None else model.predictor.neighbors_of_inputs(inputs, neighbors)
        if labels:
            finite = [row for row, good in zip(molecules, is_finite, strict=True) if good]
            labels.add(finite, prediction)
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
        remarks=remarks,
        take_found=labels.take if labels else lambda: None,
    )
