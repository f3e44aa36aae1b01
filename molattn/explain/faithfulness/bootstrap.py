"""How sure a mean over molecules is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "mean_of_molecules"]

_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over molecules and its 95 % interval.

    Args:
        mean: The mean.
        low: Lower end, by the percentile bootstrap over molecules.
        high: Upper end.
    """

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def mean_of_molecules(values: NDArray[np.float64], seed: int = 0) -> Estimate:
    """Estimate the mean of one value for each molecule, of at least one.

    Args:
        values: ``[molecules]``.
        seed: Of the resamples, so that paired values are resampled alike.

    Example:
        >>> f"{mean_of_molecules(np.array([1.0, 1.0])):.1f}"
        '1.0 (1.0 to 1.0)'
    """
    draw = np.random.default_rng(seed)
    picked = draw.integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(values[picked].mean(axis=1), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))
