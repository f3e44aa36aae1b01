r"""How the Gaussian process of a target learns from the labels of others.

The predictions :math:`z_1, \ldots, z_H` of Gaussian processes of other targets become a linear part
of that of a target,

.. math:: y = m + \gamma^\top z(x) + \delta(x) + \varepsilon, \qquad
    \gamma \sim N(0, s^2 \omega I),

with :math:`\delta` and :math:`\varepsilon` as in :mod:`molattn.model.gaussian_process` and
:math:`z` standardized. A molecule that has the label of another target has its leave-one-out
prediction, so that :math:`\gamma` is right for molecules without it. As each :math:`z` is a sum of
kernels, so is the whole: it is saved as a single Gaussian process is.

Source: Kennedy and O'Hagan, Biometrika 2000, 87, 1 (their autoregression, with predictions for the
process of the other target).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_POSITIVE = 1.0  # log Bayes factor: Kass and Raftery, J. Am. Stat. Assoc. 1995, 90, 773
_NOISES = np.geomspace(1e-5, 1e3, 73)
_VARIANCES = np.concatenate([[0.0], np.geomspace(1e-3, 1e1, 13)])
_LEAST_CHANGE = 1e-6  # deviation of predictions that are no constant, of standardized labels


def linear_part(products: Array, values: Array, along: Array, rows: int) -> tuple[Array, float]:
    """Return coefficients ``[H]``, 0 for what is not used, and the noise relative to the signal.

    Other targets are used that have positive evidence by themselves.

    Args:
        products: Weighted sums of products of centered columns: labels, then H predictions.
        values: Eigenvalues of the sums of products of the features, ``[r]``.
        along: Sums of products of their eigenvectors and the columns, ``[r, 1 + H]``.
        rows: Their number.
    """
    scale = np.sqrt(np.maximum(np.diag(products), 0.0) / rows)
    is_constant = scale <= _LEAST_CHANGE * max(scale[0], 1e-300)
    scale[0], scale[is_constant] = 1.0, np.inf
    products, along = products / scale / scale[:, None], along / scale
    inverse = 1.0 / (values + _NOISES[:, None])
    quadratic = np.einsum("sr,ri,rj->sij", inverse, along, along, optimize=True)
    quadratic = (products - quadratic) / _NOISES[:, None, None]
    determinant = -np.log(inverse).sum(axis=1) + (rows - len(values)) * np.log(_NOISES)
    found = np.zeros(len(scale) - 1)
    evidence = [_fit(quadratic, determinant, rows, [one])[0] for one in range(len(found))]
    chosen = np.flatnonzero(np.array(evidence) > _POSITIVE)
    if not len(chosen):
        return found, 0.0
    _, noise, coefficients = _fit(quadratic, determinant, rows, chosen.tolist())
    found[chosen] = coefficients / scale[1 + chosen]
    return found, noise


def _fit(
    quadratic: Array, determinant: Array, rows: int, chosen: list[int]
) -> tuple[float, float, Array]:
    """Return log Bayes factor, noise and coefficients of the chosen predictions.

    ``quadratic`` are products of the columns with the inverse covariance of each noise.
    """
    at = 1 + np.array(chosen)
    own = np.maximum(quadratic[:, 0, 0], np.finfo(float).tiny)
    values, vectors = np.linalg.eigh(quadratic[:, at[:, None], at])
    values = np.maximum(values, 0.0)
    with_labels = np.einsum("sij,si->sj", vectors, quadratic[:, at, 0])
    variances = _VARIANCES[:, None, None]
    shrunk = variances * with_labels / (1.0 + variances * values)  # [variances, noises, chosen]
    rest = np.maximum(own - (shrunk * with_labels).sum(axis=2), 1e-12 * own)
    loss = 0.5 * (rows * np.log(rest) + determinant + np.log1p(variances * values).sum(axis=2))
    best = np.unravel_index(loss.argmin(), loss.shape)
    evidence = float(loss[0].min() - loss[best])
    return evidence, float(_NOISES[best[1]]), vectors[best[1]] @ shrunk[best]
