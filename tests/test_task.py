import json

import numpy as np
import pytest

from molattn.errors import InputError
from molattn.task import Task, check_columns, interleaved, output_slices

TASKS = [
    Task("logS", unit="log mol/L"),
    Task("toxic", "binary", ("no", "yes")),
    Task("phase", "multiclass", ("gas", "liquid", "solid")),
]


def test_tasks_have_outputs_columns_and_cells():
    outputs = [task.output_names for task in TASKS]
    assert outputs == [
        ("logS_predicted",),
        ("toxic_probability_yes",),
        ("phase_probability_gas", "phase_probability_liquid", "phase_probability_solid"),
    ]
    assert [task.num_outputs for task in TASKS] == [1, 1, 3]
    assert [[*range(5)][part] for part in output_slices(TASKS)] == [[0], [1], [2, 3, 4]]
    assert TASKS[1].columns == ("toxic_predicted", "toxic_probability_yes")
    assert TASKS[0].cells([-2.5]) == [-2.5]
    assert TASKS[1].cells([0.75]) == ["yes", 0.75]
    assert TASKS[1].cells([0.25]) == ["no", 0.25]
    assert TASKS[2].cells([0.2, 0.3, 0.5]) == ["solid", 0.2, 0.3, 0.5]
    for task in TASKS:
        assert Task(**json.loads(json.dumps(task.to_dict()))) == task


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""},
        {"name": "y", "kind": "ordinal"},
        {"name": "y", "kind": "regression", "classes": ("a",)},
        {"name": "y", "kind": "binary", "classes": ("a", "a")},
        {"name": "y", "kind": "multiclass", "classes": ("a", "b")},
    ],
)
def test_a_task_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(InputError, match="task"):
        Task(**arguments)


def test_targets_whose_predictions_would_share_a_column_are_refused():
    tri = Task("tri", "multiclass", ("high", "low", "mid"))
    with pytest.raises(InputError, match="'tri_probability'"):
        check_columns([tri, Task("tri_probability")])
    check_columns([tri, Task("tri_high"), Task("y"), Task("y_std"), Task("y_low")])


def test_each_task_has_its_turn():
    order = np.array([5, 3, 1, 0, 2, 4])
    known = np.array([[1, 0], [1, 0], [0, 1], [1, 0], [0, 0], [1, 1]], dtype=bool)
    # The first with each label, the second, then the others; those without any come last.
    assert interleaved(order, known).tolist() == [5, 3, 2, 1, 0, 4]
