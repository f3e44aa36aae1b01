"""Every option, declared once: the command line, config files and saved models follow from it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Literal, get_args

from molattn.errors import InputError, quoted

__all__ = ["ArchitectureConfig", "DataConfig", "OptimisationConfig", "PredictConfig", "TrainConfig"]

Score = Literal["dot", "scaled_dot", "general", "additive", "gatv2"]
Combine = Literal["linear", "concat", "mean", "max", "weighted"]
TaskChoice = Literal["regression", "classification", "binary", "multiclass"]
SplitMethod = Literal["random", "scaffold"]
Device = Literal["auto", "cpu", "gpu"]


@dataclass(frozen=True)
class ArchitectureConfig:
    """The network.

    Args:
        width: Channels of an atom.
        heads: Attention heads; must divide the width.
        layers: Attention blocks.
        edge_width: Channels of an atom pair.
        score: How a receiver rates a sender.
        combine: How heads come back together.
        gate: Give each head a gate (GaAN).
        update_edges: Let every block update the atom pairs too.
        self_loops: Let an atom attend to itself.
        dropout: Dropout probability in blocks and head.
        attention_dropout: Dropout probability of attention weights.
        readout: Any PyG aggregation that turns atoms into a molecule, by name, such as mean, sum,
            max, SetTransformerAggregation.
    """

    width: int = 128
    heads: int = 8
    layers: int = 4
    edge_width: int = 16
    score: Score = "scaled_dot"
    combine: Combine = "linear"
    gate: bool = False
    update_edges: bool = False
    self_loops: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    readout: str = "mean"


@dataclass(frozen=True)
class DataConfig:
    """The table, and how its rows are parted into training, validation and test.

    Args:
        smiles_column: Column that holds the SMILES.
        target_columns: Columns to learn.
        target_units: Unit of each target, for tables and plots.
        task: What each target is, or all of them: regression, classification, binary or
            multiclass; by default their labels decide.
        task_weights: Weight of each target in the loss.
        weight_column: Column of each row's weight in the loss.
        feature_columns: Columns of numbers that the model reads beside the molecule.
        split_column: Column that names each row's part; without validation rows in it, some of
            its training rows are set aside.
        split: How rows are parted where no column says it, at random by default; scaffold keeps
            molecules of one Bemis-Murcko scaffold together.
        validation_size: Part of the rows (with a split column, of its training rows) set aside to
            choose the best epoch.
        test_size: Part of the rows set aside for the final score.
    """

    smiles_column: str = "smiles"
    target_columns: tuple[str, ...] = ()
    target_units: tuple[str, ...] = ()
    task: tuple[TaskChoice, ...] = ()
    task_weights: tuple[float, ...] = ()
    weight_column: str | None = None
    feature_columns: tuple[str, ...] = ()
    split_column: str | None = None
    split: SplitMethod | None = None
    validation_size: float = 0.1
    test_size: float = 0.1

    def __post_init__(self) -> None:
        if self.split is not None:
            _check_choice(self, "split", get_args(SplitMethod))
        for name in ("validation_size", "test_size"):
            _check(self, name, lambda size: 0.0 < size < 1.0, "a number between 0 and 1")
        if self.validation_size + self.test_size >= 1.0:
            raise InputError(
                f"--validation-size + --test-size: got {self.validation_size} + {self.test_size}, "
                "expected a sum below 1"
            )
        self._check_lists()

    def _check_lists(self) -> None:
        for name in ("target_columns", "target_units", "task", "task_weights", "feature_columns"):
            if not isinstance(getattr(self, name), tuple):
                got = quoted(getattr(self, name))
                raise InputError(f"{_option(name)}: got {got}, expected a tuple")
        for name in ("target_columns", "feature_columns"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                got = list(getattr(self, name))
                raise InputError(f"{_option(name)}: got {got}, expected each column once")
        targets = len(self.target_columns)
        for name, fits in (
            ("target_units", (0, targets)),
            ("task_weights", (0, targets)),
            ("task", (0, 1, targets)),
        ):
            if (got := len(getattr(self, name))) not in fits:
                raise InputError(
                    f"{_option(name)}: got {got}, expected one for each of the {targets} target "
                    "columns"
                )
        for task in self.task:
            if task not in get_args(TaskChoice):
                choices = ", ".join(get_args(TaskChoice))
                raise InputError(f"--task: got {quoted(task)}, expected one of {choices}")
        for weight in self.task_weights:
            if (
                isinstance(weight, bool)
                or not isinstance(weight, (int, float))
                or not (0.0 <= weight < inf)
            ):
                raise InputError(f"--task-weights: got {quoted(weight)}, expected numbers from 0")
        if self.task_weights and not any(self.task_weights):
            raise InputError("--task-weights: got zeros alone, expected a positive number")


@dataclass(frozen=True)
class OptimisationConfig:
    """How the network is trained.

    Args:
        epochs: Most passes over the training rows.
        patience: Epochs without a better validation loss after which training stops.
        batch_size: Molecules in a batch.
        learning_rate: Highest learning rate, reached after the warm-up.
        warmup: Part of the training in which the learning rate rises from zero; then it falls to
            zero as a cosine.
        weight_decay: Weight decay of AdamW.
        gradient_clip: Largest norm of the gradient; 0 leaves it alone.
        seed: Seed of the split, the initial weights and the order of rows.
        device: Where to compute.
        threads: Threads on a CPU; more than one pay for wide networks alone, and change the
            last digits.
    """

    epochs: int = 50
    patience: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    seed: int = 0
    device: Device = "auto"
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "threads"):
            _check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
        _check(self, "learning_rate", lambda rate: 0.0 < rate < inf, "a positive number")
        _check(self, "warmup", lambda part: 0.0 <= part <= 1.0, "a number from 0 to 1")
        for name in ("weight_decay", "gradient_clip"):
            _check(self, name, lambda value: 0.0 <= value < inf, "a number of at least 0")
        _check(self, "seed", lambda seed: 0 <= seed < 2**32, "a whole number below 2**32", int)
        _check_choice(self, "device", get_args(Device))


@dataclass(frozen=True)
class PredictConfig:
    """How predictions are made.

    Args:
        smiles_column: Column that holds the SMILES.
        batch_size: Most molecules in a batch; large molecules go in smaller ones.
    """

    smiles_column: str = "smiles"
    batch_size: int = 64

    def __post_init__(self) -> None:
        _check(self, "batch_size", lambda count: count >= 1, "a whole number of at least 1", int)


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run; written as ``config.yaml`` into its folder.

    Args:
        file: The table.
        data: Its columns and parts.
        architecture: The network.
        optimisation: How it is trained.
    """

    file: str
    data: DataConfig
    architecture: ArchitectureConfig
    optimisation: OptimisationConfig

    def to_dict(self) -> dict[str, Any]:
        """Return the run as nested dictionaries of JSON types."""
        sections = asdict(self)
        for section in ("data", "architecture", "optimisation"):
            sections[section] = {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in sections[section].items()
            }
        return sections


def _check(
    config: object,
    name: str,
    holds: Callable[[Any], bool],
    expected: str,
    kind: type | tuple[type, ...] = (int, float),
) -> None:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, kind) or not holds(value):
        raise InputError(f"{_option(name)}: got {quoted(value)}, expected {expected}")


def _check_choice(config: object, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(config, name)
    if value not in choices:
        raise InputError(
            f"{_option(name)}: got {quoted(value)}, expected one of {', '.join(choices)}"
        )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
