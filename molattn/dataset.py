"""Rows to labelled molecules, in three parts: training, validation and test."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.chem.features import Featurizer
from molattn.chem.parse import parse_smiles
from molattn.chem.split import Split, random_split, scaffold_split
from molattn.config import DataConfig
from molattn.errors import InputError, SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.table import Row, Table, listed
from molattn.task import Task

__all__ = [
    "Molecules",
    "SkippedRow",
    "TrainingTable",
    "column_scaling",
    "featurize",
    "parse_target",
    "part_rows",
    "read_training_table",
    "target_scaling",
]

_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST_TARGET = 1e30  # its square still fits a float64, and it a float32
_PARTS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}


class Molecules(NamedTuple):
    """Molecules with labels.

    Args:
        records: n molecules.
        targets: Their labels ``[n, T]`` in original units or as places of classes (see
            :class:`molattn.task.Task`), NaN where missing.
        weights: Their weights in the loss ``[n]``, of mean 1; None where all count the same.
        features: Further numbers of each ``[n, F]`` in original units; None where there are none.
    """

    records: Sequence[MoleculeRecord]
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None


class SkippedRow(NamedTuple):
    """A row that training does without, and why."""

    line: int
    smiles: str
    code: str
    reason: str


@dataclass(frozen=True)
class TrainingTable:
    """The usable rows of a table, as molecules with labels.

    Args:
        path: The file.
        header: Its columns.
        rows: The usable rows, in order.
        smiles: Their SMILES.
        records: Their molecules.
        tasks: What is to be learned.
        targets: Their labels ``float64 [n, T]`` in original units or as places of classes (see
            :class:`molattn.task.Task`), NaN where missing.
        weights: Their weights ``float64 [n]``, or None without a weight column.
        features: Further numbers ``float64 [n, F]``, or None without feature columns.
        parts: The cell of the split column for each row, or None without one.
        skipped: The other rows.
    """

    path: Path
    header: list[str]
    rows: list[Row]
    smiles: list[str]
    records: list[MoleculeRecord]
    tasks: tuple[Task, ...]
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    features: NDArray[np.float64] | None
    parts: list[str] | None
    skipped: list[SkippedRow]

    @property
    def rows_in(self) -> int:
        """Number of rows in the file."""
        return len(self.rows) + len(self.skipped)

    def molecules(self, rows: NDArray[np.int64]) -> Molecules:
        """Return some of the molecules, by their places among the usable rows."""
        return Molecules(
            [self.records[row] for row in rows],
            self.targets[rows],
            None if self.weights is None else self.weights[rows],
            None if self.features is None else self.features[rows],
        )


def featurize(smiles: str, featurizer: Featurizer) -> MoleculeRecord | SmilesError:
    """Return the molecule, or what is wrong with it: a bad row never costs a good one."""
    try:
        return featurizer(parse_smiles(smiles))
    except SmilesError as error:
        return error


def parse_target(text: str) -> float:
    """Return a label as a number; NaN where it is missing.

    Args:
        text: The cell; empty or one of na, n/a, nan, null, none (any case) if missing.

    Raises:
        ValueError: If the text is neither a finite number of sane size nor missing.
    """
    text = text.strip()
    if text.lower() in _MISSING:
        return nan
    if not _NUMBER.fullmatch(text):
        raise ValueError("a number or an empty cell")
    value = float(text)
    if abs(value) > _LARGEST_TARGET:
        raise ValueError(f"a number of magnitude below {_LARGEST_TARGET:g}")
    return value


def read_training_table(
    path: str | Path, config: DataConfig, featurizer: Featurizer
) -> TrainingTable:
    """Read a table of molecules with labels.

    Args:
        path: The file.
        config: Names of the columns.
        featurizer: Turns molecules into integers.

    Returns:
        The usable rows; a row without a molecule or without any label is among ``skipped``.

    Raises:
        InputError: If a column is missing, a label is neither a number nor missing, or no row is
            usable.
    """
    table = Table(path)
    smiles_index = table.column(config.smiles_column, "--smiles-column")
    if not config.target_columns:
        raise InputError(
            f"{table.path}: --target-columns: got none, expected the columns to learn, some of "
            + listed(table.header)
        )
    target_indices = [table.column(name, "--target-columns") for name in config.target_columns]
    split_index = (
        None if config.split_column is None else table.column(config.split_column, "--split-column")
    )

    rows: list[Row] = []
    smiles: list[str] = []
    records: list[MoleculeRecord] = []
    labels: list[list[float]] = []
    skipped: list[SkippedRow] = []
    for row in table:
        text = row.cells[smiles_index]
        if row.fault is not None:
            skipped.append(SkippedRow(row.line, text, "ragged", row.fault))
            continue
        values = [_label(table, row, index) for index in target_indices]
        if all(isnan(value) for value in values):
            skipped.append(SkippedRow(row.line, text, "no_label", "no target has a value"))
            continue
        record = featurize(text, featurizer)
        if isinstance(record, SmilesError):
            skipped.append(SkippedRow(row.line, text, record.code, record.reason))
            continue
        rows.append(row)
        smiles.append(text)
        records.append(record)
        labels.append(values)
    if not rows:
        first = f"; the first, line {skipped[0].line}: {skipped[0].reason}" if skipped else ""
        raise InputError(
            f"{table.path}: got {len(skipped)} rows, expected some with a molecule and a label "
            f"(columns {quoted(config.smiles_column)}, {listed(config.target_columns)}){first}"
        )
    return TrainingTable(
        path=table.path,
        header=table.header,
        rows=rows,
        smiles=smiles,
        records=records,
        tasks=tuple(map(Task, config.target_columns)),
        targets=np.asarray(labels, dtype=np.float64),
        weights=None,
        features=None,
        parts=None if split_index is None else [row.cells[split_index] for row in rows],
        skipped=skipped,
    )


def part_rows(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    """Part the rows into training, validation and test.

    The split column decides where there is one; if it marks no validation rows, some of the
    training rows are set aside. Otherwise the rows are split at random or by scaffold.

    Args:
        table: The rows.
        config: Split method and sizes.
        seed: Seed of the split.

    Raises:
        InputError: If a part would be empty, or a row's part is none of train, validation, test.
    """
    method = {"random": random_split, "scaffold": scaffold_split}[config.split or "random"]
    try:
        if table.parts is None:
            sizes = (
                1.0 - config.validation_size - config.test_size,
                config.validation_size,
                config.test_size,
            )
            return method(table.smiles, sizes=sizes, seed=seed)
        given = _given_parts(table, table.parts, config.split_column)
        if len(given.val):
            return given
        sizes = (1.0 - config.validation_size, config.validation_size, 0.0)
        inner = method([table.smiles[row] for row in given.train], sizes=sizes, seed=seed)
        return Split(given.train[inner.train], given.train[inner.val], given.test)
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from error


def target_scaling(
    targets: NDArray[np.float64], tasks: Sequence[Task]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of each target over its labels.

    A classification gets mean 0 and scale 1, and a target that does not vary the scale 1.

    Args:
        targets: ``[n, T]``, NaN where missing, some label in every column.
        tasks: The T tasks.
    """
    mean, scale = column_scaling(targets)
    is_number = np.array([task.kind == "regression" for task in tasks])
    return np.where(is_number, mean, 0.0), np.where(is_number, scale, 1.0)


def column_scaling(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of each column, 1 where it does not vary.

    Args:
        values: ``[n, C]``, NaN where missing, some value in every column.
    """
    mean, scale = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    # Equal labels leave rounding noise, not zero, for a standard deviation.
    varies = scale > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
    return mean, np.where(varies, scale, 1.0)


def _given_parts(table: TrainingTable, cells: Sequence[str], column: str | None) -> Split:
    rows: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for index, cell in enumerate(cells):
        part = _PARTS.get(cell.strip().lower())
        if part is None:
            raise InputError(
                f"line {table.rows[index].line}, column {quoted(column)}: got {quoted(cell)}, "
                f"expected one of {', '.join(_PARTS)}"
            )
        rows[part].append(index)
    for part in ("train", "test"):
        if not rows[part]:
            raise InputError(f"column {quoted(column)}: no usable row is for {part}, expected some")
    return Split(*(np.asarray(indices, dtype=np.int64) for indices in rows.values()))


def _label(table: Table, row: Row, index: int) -> float:
    try:
        return parse_target(row.cells[index])
    except ValueError as error:
        raise InputError(
            f"{table.path}, line {row.line}, column {quoted(table.header[index])}: "
            f"got {quoted(row.cells[index])}, expected {error}"
        ) from None
