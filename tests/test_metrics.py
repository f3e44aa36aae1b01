import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from molattn.metrics import (
    baseline_prediction,
    masked_squared_error,
    mean_scores,
    regression_scores,
)

nan = float("nan")


def test_missing_labels_add_neither_loss_nor_gradient():
    prediction = torch.tensor([[1.0, 5.0], [2.0, 7.0]], requires_grad=True)
    target = torch.tensor([[3.0, nan], [nan, 6.0]])
    total, count = masked_squared_error(prediction, target)
    total.backward()
    assert (total.item(), count.item()) == (5.0, 2)
    assert prediction.grad is not None
    assert prediction.grad.tolist() == [[-4.0, 0.0], [0.0, 2.0]]


def test_a_batch_without_labels_costs_nothing():
    prediction = torch.ones(2, 1, requires_grad=True)
    total, count = masked_squared_error(prediction, torch.full((2, 1), nan))
    total.backward()
    assert (total.item(), count.item()) == (0.0, 0)
    assert prediction.grad is not None
    assert not prediction.grad.any()


values = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


@given(
    arrays(float, (6, 2), elements=values),
    arrays(float, (6, 2), elements=values),
    arrays(bool, (6, 2)),
)
def test_scores_equal_those_of_scikit_learn(prediction, target, known):
    known[:2] = True
    target[0] = target[1] + 1.0
    masked = np.where(known, target, nan)
    scores = regression_scores(prediction, masked, ("a", "b"))
    for task, name in enumerate(("a", "b")):
        truth, guess = target[known[:, task], task], prediction[known[:, task], task]
        assert scores[name]["count"] == len(truth)
        assert scores[name]["rmse"] == pytest.approx(mean_squared_error(truth, guess) ** 0.5)
        assert scores[name]["mae"] == pytest.approx(mean_absolute_error(truth, guess))
        assert scores[name]["r2"] == pytest.approx(r2_score(truth, guess), rel=1e-6, abs=1e-6)


def test_scores_without_meaning_are_none():
    target = np.array([[nan, 2.0, 3.0], [nan, 2.0, nan]])
    scores = regression_scores(np.zeros((2, 3)), target, ("none", "constant", "one"))
    assert scores["none"] == {"rmse": None, "mae": None, "r2": None, "count": 0}
    assert scores["constant"] == {"rmse": 2.0, "mae": 2.0, "r2": None, "count": 2}
    assert scores["one"] == {"rmse": 3.0, "mae": 3.0, "r2": None, "count": 1}
    assert mean_scores(scores) == {"rmse": 2.5, "mae": 2.5, "r2": None, "count": 3}


def test_the_baseline_is_the_mean_of_the_training_labels():
    train = np.array([[1.0, nan], [3.0, 5.0]])
    assert baseline_prediction(train, 3).tolist() == [[2.0, 5.0]] * 3
    target = np.array([[0.0, 4.0], [4.0, 6.0]])
    scores = regression_scores(baseline_prediction(train, 2), target, ("a", "b"))
    assert scores["a"]["r2"] == pytest.approx(0.0)
