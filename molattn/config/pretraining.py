"""Options of a pretraining."""

from dataclasses import dataclass, field
from typing import Any

from molattn.config.base import RunConfig
from molattn.config.network import Head, NetworkConfig
from molattn.config.training import Keep, TrainingLoopConfig
from molattn.config.validation import check
from molattn.errors import InputError, quoted

__all__ = [
    "MoleculesConfig",
    "PretrainNetworkConfig",
    "PretrainConfig",
    "PretrainLoopConfig",
]


@dataclass(frozen=True)
class MoleculesConfig:
    """The molecules of a pretraining, and what of them is hidden.

    Args:
        smiles_column: Column that holds the SMILES; upper and lower case are the same.
        exclude: Tables whose molecules are kept out, such as those of a test: by connectivity
            (first block of the InChIKey), salts by their largest parts too.
        max_atoms: Most heavy atoms of a molecule; larger ones are left out.
        validation_molecules: Molecules set aside for the scores, at most a tenth of all.
        masked_molecules: Part of the molecules of a batch that have something hidden.
        masked_atoms: Part of their atoms that is hidden.
        featurizer: Atom and bond features, by name.
        molecules_folder: Where to keep the molecules as they are prepared, for other runs on the
            same files; by default they go with the run.
        data_note: What the model card says of the data, such as their licences.
    """

    smiles_column: str = "smiles"
    exclude: tuple[str, ...] = ()
    max_atoms: int = 100
    validation_molecules: int = 2000
    masked_molecules: float = 0.3
    masked_atoms: float = 0.15
    featurizer: str = "default"
    molecules_folder: str | None = None
    data_note: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_atoms", "validation_molecules"):
            check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
        for name in ("masked_molecules", "masked_atoms"):
            check(self, name, lambda part: 0.0 < part < 1.0, "a number between 0 and 1")
        check(self, "featurizer", bool, "the name of a featurizer", str)
        if not isinstance(self.exclude, tuple):
            raise InputError(f"--exclude: got {quoted(self.exclude)}, expected a tuple")


@dataclass(frozen=True)
class PretrainNetworkConfig(NetworkConfig):
    """The network that is pretrained, on more molecules than it can learn by heart."""

    dropout: float = 0.0
    head: Head = "mlp"
    head_dropout: float = 0.0


@dataclass(frozen=True)
class PretrainLoopConfig(TrainingLoopConfig):
    """How the network is pretrained.

    Args:
        init_from: Model to go on from: a name, a run, a folder, owner/model, or none.
    """

    epochs: int = 10
    checkpoint: Keep = "best"
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup: float = 0.02
    checkpoint_steps: int = 1000
    init_from: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "init_from", bool, "the name or folder of a model, or none", str)


@dataclass(frozen=True)
class PretrainConfig(RunConfig):
    """Everything that decides a pretraining; written as ``config.yaml`` into its folder.

    Args:
        files: Tables of molecules.
        molecules: How they are read.
        network: The network.
        training: How it is trained.
    """

    files: tuple[str, ...]
    molecules: MoleculesConfig = field(default_factory=MoleculesConfig)
    network: PretrainNetworkConfig = field(default_factory=PretrainNetworkConfig)
    training: PretrainLoopConfig = field(default_factory=PretrainLoopConfig)

    def __post_init__(self) -> None:
        if (got := self.network.partner) != NetworkConfig.partner:
            raise InputError(
                f"--partner: got {got}, but a pretraining has no second molecule; expected the "
                f"default, {quoted(NetworkConfig.partner)}"
            )

    def changes(self) -> dict[str, Any]:
        """Return the options that are not the default, by name."""
        return {
            name: value
            for section, kind in self.sections().items()
            for name, value in vars(getattr(self, section)).items()
            if value != vars(kind())[name]
        }
