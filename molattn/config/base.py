"""Declare and check options, and join sections of options to a run.

Options are fields of dataclasses that pydantic validates when an instance is made: by type, by
bounds (``annotated_types``), and by the rules of ``__post_init__`` that relate options.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Interval, MinLen
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from molattn.errors import InputError, did_you_mean, quoted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESUMABLE: dict[str, bool] = {"resumable": True}
"""Metadata of an option that a resumed run may have another value of."""
COMMON: dict[str, bool] = {"common": True}
"""Metadata of an option that ``--help`` shows; others are shown by ``--help-all`` alone."""


def _without_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len({*values}) != len(values):
        raise ValueError("each value only once")
    return values


Count = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Threads = Annotated[int, Interval(ge=1, le=1024)]  # torch crashes far above
Width = Annotated[int, Interval(ge=1, le=2**16)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]
Between = Annotated[float, Interval(gt=0, lt=1)]
Name = Annotated[str, MinLen(1)]
Unique = AfterValidator(_without_repeats)
Names = Annotated[tuple[str, ...], Unique]

_T = TypeVar("_T")
_CONFIG = ConfigDict(allow_inf_nan=False, extra="forbid")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def checked(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass of options; invalid ones raise an ``InputError``.

    Values are converted to the declared types: a list to a tuple, a NumPy scalar to a number.
    """
    made = dataclass(frozen=True, config=_CONFIG, repr=not issubclass(cls, RunConfig))(cls)
    validate = made.__init__

    @wraps(validate)
    def init(self: Any, *args: Any, **options: Any) -> None:
        try:
            validate(self, *args, **options)
        except ValidationError as error:
            raise input_error(made, error) from None

    made.__init__ = init
    return cast("type[_T]", made)


