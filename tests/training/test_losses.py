import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from torch import nan

from molattn.config import SupervisedConfig
from molattn.task import Task
from molattn.training.losses import TaskLoss

Y, Z = Task("y"), Task("z")
B = Task("b", "binary", ("no", "yes"))
C = Task("c", "multiclass", ("red", "green", "blue"))
MIXED = (Y, C, B, Z)  # outputs: y, c c c, b, z
OPTIONS = [
    {},
    {"loss": "mae", "label_smoothing": 0.1},
    {"loss": "huber"},
    {"balance_classes": True},
    {"positive_weight": 3.0, "label_smoothing": 0.2},
]


def loss_of(tasks, targets, task_weights=(), **options):
    return TaskLoss(tasks, SupervisedConfig(**options), targets, task_weights)


def error_of(error, loss="mse", **_):
    error = abs(error)
    huber = 0.5 * error**2 if error < 1.0 else error - 0.5
    return {"mse": error**2, "mae": error, "huber": huber}[loss]


def by_hand(row, labels, options, weights):
    """The loss of one row of MIXED, in NumPy."""
    total = 0.0
    for index, at in ((0, 0), (3, 5)):
        if not np.isnan(labels[index]):
            total += error_of(row[at] - labels[index], **options)
    smoothing = options.get("label_smoothing", 0.0)
    if not np.isnan(labels[1]):
        wanted = np.eye(3)[int(labels[1])] * (1 - smoothing) + smoothing / 3
        total -= weights[0][int(labels[1])] * wanted @ log_softmax(row[1:4])
    if not np.isnan(labels[2]):
        wanted = labels[2] * (1 - smoothing) + smoothing / 2
        chance = expit(row[4])
        cross = wanted * np.log(chance) + (1 - wanted) * np.log(1 - chance)
        total -= weights[1][int(labels[2])] * cross
    return total


@given(st.integers(0, 10_000), st.sampled_from(OPTIONS))
def test_the_loss_of_mixed_tasks_is_that_of_each_by_hand(seed, options):
    rng = np.random.default_rng(seed)
    labels = np.column_stack(
        [rng.normal(size=8), rng.integers(0, 3, 8), rng.integers(0, 2, 8), rng.normal(size=8)]
    )
    labels[rng.random(labels.shape) < 0.3] = np.nan
    output = rng.normal(size=(8, 6))
    targets = torch.tensor(labels, dtype=torch.float32)
    loss = loss_of(MIXED, targets, **options)
    weights = [np.ones(3), np.array([1.0, options.get("positive_weight", 1.0)])]
    if options.get("balance_classes"):
        for index, column in enumerate((1, 2)):
            known = labels[~np.isnan(labels[:, column]), column]
            for label in np.unique(known):
                fraction = len(weights[index]) * (known == label).sum()
                weights[index][int(label)] = len(known) / fraction
    total, weight = loss(torch.tensor(output), targets)
    expected = sum(by_hand(*row, options, weights) for row in zip(output, labels, strict=True))
    assert total.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert weight.item() == (~np.isnan(labels)).sum()
    # The rows of a batch add up, and no bound changes no bit.
    each = [loss(torch.tensor(output[i : i + 1]), targets[i : i + 1])[0] for i in range(8)]
    assert sum(each).item() == pytest.approx(total.item(), rel=1e-4, abs=1e-5)
    assert loss(torch.tensor(output), targets, None, torch.full((2, 8, 4), nan))[0] == total


@given(st.integers(0, 2**32 - 1), st.sampled_from(["mse", "mae", "huber"]))
def test_a_censored_loss_is_that_by_hand(seed, kind):
    rng = np.random.default_rng(seed)
    output, target = rng.normal(size=(9, 6)), rng.normal(size=(9, 4))
    bounds = np.full((2, 9, 4), np.nan)
    signs = rng.integers(-1, 3, (9, 2))  # -1: at most, 1: at least, 2: missing, 0: measured
    expected, count, gradient = 0.0, 0, np.zeros((9, 6))
    for row, at in np.ndindex(9, 2):
        index, column, sign = (0, 3)[at], (0, 5)[at], signs[row, at]
        value, y = output[row, column], target[row, index]
        if sign:
            target[row, index] = np.nan
        if sign in (-1, 1):
            bounds[0 if sign == 1 else 1, row, index] = y
        count += sign != 2
        if sign == 2 or (sign == 1 and value >= y) or (sign == -1 and value <= y):
            continue
        error = value - y
        expected += error_of(error, kind)
        slope = {"mse": 2.0 * error, "mae": np.sign(error), "huber": np.clip(error, -1, 1)}
        gradient[row, column] = slope[kind]
    target[:, 1:3] = np.nan
    outputs = torch.tensor(output, dtype=torch.float32, requires_grad=True)
    targets, limits = (torch.tensor(given, dtype=torch.float32) for given in (target, bounds))
    total, weight = loss_of(MIXED, targets, loss=kind)(outputs, targets, None, limits)
    total.backward()
    assert total.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert weight.item() == count
    np.testing.assert_allclose(outputs.grad, gradient, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["mse", "mae", "huber"]))
