"""What a training makes smaller."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

__all__ = ["Objective"]


class Objective(nn.Module, ABC):
    """A loss of batches, with the weights that it is of."""

    @property
    @abstractmethod
    def learned(self) -> nn.Module:
        """All that is learned: its weights are optimised, and the best of them kept."""

    @abstractmethod
    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return a sum of losses and the weight to divide it by, both scalars."""
