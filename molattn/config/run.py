"""A whole training run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, get_origin, get_type_hints

from molattn.config.base import RunConfig
from molattn.config.data import DataConfig
from molattn.config.fine_tuning import FineTuningConfig
from molattn.config.network import NetworkConfig
from molattn.config.report import ReportConfig
from molattn.config.training import SupervisedConfig
from molattn.errors import InputError, quoted

__all__ = ["CONFIG_SECTIONS", "TrainConfig", "option_places"]


@dataclass(frozen=True)
class TrainConfig(RunConfig):
    """Everything that decides a training run; written as ``config.yaml`` into its folder.

    Args:
        file: The table.
        data: Its columns and parts.
        network: The network.
        training: How it is trained.
        report: How it is judged.
        fine_tuning: The model that it begins with, if any.
    """

    file: str
    data: DataConfig
    network: NetworkConfig
    training: SupervisedConfig
    report: ReportConfig = field(default_factory=ReportConfig)
    fine_tuning: FineTuningConfig = field(default_factory=FineTuningConfig)

    def __post_init__(self) -> None:
        if self.network.partner != "concat" and self.data.partner_column is None:
            raise InputError(
                f"--partner: got {self.network.partner} without --partner-column, expected "
                "the column of the second molecule"
            )

    @classmethod
    def from_options(cls, file: str, options: Mapping[str, Any]) -> "TrainConfig":
        """Make a run of options by name, as keyword arguments of Python give them.

        Args:
            file: The table.
            options: Options of any section; the others keep their defaults. Where an option is
                several values, a list of them or one alone will do.

        Raises:
            InputError: An unknown option, or a value that an option cannot have.
        """
        places = option_places()
        sections: dict[str, dict[str, Any]] = {section: {} for section in CONFIG_SECTIONS}
        for name, value in options.items():
            if name not in places:
                close = get_close_matches(name, places, n=1)
                hint = f", did you mean {quoted(close[0])}?" if close else ""
                raise InputError(f"unknown option {quoted(name)}{hint}")
            section, kind = places[name]
            if get_origin(kind) is tuple:
                value = (value,) if isinstance(value, str | float | int) else tuple(value or ())
            sections[section][name] = value
        return cls(file, **{name: CONFIG_SECTIONS[name](**sections[name]) for name in sections})


CONFIG_SECTIONS = {
    "data": DataConfig,
    "network": NetworkConfig,
    "fine_tuning": FineTuningConfig,
    "training": SupervisedConfig,
    "report": ReportConfig,
}
"""Sections of a :class:`TrainConfig`, and of a config file."""


def option_places() -> dict[str, tuple[str, Any]]:
    """Return the section and the type of each option of a run, by its name."""
    return {
        name: (section, kind)
        for section, config in CONFIG_SECTIONS.items()
        for name, kind in get_type_hints(config).items()
    }
