"""A whole run as sections of options, to and from JSON types, and in what two of them differ."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_origin, get_type_hints

from molattn.config.validation import option
from molattn.errors import InputError, quoted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["RunConfig", "check_same_options"]


class RunConfig:
    """The base of a dataclass whose fields are sections of options, and files beside them."""

    @classmethod
    def sections(cls) -> "dict[str, type[DataclassInstance]]":
        """Return its sections, by name."""
        hints: dict[str, Any] = get_type_hints(cls)
        return {name: kind for name, kind in hints.items() if is_dataclass(kind)}  # pyright: ignore

    @classmethod
    def file_keys(cls) -> list[str]:
        """Return the keys that are not sections: files that the run reads."""
        return [name for name in get_type_hints(cls) if name not in cls.sections()]

    def to_dict(self) -> dict[str, Any]:
        """Return the run as nested dictionaries of JSON types."""
        return _plain(asdict(self))  # pyright: ignore[reportArgumentType]

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` gave; options that are not there keep their defaults.

        Raises:
            InputError: An unknown key, or a value that an option cannot have.
        """
        for key in sorted(set(config) - {*cls.file_keys(), *cls.sections()}):
            raise InputError(f"run config: unknown key {key!r}")
        hints = get_type_hints(cls)
        values: dict[str, Any] = {  # "" and () of data that are in no file
            key: _tuple(config.get(key, (get_origin(hints[key]) or hints[key])()))
            for key in cls.file_keys()
        }
        for section, kind in cls.sections().items():
            options = config.get(section, {})
            known = {known.name for known in fields(kind)}
            for key in sorted(set(options) - known):
                raise InputError(f"run config, {section}: unknown key {key!r}")
            values[section] = kind(**{key: _tuple(value) for key, value in options.items()})
        return cls(**values)


def check_same_options(former: RunConfig, latter: RunConfig, folder: Path) -> None:
    """Refuse options other than those that a run began with; its files may be elsewhere.

    Args:
        former: Its options.
        latter: The options now.
        folder: Where it is.

    Raises:
        InputError: Names the first that differs.
    """
    was, now = former.to_dict(), latter.to_dict()
    for section in former.sections():
        for name, value in now[section].items():
            if value != was[section][name]:
                raise InputError(
                    f"{option(name)}: got {quoted(value)}, but what is in {folder} has "
                    f"{quoted(was[section][name])}; expected the same, or a new run"
                )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
