r"""Labels of regressions that are known within limits.

A label with the limits :math:`l` and :math:`u`, of which one may be infinite, permits all values
between them. For a prediction :math:`f` these are its nearest value, its mean, if values are normal
around the prediction, and its largest error:

.. math::
    \min(\max(f, l), u), \qquad
    E[y \mid l < y < u], \quad y \sim N(f, s^2), \qquad
    \max(|l - f|, |u - f|)

- Losses and scores are of the distance to the nearest value, which is 0 between the limits: the
  bounded loss of Chemprop for censored labels (``>``, ``<``), and the usual loss of a measured
  value, whose limits are equal.
- The Gaussian process is fitted to the means.
- Conformal intervals are by the largest error, so that they contain the value wherever it is
  between the limits. It is infinite for censored labels, which are left out.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Array = NDArray[np.float64]


def nearest_permitted(values: Any, bounds: Any) -> Any:
    """Return the value within bounds ``[2, ...]`` that is nearest to each of some values ``[...]``.

    Tensors or arrays; a bound of NaN is none.
    """
    low, high = bounds
    if isinstance(values, np.ndarray):
        return np.fmin(np.fmax(values, low), high)
    return values.fmax(low).fmin(high)


def largest_errors(values: Array, labels: Array, bounds: Array | None = None) -> Array:
    """Return the largest absolute errors that labels permit, NaN where there is no label.

    Args:
        values: Predictions ``[...]``.
        labels: Labels ``[...]``, NaN where missing or censored.
        bounds: Lower and upper bounds of labels ``[2, ...]``, NaN where there is none.
    """
    errors = np.abs(values - labels)
    if bounds is None:
        return errors
    return np.where(np.isnan(labels), np.nan, np.fmax(errors, np.fmax(*np.abs(values - bounds))))


def mean_within(bounds: Array, mean: Array, std: Array) -> Array:
    r"""Return the means of normal numbers, given that they are within bounds ``[2, ...]``.

    With :math:`a` and :math:`b`, the distances of the bounds from the mean in standard deviations,

    .. math:: m + s\, (\phi(a) - \phi(b)) / (\Phi(b) - \Phi(a))

    A bound of NaN is none, but one of the two is a number.
    """
    low = np.where(np.isnan(bounds[0]), -np.inf, bounds[0])
    high = np.where(np.isnan(bounds[1]), np.inf, bounds[1])
    with np.errstate(all="ignore"):  # without bounds, or without width
        # In the upper tail, where differences of probabilities keep their digits.
        sign = np.where(low + high < 2.0 * mean, -1.0, 1.0)
        near, far = np.sort([sign * (low - mean) / std, sign * (high - mean) / std], axis=0)
        tails = log_ndtr([-near, -far])
        log_mass = tails[0] + np.log1p(-np.exp(tails[1] - tails[0]))
        difference = np.exp(-0.5 * near**2 - log_mass) - np.exp(-0.5 * far**2 - log_mass)
    within = mean + sign * std * difference / np.sqrt(2.0 * np.pi)
    return nearest_permitted(within, bounds)  # rounded, and without width
