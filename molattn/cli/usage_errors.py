"""Errors of the command line in the words of all other errors."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cyclopts import (
    App,
    ArgumentCollection,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    Token,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from molattn.config.validation import as_in_file
from molattn.errors import InputError, quoted

__all__ = ["refuse_fractions", "usage_message"]

_FRACTION = re.compile(r".*\.\d*[1-9]\d*")
_COMMAND_LINE = ("", "cli")
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
            return _unfitting(token, argument.name, error.target_type)
    return str(error)


def refuse_fractions(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse fractions for whole numbers, which cyclopts rounds; a ``config`` of cyclopts.

    Raises:
        InputError: Names the option.
    """
    for argument in arguments:
        kinds = {*get_args(argument.hint)} or {argument.hint}
        for token in argument.tokens if int in kinds and float not in kinds else ():
            if _FRACTION.fullmatch(token.value):
                raise InputError(_unfitting(token, argument.name, argument.hint))


def _unfitting(token: Token, name: str, kind: Any) -> str:
    name = name if token.source in _COMMAND_LINE else as_in_file(name)
    return f"{_origin(token)}{name}: got {quoted(token.value)}, expected {_expected(kind)}"


def _origin(token: Any) -> str:
    return "" if token.source in _COMMAND_LINE else f"{token.source}, "


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
