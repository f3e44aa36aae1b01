"""Splits of a table's rows into training, validation and test."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from molattn.chem.groups import same_cluster, same_molecule, same_scaffold
from molattn.chem.split import Split, fold_split, group_split, order_split
from molattn.config import DataConfig
from molattn.data.dataset import TrainingTable
from molattn.data.labels import LabelError, is_missing, number
from molattn.data.table import listed
from molattn.errors import InputError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.spooled_list import Selection

__all__ = ["check_labels", "marks_validation", "missing_classes", "split_rows", "undivided"]

_PARTS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}


def split_rows(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    """Split the rows into training, validation and test.

    A split column decides; if it marks no validation rows, some of the training rows are set aside.
    It may mark no test rows. Without one, the rows are split by the configured method. Rows of one
    molecule stay together unless the split column or ``split_duplicates`` separates them. A
    training or validation row of weight 0 is in no part, so that nothing is fitted to it.

    Args:
        table: The rows.
        config: Split method and sizes.
        seed: Seed of the split.

    Raises:
        InputError: A part would be empty that should not be, a cell of the split column is none of
            train, validation and test, one of the order column is neither a number nor a date, or a
            part or target has no label to learn from.
    """
    parts = _parted(table, config, seed)
    check_labels(table, parts, config)
    return parts._replace(train=_weighing(table, parts.train), val=_weighing(table, parts.val))


def undivided(table: TrainingTable) -> Split:
    """Return all rows as training rows, except those of weight 0."""
    none = np.zeros(0, dtype=np.int64)
    return Split(_weighing(table, np.arange(len(table.rows), dtype=np.int64)), none, none)


def marks_validation(table: TrainingTable) -> bool:
    """Return whether a cell of the table's split column marks a validation row."""
    return any(_PARTS.get(cell.strip().lower()) == "validation" for cell in table.parts or ())


def check_labels(table: TrainingTable, parts: Split, config: DataConfig) -> None:
    """Check that each part has a label of nonzero weight, and each target a training label.

    Censored labels do not count. There may be no validation rows.

    Raises:
        InputError: Names the part or target.
    """
    label = "a label" if table.bounds is None else "an uncensored label"
    counts = np.array(config.task_weights or [1.0] * len(table.tasks)) > 0.0
    for part, what in ((parts.train, "training"), (parts.val, "validation")):
        rows = _weighing(table, part)
        if not len(part):
            continue
        if not len(rows):
            raise InputError(
                f"{table.path}, column {quoted(config.weight_column)}: the weight of every {what} "
                "row is 0"
            )
        if np.isnan(table.targets[rows][:, counts]).all():
            raise InputError(
                f"{table.path}: no {what} row has {label} of a target with a nonzero weight "
                "(--task-weights)"
            )
    learned = table.targets[_weighing(table, parts.train)]
    for task, name in enumerate(config.target_columns):
        if np.isnan(learned[:, task]).all():
            raise InputError(f"{table.path}, column {quoted(name)}: no training row has {label}")


def missing_classes(table: TrainingTable, parts: Split) -> list[str]:
    """Return a log line for each target with classes that no training row is of."""
    learned = table.targets[_weighing(table, parts.train)]
    lines = []
    for task, labels in zip(table.tasks, learned.T, strict=True):
        found = np.unique(labels)
        missing = [name for number, name in enumerate(task.classes) if number not in found]
        if missing:
            lines.append(f"{quoted(task.name)}: no training row is of class {listed(missing)}")
    return lines


def _weighing(table: TrainingTable, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows if table.weights is None else rows[table.weights[rows] > 0.0]


def _parted(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    try:
        if table.parts is not None:
            return _by_column(table, config, seed)
        if config.folds is not None:
            return fold_split(
                _groups(table.records, config),
                folds=config.folds,
                fold=config.only_fold or 1,
                validation_size=config.validation_size,
                seed=seed,
                balanced=_is_balanced(config),
            )
        held_out = (config.validation_size, config.test_size)
        return _split(table, range(len(table.rows)), config, (1 - sum(held_out), *held_out), seed)
    except InputError as error:
        raise InputError(f"{table.path}: {error.command_line()}") from error


def _by_column(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    rows: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    column = quoted(config.split_column)
    for row, cell in enumerate(table.parts or ()):
        part = _PARTS.get(cell.strip().lower())
        if part is None:
            raise InputError(
                f"{table.where(row)}, column {column}: got {quoted(cell)}, "
                f"expected one of {', '.join(_PARTS)}"
            )
        rows[part].append(row)
    if not rows["train"]:
        raise InputError(f"column {column}: no usable row is marked train")
    train, validation, test = (np.array(rows[part], dtype=np.int64) for part in rows)
    if not len(validation):
        sizes = (1.0 - config.validation_size, config.validation_size, 0.0)
        train, validation, _ = _split(table, train.tolist(), config, sizes, seed)
    return Split(train, validation, test)


def _split(
    table: TrainingTable,
    rows: "list[int] | range",
    config: DataConfig,
    sizes: tuple[float, float, float],
    seed: int,
) -> Split:
    """Split some of the rows; return indices among all."""
    groups = _groups(Selection(table.records, rows), config)
    if config.split == "order":
        parts = order_split(groups, _order(table, rows, config.order_column), sizes=sizes)
    else:
        parts = group_split(groups, sizes=sizes, seed=seed, balanced=_is_balanced(config))
    among_all = np.asarray(rows, dtype=np.int64)
    return Split(*(among_all[part] for part in parts))


def _is_balanced(config: DataConfig) -> bool:
    """Return whether large groups go to train, unlike those of a random split."""
    return config.split in ("scaffold", "cluster")


def _groups(records: Sequence[MoleculeRecord], config: DataConfig) -> list[list[int]]:
    if config.split == "scaffold":
        return same_scaffold(records)
    if config.split == "cluster":
        return same_cluster(records, config.cluster_cutoff)
    if config.split_duplicates:
        return [[row] for row in range(len(records))]
    return same_molecule(records)


def _order(table: TrainingTable, rows: "list[int] | range", column: str | None) -> list[float]:
    cells = [(table.order or ())[row].strip() for row in rows]
    are_numbers = bool(cells) and _number(cells[0]) is not None
    found = [_number(cell) if are_numbers else _seconds(cell) for cell in cells]
    if None in found:
        wrong = found.index(None)
        expected = "a number" if are_numbers else "a number, or a date such as 2024-03-31"
        raise InputError(
            f"{table.where(rows[wrong])}, column {quoted(column)}: got {quoted(cells[wrong])}, "
            f"expected {expected}"
        )
    return [value for value in found if value is not None]


def _number(text: str) -> float | None:
    try:
        return None if is_missing(text) else number(text)
    except LabelError:
        return None


def _seconds(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(f"{text}-01" if len(text) == 7 else text)
    except ValueError:
        return None
    # Times without a zone are taken as UTC; any zone gives the same order.
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
