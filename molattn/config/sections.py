"""A whole run as sections of options, to and from JSON types."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Self, get_origin, get_type_hints

from molattn.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["RunConfig"]


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
            known = {option.name for option in fields(kind)}
            for key in sorted(set(options) - known):
                raise InputError(f"run config, {section}: unknown key {key!r}")
            values[section] = kind(**{key: _tuple(value) for key, value in options.items()})
        return cls(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
