"""How well the molecules set aside are predicted."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.chem.count_fingerprints import COUNT_GROUPS
from molattn.pretraining.batches import HiddenBatches
from molattn.pretraining.objective import PretrainingObjective

__all__ = ["pretraining_scores"]


@torch.inference_mode()
def pretraining_scores(
    objective: PretrainingObjective, whole: HiddenBatches, masked: HiddenBatches
) -> dict[str, Any]:
    """Return R² of descriptors and counts, and the accuracy for hidden atoms and bonds.

    R² of descriptors is that of each, and their mean and median; R² of counts is of all places of a
    group together: 1 - (squared errors) / (squared deviations from each place's mean). An accuracy
    stands beside that of the commonest code. What cannot be told is None.

    Args:
        objective: The trained model and heads, in evaluation mode.
        whole: Molecules with nothing hidden.
        masked: Molecules of which each has something hidden.
    """
    featurizer = objective.model.config.featurizer
    names = objective.model.config.targets
    descriptors = _Squares()
    counts = {name: _Squares() for name in COUNT_GROUPS}
    for batch in whole:
        outputs = objective.outputs(batch)
        descriptors.add(outputs.descriptors, batch.descriptors)
        for name, part in COUNT_GROUPS.items():
            counts[name].add(outputs.counts[:, part], batch.counts[:, part])
    atoms = [_Hits(size) for size in featurizer.atom_sizes]
    bonds = _Hits(featurizer.pair_sizes[0])
    for batch in masked:
        outputs = objective.outputs(batch)
        for hits, logits, codes in zip(
            atoms, outputs.atoms, batch.atom_codes.unbind(1), strict=True
        ):
            hits.add(logits, codes)
        bonds.add(outputs.bonds, batch.bonds)
    each = descriptors.r2()
    known = each[np.isfinite(each)]
    return {
        "descriptors": {
            "mean_r2": _number(known.mean()) if len(known) else None,
            "median_r2": _number(np.median(known)) if len(known) else None,
            "r2": {name: _number(value) for name, value in zip(names, each, strict=True)},
        },
        **{name: {"r2": _number(squares.pooled_r2())} for name, squares in counts.items()},
        "atoms": {
            name: hits.to_dict() for name, hits in zip(featurizer.atom_names, atoms, strict=True)
        },
        "bonds": bonds.to_dict(),
    }


class _Squares:
    """Squared errors and deviations of several columns."""

    def __init__(self) -> None:
        self._count = self._total = self._squares = self._errors = np.zeros(1)

    def add(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows, whose targets may be NaN."""
        known = ~target.isnan().numpy()
        y = np.where(known, target.double().numpy(), 0.0)
        errors = np.where(known, predicted.double().numpy() - y, 0.0)
        self._count = self._count + known.sum(axis=0)
        self._total = self._total + y.sum(axis=0)
        self._squares = self._squares + (y**2).sum(axis=0)
        self._errors = self._errors + (errors**2).sum(axis=0)

    def _deviations(self) -> NDArray[np.float64]:
        return self._squares - self._total**2 / np.maximum(self._count, 1)

    def r2(self) -> NDArray[np.float64]:
        """Return R² of each column, NaN where it does not vary."""
        deviations = self._deviations()
        varies = deviations > 1e-9 * np.maximum(self._count, 1)
        return np.where(varies, 1.0 - self._errors / np.where(varies, deviations, 1.0), np.nan)

    def pooled_r2(self) -> float:
        """Return R² of all columns together, NaN where none varies."""
        deviations = self._deviations().sum()
        return float(1.0 - self._errors.sum() / deviations) if deviations > 0.0 else np.nan


class _Hits:
    """How often the likeliest code is the right one."""

    def __init__(self, size: int) -> None:
        self._right = 0
        self._codes = np.zeros(size, dtype=np.int64)

    def add(self, logits: Tensor, codes: Tensor) -> None:
        self._right += int((logits.argmax(dim=-1) == codes).sum())
        self._codes += np.bincount(codes.numpy(), minlength=len(self._codes))

    def to_dict(self) -> dict[str, float | None]:
        count = int(self._codes.sum())
        if not count:
            return {"accuracy": None, "commonest": None}
        return {
            "accuracy": _number(self._right / count),
            "commonest": _number(int(self._codes.max()) / count),
        }


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
