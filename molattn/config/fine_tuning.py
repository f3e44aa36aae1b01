"""Options of a training that begins with a trained model."""

from dataclasses import dataclass
from typing import Literal, get_args

from molattn.config.validation import check, check_choice, option
from molattn.errors import InputError

__all__ = ["FineTuningConfig", "Freeze"]

Freeze = Literal["none", "embeddings", "encoder"]


@dataclass(frozen=True)
class FineTuningConfig:
    """What a training begins with.

    Args:
        init_from: Model to begin with: a name, a run, a folder, owner/model, or none; auto is base,
            if the network is as its own, else none.
        freeze: What of it stays; or so many blocks.
        backbone_lr_scale: Part of the learning rate for it.
        head_steps: Steps in which a new head learns alone, at most half of all.
    """

    init_from: str = "auto"
    freeze: int | Freeze = "none"
    backbone_lr_scale: float = 0.5
    head_steps: int = 500

    def __post_init__(self) -> None:
        check(self, "init_from", bool, "the name or folder of a model, auto or none", str)
        if isinstance(self.freeze, str):
            check_choice(self, "freeze", (*get_args(Freeze), "a number of blocks"))
        else:
            check(self, "freeze", lambda n: n >= 0, "a number of blocks, from 0", int)
        check(
            self,
            "backbone_lr_scale",
            lambda part: 0.0 <= part <= 1.0,
            "a number from 0 to 1",
        )
        check(self, "head_steps", lambda n: n >= 0, "a whole number of at least 0", int)
        if self.init_from != "none":
            return
        for name in ("freeze", "backbone_lr_scale", "head_steps"):
            if (got := getattr(self, name)) != getattr(type(self), name):
                raise InputError(
                    f"{option(name)}: got {got} without a model to begin with, expected "
                    "--init-from with one"
                )
