"""Scales of the pretraining targets; scaled, an uninformed prediction has the error 1."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from molattn.chem.pretraining_targets import COUNT_GROUPS, NUM_COUNTS, PRETRAINING_DESCRIPTORS
from molattn.pretraining.store import MoleculeStore

__all__ = ["DescriptorScaling", "count_scaling", "descriptor_scaling", "sample"]

_MOST_SAMPLED = 50_000
_ROWS_AT_ONCE = 1024
_TAIL = 0.001


@dataclass(frozen=True)
class DescriptorScaling:
    """The predicted descriptors, further columns, and their scaling.

    A value is clipped to the range between the 0.1% and 99.9% quantiles of the training molecules,
    then standardized by the mean and standard deviation of the clipped values. A descriptor that
    is constant within this range is left out.

    Args:
        names: Names of the descriptors, then of the further columns, ``D`` of them.
        columns: Their columns in the store, ascending ``[D]``; the other arrays belong to them.
    """

    names: tuple[str, ...]
    columns: NDArray[np.intp]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]

    @property
    def num_descriptors(self) -> int:
        """Number of descriptors among the names."""
        return int(np.searchsorted(self.columns, len(PRETRAINING_DESCRIPTORS)))

    def scaled(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """Scale rows of a store's descriptors to ``[n, D]``; NaN where one is undefined."""
        chosen = np.asarray(values)[:, self.columns].astype(np.float32)
        return (np.clip(chosen, self.low, self.high) - self.mean) / self.scale


def sample(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at most 50,000 of the rows, evenly spaced, in their order."""
    step = -(-len(rows) // _MOST_SAMPLED)
    return rows[:: max(1, step)]


def descriptor_scaling(
    store: MoleculeStore, rows: NDArray[np.int64], *, columns: bool = True
) -> DescriptorScaling:
    """Fit the scaling of the descriptors, and of the further columns, to some of the molecules."""
    fits, values = [], []
    width = len(PRETRAINING_DESCRIPTORS)
    every = store.descriptors(rows).T
    for column, found in enumerate(every if columns else every[:width]):
        known = found[~np.isnan(found)].astype(np.float64)
        if not len(known):
            continue
        low, high = np.quantile(known, [_TAIL, 1.0 - _TAIL], method="nearest")
        clipped = np.clip(known, low, high)
        # Equal values leave rounding noise, not zero, for a standard deviation. Further columns
        # may have any unit.
        size = max(1.0, abs(clipped.mean())) if column < width else 0.1 * np.abs(clipped).max()
        if clipped.std() > 1e-6 * size:
            fits.append(column)
            values.append((low, high, clipped.mean(), clipped.std()))
    places = np.array(fits, dtype=np.intp)
    limits = np.array(values, dtype=np.float32).reshape(-1, 4).T
    return DescriptorScaling(tuple(store.names[column] for column in fits), places, *limits)


def count_scaling(
    store: MoleculeStore, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], dict[str, float]]:
    """Return the mean of each ``log(1 + count)``, and the mean variance of each group.

    The variance of a group that is constant is given as 1.
    """
    total, squares = np.zeros(NUM_COUNTS), np.zeros(NUM_COUNTS)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        counts = store.log_counts(rows[start : start + _ROWS_AT_ONCE])
        total += counts.sum(axis=0, dtype=np.float64)
        squares += (counts**2).sum(axis=0, dtype=np.float64)
    mean = total / len(rows)
    variance = np.maximum(squares / len(rows) - mean**2, 0.0)
    of_groups = {name: float(variance[part].mean()) for name, part in COUNT_GROUPS.items()}
    return mean.astype(np.float32), {name: one or 1.0 for name, one in of_groups.items()}
