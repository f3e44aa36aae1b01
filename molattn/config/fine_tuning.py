"""Options of training that starts from a pretrained model."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from molattn.config.base import COMMON, FIXED
from molattn.config.validation import check, check_choice, check_unused

__all__ = ["FineTuningConfig", "Freeze"]

Freeze = Literal["none", "embeddings", "encoder"]
_FreezeOption = Literal["auto", "none", "embeddings", "encoder"]


@dataclass(frozen=True)
class FineTuningConfig:
    """The pretrained model from which training starts.

    It must have the network options of the run, except those of its head and of dropout; where it
    does not, ``auto`` means training from scratch.

    Args:
        init_from: Model to fine-tune: base, base-large, a folder, owner/model, none, or auto (base
            if it fits).
        freeze: Pretrained weights to freeze; N freezes the embeddings and the first N blocks. auto
            freezes the encoder below a new head if the table has only classes and at most 2,500
            labels, and --backbone-lr-scale has its default.
        backbone_lr_scale: Multiplier of the learning rate for pretrained weights.
        head_steps: Number of initial steps in which only a new head is trained; at most half of all
            steps.
    """

    init_from: str = field(default="auto", metadata=COMMON | FIXED)
    freeze: int | _FreezeOption = "auto"
    backbone_lr_scale: float = field(default=0.5, metadata=COMMON)
    head_steps: int = 500

    def __post_init__(self) -> None:
        check(self, "init_from", bool, "the name or folder of a model, auto or none", str)
        if isinstance(self.freeze, str):
            check_choice(self, "freeze", (*get_args(_FreezeOption), "a number of blocks"))
        else:
            check(self, "freeze", lambda n: n >= 0, "a number of blocks of at least 0", int)
        check(self, "backbone_lr_scale", lambda scale: 0.0 <= scale <= 1.0, "a number from 0 to 1")
        check(self, "head_steps", lambda n: n >= 0, "a whole number of at least 0", int)
        if self.init_from == "none":
            self.check_unset("needs a pretrained model (--init-from)")

    def frozen(self, few_classes: bool) -> int | Freeze:
        """Return what is frozen below a new head.

        Args:
            few_classes: Whether the table has only classes, and few labels.
        """
        if self.freeze != "auto":
            return self.freeze
        is_default = self.backbone_lr_scale == FineTuningConfig.backbone_lr_scale
        return "encoder" if few_classes and is_default else "none"

    def check_unset(self, reason: str) -> None:
        """Raise an :class:`molattn.errors.InputError` if an option but ``init_from`` is set."""
        for name in ("freeze", "backbone_lr_scale", "head_steps"):
            if name != "freeze" or self.freeze != "none":  # which freezes as little
                check_unused(self, name, reason)
