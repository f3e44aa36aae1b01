import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax

from molattn.model.gaussian_process.combination import share_of_second
from molattn.task import Task

TASKS = {
    "regression": Task("y"),
    "binary": Task("b", "binary", ("no", "yes")),
    "multiclass": Task("c", "multiclass", ("u", "v", "w")),
}


def outputs(kind, rows, seed):
    rng = np.random.default_rng(seed)
    task = TASKS[kind]
    size = task.num_outputs
    if kind == "regression":
        labels = rng.normal(size=rows)
        signal = labels[:, None]
    else:
        labels = rng.integers(0, len(task.classes), rows).astype(float)
        signal = 2.0 * (labels[:, None] == np.arange(len(task.classes))[-size:]) - 1.0
    noise = rng.uniform(0.1, 2.0, 2)
    first, second = (signal + scale * rng.normal(size=(rows, size)) for scale in noise)
    return task, first, second, labels


def total_loss(task, first, second, labels, share):
    mixed = (1.0 - share) * first + share * second
    difference = first - second
    if task.kind == "multiclass":
        difference = difference - difference.mean(axis=1, keepdims=True)
    spread = (difference**2).mean()
    if task.kind == "regression":
        loss = ((mixed[:, 0] - labels) ** 2).sum()
    elif task.kind == "binary":
        p = expit(mixed[:, 0])
        loss = -np.log(np.where(labels == 1, p, 1 - p)).sum()
    else:
        loss = -log_softmax(mixed, axis=1)[np.arange(len(labels)), labels.astype(int)].sum()
    curvature = 1.0 if task.kind == "regression" else 0.25
    return loss + 20.0 * curvature * spread * (share - 0.5) ** 2


@settings(max_examples=25)
@given(st.sampled_from([*TASKS]), st.integers(1, 60), st.integers(0, 1000))
def test_the_share_has_the_least_loss(kind, rows, seed):
    found = outputs(kind, rows, seed)
    share = share_of_second(*found)
    losses = [total_loss(*found, other) for other in np.linspace(0, 1, 1001)]
    assert abs(share - np.argmin(losses) / 1000) <= 0.006  # in steps of 0.01


@pytest.mark.parametrize("kind", TASKS)
def test_the_better_one_has_the_larger_share(kind):
    task, first, _, labels = outputs(kind, 2000, 0)
    noise = np.random.default_rng(1).normal(size=first.shape)
    assert share_of_second(task, first, first + 5.0 * noise, labels) < 0.1
    # A share of one says that there is no trained network.
    assert 0.9 < share_of_second(task, first + 5.0 * noise, first, labels) < 1.0


def test_a_constant_added_to_the_logits_of_a_row_changes_nothing():
    task, first, second, labels = outputs("multiclass", 60, 0)
    shift = 30.0 * np.random.default_rng(1).normal(size=(60, 1))
    expected = share_of_second(task, first, second, labels)
    assert share_of_second(task, first + shift, second, labels) == expected


def test_without_information_both_have_half():
    task = TASKS["regression"]
    same = np.ones((5, 1))
    for labels in (np.ones(5), np.full(5, np.nan)):
        assert share_of_second(task, same, same, labels) == 0.5
    nothing = np.zeros((0, 1))
    assert share_of_second(task, nothing, nothing, np.zeros(0)) == 0.5


def test_missing_labels_and_rows_without_a_finite_prediction_do_not_count():
    task, first, second, labels = outputs("regression", 40, 3)
    expected = share_of_second(task, first[2:], second[2:], labels[2:])
    labels[0], first[1] = np.nan, np.inf
    first[0] = 1e9
    assert share_of_second(task, first, second, labels) == expected
