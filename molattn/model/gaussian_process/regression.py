r"""Gaussian process regression in closed form, exact or with inducing points.

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
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LEAST_EIGENVALUE = 1e-7  # of the largest: kernels are computed in single precision
_LEAST_VARIANCE = 1e-12  # of standardized labels
_MOST_LEVERAGE = 1.0 - 1e-9
_NOISE = (1e-5, 1e3)
_GRID = 37


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
        kept = values > _LEAST_EIGENVALUE * values[-1]
        return cls(vectors[:, kept] / np.sqrt(values[kept]), values[kept])

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
        """Fit one of the targets; for the eigenvalues and vectors see the class."""
        from scipy.optimize import minimize_scalar

        size, place = sums.features, sums.features + 1 + target
        products, rows = sums.products, sums.rows
        weight = products[size, size]
        mean = float(products[size, place] / weight)
        squares = max(float(products[place, place] - weight * mean**2), _LEAST_VARIANCE * weight)
        along = products[:size, place] - mean * products[:size, size]
        if vectors is not None:
            along = vectors.T @ along

        def quadratic(noise: float) -> float:
            rest = squares - (along**2 / (values + noise)).sum()
            return max(float(rest) / noise, np.finfo(float).tiny)

        def loss(log_noise: float) -> float:
            noise = np.exp(log_noise)
            determinant = np.log(values + noise).sum() + (rows - len(values)) * log_noise
            scale = np.log(2.0 * np.pi * quadratic(noise) / rows)
            return 0.5 * (rows * (scale + 1.0) + determinant - sums.log_weights)

        grid = np.linspace(math.log(_NOISE[0]), math.log(_NOISE[1]), _GRID)
        best = int(np.argmin([loss(at) for at in grid]))
        ends = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
        found: Any = minimize_scalar(loss, bounds=ends, method="bounded")
        noise = math.exp(float(found.x))
        coefficients = along / (values + noise)
        if vectors is not None:
            coefficients = vectors @ coefficients
        return cls(coefficients, mean, noise, values, vectors, -float(found.fun))

    def predict(self, features: Array) -> Array:
        """Return the mean of rows with features ``[n, r]``, ``[n]``."""
        return self.mean + features @ self.coefficients

    def leave_one_out(self, features: Array, labels: Array, weights: Array) -> Array:
        """Predict rows that it was fitted to, each without its own label, ``[n]``."""
        along = features if self.vectors is None else features @ self.vectors
        leverage = weights * (along**2 @ (1.0 / (self.values + self.noise)))
        residual = labels - self.predict(features)
        return labels - residual / (1.0 - np.minimum(leverage, _MOST_LEVERAGE))
