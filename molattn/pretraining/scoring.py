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
    names_of_codes = (*featurizer.atom_names, "bonds")
    found, codes = ([[] for _ in names_of_codes] for _ in range(2))
    for batch in masked:
        outputs = objective.outputs(batch)
        for index, logits in enumerate((*outputs.atoms, outputs.bonds)):
            found[index].append(logits.argmax(dim=-1).numpy())
        for index, known in enumerate((*batch.atom_codes.unbind(1), batch.bonds)):
            codes[index].append(known.numpy())
    *atoms, bonds = map(_accuracy, found, codes)
    each, deviations = numbers.r2(), counts.deviations()
    scores = {
        "descriptors": _each_r2(names[:width], each[:width]),
        **({"columns": _each_r2(names[width:], each[width:])} if len(names) > width else {}),
        **{
            name: {"r2": _number(1.0 - counts.errors[part].sum() / total if total > 0 else np.nan)}
            for name, part in COUNT_GROUPS.items()
            for total in (deviations[part].sum(),)
        },
        "atoms": dict(zip(featurizer.atom_names, atoms, strict=True)),
        "bonds": bonds,
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


def _accuracy(found: list[NDArray[np.int64]], codes: list[NDArray[np.int64]]) -> dict[str, Any]:
    """Return the accuracy of predicted codes, and that of the most frequent code."""
    known = np.concatenate([*codes, np.zeros(0, dtype=np.int64)])
    if not len(known):
        return {"accuracy": None, "commonest": None}
    hits = np.concatenate(found) == known
    return {
        "accuracy": _number(hits.mean()),
        "commonest": _number(np.bincount(known).max() / len(known)),
    }


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
