"""The history of a training run, epoch by epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from molattn.data.table import write_table

__all__ = ["Epoch", "History", "RunningMean", "write_history"]


class Epoch(NamedTuple):
    """Losses of one epoch, of scaled targets, with its learning rate and duration.

    Without validation rows there is no validation loss.
    """

    epoch: int
    train_loss: float
    validation_loss: float | None
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class History:
    """The history of a finished training.

    Args:
        epochs: One entry for each epoch, in order.
        best: Number of the epoch whose weights the model has.
        seconds: Duration of the training, including any before it was interrupted and resumed.
        steps: Steps of the optimizer, likewise.
        frozen_weights: Number of weights that were not trained.
    """

    epochs: list[Epoch]
    best: int
    seconds: float = 0.0
    steps: int = 0
    frozen_weights: int = 0


def write_history(folder: Path, epochs: Sequence[Epoch]) -> None:
    """Write ``history.csv``, one row per epoch."""
    with write_table(folder / "history.csv", Epoch._fields) as write:
        for epoch in epochs:
            write(epoch)


class RunningMean:
    """A weighted mean over batches, whose numbers are copied from a GPU many at a time."""

    def __init__(self, total: float = 0.0, weight: float = 0.0) -> None:
        self.total, self.weight = total, weight
        self._unread: list[Tensor] = []

    def add(self, total: Tensor, weight: Tensor) -> None:
        """Add a sum and its weight, without waiting for the device that computes them."""
        self._unread += (total.detach(), weight.detach())

    def read(self) -> list[float]:
        """Wait for what was added since the last call, and return the mean of each batch."""
        if not self._unread:
            return []
        numbers = torch.stack(self._unread).tolist()
        self._unread = []
        means = []
        for total, weight in zip(numbers[::2], numbers[1::2], strict=True):
            self.total += total
            self.weight += weight
            means.append(total / weight if weight else total)
        return means

    def pop(self) -> float:
        """Return the mean (0 without any weight) and reset it."""
        self.read()
        mean = self.total / self.weight if self.weight else 0.0
        self.total, self.weight = 0.0, 0.0
        return mean
