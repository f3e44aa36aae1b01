"""The auxiliary labels that the Gaussian process of a model learns from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.chem.split import Split
from molattn.data.auxiliary import SECOND
from molattn.data.auxiliary_rows import select_auxiliary_rows
from molattn.data.dataset import Molecules, TrainingTable
from molattn.model.gaussian_process import MOST_SHARED_ROWS
from molattn.model.kernel import KernelInputs
from molattn.model.target_transform import transformed_labels
from molattn.task import Task
from molattn.training.scaling import target_transforms

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class AuxiliaryLabels:
    """Auxiliary labels of n rows of the targets, and of m rows of other molecules.

    Censored labels are left out, and numbers are transformed as ``--target-transform auto`` does.
    """

    tasks: tuple[Task, ...]
    row_labels: Array  # of the rows of the targets, NaN where missing, [n, A]
    other_labels: Array  # of other rows, [m, A]
    molecules: Molecules  # of other rows, m
    is_early: NDArray[np.bool_]  # whether their molecules have no validation row, [m]
    keys: list[str]  # what identifies other rows
    lines: Rows  # in the table of the targets, or -1, [m]

    @classmethod
    def of(
        cls, table: TrainingTable, auxiliary: TrainingTable, split: Split, rows: Rows, seed: int
    ) -> "AuxiliaryLabels":
        """Keep auxiliary labels of molecules that occur only in training or validation rows.

        A row of the targets gets the labels of its molecule from all auxiliary rows, in each column
        the first.
        """
        learned = select_auxiliary_rows(table, split, with_validation=True).learned
        early = select_auxiliary_rows(table, split).learned
        labels = _scaled(auxiliary, learned)
        positions: dict[Any, int] = {}
        for position, row in enumerate(rows.tolist()):
            positions.setdefault(_identity(table, row), position)
        matches = [positions.get(_identity(auxiliary, row)) for row in learned.tolist()]
        row_labels = np.full((len(rows), labels.shape[1]), np.nan)
        for position, values in zip(matches, labels, strict=True):
            if position is not None:
                row_labels[position] = np.where(
                    np.isnan(row_labels[position]), values, row_labels[position]
                )
        is_other = np.array([position is None for position in matches])
        is_other &= ~np.isnan(labels).all(axis=1)
        drawn = np.random.default_rng(seed).permutation(np.flatnonzero(is_other))
        sampled = np.sort(drawn[: max(MOST_SHARED_ROWS - len(rows), 0)])
        labels = labels[sampled]
        learned = learned[sampled]
        keys = [
            (_identity(auxiliary, row), values.tolist())
            for row, values in zip(learned.tolist(), labels, strict=True)
        ]
        lines = np.array([auxiliary.rows[row].line for row in learned], dtype=np.int64)
        return cls(
            auxiliary.tasks,
            row_labels,
            labels,
            auxiliary.molecules(learned),
            np.isin(learned, early),
            [*map(repr, keys)],
            np.where(lines < SECOND, lines, -1),
        )

    def added_to(self, first: dict[str, Any], inputs: KernelInputs) -> dict[str, Any]:
        """Return the arguments of a fit to the first rows of the targets with these labels.

        Args:
            first: Arguments of :meth:`molattn.model.gaussian_process.GaussianProcessHead.fit`.
            inputs: Kernel inputs of all n rows of the targets, then of the m other rows.
        """
        count, width = first["targets"].shape
        others = np.flatnonzero(self.is_early | (count == len(self.row_labels)))
        targets = np.full((count + len(others), width + len(self.tasks)), np.nan)
        targets[:count, :width] = first["targets"]
        targets[:count, width:] = self.row_labels[:count]
        targets[count:, width:] = self.other_labels[others]
        weights, more = (
            np.ones(size) if row_weights is None else row_weights
            for row_weights, size in (
                (first["weights"], count),
                (self.molecules.weights, len(self.other_labels)),
            )
        )
        if weights.ndim > 1:  # of each label
            weights = np.hstack([weights, np.ones_like(self.row_labels[:count])])
            more = np.repeat(more[:, None], targets.shape[1], axis=1)
        return first | {
            "inputs": inputs[np.concatenate([np.arange(count), len(self.row_labels) + others])],
            "targets": targets,
            "weights": np.concatenate([weights, more[others]]),
            "keys": [*first["keys"], *(self.keys[row] for row in others)],
            "auxiliary": self.tasks,
        }


def _identity(table: TrainingTable, row: int) -> tuple[Any, ...]:
    """Return the inputs of the model in a row, by which equal rows are found."""
    record = table.records[row]
    partner = None if record.partner is None else record.partner.smiles
    return record.smiles, partner, None if table.features is None else (*table.features[row],)


def _scaled(auxiliary: TrainingTable, rows: Rows) -> Array:
    """Return labels ``[n, A]``: of unit variance, or classes."""
    labels = auxiliary.targets[rows]
    values = auxiliary.labels_or_bounds[rows]
    transforms, _ = target_transforms(auxiliary.tasks, ("auto",), labels, values)
    labels = transformed_labels(torch.from_numpy(labels), transforms).numpy()
    for task, column in zip(auxiliary.tasks, labels.T, strict=True):
        values = column[~np.isnan(column)]
        if task.kind == "regression" and len(values) and values.std() > 0.0:
            column -= values.mean()
            column /= values.std()
    return labels
