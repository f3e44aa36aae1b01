"""Options of pretraining."""

from dataclasses import field
from typing import Annotated, Any, Literal, get_args

from annotated_types import MinLen

from molattn.config.base import (
    Between,
    Count,
    Fraction,
    Name,
    NonNegativeInt,
    Positive,
    RunConfig,
    Unique,
    check_unused,
    checked,
)
from molattn.config.data import MoleculeLimits
from molattn.config.network import NetworkConfig
from molattn.config.training import Checkpoint, TrainingLoopConfig

Target = Literal["descriptors", "morgan", "atom_pairs", "torsions", "atoms", "bonds", "columns"]


@checked
class MoleculesConfig(MoleculeLimits):
    """The molecules of pretraining, and how they are masked.

    Args:
        smiles_column: Column of SMILES.
        exclude: Tables whose molecules (SMILES or InChIKeys) are excluded, such as test sets: those
            of the same connectivity, of salts also the largest fragment.
        max_atoms: Maximum number of atoms, not counting implicit hydrogens.
        validation_molecules: Number of validation molecules (at most 10% of all).
        masked_molecules: Fraction of the molecules in a batch in which atoms are masked.
        masked_atoms: Fraction of the atoms of a masked molecule that are masked.
        featurizer: Name of the featurizer for atoms and bonds.
        molecules_folder: Folder for the prepared molecules, for other runs on the same files.
        data_note: Text about the data for the model card, such as licenses.
        pretraining_columns: Numeric columns, or patterns such as emb_*, to predict too.
    """

    smiles_column: str = "smiles"
    exclude: tuple[str, ...] = ()
    max_atoms: Count = field(default=100, kw_only=True)
    validation_molecules: Count = 2000
    masked_molecules: Between = 0.3
    masked_atoms: Between = 0.15
    featurizer: Name = "default"
    molecules_folder: str | None = None
    data_note: str | None = None
    pretraining_columns: tuple[str, ...] = ()


@checked
class PretrainNetworkConfig(NetworkConfig):
    """The network of pretraining: no dropout, as there are too many molecules to overfit."""

    dropout: Fraction = 0.0
    head: str = "mlp"
    head_dropout: Fraction = 0.0


@checked
class PretrainLoopConfig(TrainingLoopConfig):
    """How the network is pretrained.

    Args:
        targets: What is predicted: descriptors, counts of substructures (morgan, atom_pairs,
            torsions), masked atoms and bonds, and the --pretraining-columns (columns).
        init_from: Model to continue from: base, base-large, a folder, owner/model, or none.
    """

    epochs: Count = 10
    checkpoint: Checkpoint = "best"
    batch_size: Count = 64
    learning_rate: Positive = 2e-3
    warmup: Fraction = 0.02
    checkpoint_steps: NonNegativeInt = 1000
    init_from: Name = "none"
    targets: Annotated[tuple[Target, ...], MinLen(1), Unique] = get_args(Target)


@checked
class PretrainConfig(RunConfig):
    """Everything that determines a pretraining run; written as ``config.yaml`` into its folder.

    Args:
        files: Tables of molecules.
        molecules: How they are read and masked.
        network: The network.
        training: How it is trained.
    """

    files: tuple[str, ...] = ()
    molecules: MoleculesConfig = field(default_factory=MoleculesConfig)
    network: PretrainNetworkConfig = field(default_factory=PretrainNetworkConfig)
    training: PretrainLoopConfig = field(default_factory=PretrainLoopConfig)

    def __post_init__(self) -> None:
        has_columns = "columns" in self.training.targets
        reason = "needs columns in --targets"
        check_unused(self.molecules, (not has_columns, "pretraining_columns", reason))
        check_unused(self.network, (True, "partner radius", "cannot be used in pretraining"))

    def changes(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        return {
            name: value
            for name, option in self.options().items()
            if (value := getattr(getattr(self, option.section), name)) != option.default
        }
