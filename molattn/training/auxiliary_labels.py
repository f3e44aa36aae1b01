"""The auxiliary labels that the Gaussian process of a model learns from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.chem.split import Split
from molattn.data.auxiliary import SECOND
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

    Censored ones are left out, and numbers are transformed as ``--target-transform auto`` does.
    """

    tasks: tuple[Task, ...]
    own: Array  # of the rows of the targets, NaN where missing, [n, A]
    others: Array  # of other rows, [m, A]
    molecules: Molecules  # of other rows, m
    is_early: NDArray[np.bool_]  # whether their molecules have no validation row, [m]
    keys: list[str]  # what identifies other rows
    lines: Rows  # in the table of the targets, or -1, [m]

    @classmethod
    def of(
        cls, table: TrainingTable, auxiliary: TrainingTable, split: Split, rows: Rows, seed: int
    ) -> "AuxiliaryLabels":
        """Select those of the molecules in no row but training and validation rows of a table.

        A row of the targets gets the labels of its molecule from wherever they are, the first of
        each column.
        """
        chosen, _ = table.auxiliary_rows(split, with_validation=True)
        early, _ = table.auxiliary_rows(split)
        labels = _scaled(auxiliary, chosen)
        places: dict[Any, int] = {}
        for place, row in enumerate(rows.tolist()):
            places.setdefault(_identity(table, row), place)
        found = [places.get(_identity(auxiliary, row)) for row in chosen.tolist()]
        own = np.full((len(rows), labels.shape[1]), np.nan)
        for place, one in zip(found, labels, strict=True):
            if place is not None:
                own[place] = np.where(np.isnan(own[place]), one, own[place])
        is_other = np.array([place is None for place in found]) & ~np.isnan(labels).all(axis=1)
        drawn = np.random.default_rng(seed).permutation(np.flatnonzero(is_other))
        kept = np.sort(drawn[: max(MOST_SHARED_ROWS - len(rows), 0)])
        labels, chosen = labels[kept], chosen[kept]
        keys = [
            (_identity(auxiliary, row), one.tolist())
            for row, one in zip(chosen.tolist(), labels, strict=True)
        ]
        lines = np.array([auxiliary.rows[row].line for row in chosen], dtype=np.int64)
        return cls(
            auxiliary.tasks,
            own,
            labels,
            auxiliary.molecules(chosen),
            np.isin(chosen, early),
            [*map(repr, keys)],
            np.where(lines < SECOND, lines, -1),
        )

    def added_to(self, first: dict[str, Any], inputs: KernelInputs) -> dict[str, Any]:
        """Return the arguments of a fit to the first rows of the targets with these labels.

        Args:
            first: Arguments of :meth:`molattn.model.gaussian_process.GaussianProcessHead.fit`.
            inputs: Those of all n rows, and of the m.
        """
        count, width = first["targets"].shape
        others = np.flatnonzero(self.is_early | (count == len(self.own)))
        targets = np.full((count + len(others), width + len(self.tasks)), np.nan)
        targets[:count, :width], targets[:count, width:] = first["targets"], self.own[:count]
        targets[count:, width:] = self.others[others]
        weights, more = (
            np.ones(size) if one is None else one
            for one, size in ((first["weights"], count), (self.molecules.weights, len(self.others)))
        )
        return first | {
            "inputs": inputs[np.concatenate([np.arange(count), len(self.own) + others])],
            "targets": targets,
            "weights": np.concatenate([weights, more[others]]),
            "keys": [*first["keys"], *(self.keys[row] for row in others)],
            "auxiliary": self.tasks,
        }


def _identity(table: TrainingTable, row: int) -> tuple[Any, ...]:
    """Return what the model reads of a row."""
    record = table.records[row]
    partner = None if record.partner is None else record.partner.smiles
    return record.smiles, partner, None if table.features is None else (*table.features[row],)


def _scaled(auxiliary: TrainingTable, rows: Rows) -> Array:
    """Return labels ``[n, A]``: of unit variance, or classes."""
    labels, known = auxiliary.targets[rows], auxiliary.labels_or_bounds[rows]
    transforms, _ = target_transforms(auxiliary.tasks, ("auto",), labels, known)
    labels = transformed_labels(torch.from_numpy(labels), transforms).numpy()
    for task, column in zip(auxiliary.tasks, labels.T, strict=True):
        known = column[~np.isnan(column)]
        if task.kind == "regression" and len(known) and known.std() > 0.0:
            column -= known.mean()
            column /= known.std()
    return labels
