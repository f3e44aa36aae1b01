"""All that a model is besides its weights."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from molattn.chem import Featurizer
from molattn.chem.descriptors import DescriptorCalculator
from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.checkpoints import FORMAT, update_config
from molattn.nn.registry import check_network
from molattn.task import Task
from molattn.version import __version__

__all__ = ["MolAttnConfig"]


@dataclass(frozen=True)
class MolAttnConfig:
    """All that a model is besides its weights.

    Args:
        tasks: The predicted properties; a text is a regression of that name.
        network: The network; the head ``auto`` becomes the one of these tasks, for good.
        featurizer: What it sees of a molecule.
        features: Names of further numbers of a molecule, which join the readout.
        descriptors: Names of RDKit's descriptors that join it too.
        morgan_counts: Length of a Morgan count fingerprint that joins it too; 0 = none.
        partner_column: What a table calls the second molecule; None = there is none.
        members: How many networks, whose mean is predicted.

    Raises:
        InputError: No task, no member, two of one name, outputs or features of one name, a
            network's option that cannot be, or a descriptor that RDKit does not have.
    """

    tasks: tuple[Task, ...]
    network: NetworkConfig = field(default_factory=NetworkConfig)
    featurizer: Featurizer = field(default_factory=Featurizer.default)
    features: tuple[str, ...] = ()
    descriptors: tuple[str, ...] = ()
    morgan_counts: int = 0
    partner_column: Optional[str] = None
    members: int = 1

    def __post_init__(self) -> None:
        given: Any = (self.tasks,) if isinstance(self.tasks, (str, Task)) else self.tasks
        tasks = tuple(Task(task) if isinstance(task, str) else task for task in given)
        object.__setattr__(self, "tasks", tasks)
        names = (self.features,) if isinstance(self.features, str) else self.features
        object.__setattr__(self, "features", tuple(names))
        for what, names in (
            ("tasks", self.targets),
            ("outputs", self.columns),
            ("features", self.features),
        ):
            if len(set(names)) != len(names) or (what == "tasks" and not names):
                raise InputError(
                    f"{what}: got {', '.join(names) or 'none'}, expected distinct names"
                )
        if type(self.members) is not int or self.members < 1:
            raise InputError(f"members: got {self.members!r}, expected a whole number from 1")
        object.__setattr__(self, "descriptors", tuple(self.descriptors))
        check_network(self.network)
        if self.network.head == "auto":
            head = "both" if any(task.kind == "regression" for task in tasks) else "fourier"
            object.__setattr__(self, "network", replace(self.network, head=head))
        _ = self.calculator  # names that RDKit lacks are told at once

    @cached_property
    def calculator(self) -> DescriptorCalculator:
        """What is calculated of each molecule."""
        return DescriptorCalculator(self.descriptors, self.morgan_counts)

    @cached_property
    def edge_codes(self) -> Optional[NDArray[np.bool_]]:
        """Which joint codes make a pair an edge, ``bool [K]``; None = all of them."""
        if self.network.pairs == "all":
            return None
        table = self.featurizer.pair_table  # a bond, or an atom with itself
        return (table[:, 0] > 0) | (table[:, -1] == 0)

    @property
    def has_partner(self) -> bool:
        """Whether there is a second molecule."""
        return self.partner_column is not None

    @property
    def num_numbers(self) -> int:
        """How many numbers join the readout: those given and those calculated of each molecule."""
        return len(self.features) + len(self.calculator) * (2 if self.has_partner else 1)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of all that is predicted, in the order of a prediction's columns."""
        return tuple(name for task in self.tasks for name in task.output_names)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a table of predictions: those of each task in turn."""
        return tuple(name for task in self.tasks for name in task.columns)

    def difference(self, other: "MolAttnConfig") -> str:
        """Name the first option, the number of members aside, in which another differs, or none."""
        for name in (option.name for option in fields(self) if option.name != "members"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine == theirs:
                continue
            if name != "network":
                return name
            options = (option.name for option in fields(mine))
            option = next(o for o in options if getattr(mine, o) != getattr(theirs, o))
            return f"{option}: {getattr(theirs, option)}, not {getattr(mine, option)}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, with the versions that wrote it."""
        return {
            "format": FORMAT,
            "molattn_version": __version__,
            "tasks": [task.to_dict() for task in self.tasks],
            "network": asdict(self.network),
            "featurizer": self.featurizer.to_dict(),
            "features": list(self.features),
            "descriptors": list(self.descriptors),
            "morgan_counts": self.morgan_counts,
            "partner_column": self.partner_column,
            "members": self.members,
        }

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "MolAttnConfig":
        """Read what :meth:`to_dict` gave.

        Raises:
            InputError: Another format, or a key that is missing or unknown.
        """
        config = update_config(config)
        if config.get("format") != FORMAT:
            raise InputError(
                f"model config: got format {config.get('format')!r} of molattn "
                f"{config.get('molattn_version')!r}, expected {FORMAT} or earlier"
            )
        expected = {"format", "molattn_version"} | {f.name for f in fields(cls)}
        _check_keys("model config", config, expected)
        options = config["network"]
        _check_keys("model config, network", options, {f.name for f in fields(NetworkConfig)})
        return cls(
            tasks=tuple(Task.from_dict(task) for task in config["tasks"]),
            network=NetworkConfig(**options),
            featurizer=Featurizer.from_dict(config["featurizer"]),
            features=tuple(config["features"]),
            descriptors=tuple(config["descriptors"]),
            morgan_counts=config["morgan_counts"],
            partner_column=config["partner_column"],
            members=config["members"],
        )


def _check_keys(where: str, got: Mapping[str, Any], expected: set[str]) -> None:
    for name in sorted(set(got) ^ expected):
        raise InputError(f"{where}: {'unknown' if name in got else 'missing'} key {name!r}")
