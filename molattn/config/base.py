"""A run as sections of options: to and from JSON types, and compared with another."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, get_origin, get_type_hints

from molattn.config.validation import check_kinds, option
from molattn.errors import InputError, quoted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "COMMON",
    "COMMON_IN_TRAIN",
    "FIXED",
    "RESUMABLE",
    "TUNABLE",
    "Option",
    "RunConfig",
    "check_same_digest",
    "check_same_options",
    "check_same_values",
    "update_config",
]

COMMON: dict[str, Any] = {"common": True}
"""Metadata of an option that ``--help`` shows; ``--help-all`` shows the others too."""

COMMON_IN_TRAIN: dict[str, Any] = {"common": "train"}
"""The same of ``molattn train`` alone: a trial of ``molattn tune`` does not use the option."""

FIXED: dict[str, bool] = {"tunable": False}
"""Metadata of an option, or a section of them, that ``molattn tune`` does not vary."""

RESUMABLE: dict[str, bool] = {"resumable": True}
"""Metadata of an option that a resumed run may have another value of."""

TUNABLE: dict[str, bool] = {"tunable": True}
"""Metadata of an option that ``molattn tune`` may vary although its section is fixed."""


class Option(NamedTuple):
    """An option of a run.

    Args:
        section: The section that declares it.
        kind: Its type.
        default: Its default.
        tunable: Whether ``molattn tune`` may vary it.
        from_pretrained: Whether, as an option of the network, a pretrained model determines it.
    """

    section: str
    kind: Any
    default: Any
    tunable: bool
    from_pretrained: bool


class RunConfig:
    """The base of a dataclass whose fields are sections of options, and files beside them.

    Raises:
        InputError: An option has a value of another type than the declared one.
    """

    def __post_init__(self) -> None:
        for section in self.sections():
            check_kinds(getattr(self, section))

    @classmethod
    def sections(cls) -> "dict[str, type[DataclassInstance]]":
        """Return its sections, by name."""
        hints: dict[str, Any] = get_type_hints(cls)
        return {name: kind for name, kind in hints.items() if is_dataclass(kind)}  # pyright: ignore

    @classmethod
    def file_keys(cls) -> list[str]:
        """Return the keys that are not sections: files that the run reads."""
        return [name for name in get_type_hints(cls) if name not in cls.sections()]

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """Return the options of all sections, by name."""
        found = {}
        marks = {part.name: part.metadata for part in fields(cls)}  # pyright: ignore
        for section, kind in cls.sections().items():
            hints = get_type_hints(kind)
            for field in fields(kind):
                found[field.name] = Option(
                    section,
                    hints[field.name],
                    field.default,
                    tunable={**marks[section], **field.metadata}.get("tunable", True),
                    from_pretrained=field.metadata.get("from_pretrained", True),
                )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the run as nested dictionaries of JSON types."""
        return _plain(asdict(self))  # pyright: ignore[reportArgumentType]

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Self:
        """Create a run from what :meth:`to_dict` returned, in this or an earlier version.

        Options that are missing get their defaults.

        Raises:
            InputError: An unknown key, or a value that an option cannot have.
        """
        config = update_config(config)
        for key in sorted(set(config) - {*cls.file_keys(), *cls.sections()}):
            raise InputError(f"run config: unknown key {key!r}")
        hints = get_type_hints(cls)
        values: dict[str, Any] = {  # "" and () for data that are not in a file
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
    """Check that a resumed run has the options that it was started with.

    Its files may have moved, and an option with :data:`RESUMABLE` may have another value.

    Raises:
        InputError: Names the first option that differs.
    """
    was, now = former.to_dict(), latter.to_dict()
    for section, kind in former.sections().items():
        kept = [field.name for field in fields(kind) if not field.metadata.get("resumable")]
        check_same_values(was[section], {name: now[section][name] for name in kept}, folder)


def check_same_values(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Check that the options of a resumed run have the values that it was started with.

    Raises:
        InputError: Names the first option that differs.
    """
    for name, value in now.items():
        if name in was and value != was[name]:
            raise InputError(
                f"{option(name)}: got {quoted(value)}, but the run in {folder} has "
                f"{quoted(was[name])}; use the same value, or start a new run"
            )


def check_same_digest(what: str, now: str | None, before: str | None, folder: Path) -> None:
    """Check that the data or the initial weights of a run are those that it was started with.

    Args:
        what: Subject of the message, such as ``t.csv: the file has``.
        now: SHA-256 now, or None for random initial weights.
        before: Likewise when the run was started.
        folder: The folder of the run.

    Raises:
        InputError: If they differ.
    """
    if now != before:
        raise InputError(
            f"{what} changed since the run in {folder} was started "
            f"(SHA-256 {str(now)[:12]}..., was {str(before)[:12]}...); "
            "use the original or start a new run"
        )


def update_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's options under their present names; unchanged if they have them already.

    This is a ladder of pure updates, one for each change of names; files of each time are kept in
    ``tests/config/golden``.
    """
    updated = dict(config)
    if _FIRST_SECTIONS.keys() & updated.keys():
        updated = _from_first(updated)
    data = updated.get("data")
    if isinstance(data, dict) and isinstance(data.get("descriptors"), bool):
        updated = _from_second(updated)
    return updated


_FIRST_SECTIONS = {"architecture": "network", "optimisation": "training"}
_FIRST_OPTIONS = {
    ("data", "fold"): "only_fold",
    ("fine_tuning", "pretrained_rate"): "backbone_lr_scale",
    ("molecules", "held_out"): "validation_molecules",
    ("training", "keep"): "checkpoint",
}


def _from_first(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the sections ``architecture`` and ``optimisation``, and four options."""
    renamed = {_FIRST_SECTIONS.get(key, key): value for key, value in config.items()}
    return {
        section: {
            _FIRST_OPTIONS.get((section, name), name): value for name, value in options.items()
        }
        if isinstance(options, dict)
        else options
        for section, options in renamed.items()
    }


_SECOND_KERNELS = ["morgan", "atom_pairs", "embedding"]


def _from_second(config: dict[str, Any]) -> dict[str, Any]:
    """Name the descriptors: there were all or none. A network alone had the default kernels."""
    data = config["data"]
    updated = {**config, "data": {**data, "descriptors": "all" if data["descriptors"] else "none"}}
    process = config.get("gaussian_process")
    if isinstance(process, dict):
        values = process.get("predictor"), process.get("kernels")
        unused = {"kernels"} if values == ("network", _SECOND_KERNELS) else set()
        updated["gaussian_process"] = {k: v for k, v in process.items() if k not in unused}
    return updated


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
