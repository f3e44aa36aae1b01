"""Errors of the command line in the words of all other errors."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from molattn.errors import quoted

__all__ = ["usage_message"]

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


def usage_message(error: CycloptsError, commands: Iterable[str]) -> str:
    """Return what is wrong with a command line, or with an option in a config file.

    Args:
        error: The error that cyclopts raised.
        commands: Names of the commands.
    """
    match error:
        case UnknownCommandError(unused_tokens=[name, *_]):
            commands = [*commands]
            hint = _hint(name, commands) or f"; expected {_listed(commands)}"
            return f"unknown command {quoted(name)}{hint}"
        case UnknownOptionError(token=token):
            name = token.keyword or token.value
            names = {name for argument in error.argument_collection for name in argument.names}
            hint = _hint(name, names) or f"; {_help(error)}"
            return f"{_origin(token)}unknown option {name}{hint}"
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            return f"unexpected argument {quoted(first)}; {_help(error)}"
        case RepeatArgumentError(token=token):
            return f"{token.keyword}: given more than once"
        case MissingArgumentError(argument=argument) if argument is not None:
            if argument.field_info.is_keyword and (error.keyword or argument.tokens):
                return f"{error.keyword or argument.name}: got no value; {_help(error)}"
            return f"{argument.name} is missing; {_help(error)}"
        case CoercionError(token=token, argument=argument) if token and argument:
            got, expected = quoted(token.value), _expected(error.target_type)
            return f"{_origin(token)}{argument.name}: got {got}, expected {expected}"
    return str(error)


def _origin(token: Any) -> str:
    return "" if token.source in ("", "cli") else f"{token.source}, "


def _hint(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, [*names], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _help(error: CycloptsError) -> str:
    return f"see molattn {' '.join(error.command_chain or ())} --help"


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, UnionType):
        return _listed([_expected(one) for one in get_args(kind) if one is not NoneType])
    return _KINDS.get(kind) or f"a value of type {getattr(kind, '__name__', kind)}"


def _listed(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
