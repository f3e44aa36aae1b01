import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from molattn.evaluation.scoring import constant_prediction, forest_prediction
from molattn.task import Task

nan = np.nan
TASKS = [
    Task("y"),
    Task("b", "binary", ("no", "yes")),
    Task("c", "multiclass", ("red", "green", "blue")),
]


def test_the_constant_is_the_mean_or_the_share_of_each_class():
    targets = np.array([[1.0, 0, 0], [3.0, 1, nan], [nan, 1, 2], [nan, 1, 2]])
    constant = constant_prediction(TASKS, targets, 2)
    np.testing.assert_allclose(constant, [[2.0, 0.75, 1 / 3, 0, 2 / 3]] * 2)


def test_the_forest_learns_each_task_from_the_rows_that_have_it():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4)).astype(np.float32)
    signal = features[:, 0] + 0.1 * rng.normal(size=300)
    targets = np.column_stack([10 * signal, signal > 0, np.digitize(signal, [-0.5, 0.5])])
    train, test = targets[:200].copy(), targets[200:]
    train[rng.random(train.shape) < 0.3] = nan
    guess = forest_prediction(TASKS, features[:200], train, features[200:], 0)
    assert guess.shape == (100, 5)
    assert r2_score(test[:, 0], guess[:, 0]) > 0.75
    assert roc_auc_score(test[:, 1], guess[:, 1]) > 0.95
    np.testing.assert_allclose(guess[:, 2:].sum(axis=1), 1.0)
    assert np.mean(guess[:, 2:].argmax(axis=1) == test[:, 2]) > 0.8
    again = forest_prediction(TASKS, features[:200], train, features[200:], 0)
    np.testing.assert_array_equal(guess, again)


@pytest.mark.parametrize("task", TASKS[1:])
def test_classes_that_are_not_seen_have_no_chance(task):
    features = np.zeros((3, 1), dtype=np.float32)
    last = len(task.classes) - 1
    guess = forest_prediction([task], features, np.full((3, 1), last), features, 0)
    assert guess[0].tolist() == [0.0] * (task.num_outputs - 1) + [1.0]
    if task.kind == "binary":
        guess = forest_prediction([task], features, np.zeros((3, 1)), features, 0)
        assert guess.tolist() == [[0.0]] * 3
