import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from molattn.outputs import target_scaling
from molattn.task import Task


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
