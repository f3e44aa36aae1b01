import pytest

from molattn.errors import InputError
from molattn.utils.registry import Registry


def test_it_gives_what_was_registered_in_that_order():
    numbers = Registry("number")
    two = numbers.register("two")(2)
    numbers.register("one")(1)
    assert (two, dict(numbers), "two" in numbers, "three" in numbers) == (
        2,
        {"two": 2, "one": 1},
        True,
        False,
    )


def test_an_unknown_name_is_an_error_that_names_the_others():
    numbers = Registry("number")
    numbers.register("seven")(7)
    with pytest.raises(InputError, match=r"number: got 'sevn', expected one of seven; did you"):
        numbers["sevn"]


def test_a_name_is_registered_once():
    numbers = Registry("number")
    numbers.register("one")(1)
    with pytest.raises(ValueError, match="'one' is registered already"):
        numbers.register("one")(2)
