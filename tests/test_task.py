import json

import pytest

from molattn.errors import InputError
from molattn.task import Task, check_columns, output_slices

TASKS = [
    Task("logS", unit="log mol/L"),
    Task("toxic", "binary", ("no", "yes")),
    Task("phase", "multiclass", ("gas", "liquid", "solid")),
]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_survives_json(task):
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task


def test_outputs_are_one_number_or_the_probabilities():
    assert [task.output_names for task in TASKS] == [
        ("logS_predicted",),
        ("toxic_probability_yes",),
        ("phase_probability_gas", "phase_probability_liquid", "phase_probability_solid"),
    ]
    assert all(task.num_outputs == len(task.output_names) for task in TASKS)
    outputs = list(range(5))
    assert [outputs[part] for part in output_slices(TASKS)] == [[0], [1], [2, 3, 4]]


def test_cells_are_the_number_or_the_likeliest_class_with_probabilities():
    assert [task.columns for task in TASKS] == [
        ("logS_predicted",),
        ("toxic_predicted", "toxic_probability_yes"),
        ("phase_predicted", *TASKS[2].output_names),
    ]
    assert TASKS[0].cells([-2.5]) == [-2.5]
    assert TASKS[1].cells([0.75]) == ["yes", 0.75]
    assert TASKS[1].cells([0.25]) == ["no", 0.25]
    assert TASKS[2].cells([0.2, 0.3, 0.5]) == ["solid", 0.2, 0.3, 0.5]


@pytest.mark.parametrize(
    "arguments",
    [
        ("",),
        ("y", "ordinal"),
        ("y", "regression", ("a",)),
        ("y", "binary", ("a",)),
        ("y", "binary", ("a", "a")),
        ("y", "multiclass", ("a", "b")),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(InputError, match="task"):
        Task(*arguments)


def test_an_unknown_key_is_refused_by_name():
    with pytest.raises(InputError, match="unknown key 'color'"):
        Task.from_dict({**TASKS[0].to_dict(), "color": "red"})
    with pytest.raises(InputError, match="missing key 'unit'"):
        Task.from_dict({"name": "y", "kind": "regression", "classes": []})


def test_targets_whose_predictions_would_share_a_column_are_refused():
    tri = Task("tri", "multiclass", ("high", "low", "mid"))
    with pytest.raises(InputError, match="'tri' and 'tri_probability' would have the same column"):
        check_columns([tri, Task("tri_probability")])
    check_columns([tri, Task("tri_high"), Task("y"), Task("y_std"), Task("y_low")])
