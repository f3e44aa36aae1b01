"""Checks of options, with errors that name the option."""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from molattn.errors import InputError, MolattnError, check_one_of, quoted

__all__ = [
    "as_in_file",
    "check",
    "check_choice",
    "check_choices",
    "check_kinds",
    "check_threads",
    "check_unused",
    "option",
    "plain_value",
    "python_names",
]

_OPTION = re.compile(r"(?<![\w-])--(\w+(?:-\w+)*)")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


def check(
    config: object,
    name: str,
    holds: Callable[[Any], bool],
    expected: str,
    kind: type | tuple[type, ...] = (int, float),
) -> None:
    """Check the type and the value of an option of a section.

    None is valid where it is the default; ``bool`` does not count as a number. A NumPy scalar
    becomes a plain value.

    Raises:
        InputError: Names the option, its value, and what is ``expected``.
    """
    value = plain_value(config, name)
    if value is None and getattr(type(config), name, ...) is None:
        return
    if isinstance(value, bool) or not isinstance(value, kind) or not holds(value):
        raise InputError(f"{option(name)}: got {quoted(value)}, expected {expected}")


def check_kinds(config: object) -> None:
    """Check that each option of a section has a value of its declared type.

    Raises:
        InputError: Names the first option that has not, its value and its type.
    """
    for name, kind in get_type_hints(type(config)).items():
        if not _fits(value := plain_value(config, name), kind):
            expected = _KINDS.get(kind, "text; put a number in quotes")
            raise InputError(f"{option(name)}: got {quoted(value)}, expected {expected}")


def check_threads(config: object) -> None:
    """Check the number of threads; torch crashes if it is far above what a machine can start."""
    check(config, "threads", lambda n: 1 <= n <= 1024, "a whole number from 1 to 1024", int)


def check_choice(config: object, name: str, choices: tuple[str, ...]) -> None:
    """Check that an option is one of its choices."""
    check_one_of(option(name), getattr(config, name), choices)


def check_choices(config: object, name: str, choices: tuple[str, ...], noun: str) -> None:
    """Check that an option is a tuple of one or more of its choices, each only once.

    ``noun`` is what one of them is, in the singular.
    """
    given = getattr(config, name)
    if not isinstance(given, tuple) or not given:
        raise InputError(f"{option(name)}: got {given!r}, expected one or more {noun}s")
    for one in given:
        check_one_of(option(name), one, choices)
    if len({*given}) != len(given):
        raise InputError(f"{option(name)}: got {list(given)}, expected each {noun} only once")


def check_unused(config: object, name: str, reason: str) -> None:
    """Check that an option without an effect has its default.

    Args:
        config: The section.
        name: The option.
        reason: Why it has no effect, such as ``needs --folds``.

    Raises:
        InputError: Names the option and the reason.
    """
    if getattr(config, name) != getattr(type(config), name):
        raise InputError(f"{option(name)} {reason}")


def option(name: str) -> str:
    """Return an option as written on the command line: ``test_size`` as ``--test-size``."""
    return "--" + name.replace("_", "-")


def as_in_file(message: str, options: Collection[str] | None = None) -> str:
    """Return a message that names options as a file does: ``test_size`` for ``--test-size``.

    Args:
        message: The message.
        options: The options to name so, as on the command line; None = all.
    """
    return _OPTION.sub(
        lambda found: (
            found[1].replace("-", "_") if options is None or found[0] in options else found[0]
        ),
        message,
    )


@contextmanager
def python_names(options: Collection[str] | None = None, **renamed: str) -> Iterator[None]:
    """Let the messages of errors name options as Python does: ``test_size`` for ``--test-size``.

    Args:
        options: The options to name so, as on the command line; None = all.
        renamed: Other names of some options in Python, such as ``seed="random_state"``.
    """
    try:
        yield
    except MolattnError as error:
        message = str(error)
        for name, other in renamed.items():
            message = re.sub(rf"--{name}(?![\w-])", f"--{other}", message)
        error.args = (as_in_file(message, options),)
        raise


def plain_value(config: object, name: str) -> Any:
    """Return the value of an option; NumPy scalars, which no file can hold, are replaced first."""
    given = getattr(config, name)
    value = tuple(map(_item, given)) if isinstance(given, tuple) else _item(given)
    if value is not given:
        object.__setattr__(config, name, value)  # the section is frozen
    return value


def _item(value: Any) -> Any:
    is_scalar = type(value).__module__ == "numpy" and not getattr(value, "shape", ())
    return value.item() if is_scalar else value


def _fits(value: object, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