def input_error(cls: Any, error: ValidationError) -> InputError:
    """Return the first error of an option, with what was expected; choices are joined by "or"."""
    errors = error.errors(include_url=False)
    first = errors[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
        return cause
    path: list[Any] = [*first["loc"]]
    if issubclass(cls, RunConfig) and len(path) > 1 and path[0] in cls.sections():
        cls = cls.sections()[path.pop(0)]
    name = str(path[0])
    if first["type"] == "unexpected_keyword_argument":
        names = [option.name for option in fields(cls)]  # pyright: ignore[reportArgumentType]
        return InputError(f"unknown option{did_you_mean(name, names)}", option=name)
    expected = dict.fromkeys(
        _expected(problem["msg"]) for problem in errors if name in problem["loc"]
    )
    message = f"got {quoted(first['input'])}, expected {' or '.join(expected)}"
    return InputError(message, option=name)


def _expected(message: str) -> str:
    text = re.sub(
        r"^(Value error, |\w+ should (be|have) )|, unable to parse.*| after validation.*",
        "",
        message,
    )
    return f"a value {text}" if text.startswith(("greater", "less")) else text


def check_unused(config: object, *rules: tuple[bool, str, str]) -> None:
    """Raise an ``InputError`` for an option of a section that is set and has no effect.

    ``rules``: of each whether it applies, the options that have no effect then, separated by
    spaces, and the reason, such as ``needs --folds``. An option without values is not set.
    """
    for applies, names, reason in rules:
        for name in names.split():
            if applies and getattr(config, name) not in (getattr(type(config), name), ()):
                raise InputError(reason, option=name)


class Option(NamedTuple):
    """An option of a run: the section, type and default it is declared with.

    ``from_pretrained``: whether, as an option of the network, a pretrained model determines it.
    """

    section: str
    kind: Any
    default: Any
    from_pretrained: bool


class RunConfig:
    """The base of a dataclass whose fields are sections of options, and files beside them."""

    @classmethod
    @cache
    def sections(cls) -> "dict[str, type[DataclassInstance]]":
        """Return the sections of the run, by name."""
        hints: dict[str, Any] = get_type_hints(cls)
        return {name: kind for name, kind in hints.items() if is_dataclass(kind)}  # pyright: ignore

    @classmethod
    def file_key(cls) -> str:
        """Return the name of the field that is no section: the table or tables of the run."""
        return next(name for name in get_type_hints(cls) if name not in cls.sections())

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """Return the options of all sections, by name."""
        options = {}
        for section, kind in cls.sections().items():
            hints = get_type_hints(kind)
            for option in fields(kind):
                from_pretrained = option.metadata.get("from_pretrained", True)
                options[option.name] = Option(
                    section, hints[option.name], option.default, from_pretrained
                )
        return options

    def changes(self) -> dict[str, Any]:
        """Return the options that have values, other than their defaults, by name."""
        return {
            name: value
            for name, option in self.options().items()
            if (value := getattr(getattr(self, option.section), name)) not in (option.default, ())
        }

    def command_line(self, command: str, *, with_paths: bool = False) -> str:
        """Return the command of this run, with paths or with the names of files alone."""
        files = getattr(self, self.file_key())
        files = (files,) if isinstance(files, str) else files
        format_path = str if with_paths else lambda path: Path(path).name
        words = ["molattn", command, *map(format_path, files)]
        for name, value in self.changes().items():
            option = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                words.append(option if value else option.replace("--", "--no-", 1))
            else:
                is_path = name in ("exclude", "auxiliary_data") or (
                    name == "init_from" and Path(value).is_absolute()
                )
                words.append(option)
                words += (
                    format_path(x) if is_path else str(x).removesuffix(".0" * isinstance(x, float))
                    for x in (value if isinstance(value, tuple) else (value,))
                )
        return shlex.join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the run as nested dictionaries of JSON types."""
        return TypeAdapter(type(self)).dump_python(self, mode="json")

    @classmethod
    def from_options(cls, files: Any, options: Mapping[str, Any]) -> Self:
        """Create a run from options by name, as keyword arguments give them.

        Args:
            files: The table, or tables.
            options: Options of any section; the others keep their defaults. An option that takes
                several values accepts a list of them or a single one.

        Raises:
            InputError: An unknown option, or a value that an option cannot have.
        """
        declared = cls.options()
        sections: dict[str, dict[str, Any]] = {section: {} for section in cls.sections()}
        for name, value in options.items():
            if name not in declared:
                raise InputError(f"unknown option{did_you_mean(name, declared)}", option=name)
            is_tuple = get_origin(declared[name].kind) is tuple and not isinstance(value, Mapping)
            sections[declared[name].section][name] = _as_tuple(value) if is_tuple else value
        return cls(**{cls.file_key(): files}, **sections)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None:
        return ()
    is_single = isinstance(value, str) or not isinstance(value, Iterable)
    return (value,) if is_single else tuple(value)


def check_same_options(former: RunConfig, latter: RunConfig, folder: Path) -> None:
    """Check that a resumed run has the same options, except ``RESUMABLE`` ones."""
    was = former.to_dict()
    now = latter.to_dict()
    for section, kind in former.sections().items():
        names = [option.name for option in fields(kind) if not option.metadata.get("resumable")]
        check_same_values(was[section], {name: now[section][name] for name in names}, folder)


def check_same_values(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raise an ``InputError`` for the first option that differs from the start of a resumed run."""
    for name, value in now.items():
        if name in was and value != was[name]:
            raise InputError(
                f"got {quoted(value)}, but the run in {folder} has {quoted(was[name])}; use the "
                "same value, or start a new run",
                option=name,
            )


def check_same_digest(what: str, now: str | None, before: str | None, folder: Path) -> None:
    """Raise an ``InputError`` if data or initial weights changed since a run was started.

    ``what`` is the subject of the message, such as ``t.csv: the file has``.
    """
    if now != before:
        raise InputError(
            f"{what} changed since the run in {folder} was started (SHA-256 {str(now)[:12]}..., "
            f"was {str(before)[:12]}...); use the original or start a new run"
        )
