"""Scores of a pretrained model on the validation molecules."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from molattn.chem.pretraining_targets import COUNT_GROUPS
from molattn.pretraining.batches import MaskedBatch
from molattn.pretraining.objective import PretrainingObjective

__all__ = ["pretraining_scores"]


@torch.inference_mode()
def pretraining_scores(
    objective: PretrainingObjective,
    names: Sequence[str],
    unmasked: Iterable[MaskedBatch],
    masked: Iterable[MaskedBatch],
) -> dict[str, Any]:
    """Return R² of descriptors, columns and counts, and the accuracy for masked atoms and bonds.

    Targets that were not learned are left out.

    R² is given for each descriptor and further column of ``names``, with the mean and median over
    them. R² of a group of counts pools its positions: 1 - (squared errors) / (squared deviations
    from each position's mean). Beside each accuracy stands that of always predicting the most
    frequent value. A score that is undefined is None.
    """
    featurizer = objective.model.config.featurizer
    width = len(objective.model.config.tasks)
    numbers, counts = _Squares(), _Squares()
    for batch in unmasked:
        outputs = objective.outputs(batch)
        numbers.add(outputs.descriptors, batch.descriptors)
        counts.add(outputs.counts, batch.counts)
    atoms = [_Accuracy(size) for size in featurizer.atom_sizes]
    bonds = _Accuracy(featurizer.pair_sizes[0])
    for batch in masked:
        outputs = objective.outputs(batch)
        for hits, logits, codes in zip(
            atoms, outputs.atoms, batch.atom_codes.unbind(1), strict=True
        ):
            hits.add(logits, codes)
        bonds.add(outputs.bonds, batch.bonds)
    each, deviations = numbers.r2(), counts.deviations()
    scores = {
        "descriptors": _each_r2(names[:width], each[:width]),
        **({"columns": _each_r2(names[width:], each[width:])} if len(names) > width else {}),
        **{
            name: {"r2": _number(1.0 - counts.errors[part].sum() / total if total > 0 else np.nan)}
            for name, part in COUNT_GROUPS.items()
            for total in (deviations[part].sum(),)
        },
        "atoms": {
            name: hits.to_dict() for name, hits in zip(featurizer.atom_names, atoms, strict=True)
        },
        "bonds": bonds.to_dict(),
    }
    return {name: scores[name] for name in scores if name in objective.targets}


def _each_r2(names: Sequence[str], each: NDArray[np.float64]) -> dict[str, Any]:
    known = each[np.isfinite(each)] if np.isfinite(each).any() else np.array([np.nan])
    return {
        "mean_r2": _number(known.mean()),
        "median_r2": _number(float(np.median(known))),
        "r2": {name: _number(value) for name, value in zip(names, each, strict=True)},
    }


class _Squares:
    """Running sums for R² of several columns."""

    def __init__(self) -> None:
        self.count = self.total = self.squares = self.errors = np.zeros(1)

    def add(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows; NaN targets are skipped."""
        known = ~target.isnan().numpy()
        y = np.where(known, target.double().numpy(), 0.0)
        errors = np.where(known, predicted.double().numpy() - y, 0.0)
        self.count = self.count + known.sum(axis=0)
        self.total = self.total + y.sum(axis=0)
        self.squares = self.squares + (y**2).sum(axis=0)
        self.errors = self.errors + (errors**2).sum(axis=0)

    def deviations(self) -> NDArray[np.float64]:
        """Return the squared deviations of each column from its mean."""
        return self.squares - self.total**2 / np.maximum(self.count, 1)

    def r2(self) -> NDArray[np.float64]:
        """Return R² of each column, NaN where the target is constant."""
        deviations = self.deviations()
        varies = deviations > 1e-9 * np.maximum(self.count, 1)
        return np.where(varies, 1.0 - self.errors / np.where(varies, deviations, 1.0), np.nan)


class _Accuracy:
    """Accuracy of the likeliest code, and of the commonest one."""

    def __init__(self, size: int) -> None:
        self._correct = 0
        self._codes = np.zeros(size, dtype=np.int64)

    def add(self, logits: Tensor, codes: Tensor) -> None:
        self._correct += int((logits.argmax(dim=-1) == codes).sum())
        self._codes += np.bincount(codes.numpy(), minlength=len(self._codes))

    def to_dict(self) -> dict[str, float | None]:
        count = float(self._codes.sum()) or np.nan
        numbers = {"accuracy": self._correct, "commonest": self._codes.max()}
        return {name: _number(number / count) for name, number in numbers.items()}


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
