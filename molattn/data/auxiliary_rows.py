"""Auxiliary rows that a model learns from; none of them tells about test rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.chem.split import Split
from molattn.data.dataset import SPLITS, Molecules, TrainingTable
from molattn.utils.spooled_list import Joined

Rows = NDArray[np.int64]


class AuxiliaryRows(NamedTuple):
    """Indices of rows of ``table.auxiliary``."""

    learned: Rows  # that a model learns from
    left_out: Rows  # that are left out by date or split column


def select_auxiliary_rows(
    table: TrainingTable, split: Split, *, with_validation: bool = False
) -> AuxiliaryRows:
    """Select the auxiliary rows that a model learns from in a split of the targets' rows.

    A molecule is held out if it, a salt of it or its parent is in a row of the targets, and none of
    these rows is a training row, or one of them is a validation or test row.

    =====================================  ===========  =======================================
    Auxiliary row                          Learned      Why
    =====================================  ===========  =======================================
    of weight 0                            no           the user left it out
    of a molecule that is held out         no           its label tells about a held-out label
    on a training row                      yes          the row is learned anyway
    marked ``val`` or ``test`` by a split  no           the user holds it out; ``left_out``
    column
    as new as the first test row           no           unknown before the test; ``left_out``
    any other                              yes
    =====================================  ===========  =======================================

    Args:
        table: The table of the targets, with its auxiliary rows.
        split: Training, validation and test rows of the table.
        with_validation: Whether validation rows count as training rows, as for a Gaussian process,
            which learns from them in the end.
    """
    auxiliary = table.auxiliary
    if auxiliary is None:
        return AuxiliaryRows(split.test[:0], split.test[:0])
    training = np.concatenate(split[: 1 + with_validation])
    held_out = {*table.parents} - {table.parents[row] for row in training.tolist()}
    held_out |= {table.parents[row] for rows in split[1 + with_validation :] for row in rows}
    is_free = np.array([parent not in held_out for parent in auxiliary.parents])
    if auxiliary.weights is not None:
        is_free &= auxiliary.weights > 0.0
    cells = auxiliary.split_cells or [""] * len(auxiliary.rows)
    names = [SPLITS.get(cell.strip().lower() or "train") for cell in cells]
    is_past = np.array([name == "train" for name in names])
    if (first := table.first_test_date(split)) is not None:
        is_past &= auxiliary.dates.values < first
    if not is_past.all():
        lines = {table.rows[row].line for row in training.tolist()}
        is_past |= np.array([row.line in lines for row in auxiliary.rows])
    return AuxiliaryRows(np.flatnonzero(is_free & is_past), np.flatnonzero(is_free & ~is_past))


def learned_molecules(table: TrainingTable, split: Split) -> tuple[Molecules, Molecules]:
    """Return the training and the validation molecules of a network.

    Columns of auxiliary labels follow the targets, and rows with auxiliary labels alone follow the
    training rows. Validation rows have no auxiliary label.
    """
    auxiliary = table.auxiliary
    count = len(table.rows)
    width = len(table.tasks)
    if auxiliary is None:
        return table.molecules(split.train), table.molecules(split.val)
    learned = select_auxiliary_rows(table, split).learned
    training = {table.rows[row].line: row for row in split.train.tolist()}
    lines = (auxiliary.rows[row].line for row in learned.tolist())
    positions = [training.get(line, count + row) for line, row in zip(lines, learned, strict=True)]

    def joined(labels: NDArray[Any] | None, more: NDArray[Any] | None) -> NDArray[Any]:
        """Return labels of the targets beside labels of the auxiliary columns (``more``)."""
        values = np.full((len(table.learned_tasks), count + len(auxiliary.rows)), np.nan)
        values[:width, :count] = np.nan if labels is None else labels.T
        values[width:, positions] = np.nan if more is None else more[learned].T
        return values.T

    bounds = None
    if table.bounds is not None or auxiliary.bounds is not None:
        none = (None, None)
        ends = (none if rows.bounds is None else rows.bounds for rows in (table, auxiliary))
        bounds = np.stack([joined(*pair) for pair in zip(*ends, strict=True)])
    stds = None if table.stds is None else joined(table.stds, None)
    columns: Any = ((table.weights, auxiliary.weights), (table.features, auxiliary.features))
    weights, features = (None if b is None else np.concatenate([a, b]) for a, b in columns)
    records = Joined(table.records, auxiliary.records)
    labels = joined(table.targets, auxiliary.targets)
    molecules = Molecules(records, labels, weights, features, bounds, stds)
    added = np.array([position for position in positions if position >= count], dtype=np.int64)
    rows = np.concatenate([split.train, added])
    return molecules.molecules(rows), molecules.molecules(split.val)