def test_the_loss_of_an_interval_is_the_least_of_all_its_values(seed, kind):
    rng = np.random.default_rng(seed)
    output = rng.normal(size=(9, 1))
    bounds = np.sort(rng.normal(size=(2, 9, 1)), axis=0)
    expected, gradient = 0.0, np.zeros((9, 1))
    for row, (low, high) in enumerate(bounds[:, :, 0].T):
        values = np.append(np.linspace(low, high, 50), np.clip(output[row, 0], low, high))
        errors = output[row, 0] - values
        least = min(errors, key=abs)
        expected += error_of(least, kind)
        slope = {"mse": 2.0 * least, "mae": np.sign(least), "huber": np.clip(least, -1, 1)}
        gradient[row, 0] = slope[kind]
    outputs, limits = (torch.tensor(array, dtype=torch.float32) for array in (output, bounds))
    outputs.requires_grad_()
    target = limits.mean(dim=0)
    loss = loss_of((Y,), target, loss=kind)
    total, weight = loss(outputs, target, None, limits)
    total.backward()
    assert total.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert weight.item() == 9
    np.testing.assert_allclose(outputs.grad, gradient, rtol=1e-4, atol=1e-5)
    outputs.requires_grad_(False)
    # An open side is a censored label; without width the label is measured.
    for side in (0, 1):
        opened = limits.clone()
        opened[side] = nan
        infinite = limits.clone()
        infinite[side] = (-torch.inf, torch.inf)[side]
        censored = loss(outputs, torch.full_like(target, nan), None, opened)
        assert censored == loss(outputs, target, None, infinite)
    exact = loss(outputs, target)
    assert loss(outputs, target, None, torch.stack([target, target])) == exact
    width = torch.tensor([[[-1e-6]], [[1e-6]]])
    narrow, _ = loss(outputs, target, None, target + width)
    assert narrow.item() == pytest.approx(exact[0].item(), rel=1e-3, abs=1e-4)


def test_labels_of_a_row_may_have_weights_of_their_own():
    target = torch.tensor([[0.0, 0.0], [0.0, nan]])
    output = torch.tensor([[1.0, 2.0], [3.0, 9.0]])
    weights = torch.tensor([[0.5, 2.0], [1.5, 1.0]])
    total, weight = loss_of((Y, Z), target)(output, target, weights)
    assert (total.item(), weight.item()) == (0.5 * 1 + 2.0 * 4 + 1.5 * 9, 3.0)


def test_rows_and_tasks_are_weighted():
    target = torch.tensor([[0.0, 0.0], [0.0, nan]])
    output = torch.tensor([[1.0, 2.0], [3.0, 9.0]])
    total, weight = loss_of((Y, Z), target, (2.0, 0.5))(output, target, torch.tensor([0.5, 1.5]))
    assert total.item() == pytest.approx(0.5 * 2 * 1 + 0.5 * 0.5 * 4 + 1.5 * 2 * 9)
    assert weight.item() == 2.0 + 0.5 + 2.0
    target = torch.tensor([[nan], [1.0]])
    bounds = torch.tensor([[[5.0], [nan]], [[nan], [nan]]])
    loss = loss_of((Y,), target, (2.0,))
    total, weight = loss(torch.tensor([[2.0], [2.0]]), target, torch.tensor([0.5, 1.5]), bounds)
    assert (total.item(), weight.item()) == (2 * 0.5 * 9 + 2 * 1.5 * 1, 4.0)


def test_half_precision_outputs_have_a_loss_in_single_precision():
    target = torch.tensor([[0.1]])
    total, _ = loss_of((Y,), target)(torch.tensor([[0.1]], dtype=torch.bfloat16), target)
    assert total.dtype == torch.float32
