"""Options of the training."""

from dataclasses import dataclass, replace
from math import inf
from typing import Literal, get_args

from molattn.config.validation import check, check_choice
from molattn.errors import InputError

__all__ = ["TrainingLoopConfig", "SupervisedConfig"]

Loss = Literal["mse", "mae", "huber"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["fp32", "bf16"]
Keep = Literal["best", "last"]
Device = Literal["auto", "cpu", "gpu"]


@dataclass(frozen=True)
class TrainingLoopConfig:
    """How a network is trained, whatever it learns.

    Args:
        epochs: Most passes over the training rows.
        checkpoint: Weights to keep: the best by validation, or the last.
        patience: Stop after so many epochs without progress.
        max_hours: Hours of training of each network that end it.
        batch_size: Molecules in a batch.
        learning_rate: Highest, reached after the warm-up.
        warmup: Part of the training in which it rises.
        schedule: How the learning rate goes on.
        weight_decay: Weight decay of AdamW.
        gradient_clip: Largest norm of the gradient; 0 leaves it alone.
        precision: bf16 computes in mixed precision.
        seed: Seed of split, initial weights and order of rows.
        device: Where to compute.
        threads: CPU threads; more pay for wide networks alone.
        checkpoint_steps: Steps between saves; 0 saves each epoch alone.
        tensorboard: Log for TensorBoard as well.
    """

    epochs: int = 30
    checkpoint: Keep = "last"
    patience: int | None = None
    max_hours: float | None = None
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.1
    schedule: Schedule = "cosine"
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    precision: Precision = "fp32"
    seed: int = 0
    device: Device = "auto"
    threads: int = 1
    checkpoint_steps: int = 0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "threads"):
            check(self, name, lambda count: count >= 1, "a whole number of at least 1", int)
        check(self, "learning_rate", lambda value: 0.0 < value < inf, "a positive number")
        if self.patience is not None:
            check(self, "patience", lambda n: n >= 1, "a whole number of at least 1", int)
        if self.max_hours is not None:
            check(self, "max_hours", lambda hours: 0.0 < hours < inf, "a positive number")
        check(self, "warmup", lambda part: 0.0 <= part <= 1.0, "a number from 0 to 1")
        for name in ("weight_decay", "gradient_clip"):
            check(self, name, lambda value: 0.0 <= value < inf, "a number of at least 0")
        check(self, "seed", lambda seed: 0 <= seed < 2**32, "a whole number below 2**32", int)
        check(self, "checkpoint_steps", lambda n: n >= 0, "a whole number of at least 0", int)
        choices = {
            "checkpoint": Keep,
            "schedule": Schedule,
            "precision": Precision,
            "device": Device,
        }
        for name, kind in choices.items():
            check_choice(self, name, get_args(kind))


@dataclass(frozen=True)
class SupervisedConfig(TrainingLoopConfig):
    """How the network is trained.

    Args:
        ensemble: Networks to train; their mean is predicted.
        loss: Error of numbers.
        huber_delta: Deviations from which Huber's is linear.
        label_smoothing: Part of a label spread over all classes.
        balance_classes: Weigh classes by how rare they are.
        positive_weight: Weight of positive labels of two classes.
    """

    ensemble: int = 1
    loss: Loss = "mse"
    huber_delta: float = 1.0
    label_smoothing: float = 0.0
    balance_classes: bool = False
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "ensemble", lambda count: count >= 1, "a whole number of at least 1", int)
        for name in ("huber_delta", "positive_weight"):
            check(self, name, lambda value: 0.0 < value < inf, "a positive number")
        check(self, "label_smoothing", lambda part: 0.0 <= part < 1.0, "a number from 0 below 1")
        if self.seed + self.ensemble > 2**32:
            raise InputError(
                f"--seed: got {self.seed} with --ensemble {self.ensemble}, whose members have the "
                "next ones; expected them below 2**32"
            )
        check_choice(self, "loss", get_args(Loss))
        if self.balance_classes and self.positive_weight != 1.0:
            raise InputError(
                f"--positive-weight: got {self.positive_weight} with --balance-classes, expected "
                "one of the two"
            )

    def members(self) -> list["SupervisedConfig"]:
        """Return the options of each member: these, of one network, with one seed after another."""
        return [
            replace(self, ensemble=1, seed=seed)
            for seed in range(self.seed, self.seed + self.ensemble)
        ]
