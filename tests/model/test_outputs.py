"""The weight of each of two predictors in their mean."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax

from molattn.model.outputs import gaussian_process_shares
from molattn.task import Task

TASKS = {
    "regression": Task("y"),
    "binary": Task("b", "binary", ("no", "yes")),
    "multiclass": Task("c", "multiclass", ("u", "v", "w")),
}


def share(task, first, second, labels):
    return gaussian_process_shares([task], first, second, labels[:, None]).item()


def outputs(kind, rows, seed):
    rng, task = np.random.default_rng(seed), TASKS[kind]
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
    mixed, difference = (1.0 - share) * first + share * second, first - second
    if task.kind == "multiclass":
        difference = difference - difference.mean(axis=1, keepdims=True)
    if task.kind == "regression":
        loss = ((mixed[:, 0] - labels) ** 2).sum()
    elif task.kind == "binary":
        p = expit(mixed[:, 0])
        loss = -np.log(np.where(labels == 1, p, 1 - p)).sum()
    else:
        loss = -log_softmax(mixed, axis=1)[np.arange(len(labels)), labels.astype(int)].sum()
    curvature = 1.0 if task.kind == "regression" else 0.25
    return loss + 20.0 * curvature * (difference**2).mean() * (share - 0.5) ** 2


@settings(max_examples=15)
@given(st.sampled_from([*TASKS]), st.integers(1, 60), st.integers(0, 1000))
def test_the_share_has_the_least_loss(kind, rows, seed):
    found = outputs(kind, rows, seed)
    losses = [total_loss(*found, other) for other in np.linspace(0, 1, 1001)]
    assert abs(share(*found) - np.argmin(losses) / 1000) <= 0.006  # in steps of 0.01
    assert share(*found) < 1.0  # at 1 there is no network


def test_what_says_nothing_does_not_count():
    task, first, second, labels = outputs("multiclass", 60, 0)
    shift = 30.0 * np.random.default_rng(1).normal(size=(60, 1))  # of all logits of a row
    assert share(task, first + shift, second, labels) == share(task, first, second, labels)
    same = np.ones((5, 1))
    for known in (np.ones(5), np.full(5, np.nan)):
        assert share(TASKS["regression"], same, same, known) == 0.5
    task, first, second, labels = outputs("regression", 40, 3)
    expected = share(task, first[2:], second[2:], labels[2:])
    labels[0], first[1] = np.nan, np.inf
    assert share(task, first, second, labels) == expected
