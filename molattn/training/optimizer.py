"""The optimiser, its learning rate, and the record of a training."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from molattn.config import TrainingLoopConfig

__all__ = ["FineTuningPlan", "learning_rate_factor", "new_optimiser"]


@dataclass(frozen=True)
class FineTuningPlan:
    """What a model has from a training before; by default nothing.

    Args:
        learning_rate_factors: Part of the learning rate for a weight, by its name; by default 1. A
            lower one for what has been trained before keeps more of it (Howard and Ruder 2018).
        keeps_scaling: Whether the scaling of features and targets stays as it is.
        wait: Steps in which the weights with a factor wait for the others, at most half of all, so
            that what is new does not undo them while it knows nothing (Kumar et al. 2022).
    """

    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)
    keeps_scaling: bool = False
    wait: int = 0


def new_optimiser(
    model: nn.Module, config: TrainingLoopConfig, beginning: FineTuningPlan = FineTuningPlan()
) -> torch.optim.AdamW:
    """Return AdamW over the weights that are learned (Loshchilov and Hutter 2019).

    Args:
        model: The model.
        config: The learning rate and the decay.
        beginning: Which of them learn more slowly.
    """
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    factors = beginning.learning_rate_factors
    groups = []
    # Decay would only shift biases and the gains of normalisation layers, and shorten directions,
    # whose length says nothing but how fast they turn.
    decay = {p for name, p in learned.items() if p.ndim >= 2 and not name.endswith(".directions")}
    # The whole learning rate comes first: it is the one that is told.
    for factor in sorted({1.0, *(factors.get(name, 1.0) for name in learned)}, reverse=True):
        some = [p for name, p in learned.items() if factors.get(name, 1.0) == factor]
        rate = factor * config.learning_rate
        rest = [p for p in some if p not in decay]
        groups.append({"params": [p for p in some if p in decay], "lr": rate})
        groups.append({"params": rest, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        # Of mixed precision Lightning refuses to clip the gradients with a fused optimiser.
        fused=True if config.precision == "fp32" else None,
    )


def learning_rate_factor(config: TrainingLoopConfig, steps: int) -> Callable[[int], float]:
    """Return the function that gives the part of the highest learning rate at each step.

    It rises linearly over the warm-up; then it stays, or falls to zero linearly or as a cosine.

    Args:
        config: The schedule and its warm-up.
        steps: Steps of the whole training.
    """
    rise = config.warmup * steps
    falls = {
        "constant": lambda _: 1.0,
        "linear": lambda part: 1.0 - part,
        "cosine": lambda part: 0.5 * (1.0 + math.cos(math.pi * part)),
    }
    fall = falls[config.schedule]

    def factor(step: int) -> float:
        if step < rise:
            return (step + 1) / (rise + 1)
        return fall((step - rise) / max(1.0, steps - rise))

    return factor
