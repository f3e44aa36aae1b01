"""Every option, declared once: the command line, config files and saved models follow from it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, Literal, get_args

from molattn.errors import InputError, quoted

__all__ = [
    "CONFIG_SECTIONS",
    "ArchitectureConfig",
    "DataConfig",
    "OptimisationConfig",
    "PredictConfig",
    "ReportConfig",
    "TrainConfig",
    "changed_options",
]

Score = Literal["dot", "scaled_dot", "general", "additive", "gatv2"]
Combine = Literal["linear", "concat", "mean", "max", "weighted"]
TaskChoice = Literal["regression", "classification", "binary", "multiclass"]
SplitMethod = Literal["random", "scaffold", "cluster", "order"]
Loss = Literal["mse", "mae", "huber"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["fp32", "bf16"]
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
        readout: How atoms become a molecule: mean, sum, max, min, std, median, softmax,
            variance_preserving, attentional, deep_sets, set2set or set_transformer; several
            joined by + are concatenated.
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
        task: What each target is, or all of them; by default their labels decide.
        task_weights: Weight of each target in the loss.
        weight_column: Column of each row's weight in the loss.
        feature_columns: Columns of numbers that the model reads beside the molecule.
        split_column: Column that names each row's part; if none is for validation, some training
            rows are set aside.
        split: How rows are parted otherwise: by default at random; by scaffold (Bemis-Murcko) or
            cluster (Butina; 50,000 molecules at most) keep like ones together; by order, the last
            rows test.
        order_column: Column of numbers or ISO dates for the split by order.
        cluster_cutoff: Largest Tanimoto distance from a cluster's centre.
        split_duplicates: Let rows of one molecule stand in different parts.
        folds: Cross-validate in so many rounds; each tests another part of the rows.
        repeats: How often to do so, each time with the next seed.
        fold: Train only this round, counted from 1.
        validation_size: Part of the rows set aside to choose the best epoch.
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
    order_column: str | None = None
    cluster_cutoff: float = 0.65
    split_duplicates: bool = False
    folds: int | None = None
    repeats: int = 1
    fold: int | None = None
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
        _check(self, "cluster_cutoff", lambda cut: 0.0 <= cut < 1.0, "a number from 0 below 1")
        if (self.order_column is not None) != (self.split == "order"):
            raise InputError(
                f"--split: got {self.split or 'random'} "
                f"{'without' if self.order_column is None else 'with'} --order-column, expected "
                "--split order and --order-column together"
            )
        self._check_folds()
        self._check_lists()

    def _check_folds(self) -> None:
        _check(self, "repeats", lambda count: count >= 1, "a whole number of at least 1", int)
        if self.folds is None:
            if self.fold is not None or self.repeats != 1:
                raise InputError("--fold, --repeats: expected with --folds alone")
            return
        _check(self, "folds", lambda count: count >= 2, "a whole number of at least 2", int)
        if self.fold is not None:
            _check(self, "fold", lambda n: 1 <= n <= self.folds, f"1 to {self.folds}", int)
        if self.split_column is not None or self.split == "order":
            raise InputError(
                "--folds: got it with --split-column or --split order, which part the rows once; "
                "expected it with another split"
            )

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
        patience: Epochs without a better validation loss that end the training.
        batch_size: Molecules in a batch.
        learning_rate: Highest learning rate, reached after the warm-up.
        warmup: Part of the training in which it rises from zero.
        schedule: How the learning rate goes on.
        weight_decay: Weight decay of AdamW.
        gradient_clip: Largest norm of the gradient; 0 leaves it alone.
        loss: Error of numbers.
        huber_delta: Standard deviations from which Huber's error is linear.
        label_smoothing: Part of a class label spread over all classes.
        balance_classes: Weigh classes by how rare they are.
        positive_weight: Weight of positive labels of two classes.
        precision: bf16 computes in mixed precision.
        seed: Seed of split, initial weights and order of rows.
        device: Where to compute.
        threads: CPU threads; more change the last digits, and pay for wide networks alone.
        checkpoint_steps: Steps after which to save; 0 saves each epoch alone.
        tensorboard: Log for TensorBoard as well.
    """

    epochs: int = 50
    patience: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.1
    schedule: Schedule = "cosine"
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    loss: Loss = "mse"
    huber_delta: float = 1.0
    label_smoothing: float = 0.0
    balance_classes: bool = False
    positive_weight: float = 1.0
    precision: Precision = "fp32"
    seed: int = 0
    device: Device = "auto"
    threads: int = 1
    checkpoint_steps: int = 0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "threads"):
            _check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
        for name in ("learning_rate", "huber_delta", "positive_weight"):
            _check(self, name, lambda value: 0.0 < value < inf, "a positive number")
        _check(self, "warmup", lambda part: 0.0 <= part <= 1.0, "a number from 0 to 1")
        _check(self, "label_smoothing", lambda part: 0.0 <= part < 1.0, "a number from 0 below 1")
        for name in ("weight_decay", "gradient_clip"):
            _check(self, name, lambda value: 0.0 <= value < inf, "a number of at least 0")
        _check(self, "seed", lambda seed: 0 <= seed < 2**32, "a whole number below 2**32", int)
        _check(self, "checkpoint_steps", lambda n: n >= 0, "a whole number of at least 0", int)
        choices = {"schedule": Schedule, "loss": Loss, "precision": Precision, "device": Device}
        for name, kind in choices.items():
            _check_choice(self, name, get_args(kind))
        if self.balance_classes and self.positive_weight != 1.0:
            raise InputError(
                f"--positive-weight: got {self.positive_weight} with --balance-classes, expected "
                "one of the two"
            )


@dataclass(frozen=True)
class ReportConfig:
    """How a run is judged.

    Args:
        baselines: Score a constant and a random forest on the same rows.
        bootstrap: Resamplings for 95 % intervals of the scores; 0 for none.
    """

    baselines: bool = True
    bootstrap: int = 1000

    def __post_init__(self) -> None:
        _check(self, "bootstrap", lambda n: n >= 0, "a whole number of at least 0", int)


@dataclass(frozen=True)
class PredictConfig:
    """How predictions are made.

    Args:
        smiles_column: Column that holds the SMILES.
        batch_size: Most molecules in a batch; large molecules go in smaller ones.
        threads: CPU threads; more pay for wide networks alone.
    """

    smiles_column: str = "smiles"
    batch_size: int = 64
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("batch_size", "threads"):
            _check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)


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
                yield _option(name), was, now


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
