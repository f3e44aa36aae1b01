"""The columns of a table that a model is trained on, and their numbers.

They are checked before the packages that read molecules and train are loaded.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.config import DataConfig
from molattn.data.labels import LabelError, Labels, RelationError, number, read_labels
from molattn.data.table import Row, Table, listed
from molattn.errors import InputError, quoted


class TrainingColumns(NamedTuple):
    """Indices of the columns that a model is trained on; None or empty where there is none."""

    smiles: int
    targets: list[int]
    relations: Sequence[int | None]
    features: list[int]
    partner: int | None
    weight: int | None
    split: int | None
    order: int | None


def find_columns(table: Table, config: DataConfig) -> TrainingColumns:
    """Return which columns of a table a model is trained on."""

    def column(option: str) -> int | None:
        name = getattr(config, option)
        return None if name is None else table.column(name, f"--{option.replace('_', '-')}")

    def columns(option: str) -> list[int]:
        names = getattr(config, option)
        found = [table.column(name, f"--{option.replace('_', '-')}") for name in names]
        if option != "relation_columns" and len({*found}) < len(found):  # that differ in case
            names = listed([table.header[index] for index in found])
            raise InputError(f"{table.path}: got {names}, expected each once", option=option)
        return found

    smiles = table.column(config.smiles_column, "--smiles-column")
    if not config.target_columns:
        others = [name for index, name in enumerate(table.header) if index != smiles]
        known = f"the other columns are {listed(others)}" if others else "there is no other column"
        raise InputError(f"{table.path}: --target-columns is required; {known}")
    targets, features = columns("target_columns"), columns("feature_columns")
    relations = columns("relation_columns") or [None] * len(targets)
    others = [column(f"{name}_column") for name in ("partner", "weight", "split", "order")]
    if leaked := {*targets} & {smiles, *others[:2], *features, *relations}:
        raise InputError(
            f"{table.path}: column {quoted(table.header[min(leaked)])} is both a target "
            "(--target-columns) and an input (--smiles-column, --partner-column, "
            "--weight-column, --feature-columns or --relation-columns)"
        )
    return TrainingColumns(smiles, targets, relations, features, *others)


def read_targets(
    table: Table, rows: Sequence[Row], columns: TrainingColumns, config: DataConfig
) -> tuple[list[Labels], dict[int, str]]:
    """Return the labels of each target, and why rows with a label that is not read are skipped."""
    options = (config.task or (None,), config.target_transform, config.positive_class)
    each = zip(
        *(one * len(columns.targets) if len(one) == 1 else one for one in options),
        config.target_units or [""] * len(columns.targets),
        strict=True,
    )
    targets: list[Labels] = []
    reasons: dict[int, str] = {}
    for index, relation_column, (choice, transform, positive, unit) in zip(
        columns.targets, columns.relations, each, strict=True
    ):
        name = table.header[index]
        cells = [row.cells[index] for row in rows]
        relations = (
            None if relation_column is None else [row.cells[relation_column] for row in rows]
        )
        try:
            labels = read_labels(
                name,
                cells,
                relations,
                choice,
                unit=unit,
                positive=positive,
                is_log=transform == "log",
            )
        except LabelError as error:
            row = cells.index(error.text) if error.row is None else error.row
            raise _located(
                table, rows[row], _column(error, index, relation_column), error
            ) from None
        except InputError as error:
            message = f"{table.path}, column {quoted(name)}: {error.command_line()}"
            raise InputError(message, option=error.option) from None
        if positive != "auto" and labels.task.kind != "binary":
            raise InputError(
                f"got {quoted(positive)}, expected auto for {quoted(name)}, which is not of two "
                "classes",
                option="positive_class",
            )
        for row, error in labels.invalid.items():
            column = table.header[_column(error, index, relation_column)]
            reasons.setdefault(row, f"column {quoted(column)}: {error.command_line()}")
        targets.append(labels)
    return targets, reasons


def read_numbers(
    table: Table, rows: Sequence[Row], index: int, parse: Callable[[str], float] = number
) -> NDArray[np.float64]:
    """Return a column as numbers."""
    numbers = np.empty(len(rows))
    for place, row in enumerate(rows):
        try:
            numbers[place] = parse(row.cells[index])
        except LabelError as error:
            raise _located(table, row, index, error) from None
    return numbers


def weight(cell: str) -> float:
    """Return a cell as the weight of its row."""
    if (value := number(cell)) >= 0.0:  # false for NaN
        return value
    raise LabelError(cell, "a weight of at least 0")


def _column(error: LabelError, labels: int, relations: int | None) -> int:
    return labels if relations is None or not isinstance(error, RelationError) else relations


def _located(table: Table, row: Row, index: int, error: InputError) -> InputError:
    place = f"{table.where(row.line)}, column {quoted(table.header[index])}"
    return InputError(f"{table.path}, {place}: {error.command_line()}")
