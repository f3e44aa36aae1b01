"""Options of training."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal, Self, get_args

from molattn.config.base import COMMON, COMMON_IN_TRAIN, FIXED, RESUMABLE
from molattn.config.validation import check, check_choice, check_threads, check_unused
from molattn.errors import InputError

__all__ = ["SupervisedConfig", "TrainingLoopConfig"]

Loss = Literal["mse", "mae", "huber"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["auto", "fp32", "bf16"]
Checkpoint = Literal["best", "last"]
Device = Literal["auto", "cpu", "gpu"]


DEFAULT_EPOCHS = 30


@dataclass(frozen=True)
class TrainingLoopConfig:
    """Options of every training loop, with or without labels.

    Args:
        epochs: Maximum number of epochs.
        checkpoint: Epoch whose weights are saved: best (lowest validation loss) or last.
        patience: Stop after this many epochs without a better validation loss.
        max_hours: Time limit in hours for each network; --resume may change it.
        batch_size: Number of molecules per batch, on all devices.
        learning_rate: Peak learning rate, reached after the warm-up.
        warmup: Fraction of steps used for learning-rate warm-up.
        schedule: Learning-rate schedule after the warm-up.
        weight_decay: Weight decay of AdamW.
        gradient_clip: Clip the gradient to this norm; 0 for no clipping.
        precision: Floating-point precision: fp32, bf16 (mixed precision), or auto, which is bf16
            for a network at least 256 wide on a CPU that multiplies matrices in bf16 (AMX).
        seed: Random seed of split, weights and row order.
        device: Device to train on.
        devices: Number of GPUs, or of processes on CPUs, to train on; --resume may change it.
        num_nodes: Number of machines with as many devices each; --resume may change it.
        threads: Number of CPU threads per process; more than one is faster only for wide networks.
        checkpoint_steps: Steps between the checkpoints that --resume uses; 0 for one per epoch.
        tensorboard: Also write TensorBoard logs to the run folder.
    """

    epochs: int | None = field(default=DEFAULT_EPOCHS, metadata=COMMON)
    checkpoint: Checkpoint = field(default="last", metadata=FIXED)
    patience: int | None = None
    max_hours: float | None = field(default=None, metadata=RESUMABLE | FIXED)
    batch_size: int = field(default=32, metadata=COMMON)
    learning_rate: float = field(default=1e-3, metadata=COMMON)
    warmup: float = 0.1
    schedule: Schedule = "cosine"
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    precision: Precision = "auto"
    seed: int = field(default=0, metadata=COMMON | FIXED)
    device: Device = field(default="auto", metadata=COMMON | FIXED)
    devices: int = field(default=1, metadata=FIXED | RESUMABLE)
    num_nodes: int = field(default=1, metadata=FIXED | RESUMABLE)
    threads: int = field(default=1, metadata=FIXED)
    checkpoint_steps: int = field(default=0, metadata=FIXED)
    tensorboard: bool = field(default=False, metadata=FIXED)

    @property
    def num_epochs(self) -> int:
        """Number of epochs, unless fewer are enough for the table."""
        return DEFAULT_EPOCHS if self.epochs is None else self.epochs

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "devices", "num_nodes"):
            check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
        check_threads(self)
        check(self, "learning_rate", lambda value: 0.0 < value < inf, "a positive number")
        check(self, "patience", lambda n: n >= 1, "a whole number of at least 1", int)
        check(self, "max_hours", lambda hours: 0.0 < hours < inf, "a positive number")
        check(self, "warmup", lambda part: 0.0 <= part <= 1.0, "a number from 0 to 1")
        for name in ("weight_decay", "gradient_clip"):
            check(self, name, lambda value: 0.0 <= value < inf, "a number of at least 0")
        check(
            self, "seed", lambda seed: 0 <= seed < 2**32, "a whole number from 0 to 2**32 - 1", int
        )
        check(self, "checkpoint_steps", lambda n: n >= 0, "a whole number of at least 0", int)
        check_choice(self, "checkpoint", get_args(Checkpoint))
        check_choice(self, "schedule", get_args(Schedule))
        check_choice(self, "precision", get_args(Precision))
        check_choice(self, "device", get_args(Device))


@dataclass(frozen=True)
class SupervisedConfig(TrainingLoopConfig):
    """How a model is trained on labels.

    By default for 30 epochs or, if all targets are classes, for as many as 1,500 steps take, from
    10 to 30.

    Args:
        epochs: Maximum number of epochs (default: at most 30).
        ensemble: Number of networks to average over.
        loss: Loss of regression targets.
        huber_delta: Error, in standard deviations, above which the Huber loss is linear.
        label_smoothing: Fraction of label weight spread evenly over all classes.
        balance_classes: Weight classes in the loss by their inverse frequency.
        positive_weight: Weight of the positive class in the loss of binary targets.
    """

    epochs: int | None = field(default=None, metadata=COMMON)
    ensemble: int = field(default=1, metadata=COMMON_IN_TRAIN | FIXED)
    loss: Loss = field(default="mse", metadata=FIXED)
    huber_delta: float = field(default=1.0, metadata=FIXED)
    label_smoothing: float = field(default=0.0, metadata=FIXED)
    balance_classes: bool = field(default=False, metadata=FIXED)
    positive_weight: float = field(default=1.0, metadata=FIXED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "ensemble", lambda n: 1 <= n <= 1000, "a whole number from 1 to 1000", int)
        for name in ("huber_delta", "positive_weight"):
            check(self, name, lambda value: 0.0 < value < inf, "a positive number")
        below_one = "a number of at least 0 and below 1"
        check(self, "label_smoothing", lambda part: 0.0 <= part < 1.0, below_one)
        if self.seed + self.ensemble > 2**32:
            raise InputError(
                f"--seed + --ensemble: got {self.seed} + {self.ensemble}, expected at most 2**32, "
                "as each network has a seed of its own"
            )
        check_choice(self, "loss", get_args(Loss))
        if self.balance_classes:
            check_unused(self, "positive_weight", "cannot be used with --balance-classes")

    def members(self) -> list[Self]:
        """Return the options of each ensemble member: one network, with successive seeds."""
        return [
            replace(self, ensemble=1, seed=seed)
            for seed in range(self.seed, self.seed + self.ensemble)
        ]
