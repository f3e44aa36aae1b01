"""The configuration of a model: everything except its weights."""

import reprlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Optional, get_args

import numpy as np
from numpy.typing import NDArray

from molattn.chem import Featurizer
from molattn.chem.descriptors import DescriptorCalculator
from molattn.chem.fingerprints import KINDS, SubstructureCounter
from molattn.config import Kernel, NetworkConfig
from molattn.errors import InputError, check_one_of, quoted
from molattn.model.target_transform import TargetTransform
from molattn.nn.registry import check_network
from molattn.task import Task
from molattn.version import __version__

__all__ = ["FORMAT", "KERNELS", "MolAttnConfig", "substructure_counter"]

FORMAT = 9
"""Format of the configurations of saved models."""

KERNELS: tuple[str, ...] = get_args(Kernel)
"""Kernels of a Gaussian process: kinds of substructure counts, then groups of numbers."""
_COUNT_SIZE = 4096


def substructure_counter(kernels: Collection[str]) -> Optional[SubstructureCounter]:
    """Return the counter of the substructures that kernels compare; None = they compare none."""
    kinds = tuple(kind for kind in KINDS if kind in kernels)
    return SubstructureCounter(kinds, _COUNT_SIZE) if kinds else None


@dataclass(frozen=True, repr=False)
class MolAttnConfig:
    """The configuration of a model: everything except its weights.

    Args:
        tasks: The properties to predict; a string is a regression of that name.
        network: Options of the network. The head ``auto`` is replaced by the one for these tasks.
        featurizer: Atom and bond features.
        features: Names of extra molecule features given in the table, concatenated to the readout.
        descriptors: Names of RDKit descriptors concatenated to the readout.
        morgan_counts: Length of the Morgan count fingerprint concatenated to the readout; 0 = none.
        partner_column: Table column of the second molecule; None = the model takes one molecule.
        kernels: Kernels of the Gaussian process, of ``KERNELS``; empty = there is none.
        members: Number of networks whose predictions are averaged.
        target_transforms: Transform of the labels of each task; training fills it in. By default,
            and for classifications, the identity.
        custom_parts: Name and class of each part of the network that is not built from
            ``network``; :class:`molattn.MolAttn` fills it in.
        relation_columns: Table columns with the relation of the labels of each task; empty = none.
        standardize: Whether molecules are standardized before they are featurized, see
            :func:`molattn.chem.standardize.standardize`.

    Raises:
        InputError: No task, fewer than one member, duplicate names of tasks, output columns or
            features, transforms that do not fit the tasks, an invalid option of the network, or an
            unknown descriptor.
    """

    tasks: tuple[Task, ...]
    network: NetworkConfig = field(default_factory=NetworkConfig)
    featurizer: Featurizer = field(default_factory=Featurizer.default)
    features: tuple[str, ...] = ()
    descriptors: tuple[str, ...] = ()
    morgan_counts: int = 0
    partner_column: Optional[str] = None
    kernels: tuple[str, ...] = ()
    members: int = 1
    target_transforms: tuple[TargetTransform, ...] = ()
    custom_parts: tuple[tuple[str, str], ...] = ()
    relation_columns: tuple[str, ...] = ()
    standardize: bool = False

    def __repr__(self) -> str:
        return f"MolAttnConfig(tasks={reprlib.repr(self.targets)}, network={self.network}, ...)"

    def __post_init__(self) -> None:
        given: Any = (self.tasks,) if isinstance(self.tasks, (str, Task)) else self.tasks
        tasks = tuple(Task(task) if isinstance(task, str) else task for task in given)
        names = (self.features,) if isinstance(self.features, str) else self.features
        transforms = tuple(self.target_transforms) or (TargetTransform(),) * len(tasks)
        self._set(tasks=tasks, features=names, target_transforms=transforms)
        for name in ("features", "descriptors", "kernels", "relation_columns"):
            self._set(**{name: tuple(getattr(self, name))})
        self._set(custom_parts=tuple(map(tuple, self.custom_parts)))
        self._check_names()
        if type(self.members) is not int or self.members < 1:
            raise InputError(f"members: got {self.members!r}, expected an integer of at least 1")
        if not isinstance(self.standardize, bool):
            raise InputError(f"standardize: got {quoted(self.standardize)}, expected a boolean")
        for name, values in (("relation_columns", ()), ("target_transforms", None)):
            if (found := getattr(self, name)) != values and len(found) != len(tasks):
                raise InputError(f"{name}: got {len(found)} for {len(tasks)} tasks")
        for task, transform in zip(tasks, transforms, strict=True):
            if task.kind != "regression" and transform != TargetTransform():
                raise InputError(f"target_transforms: {quoted(task.name)} is no regression")
        for kernel in self.kernels:
            check_one_of("kernels", kernel, KERNELS)
        if "descriptors" in self.kernels and not self.descriptors:
            raise InputError("kernels: got descriptors, but the model has no descriptors")
        for part, _ in self.custom_parts:
            check_one_of("custom_parts", part, ("encoder", "readout", "head"))
        check_network(self.network)
        if self.network.head == "auto":
            head = "both" if any(task.kind == "regression" for task in tasks) else "fourier"
            self._set(network=replace(self.network, head=head))
        _ = self.calculator  # raises if a descriptor is unknown

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_names(self) -> None:
        if not self.tasks:
            raise InputError("tasks: expected at least one")
        columns = tuple(name for task in self.tasks for name in task.columns)
        named = {"tasks": self.targets, "outputs": columns, "features": self.features}
        for what, names in named.items():
            if len(set(names)) != len(names):
                twice = next(name for name, count in Counter(names).items() if count > 1)
                raise InputError(f"{what}: got {quoted(twice)} twice, expected distinct names")

    @cached_property
    def calculator(self) -> DescriptorCalculator:
        """The calculator of descriptors and Morgan counts."""
        return DescriptorCalculator(self.descriptors, self.morgan_counts)

    @cached_property
    def counter(self) -> Optional[SubstructureCounter]:
        """The counter of the substructures that the kernels compare; None = they compare none."""
        return substructure_counter(self.kernels)

    @cached_property
    def edge_codes(self) -> Optional[NDArray[np.bool_]]:
        """Which joint codes make an atom pair an edge, ``bool [K]``; None = all of them."""
        if self.network.pairs == "all":
            return None
        table = self.featurizer.pair_table  # a bond, or an atom with itself
        return (table[:, 0] > 0) | (table[:, -1] == 0)

    @property
    def has_partner(self) -> bool:
        """Whether the model takes a second molecule."""
        return self.partner_column is not None

    @property
    def num_numbers(self) -> int:
        """Number of extra features of a molecule: those given, and those calculated."""
        return len(self.features) + len(self.calculator) * (2 if self.has_partner else 1)

    @property
    def number_groups(self) -> dict[str, slice]:
        """The extra features of a molecule by what they are; those of a second one are left out."""
        sizes = {
            "feature columns": len(self.features),
            "descriptors": len(self.descriptors),
            "Morgan counts": self.morgan_counts,
        }
        ends = np.cumsum([*sizes.values()]).tolist()
        return {
            name: slice(end - size, end)
            for (name, size), end in zip(sizes.items(), ends, strict=True)
            if size
        }

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of all outputs, in the order of the columns of a prediction."""
        return tuple(name for task in self.tasks for name in task.output_names)

    def difference(self, other: "MolAttnConfig") -> str:
        """Name the first option, other than ``members``, that differs from another's; "" = none."""
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
        """Return the configuration as JSON types, with its format and the version of molattn."""
        return {
            "format": FORMAT,
            "molattn_version": __version__,
            **{option.name: getattr(self, option.name) for option in fields(self)},
            "tasks": [task.to_dict() for task in self.tasks],
            "network": asdict(self.network),
            "featurizer": self.featurizer.to_dict(),
            "features": list(self.features),
            "descriptors": list(self.descriptors),
            "kernels": list(self.kernels),
            "target_transforms": [transform.to_dict() for transform in self.target_transforms],
            "custom_parts": dict(self.custom_parts),
            "relation_columns": list(self.relation_columns),
        }

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "MolAttnConfig":
        """Read the output of :meth:`to_dict`.

        Raises:
            InputError: An unknown format, or a missing or unknown key.
        """
        if config.get("format") != FORMAT:
            number, version = (quoted(config.get(key)) for key in ("format", "molattn_version"))
            raise InputError(
                f"model config: got format {number}, saved by molattn {version}, expected {FORMAT}"
            )
        expected = {"format", "molattn_version"} | {option.name for option in fields(cls)}
        _check_keys("model config", config, expected)
        own = {option.name: config[option.name] for option in fields(cls)}
        options = {option.name for option in fields(NetworkConfig)}
        _check_keys("model config, network", own["network"], options)
        own |= {
            "tasks": tuple(Task.from_dict(task) for task in own["tasks"]),
            "network": NetworkConfig(**own["network"]),
            "featurizer": Featurizer.from_dict(own["featurizer"]),
            "target_transforms": tuple(map(TargetTransform.from_dict, own["target_transforms"])),
            "custom_parts": tuple(own["custom_parts"].items()),
        }
        return cls(**own)


def _check_keys(where: str, got: Mapping[str, Any], expected: set[str]) -> None:
    for name in sorted(set(got) ^ expected):
        raise InputError(f"{where}: {'unknown' if name in got else 'missing'} key {name!r}")
