import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from molattn.model.gaussian_process.process import Basis, GaussianProcess, Sums

KERNEL = RBF(1.0)


def data(rows, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (rows, 2))
    y = np.sin(x).sum(axis=1) + noise * rng.normal(size=rows)
    return x, y


def fitted(x, y, points=None, weights=None, *, orthogonal=False):
    """Fit to rows with an RBF kernel; return the process and the features of any rows."""
    points = x if points is None else points
    weights = np.ones(len(x)) if weights is None else weights
    basis = Basis.of(KERNEL(points))
    sums = Sums(len(basis.values), 1)
    for some in np.array_split(np.arange(len(x)), 3):
        sums.add(basis(KERNEL(x[some], points)), y[some, None], weights[some])
    values, vectors = (basis.values, None) if orthogonal else sums.decomposed()
    process = GaussianProcess.fit(sums, 0, values, vectors)
    return process, lambda rows: basis(KERNEL(rows, points))


def approximation(points):
    """The Nyström approximation of the kernel."""
    inverse = np.linalg.pinv(KERNEL(points), rcond=1e-7, hermitian=True)
    return lambda a, b: KERNEL(a, points) @ inverse @ KERNEL(points, b)


def brute_force(kernel, x, y, weights, noise, mean):
    """Return signal variance, log marginal likelihood, and the mean at any rows."""
    covariance = kernel(x, x) + noise * np.diag(1.0 / weights)
    residual = y - mean
    signal = residual @ np.linalg.solve(covariance, residual) / len(y)
    likelihood = stats.multivariate_normal(np.full(len(y), mean), signal * covariance).logpdf(y)
    alpha = np.linalg.solve(covariance, residual)
    return signal, likelihood, lambda rows: mean + kernel(rows, x) @ alpha


@pytest.mark.parametrize("orthogonal", [False, True])
def test_it_is_the_gaussian_process_of_scikit_learn(orthogonal):
    x, y = data(60)
    process, features = fitted(x, y, orthogonal=orthogonal)
    ones = np.ones(60)
    signal, _, _ = brute_force(KERNEL, x, y, ones, process.noise, y.mean())
    kernel = ConstantKernel(signal) * KERNEL + WhiteKernel(signal * process.noise)
    other = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(x, y - y.mean())
    new = data(20, seed=1)[0]
    assert process.mean == pytest.approx(y.mean())
    np.testing.assert_allclose(
        process.predict(features(new)), other.predict(new) + y.mean(), rtol=1e-4
    )
    # The noise is the one that scikit-learn's own optimizer finds.
    bounds = (1e-6, 1e6)
    free = GaussianProcessRegressor(
        ConstantKernel(1.0, bounds) * RBF(1.0, "fixed") + WhiteKernel(0.1, bounds), alpha=0.0
    ).fit(x, y - y.mean())
    likelihood = other.log_marginal_likelihood_value_
    assert likelihood == pytest.approx(free.log_marginal_likelihood_value_, abs=1e-3)
    assert signal == pytest.approx(free.kernel_.k1.k1.constant_value, rel=0.02)
    assert signal * process.noise == pytest.approx(free.kernel_.k2.noise_level, rel=0.02)


@settings(max_examples=10)
@given(st.integers(1, 25), st.integers(0, 1000), st.booleans())
def test_weights_divide_the_noise(rows, seed, is_exact):
    x, y = data(rows, seed)
    weights = np.random.default_rng(seed).uniform(0.1, 5.0, rows)
    points = x if is_exact else x[::2]
    process, features = fitted(x, y, points, weights)
    mean = np.average(y, weights=weights)
    assert process.mean == pytest.approx(mean)
    assume(rows > 1)
    kernel = approximation(points)
    signal, likelihood, predict = brute_force(kernel, x, y, weights, process.noise, mean)
    assume(signal > 1e-6)
    for noise in np.geomspace(1e-4, 1e3, 20):  # none is more likely
        assert brute_force(kernel, x, y, weights, noise, mean)[1] < likelihood + 1e-2
    new = data(5, seed + 1)[0]
    np.testing.assert_allclose(process.predict(features(new)), predict(new), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows, of_points", [(12, 12), (30, 8)])
def test_leave_one_out_is_a_fit_without_the_row(rows, of_points):
    x, y = data(rows)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, rows)
    points = x[:of_points]
    process, features = fitted(x, y, points, weights)
    kernel = approximation(points)
    expected = []
    for row in range(rows):
        kept = np.arange(rows) != row
        covariance = kernel(x[kept], x[kept]) + process.noise * np.diag(1.0 / weights[kept])
        alpha = np.linalg.solve(covariance, y[kept] - process.mean)
        expected.append(process.mean + kernel(x[row : row + 1], x[kept]) @ alpha)
    found = process.leave_one_out(features(x), y, weights)
    np.testing.assert_allclose(found, np.ravel(expected), rtol=1e-4, atol=1e-5)


def test_directions_below_rounding_are_left_out():
    x = np.vstack([data(10)[0]] * 2)
    basis = Basis.of(KERNEL(x))
    assert basis.vectors.shape[1] <= 10
    np.testing.assert_allclose(basis(KERNEL(x)) @ basis(KERNEL(x)).T, KERNEL(x), atol=1e-6)
