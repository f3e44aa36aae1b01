"""The optimizer and its learning-rate schedule."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from molattn.config import TrainingLoopConfig

__all__ = ["FineTuningPlan", "learning_rate_factor", "new_optimizer"]


@dataclass(frozen=True)
class FineTuningPlan:
    """How to train a model that starts from pretrained weights; by default, from random ones.

    Args:
        learning_rate_factors: Multipliers of the learning rate of pretrained weights, by their
            names; 1 for all others. A multiplier below 1 preserves more of what was learned in
            pretraining (Howard and Ruder 2018).
        keeps_head: Whether the head is kept, with the scaling of features and targets.
        head_steps: Steps in which the pretrained weights are frozen, at most half of all, so that
            the gradients of an untrained head do not distort them (Kumar et al. 2022).
    """

    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)
    keeps_head: bool = False
    head_steps: int = 0


def new_optimizer(
    model: nn.Module, config: TrainingLoopConfig, plan: FineTuningPlan = FineTuningPlan()
) -> torch.optim.AdamW:
    """Return AdamW over all weights that are not frozen (Loshchilov and Hutter 2019)."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    factors = plan.learning_rate_factors
    groups = []
    # No decay for biases, the gains of normalization layers, and directions, whose length only
    # decides how fast they turn.
    decayed = {p for name, p in trained.items() if p.ndim >= 2 and not name.endswith(".directions")}
    # The full learning rate comes first: it is the one that is logged.
    for factor in sorted({1.0, *(factors.get(name, 1.0) for name in trained)}, reverse=True):
        some = [p for name, p in trained.items() if factors.get(name, 1.0) == factor]
        rate = factor * config.learning_rate
        rest = [p for p in some if p not in decayed]
        groups.append({"params": [p for p in some if p in decayed], "lr": rate})
        groups.append({"params": rest, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def learning_rate_factor(config: TrainingLoopConfig, steps: int) -> Callable[[int], float]:
    """Return the schedule: the multiplier of the learning rate at each step.

    It rises linearly over the warm-up, then stays constant or falls to zero, linearly or as a
    cosine.
    """
    warmup = config.warmup * steps
    decays = {
        "constant": lambda _: 1.0,
        "linear": lambda progress: 1.0 - progress,
        "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
    }
    decay = decays[config.schedule]

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return decay((step - warmup) / max(1.0, steps - warmup))

    return factor
