"""What an option's value may be, in messages that name the option."""

from collections.abc import Callable
from typing import Any

from molattn.errors import InputError, check_one_of, quoted

__all__ = ["check", "check_choice", "check_idle", "option"]


def check(
    config: object,
    name: str,
    holds: Callable[[Any], bool],
    expected: str,
    kind: type | tuple[type, ...] = (int, float),
) -> None:
    """Refuse a value of another type, or one that does not hold.

    Args:
        config: The section.
        name: Its option.
        holds: Whether a value may be.
        expected: What it says was expected.
        kind: The types of values that may be; truth values are no numbers.

    Raises:
        InputError: Names the option and what was got.
    """
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, kind) or not holds(value):
        raise InputError(f"{option(name)}: got {quoted(value)}, expected {expected}")


def check_choice(config: object, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        InputError: Names the option, what was got and the choices.
    """
    check_one_of(option(name), getattr(config, name), choices)


def check_idle(config: object, name: str, place: str) -> None:
    """Refuse a value other than the default of an option that nothing would read.

    Args:
        config: The section.
        name: Its option.
        place: Where it would be read, in words.

    Raises:
        InputError: Names the option and where it would be read.
    """
    if (value := getattr(config, name)) != getattr(type(config), name):
        raise InputError(f"{option(name)}: got {quoted(value)}, expected it {place}")


def option(name: str) -> str:
    """Return an option as the command line has it: ``test_size`` as ``--test-size``."""
    return "--" + name.replace("_", "-")
