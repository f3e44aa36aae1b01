"""Splits of a table's rows into training, validation and test."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from molattn.chem.groups import same_cluster, same_molecule, same_scaffold
from molattn.chem.split import Split, fold_split, group_split
from molattn.config import DataConfig
from molattn.data.dataset import TrainingTable
from molattn.data.table import listed
from molattn.errors import InputError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.spooled_list import Selection

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def split_rows(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    """Split the rows into training, validation and test.

    A split column decides; if it marks no validation rows, some of the training rows are set aside.
    It may mark no test rows. Without one, the rows are split by the configured method. Rows of one
    molecule stay together unless the split column separates them. A
    training or validation row of weight 0 is in no split, so that nothing is fitted to it.
    """
    try:
        if table.parts is not None:
            split = _by_column(table, config, seed)
        elif config.folds is not None:
            split = fold_split(
                _groups(table.records, config),
                folds=config.folds,
                fold=config.only_fold or 1,
                validation_size=config.validation_size,
                seed=seed,
                balanced=_is_balanced(config),
            )
        else:
            rows, held_out = np.arange(len(table.rows)), (config.validation_size, config.test_size)
            split = _by_method(table, rows, config, (1 - sum(held_out), *held_out), seed)
    except InputError as error:
        raise InputError(f"{table.path}: {error.command_line()}") from error
    check_labels(table, split, config)
    train, validation = (_weighted(table, rows) for rows in split[:2])
    return split._replace(train=train, val=validation)


def undivided(table: TrainingTable) -> Split:
    """Return all rows as training rows, except those of weight 0."""
    none = np.zeros(0, dtype=np.int64)
    return Split(_weighted(table, np.arange(len(table.rows), dtype=np.int64)), none, none)


def marks_validation(table: TrainingTable) -> bool:
    """Return whether a cell of the table's split column marks a validation row."""
    return any(_SPLITS.get(cell.strip().lower()) == "validation" for cell in table.parts or ())


def check_labels(table: TrainingTable, split: Split, config: DataConfig) -> None:
    """Check that each split has a label of nonzero weight, and each target a training label.

    Censored labels do not count. There may be no validation rows.
    """
    label = "a label" if table.bounds is None else "an uncensored label"
    counts = np.array(config.task_weights or [1.0] * len(table.tasks)) > 0.0
    for rows, name in ((split.train, "training"), (split.val, "validation")):
        weighted = _weighted(table, rows)
        if len(rows) and not len(weighted):
            raise InputError(
                f"{table.path}, column {quoted(config.weight_column)}: the weight of every {name} "
                "row is 0"
            )
        if len(rows) and np.isnan(table.targets[weighted][:, counts]).all():
            raise InputError(
                f"{table.path}: no {name} row has {label} of a target with a nonzero weight "
                "(--task-weights)"
            )
    learned = table.targets[_weighted(table, split.train)]
    for task, labels in zip(table.tasks, learned.T, strict=True):
        if np.isnan(labels).all():
            raise InputError(
                f"{table.path}, column {quoted(task.name)}: no training row has {label}"
            )


def missing_classes(table: TrainingTable, split: Split) -> list[str]:
    """Return a log line for each target with classes that no training row is of."""
    learned = table.targets[_weighted(table, split.train)]
    lines = []
    for task, labels in zip(table.tasks, learned.T, strict=True):
        missing = [name for code, name in enumerate(task.classes) if not (labels == code).any()]
        if missing:
            lines.append(f"{quoted(task.name)}: no training row is of class {listed(missing)}")
    return lines


def _weighted(table: TrainingTable, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows if table.weights is None else rows[table.weights[rows] > 0.0]


def _by_column(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    rows: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    column = quoted(config.split_column)
    for row, cell in enumerate(table.parts or ()):
        name = _SPLITS.get(cell.strip().lower())
        if name is None:
            raise InputError(
                f"{table.where(row)}, column {column}: got {quoted(cell)}, "
                f"expected one of {', '.join(_SPLITS)}"
            )
        rows[name].append(row)
    if not rows["train"]:
        raise InputError(f"column {column}: no usable row is marked train")
    train, validation, test = (np.array(own, dtype=np.int64) for own in rows.values())
    if not len(validation):
        sizes = (1.0 - config.validation_size, config.validation_size, 0.0)
        train, validation, _ = _by_method(table, train, config, sizes, seed)
    return Split(train, validation, test)


def _by_method(
    table: TrainingTable,
    rows: NDArray[np.int64],
    config: DataConfig,
    sizes: tuple[float, float, float],
    seed: int,
) -> Split:
    """Split some of the rows; return indices among all."""
    groups = _groups(Selection(table.records, rows.tolist()), config)
    split = group_split(groups, sizes=sizes, seed=seed, balanced=_is_balanced(config))
    return Split(*(rows[own] for own in split))


def _is_balanced(config: DataConfig) -> bool:
    """Return whether large groups go to train, unlike those of a random split."""
    return config.split in ("scaffold", "cluster")


def _groups(records: Sequence[MoleculeRecord], config: DataConfig) -> list[list[int]]:
    if config.split == "scaffold":
        return same_scaffold(records)
    if config.split == "cluster":
        return same_cluster(records)
    return same_molecule(records)
