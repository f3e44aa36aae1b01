from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit

from molattn.chem.parse import parse_smiles
from molattn.config import NetworkConfig
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process import GaussianProcessHead, log_bayes_factor
from molattn.model.kernel import KernelInputs, MoleculeKernel, stack_counts
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (Task("y"), Task("b", "binary", ("no", "yes")), Task("c", "multiclass", ("u", "v", "w")))
CONFIG = MolAttnConfig(TASKS, SMALL, kernels=("morgan", "embedding"))
WIDTH = 4
SMILES = [head + "C" * n + end for n in range(1, 9) for head in "NC" for end in ("O", "F", "C=O")]


def make_inputs(smiles=SMILES, seed=0):
    rng = np.random.default_rng(seed)
    counts = stack_counts([CONFIG.counter(parse_smiles(text)) for text in smiles])
    return KernelInputs(len(smiles), counts, {"embedding": rng.normal(size=(len(smiles), WIDTH))})


INPUTS = make_inputs()
NEW = make_inputs(["CCN", "CCCCCCO", "NCC=O"], seed=1)


def make_labels(rows=48, seed=0):
    rng = np.random.default_rng(seed)
    x = INPUTS.numbers["embedding"][:rows, 0]
    y = x + 0.1 * rng.normal(size=rows)
    return np.column_stack([y, x > rng.normal(size=rows), np.digitize(y, [-0.5, 0.5])]).astype(
        float
    )


