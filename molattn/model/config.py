"""The configuration of a model: everything except its weights."""

import reprlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np
from annotated_types import Interval
from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from molattn.chem import Featurizer
from molattn.chem.descriptors import DescriptorCalculator
from molattn.chem.fingerprints import KINDS, SubstructureCounter
from molattn.chem.limits import Standardize
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import Kernel, MoleculeLimits, NetworkConfig
from molattn.config.base import NonNegativeInt, Unique, checked
from molattn.errors import InputError, quoted
from molattn.model.target_transform import AnyTransform, IdentityTransform
from molattn.nn.registry import check_network, resolved
from molattn.task import Level, Task
from molattn.version import __version__

FORMAT = 1
"""Format of the configurations of saved models."""

KERNELS: tuple[str, ...] = get_args(Kernel)
"""Kernels of a Gaussian process: kinds of substructure counts, then groups of numbers."""


def substructure_counter(kernels: Collection[str]) -> SubstructureCounter | None:
    """Return the counter of the substructures that kernels compare; None = they compare none."""
    kinds = tuple(kind for kind in KINDS if kind in kernels)
    return SubstructureCounter(kinds) if kinds else None


def _tasks(tasks: Any) -> list[Any]:
    tasks = [tasks] if isinstance(tasks, (str, Task)) else tasks
    return [Task(task) if isinstance(task, str) else task for task in tasks]


def _items(pairs: Any) -> Any:
    return tuple(pairs.items()) if isinstance(pairs, Mapping) else pairs


_Tasks = Annotated[tuple[Task, ...], BeforeValidator(_tasks)]
_Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda x: (x,) if isinstance(x, str) else x), Unique
]
_Parts = Annotated[
    tuple[tuple[Literal["encoder", "readout", "head"], str], ...],
    BeforeValidator(_items),
    PlainSerializer(dict),
]


