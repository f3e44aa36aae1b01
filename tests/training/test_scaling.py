import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from molattn.record import MoleculeRecord
from molattn.task import Task
from molattn.training.scaling import number_scaling, target_scaling


def test_scaling_is_that_of_the_labels_there_are():
    nan = np.nan
    targets = np.array([[1.0, 7.1, 0.1, 1.0], [3.0, nan, 0.1, 0.0], [nan, 7.1, 0.1, 2.0]])
    classes = Task("d", "multiclass", ("x", "y", "z"))
    mean, scale = target_scaling(targets, [Task("a"), Task("b"), Task("c"), classes])
    np.testing.assert_allclose(mean, [2.0, 7.1, 0.1, 0.0])
    np.testing.assert_allclose(scale, [1.0, 1.0, 1.0, 1.0])


@given(st.floats(-1e20, 1e20), st.integers(1, 50))
def test_a_target_that_does_not_vary_gets_the_scale_one(value, rows):
    assert target_scaling(np.full((rows, 1), value), [Task("a")])[1].tolist() == [1.0]


def test_scaling_by_parts_is_scaling_of_the_whole(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.normal(300.0, 2.0, (23, 3)).astype(np.float32)
    features = rng.normal(size=(23, 2))
    nothing = np.zeros((1, 1), dtype=np.uint8)
    partner = MoleculeRecord(nothing, nothing, np.ones(1, dtype=np.float32))
    records = [MoleculeRecord(nothing, nothing, row, partner) for row in values]
    monkeypatch.setattr("molattn.training.scaling._ROWS_AT_ONCE", 5)
    mean, scale = number_scaling(records, features)
    whole = np.hstack([features, values, np.ones((23, 1))])
    np.testing.assert_allclose(mean, whole.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(scale[:5], whole.std(axis=0)[:5], rtol=1e-6)


def test_a_feature_that_does_not_vary_is_0_for_any_molecule():
    nothing = np.zeros((1, 1), dtype=np.uint8)
    numbers = np.array([[3.0, np.nan], [3.0, np.nan]], dtype=np.float32)
    records = [MoleculeRecord(nothing, nothing, row) for row in numbers]
    mean, scale = number_scaling(records, np.array([[0.1], [0.1]]))
    np.testing.assert_allclose(mean, [0.1, 3.0, 0.0])
    others = np.array([[-1e6, 0.0, 1e30], [0.1, 1e20, -5.0]])
    assert np.abs((others - mean) / scale).max() < 1e-6