def test_a_kernel_that_is_not_kept_gives_the_same(monkeypatch):
    kept = GaussianProcessHead.fit(CONFIG, INPUTS, make_labels(), inducing_points=20)
    monkeypatch.setattr("molattn.model.gaussian_process.fit._MOST_SAVED", 0)
    again = GaussianProcessHead.fit(CONFIG, INPUTS, make_labels(), inducing_points=20)
    np.testing.assert_allclose(again.weights, kept.weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(again.predict(NEW), kept.predict(NEW), rtol=1e-6)


def test_each_task_is_learned_from_the_rows_that_have_its_label():
    labels, other = (np.random.default_rng(seed).permutation(make_labels()) for seed in (1, 2))
    labels[:, 0] = other[:, 0] = make_labels()[:, 0]  # without help of the others
    labels[:12, 0], labels[30:, 1] = np.nan, np.nan
    head = GaussianProcessHead.fit(CONFIG, INPUTS, labels)
    assert head.predict(NEW).shape == (3, 5)
    # A missing label does not count in the task; the row is an inducing point still.
    other[:12, 0] = np.nan
    found = GaussianProcessHead.fit(CONFIG, INPUTS, other).predict(NEW)[:, 0]
    np.testing.assert_allclose(found, head.predict(NEW)[:, 0], rtol=1e-6)
    other[12:, 0] += 1.0
    found = GaussianProcessHead.fit(CONFIG, INPUTS, other).predict(NEW)[:, 0]
    np.testing.assert_allclose(found, head.predict(NEW)[:, 0] + 1.0, rtol=1e-6)


def test_each_label_may_have_a_weight_of_its_own():
    rng = np.random.default_rng(0)
    labels = make_labels()[:, :2]
    weights = rng.uniform(0.2, 2.0, labels.shape)
    tasks = Task("y"), Task("z")
    labels[:, 1] = rng.normal(size=len(labels))  # no help for the other
    config = MolAttnConfig(tasks, SMALL, kernels=CONFIG.kernels)
    both = GaussianProcessHead.fit(config, INPUTS, labels, weights=weights, with_errors=True)
    for index, task in enumerate(tasks):
        alone = GaussianProcessHead.fit(
            MolAttnConfig((task,), SMALL, kernels=CONFIG.kernels),
            INPUTS,
            labels[:, [index]],
            weights=weights[:, index],
            with_errors=True,
        )
        for found, expected in (
            (both.predict(NEW), alone.predict(NEW)),
            (both.errors, alone.errors),
        ):
            np.testing.assert_allclose(found[:, [index]], expected, rtol=1e-6, atol=1e-8)
    of_rows = GaussianProcessHead.fit(config, INPUTS, labels, weights=weights[:, 0]).predict(NEW)
    same = np.repeat(weights[:, :1], 2, axis=1)
    of_labels = GaussianProcessHead.fit(config, INPUTS, labels, weights=same).predict(NEW)
    np.testing.assert_array_equal(of_labels, of_rows)


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(random):
    order = np.array(random.sample(range(len(SMILES)), len(SMILES)))
    labels = make_labels()
    one = GaussianProcessHead.fit(CONFIG, INPUTS, labels).predict(NEW)
    other = GaussianProcessHead.fit(CONFIG, INPUTS[order], labels[order]).predict(NEW)
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


def test_logits_are_calibrated():
    """Their mean probability is the frequency of the class, and they are better than none."""
    labels = make_labels()
    head = GaussianProcessHead.fit(CONFIG, INPUTS, labels)
    logit = head.predict(INPUTS)[:, 1]
    assert expit(logit).mean() == pytest.approx(labels[:, 1].mean(), abs=0.1)
    p = np.where(labels[:, 1] == 1, expit(logit), expit(-logit))
    rate = labels[:, 1].mean()
    assert -np.log(p).mean() < -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    several = head.predict(INPUTS)[:, 2:]
    assert (several.argmax(axis=1) == labels[:, 2]).mean() > 0.6
    # Labels without any relation to the molecules: nearly the same probability everywhere.
    noise = np.random.default_rng(0).integers(0, 2, 48).astype(float)
    config = MolAttnConfig((TASKS[1],), SMALL, kernels=CONFIG.kernels)
    logits = GaussianProcessHead.fit(config, INPUTS, noise[:, None]).predict(NEW)
    np.testing.assert_allclose(expit(logits), noise.mean(), atol=0.2)


def test_fewer_inducing_points_are_drawn_by_the_seed():
    labels = make_labels()
    heads = [
        GaussianProcessHead.fit(CONFIG, INPUTS, labels, inducing_points=20, seed=seed)
        for seed in (0, 0, 1)
    ]
    files = [head.to_files() for head in heads]
    assert files[0] == files[1] != files[2]
    assert len({*heads[0].rows.tolist()}) == 20
    # No row has two labels: each task is as exact as it is alone.
    apart = np.where(np.arange(48)[:, None] % 3 == np.arange(3), labels, np.nan)
    apart[:8] = np.nan
    many, few = (
        GaussianProcessHead.fit(CONFIG, INPUTS, apart, inducing_points=n) for n in (20, 40)
    )
    assert {*many.rows.tolist()} == {*range(8, 48)}
    np.testing.assert_array_equal(many.predict(NEW), few.predict(NEW))
    # Rasmussen and Williams, equation 8.20.
    config, y = MolAttnConfig(TASKS[:1], SMALL, kernels=CONFIG.kernels), labels[:, 0]
    head = GaussianProcessHead.fit(config, INPUTS, labels[:, :1], inducing_points=20)
    known, own = head.kernel(INPUTS).T, head.kernel(INPUTS[head.rows])

    def error(log_noise):
        matrix = known @ known.T + np.exp(log_noise) * own
        found = np.linalg.solve(matrix, known @ (y - y.mean())) @ known
        return np.abs(found + y.mean() - head.predict(INPUTS)[:, 0]).max()

    nearest = min(np.linspace(-12, 7, 100), key=error)
    assert (
        minimize_scalar(error, bounds=(nearest - 0.2, nearest + 0.2), method="bounded").fun < 1e-3
    )


def test_predictions_are_combined_by_the_shares():
    head = GaussianProcessHead.fit(CONFIG, INPUTS, make_labels())
    network = np.random.default_rng(0).normal(size=(2, 3, 5))
    np.testing.assert_array_equal(head.combine(network, NEW), [head.predict(NEW)] * 2)
    # With a share of 1 the network is not trained.
    diverged = np.full((2, 3, 5), np.inf)
    np.testing.assert_array_equal(head.combine(diverged, NEW), [head.predict(NEW)] * 2)
    head.shares[:] = [0.0, 0.25, 1.0]
    found, own = head.combine(network, NEW), head.predict(NEW)
    np.testing.assert_array_equal(found[..., 0], network[..., 0])
    np.testing.assert_allclose(found[..., 1], 0.75 * network[..., 1] + 0.25 * own[:, 1])
    np.testing.assert_allclose(found[..., 2:], [own[:, 2:]] * 2)


def test_contributions_of_all_rows_add_up_to_the_prediction():
    head = GaussianProcessHead.fit(CONFIG, INPUTS, make_labels())
    head.shares[:] = 0.5
    whole = head.neighbors(NEW, 48, {}, [1.0] * 3)["y"]
    sums = [sum(one.contribution for one in row) for row in whole]
    np.testing.assert_allclose(2.0 * np.array(sums), head.predict(NEW)[:, 0] - head.means[0])
    for row in whole:
        sizes = [abs(one.contribution) for one in row]
        assert sizes == sorted(sizes, reverse=True)
    assert [row[:3] for row in whole] == head.neighbors(NEW, 3, {}, [1.0] * 3)["y"]
    similar = head.kernel(NEW)
    assert whole[0][0].similarity == similar[0, head.rows == whole[0][0].row].item()


def most_likely(covariance, y, weights):
    """The log marginal likelihood of labels, with the most likely mean, scale and noise."""

    def loss(log_noise):
        a = covariance + np.exp(log_noise) * np.diag(1.0 / weights)
        inverse = np.linalg.inv(a)
        rest = y - np.average(y, weights=weights)
        scale = rest @ inverse @ rest / len(y)
        return 0.5 * (len(y) * (np.log(2.0 * np.pi * scale) + 1.0) + np.linalg.slogdet(a)[1])

    grid = np.linspace(np.log(1e-5), np.log(1e3), 37)
    best = grid[np.argmin([loss(at) for at in grid])]
    return -minimize_scalar(loss, bounds=(best - 0.6, best + 0.6), method="bounded").fun


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_bayes_factor_is_that_of_brute_force(is_weighted):
    labels = make_labels()[:, :2]
    labels[:10, 1] = np.nan
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(labels)) if is_weighted else None
    config = MolAttnConfig(TASKS[:2], SMALL, kernels=("morgan", "embedding"))
    found = log_bayes_factor(config, INPUTS, labels, "embedding", weights=weights)
    given = np.ones(len(labels)) if weights is None else weights
    expected = 0.0
    kinds = [*CONFIG.counter.groups.values()]
    for inputs, sign in ((INPUTS, 1.0), (replace(INPUTS, numbers={}), -1.0)):
        kernel = MoleculeKernel.fit(inputs, np.arange(len(inputs)), kinds)(inputs)
        for column in (0, 1):
            rows = np.flatnonzero(~np.isnan(labels[:, column]))
            y = labels[rows, column] if column == 0 else 2.0 * labels[rows, column] - 1.0
            expected += sign * most_likely(kernel[np.ix_(rows, rows)], y, given[rows])
    assert found == pytest.approx(expected, abs=0.05)
    assert found > 5.0  # the labels follow the embedding