@checked
class MolAttnConfig:
    """The configuration of a model: everything except its weights.

    Args:
        tasks: The properties to predict; a string is a regression of that name.
        atom_tasks: Properties of atoms to predict, likewise.
        bond_tasks: Properties of bonds to predict, likewise.
        hydrogens: Whether all hydrogens are atoms of the graph.
        charge_tasks: Names of those of ``atom_tasks`` whose values sum to the charge of a molecule.
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
        interval_columns: Table columns with both limits of the labels of each task; empty = none.
        standardize: Whether the model reads the standard form of molecules, ``"parent"`` or
            ``"uncharged"``, see :func:`molattn.chem.limits.standard_form`.
        written_tasks: Names of the tasks that are predicted of molecules as written but
            ``"uncharged"``, where ``standardize`` is ``"parent"``.
        unify_drawings: Whether usual drawings of a molecule are read as one, see
            :func:`molattn.chem.drawings.redrawn`. Models saved without it read them as drawn.
        imports: Names of the files that register parts of it (``--import``).
        auxiliary_columns: Names of the auxiliary columns that it learned from and does not predict.
    """

    tasks: _Tasks
    network: NetworkConfig = field(default_factory=NetworkConfig)
    featurizer: Featurizer = field(default_factory=Featurizer.default)
    features: _Names = ()
    descriptors: tuple[str, ...] = ()
    morgan_counts: NonNegativeInt = 0
    partner_column: str | None = None
    kernels: tuple[Kernel, ...] = ()
    members: Annotated[int, Interval(ge=1, le=1000)] = 1
    target_transforms: tuple[AnyTransform, ...] = ()
    custom_parts: _Parts = ()
    relation_columns: tuple[str, ...] = ()
    interval_columns: tuple[str, ...] = ()
    standardize: Standardize = False
    unify_drawings: bool = True
    imports: tuple[str, ...] = ()
    auxiliary_columns: tuple[str, ...] = ()
    atom_tasks: _Tasks = ()
    bond_tasks: _Tasks = ()
    hydrogens: bool = False
    charge_tasks: tuple[str, ...] = ()
    written_tasks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"MolAttnConfig(tasks={reprlib.repr(self.targets)}, network={self.network}, ...)"

    def __post_init__(self) -> None:
        tasks = self.tasks
        network = self.network
        transforms = self.target_transforms or (IdentityTransform(),) * len(tasks)
        object.__setattr__(self, "target_transforms", transforms)
        columns = [name for task in self.all_tasks for name in task.columns]
        if not columns:
            raise InputError("tasks: got none, expected at least one")
        for option, names in (("tasks", self.targets), ("outputs", columns)):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise InputError(f"{option}: got {quoted(twice[0])} twice, expected distinct names")
        is_plain = [transform == IdentityTransform() for transform in transforms]
        fits = [plain or not task.classes for plain, task in zip(is_plain, tasks, strict=False)]
        if len(transforms) != len(tasks) or not all(fits):
            message = "expected one for each task, of classes the identity"
            raise InputError(message, option="target_transforms")
        if "descriptors" in self.kernels and not self.descriptors:
            raise InputError("kernels: got descriptors, but the model has no descriptors")
        check_network(network)
        if self.site_tasks and (self.has_partner or self.standardize):
            message = "cannot be used with partner_column or standardize"
            raise InputError(message, option=f"{next(iter(self.site_tasks))}_tasks")
        network = resolved(network)
        if self.bond_tasks and network.update_edges and "pairs" not in network.graphs:
            message = f"got {' '.join(network.graphs)}, expected pairs too: bonds are predicted "
            raise InputError(f"{message}from their updated edges", option="graphs")
        if network.head == "auto":
            has_numbers = any(task.kind == "regression" for task in self.all_tasks)
            head = "both" if has_numbers else "fourier"
            network = replace(network, head=head)
        object.__setattr__(self, "network", network)
        _ = self.calculator  # raises if a descriptor is unknown

    @cached_property
    def calculator(self) -> DescriptorCalculator:
        """The calculator of descriptors and Morgan counts."""
        return DescriptorCalculator(self.descriptors, self.morgan_counts)

    @cached_property
    def counter(self) -> SubstructureCounter | None:
        """The counter of the substructures that the kernels compare; None = they compare none."""
        return substructure_counter(self.kernels)

    def input_fields(self, **more: Any) -> Fields:
        """Return what predictions are computed from, and more fields such as ``fingerprint``."""
        return Fields(self.calculator, self.counter, **more)

    def reader(self, fields: Fields, limits: MoleculeLimits | None = None) -> MoleculeReader:
        """Return a reader of molecules for the networks."""
        options = self.standardize, self.unify_drawings, self.network.radius
        return MoleculeReader(
            *(self.featurizer, fields, limits or MoleculeLimits(), *options),
            written=bool(self.written_tasks) and self.standardize == "parent",
            sites=bool(self.site_tasks),
            hydrogens=self.hydrogens,
        )

    @property
    def has_partner(self) -> bool:
        """Whether the model takes a second molecule."""
        return self.partner_column is not None

    @property
    def input_columns(self) -> tuple[str, ...]:
        """Columns of a table that the model reads besides the molecule."""
        return (*self.features, *([self.partner_column] if self.partner_column else ()))

    @property
    def num_numbers(self) -> int:
        """Number of extra features of a molecule, from the table and calculated."""
        return len(self.features) + len(self.calculator) * (2 if self.has_partner else 1)

    @property
    def number_groups(self) -> dict[str, slice]:
        """The columns of each kind of extra features, without those of a second molecule."""
        sizes = len(self.features), len(self.descriptors), self.morgan_counts
        ends = np.cumsum(sizes).tolist()
        names = ("feature columns", "descriptors", "Morgan counts")
        groups = zip(names, ends, sizes, strict=True)
        return {name: slice(end - size, end) for name, end, size in groups if size}

    @property
    def site_tasks(self) -> dict[Level, tuple[Task, ...]]:
        """The tasks of atoms and of bonds, without a level that has none."""
        levels: dict[Level, tuple[Task, ...]] = {"atom": self.atom_tasks, "bond": self.bond_tasks}
        return {level: tasks for level, tasks in levels.items() if tasks}

    @property
    def all_tasks(self) -> tuple[Task, ...]:
        """The tasks of molecules, of atoms and of bonds."""
        return (*self.tasks, *self.atom_tasks, *self.bond_tasks)

    @property
    def tasks_by_method(self) -> dict[str, tuple[Task, ...]]:
        """The tasks by the name of the method of a model that predicts them."""
        of_sites = {f"predict_{level}s": tasks for level, tasks in self.site_tasks.items()}
        return {"predict": self.tasks, **of_sites}

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of all outputs, in the order of the columns of a prediction."""
        return tuple(name for task in self.tasks for name in task.output_names)

    @cached_property
    def written_task_indices(self) -> list[int]:
        """Indices of the tasks that are predicted of molecules as written."""
        return [n for n, task in enumerate(self.tasks) if task.name in self.written_tasks]

    @cached_property
    def written_output_indices(self) -> list[int]:
        """Indices of the outputs of the tasks that are predicted of molecules as written."""
        names = [name for n in self.written_task_indices for name in self.tasks[n].output_names]
        return [*map(self.output_names.index, names)]

    def difference(self, other: "MolAttnConfig") -> str:
        """Name the first option, other than ``members``, that differs from another's; "" = none."""
        pairs = [(self.network, other.network), (self, replace(other, members=self.members))]
        for mine, theirs in pairs:
            for name in (option.name for option in fields(mine)):
                if (got := getattr(theirs, name)) != (expected := getattr(mine, name)):
                    return name if mine is self else f"{name}: {got}, not {expected}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON types, with its format and the version of molattn."""
        plain = TypeAdapter(MolAttnConfig).dump_python(self, mode="json")
        return {"format": FORMAT, "molattn_version": __version__, **plain}

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "MolAttnConfig":
        """Read the output of :meth:`to_dict`; another format is an InputError."""
        options = {"unify_drawings": False, **config}
        if isinstance(network := options.get("network", {}), Mapping):  # saved without these
            options["network"] = {"graphs": ("pairs",), "norm": "layer", **network}
        number = options.pop("format", None)
        version = options.pop("molattn_version", None)
        if number != FORMAT:
            raise InputError(
                f"model config: got format {quoted(number)}, saved by molattn {quoted(version)}, "
                f"expected {FORMAT}"
            )
        return cls(**options)
