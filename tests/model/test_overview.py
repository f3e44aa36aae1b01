"""The columns of an overview."""

from molattn.model.overview import overview_columns
from molattn.task import Task


def test_probabilities_are_told_by_the_kind_of_the_task():
    tasks = Task("binding_probability"), Task("binds", "binary", ("0", "1"))
    columns = overview_columns(tasks, {}, ())
    assert [column.is_probability for column in columns] == [False, True]
