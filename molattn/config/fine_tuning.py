"""Options of a training that begins with a trained model."""

from dataclasses import dataclass
from typing import Literal, get_args

from molattn.config.checks import check, check_choice
from molattn.errors import InputError

__all__ = ["FineTuningConfig", "Freeze"]

Freeze = Literal["none", "embeddings", "encoder"]


@dataclass(frozen=True)
class FineTuningConfig:
    """What a training begins with.

    Args:
        init_from: Model to begin with: a run, a folder, or owner/model.
        freeze: What of it stays; or so many blocks.
        pretrained_learning_rate_factor: Its part of the learning rate.
    """

    init_from: str | None = None
    freeze: int | Freeze = "none"
    pretrained_learning_rate_factor: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.freeze, str):
            check_choice(self, "freeze", (*get_args(Freeze), "a number of blocks"))
        else:
            check(self, "freeze", lambda n: n >= 0, "a number of blocks, from 0", int)
        check(
            self,
            "pretrained_learning_rate_factor",
            lambda part: 0.0 <= part <= 1.0,
            "a number from 0 to 1",
        )
        changed = (self.freeze, self.pretrained_learning_rate_factor) != ("none", 1.0)
        if self.init_from is None and changed:
            raise InputError(
                "--freeze, --pretrained-learning-rate-factor: expected with --init-from alone"
            )
