import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from torch.nn.functional import cross_entropy

from molattn.chem.parse import parse_smiles
from molattn.config import NetworkConfig
from molattn.model.config import MolAttnConfig, substructure_counter
from molattn.model.gaussian_process import GaussianProcessHead
from molattn.model.kernel import KernelInputs, stack_counts
from molattn.model.outputs import class_logits
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
ROWS = 120


def config(*tasks):
    return MolAttnConfig(tasks, SMALL, kernels=("morgan", "embedding"))


FIRST, SECOND, CLASS = Task("y"), Task("z"), Task("c", "binary", ("no", "yes"))
SMILES = [a + "C" * n + b for n in range(1, 16) for a in "NC" for b in ("O", "F", "Cl", "C=O")]
COUNTER = substructure_counter(("morgan",))
assert COUNTER is not None
COUNTS = stack_counts([COUNTER(parse_smiles(text)) for text in SMILES])
INPUTS = KernelInputs(ROWS, COUNTS, {"embedding": np.random.default_rng(0).normal(size=(ROWS, 4))})
KNOWN, NEW = np.arange(100), INPUTS[np.arange(100, ROWS)]


def make_labels():
    """A rough function of which 25 noisy labels are known, and 90 of one that is like it."""
    rng, x = np.random.default_rng(1), INPUTS.numbers["embedding"]
    truth = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 2
    labels = truth[:, None] + rng.normal(size=(ROWS, 2)) * [0.4, 0.2]
    labels[25:, 0] = np.nan
    labels[:10, 1] = np.nan
    return truth, labels


def fit(tasks, labels, **options):
    head = GaussianProcessHead.fit(config(*tasks), INPUTS[KNOWN], labels[KNOWN], **options)
    return head, head.predict(NEW)


def error(predicted, truth):
    return np.sqrt(np.mean((predicted - truth[100:]) ** 2))


def dense_leave_one_out(kernel, y):
    """The most likely Gaussian process: predictions without each own label, and a function."""

    def parts(log_noise):
        inverse = np.linalg.inv(kernel + np.exp(log_noise) * np.eye(len(y)))
        scale = (y - y.mean()) @ inverse @ (y - y.mean()) / len(y)
        density = multivariate_normal(np.full(len(y), y.mean()), scale * np.linalg.inv(inverse))
        return inverse, -density.logpdf(y)

    grid = np.linspace(np.log(1e-4), np.log(1e2), 400)
    inverse, _ = parts(min(grid, key=lambda at: parts(at)[1]))
    alpha = inverse @ (y - y.mean())
    return y - alpha / np.diag(inverse), lambda new: y.mean() + new @ alpha


def test_it_is_the_dense_reference():
    """Predictions for the other target are a column of a linear model with Gaussian residuals."""
    _, labels = make_labels()
    head, found = fit((FIRST, SECOND), labels)
    kernel, new = head.kernel(INPUTS[head.rows]), head.kernel(NEW)
    y, z = labels[head.rows].T
    own, other = np.flatnonzero(~np.isnan(y)), np.flatnonzero(~np.isnan(z))
    unseen, function = dense_leave_one_out(kernel[np.ix_(other, other)], z[other])
    column = function(kernel[:, other])
    column[other] = unseen
    center, scale = column[own].mean(), column[own].std()
    column = (column[own] - center) / scale
    rest, own_kernel = y[own] - y[own].mean(), kernel[np.ix_(own, own)]

    def loss(at):
        noise, variance = np.exp(at)
        covariance = own_kernel + noise * np.eye(len(own)) + variance * np.outer(column, column)
        signal = rest @ np.linalg.solve(covariance, rest) / len(own)
        return -multivariate_normal(np.zeros(len(own)), signal * covariance).logpdf(rest)

    starts = ((a, b) for a in (-4.0, 0.0) for b in (-3.0, 1.0))
    best = min(
        (minimize(loss, start, method="Nelder-Mead") for start in starts), key=lambda r: r.fun
    )
    noise, variance = np.exp(best.x)
    covariance = own_kernel + noise * np.eye(len(own)) + variance * np.outer(column, column)
    alpha = np.linalg.solve(covariance, rest)
    given = (function(new[:, other]) - center) / scale
    expected = y[own].mean() + new[:, own] @ alpha + variance * given * (column @ alpha)
    np.testing.assert_allclose(found[:, 0], expected, atol=0.05)


def test_a_target_learns_from_another_that_is_like_it():
    truth, labels = make_labels()
    alone, together = fit((FIRST,), labels[:, :1])[1], fit((FIRST, SECOND), labels)[1]
    assert error(together[:, 0], truth) < 0.8 * error(alone[:, 0], truth)
    # The other sign and another unit are the same to it.
    turned = fit((FIRST, SECOND), labels * [1.0, -7.0] + [0.0, 3.0])[1]
    np.testing.assert_allclose(turned[:, 0], together[:, 0], atol=1e-6)


def test_an_unrelated_target_changes_nothing():
    _, labels = make_labels()
    labels[:, 1] = np.random.default_rng(5).normal(size=ROWS)
    labels[25:, 1] = np.nan
    found, _ = fit((FIRST, SECOND), labels)
    expected, _ = fit((FIRST,), labels[:, :1])
    np.testing.assert_allclose(found.weights[:, 0], expected.weights[:, 0], rtol=1e-6)
    auxiliary, _ = fit((FIRST,), labels, auxiliary=[SECOND])
    assert auxiliary.to_files() == expected.to_files()


def test_auxiliary_labels_are_learned_and_not_predicted():
    truth, labels = make_labels()
    labels[:25, 1] = np.nan  # no molecule has both
    alone, (head, found) = (
        fit((FIRST,), labels[:, :1])[1],
        fit((FIRST,), labels, auxiliary=[SECOND]),
    )
    assert found.shape == (20, 1)
    assert {*head.rows.tolist()} == {*KNOWN.tolist()}
    assert error(found[:, 0], truth) < 0.8 * error(alone[:, 0], truth)
    # Those of a predicted molecule count too.
    labels[100:, 1] = truth[100:]
    whole = GaussianProcessHead.fit(config(FIRST), INPUTS, labels, auxiliary=[SECOND])
    assert error(whole.predict(NEW)[:, 0], truth) < error(found[:, 0], truth)
    few, _ = fit((FIRST,), labels, auxiliary=[SECOND], inducing_points=40)
    assert {*range(25)} < {*few.rows.tolist()}
    assert len(few.rows) == 40


@pytest.mark.parametrize("task", [CLASS, Task("m", "multiclass", ("a", "b", "c"))])
def test_classes_learn_and_are_learned_from(task):
    truth, labels = make_labels()
    bins = [0.0] if task is CLASS else [-0.5, 0.5]
    of_classes = np.column_stack([labels[:, 0], np.digitize(truth, bins)])
    found = fit((FIRST,), of_classes, auxiliary=[task])[1]
    assert error(found[:, 0], truth) < error(fit((FIRST,), labels[:, :1])[1][:, 0], truth)
    of_classes = np.column_stack([np.digitize(truth, bins).astype(float), labels[:, 1]])
    of_classes[40:, 0] = np.nan
    losses = []
    for auxiliary in ([], [SECOND]):
        given = of_classes[:, : 1 + len(auxiliary)]
        outputs = torch.from_numpy(fit((task,), given, auxiliary=auxiliary)[1])
        classes = torch.from_numpy(np.digitize(truth[100:], bins))
        losses.append(cross_entropy(class_logits(outputs, task), classes).item())
    assert losses[1] < losses[0]
