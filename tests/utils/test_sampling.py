import numpy as np

from molattn.utils.sampling import in_turn


def test_each_task_has_its_turn():
    order = np.array([5, 3, 1, 0, 2, 4])
    known = np.array([[1, 0], [1, 0], [0, 1], [1, 0], [0, 0], [1, 1]], dtype=bool)
    # The first with each label, the second, then the others; those without any come last.
    assert in_turn(order, known).tolist() == [5, 3, 2, 1, 0, 4]
