r"""A Gaussian process of one target, fitted in closed form, exactly or with inducing points.

With kernel :math:`k`, inducing points :math:`Z` (all rows, if exact) and the eigenvectors
:math:`V` and eigenvalues :math:`d` of :math:`k(Z, Z)`, a row has the features
:math:`\phi(x) = k(x, Z) V d^{-1/2}`, whose products are the kernel (exact) or its Nyström
approximation. The labels are :math:`y = m + \phi(x)^\top w + \varepsilon` with
:math:`w \sim N(0, s^2)` and :math:`\varepsilon \sim N(0, s^2 \sigma / c)` for a row of weight
:math:`c`. The noise :math:`\sigma` maximizes the marginal likelihood, for which :math:`s^2` has a
closed form.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 5 and 8
(deterministic training conditional, equation 8.20; leave-one-out, section 5.4.2).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

ROWS_AT_ONCE = 1024
LEAST_VARIANCE = 1e-12
"""Smallest variance of standardized labels."""

_LEAST_EIGENVALUE = 1e-7  # of the largest: kernels are computed in single precision
_MOST_LEVERAGE = 1.0 - 1e-9
_NOISE = (1e-5, 1e3)
_GRID = 37


def blocks(rows: Rows, size: int = ROWS_AT_ONCE) -> Iterator[Rows]:
    """Split rows into blocks of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


@dataclass(frozen=True)
class Basis:
    """Features whose products are a kernel."""

    vectors: Array  # weights of the kernel with the m inducing points in each feature, [m, r]
    values: Array  # sum of squares of each feature over the inducing points, [r]

    @classmethod
    def of(cls, kernel: Array) -> "Basis":
        """Decompose the kernel of the inducing points, ``[m, m]``."""
        from scipy.linalg import eigh  # not needed for predictions

        values, vectors = eigh(kernel, driver="evd", check_finite=False)
        is_large = values > _LEAST_EIGENVALUE * values[-1]
        return cls(vectors[:, is_large] / np.sqrt(values[is_large]), values[is_large])

    def __call__(self, kernel: Array) -> Array:
        """Return the features of n rows ``[n, r]`` from their kernel ``[n, m]``."""
        return kernel @ self.vectors


class Sums:
    """Sums over rows that have the labels of some targets, which determine their processes.

    Rows are added in blocks, so that memory does not grow with their number.
    """

    def __init__(self, features: int, targets: int) -> None:
        self.features = features
        self.products = np.zeros((features + 1 + targets,) * 2)
        self.rows = 0
        self.log_weights = 0.0

    def add(self, features: Array, labels: Array, weights: Array) -> None:
        """Add n rows: features ``[n, r]``, labels ``[n, targets]``, positive weights ``[n]``."""
        joined = np.column_stack([features, np.ones(len(labels)), labels])
        joined *= np.sqrt(weights)[:, None]
        self.products += joined.T @ joined
        self.rows += len(labels)
        self.log_weights += float(np.log(weights).sum())

    def decomposed(self) -> tuple[Array, Array]:
        """Return eigenvalues and eigenvectors of the features' products."""
        from scipy.linalg import eigh

        values, vectors = eigh(self.products[: self.features, : self.features], driver="evd")
        return np.maximum(values, 0.0), vectors

    def centered(self, vectors: Array | None) -> tuple[Array, Array, Array]:
        """Return means of the labels; products with each other, and with features or vectors."""
        size = self.features
        weight = self.products[size, size]
        means = self.products[size, size + 1 :] / weight
        products = self.products[size + 1 :, size + 1 :] - weight * means[:, None] * means
        along = self.products[:size, size + 1 :] - self.products[:size, size, None] * means
        if vectors is not None:
            along = vectors.T @ along
        return means, products, along


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process of one target on features of a :class:`Basis`."""

    coefficients: Array  # mean of the weights of the features, [r]
    mean: float  # of the labels
    noise: float  # its variance relative to that of the signal
    values: Array  # eigenvalues of the features' sum of products, [r]
    vectors: Array | None  # its eigenvectors, [r, r]; None = the features are orthogonal
    log_likelihood: float  # marginal, of the labels

    @classmethod
    def fit(
        cls, sums: Sums, target: int, values: Array, vectors: Array | None
    ) -> "GaussianProcess":
        """Fit the process of a target, by its index; eigenvalues and vectors as in the class."""
        from scipy.optimize import minimize_scalar

        size = sums.features
        column = size + 1 + target
        products = sums.products
        rows = sums.rows
        weight = products[size, size]
        mean = float(products[size, column] / weight)
        variance = float(products[column, column] - weight * mean**2)
        squares = max(variance, LEAST_VARIANCE * weight)
        along = products[:size, column] - mean * products[:size, size]
        if vectors is not None:
            along = vectors.T @ along

        def quadratic(noise: float) -> float:
            residual = squares - (along**2 / (values + noise)).sum()
            return max(float(residual) / noise, np.finfo(float).tiny)

        def loss(log_noise: float) -> float:
            noise = np.exp(log_noise)
            determinant = np.log(values + noise).sum() + (rows - len(values)) * log_noise
            scale = np.log(2.0 * np.pi * quadratic(noise) / rows)
            return 0.5 * (rows * (scale + 1.0) + determinant - sums.log_weights)

        grid = np.linspace(math.log(_NOISE[0]), math.log(_NOISE[1]), _GRID)
        best = int(np.argmin([loss(log_noise) for log_noise in grid]))
        bounds = (grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)])
        minimum: Any = minimize_scalar(loss, bounds=bounds, method="bounded")
        noise = math.exp(float(minimum.x))
        coefficients = along / (values + noise)
        if vectors is not None:
            coefficients = vectors @ coefficients
        return cls(coefficients, mean, noise, values, vectors, -float(minimum.fun))

    def of(self, along: Array, mean: float, noise: float) -> "GaussianProcess":
        """Return the process of other labels for the same rows.

        ``along`` are the products of the eigenvectors with the centered labels, ``[r]``.
        """
        coefficients = along / (self.values + noise)
        if self.vectors is not None:
            coefficients = self.vectors @ coefficients
        return replace(self, coefficients=coefficients, mean=mean, noise=noise)

    def predict(self, features: Array) -> Array:
        """Return the mean of rows with features ``[n, r]``, ``[n]``."""
        return self.mean + features @ self.coefficients

    def leave_one_out(self, features: Array, labels: Array, weights: Array) -> Array:
        """Predict rows of the fit, each without its own label, ``[n]``."""
        rotated = features if self.vectors is None else features @ self.vectors
        leverage = weights * (rotated**2 @ (1.0 / (self.values + self.noise)))
        residual = labels - self.predict(features)
        return labels - residual / (1.0 - np.minimum(leverage, _MOST_LEVERAGE))
