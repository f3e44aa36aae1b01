"""What the training loop minimises."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

__all__ = ["Objective"]


class Objective(nn.Module, ABC):
    """The loss of a batch, together with the module that it trains."""

    @property
    @abstractmethod
    def trained(self) -> nn.Module:
        """The module whose weights are optimised and checkpointed."""

    @abstractmethod
    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses and the weight to divide it by, both scalars."""
