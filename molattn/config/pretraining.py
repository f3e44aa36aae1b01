"""Options of pretraining."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from molattn.config.base import COMMON, FIXED, RESUMABLE, RunConfig
from molattn.config.limits import MoleculeLimits
from molattn.config.network import NetworkConfig
from molattn.config.training import Checkpoint, TrainingLoopConfig
from molattn.config.validation import check, check_choices, check_unused, option
from molattn.errors import InputError, quoted

__all__ = [
    "MoleculesConfig",
    "PretrainConfig",
    "PretrainLoopConfig",
    "PretrainNetworkConfig",
    "Target",
]

Target = Literal["descriptors", "morgan", "atom_pairs", "torsions", "atoms", "bonds", "columns"]


@dataclass(frozen=True)
class MoleculesConfig(MoleculeLimits):
    """The molecules of pretraining, and how they are masked.

    Excluded molecules are recognized by connectivity (first block of the InChIKey), salts also by
    their largest fragment.

    Args:
        smiles_column: Column of SMILES.
        exclude: Tables whose molecules (SMILES or InChIKeys) are excluded, such as test sets.
        max_atoms: Maximum number of atoms, not counting implicit hydrogens.
        validation_molecules: Number of validation molecules (at most 10% of all).
        masked_molecules: Fraction of the molecules in a batch in which atoms are masked.
        masked_atoms: Fraction of the atoms of a masked molecule that are masked.
        featurizer: Name of the featurizer for atoms and bonds.
        molecules_folder: Folder for the prepared molecules, so that other runs on the same files
            can reuse them; by default they are temporary.
        data_note: Text about the data for the model card, such as licenses.
        pretraining_columns: Numeric columns, or patterns such as emb_*, to predict too, for example
            the embedding of another network.
    """

    smiles_column: str = field(default="smiles", metadata=COMMON)
    exclude: tuple[str, ...] = field(default=(), metadata=COMMON)
    max_atoms: int = field(default=100, metadata=COMMON, kw_only=True)
    validation_molecules: int = field(default=2000, metadata=COMMON)
    masked_molecules: float = 0.3
    masked_atoms: float = 0.15
    featurizer: str = "default"
    molecules_folder: str | None = None
    data_note: str | None = None
    pretraining_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        count = "a whole number of at least 1"
        check(self, "validation_molecules", lambda number: number >= 1, count, int)
        for name in ("masked_molecules", "masked_atoms"):
            check(self, name, lambda part: 0.0 < part < 1.0, "a number between 0 and 1")
        check(self, "featurizer", bool, "the name of a featurizer", str)
        for name, of in (("exclude", "files"), ("pretraining_columns", "names")):
            if not isinstance(value := getattr(self, name), tuple):
                raise InputError(f"{option(name)}: got {quoted(value)}, expected a tuple of {of}")


@dataclass(frozen=True)
class PretrainNetworkConfig(NetworkConfig):
    """The network of pretraining: no dropout, as there are too many molecules to overfit."""

    dropout: float = 0.0
    head: str = "mlp"
    head_dropout: float = 0.0


@dataclass(frozen=True)
class PretrainLoopConfig(TrainingLoopConfig):
    """How the network is pretrained.

    Args:
        targets: What is predicted: descriptors, counts of substructures (morgan, atom_pairs,
            torsions), masked atoms and bonds, and the --pretraining-columns (columns).
        max_hours: Time limit for training, in hours; --resume may change it.
        init_from: Model to continue pretraining from: base, base-large, a folder, owner/model, or
            none.
    """

    epochs: int = field(default=10, metadata=COMMON)
    checkpoint: Checkpoint = "best"
    max_hours: float | None = field(default=None, metadata=COMMON | RESUMABLE)
    batch_size: int = field(default=64, metadata=COMMON)
    learning_rate: float = field(default=2e-3, metadata=COMMON)
    warmup: float = 0.02
    devices: int = field(default=1, metadata=FIXED | RESUMABLE)
    checkpoint_steps: int = 1000
    init_from: str = field(default="none", metadata=COMMON)
    targets: tuple[Target, ...] = get_args(Target)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, "targets", get_args(Target), "target")
        check(self, "init_from", bool, "the name or folder of a model, or none", str)


@dataclass(frozen=True, repr=False)
class PretrainConfig(RunConfig):
    """Everything that determines a pretraining run; written as ``config.yaml`` into its folder.

    Args:
        files: Tables of molecules.
        molecules: How they are read and masked.
        network: The network.
        training: How it is trained.
    """

    files: tuple[str, ...]
    molecules: MoleculesConfig = field(default_factory=MoleculesConfig)
    network: PretrainNetworkConfig = field(default_factory=PretrainNetworkConfig)
    training: PretrainLoopConfig = field(default_factory=PretrainLoopConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.molecules.pretraining_columns and "columns" not in self.training.targets:
            raise InputError("--pretraining-columns needs columns in --targets")
        reason = "cannot be used in pretraining, which has no second molecule"
        check_unused(self.network, "partner", reason)
        check_unused(self.network, "radius", "cannot be used in pretraining")

    def changes(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        return {
            name: value
            for name, option in self.options().items()
            if (value := getattr(getattr(self, option.section), name)) != option.default
        }
