"""Bootstrap intervals of means over molecules."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "bootstrap_mean"]

_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over molecules and its 95 % confidence interval.

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


def bootstrap_mean(values: NDArray[np.float64], seed: int = 0) -> Estimate:
    """Estimate the mean of one value per molecule.

    Args:
        values: ``[molecules]``, at least one.
        seed: Seed of the resamples; paired values with the same seed are resampled alike.

    Example:
        >>> f"{bootstrap_mean(np.array([1.0, 1.0])):.1f}"
        '1.0 (1.0 to 1.0)'
    """
    rng = np.random.default_rng(seed)
    picked = rng.integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(values[picked].mean(axis=1), [0.025, 0.975])
    return Estimate(float(values.mean()), float(low), float(high))
