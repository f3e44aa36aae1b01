"""A whole training run, and in what two of them differ."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from molattn.config.architecture import ArchitectureConfig
from molattn.config.checks import option
from molattn.config.data import DataConfig
from molattn.config.optimisation import OptimisationConfig
from molattn.config.report import ReportConfig
from molattn.errors import InputError

__all__ = ["CONFIG_SECTIONS", "TrainConfig", "changed_options"]


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run; written as ``config.yaml`` into its folder.

    Args:
        file: The table.
        data: Its columns and parts.
        architecture: The network.
        optimisation: How it is trained.
        report: How it is judged.
    """

    file: str
    data: DataConfig
    architecture: ArchitectureConfig
    optimisation: OptimisationConfig
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        if self.architecture.partner != "concat" and self.data.partner_column is None:
            raise InputError(
                f"--partner: got {self.architecture.partner} without --partner-column, expected "
                "the column of the second molecule"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the run as nested dictionaries of JSON types."""
        sections = asdict(self)
        for section in CONFIG_SECTIONS:
            sections[section] = {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in sections[section].items()
            }
        return sections

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "TrainConfig":
        """Read what :meth:`to_dict` gave; options that are not there keep their defaults.

        Raises:
            InputError: An unknown key, or a value that an option cannot have.
        """
        for key in sorted(set(config) - {"file", *CONFIG_SECTIONS}):
            raise InputError(f"run config: unknown key {key!r}")
        sections = {}
        for section, kind in CONFIG_SECTIONS.items():
            options = config.get(section, {})
            known = {option.name for option in fields(kind)}
            for key in sorted(set(options) - known):
                raise InputError(f"run config, {section}: unknown key {key!r}")
            sections[section] = kind(
                **{key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
            )
        return cls(config["file"], **sections)


CONFIG_SECTIONS = {
    "data": DataConfig,
    "architecture": ArchitectureConfig,
    "optimisation": OptimisationConfig,
    "report": ReportConfig,
}
"""Sections of a :class:`TrainConfig`, and of a config file."""


def changed_options(
    former: Mapping[str, Any], latter: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options in which two runs differ, with the value that each has.

    Args:
        former: From :meth:`TrainConfig.to_dict`.
        latter: Likewise; the file of each is left out of account.
    """
    for section in CONFIG_SECTIONS:
        for name in {**former.get(section, {}), **latter.get(section, {})}:
            was, now = (run.get(section, {}).get(name) for run in (former, latter))
            if was != now:
                yield option(name), was, now
