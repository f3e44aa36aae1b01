"""The history of a training run, epoch by epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from molattn.data.table import write_table

__all__ = ["Epoch", "History", "write_history"]


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
    """The history of a finished training, including what was before an interruption.

    Args:
        epochs: One entry for each epoch, in order.
        best: Number of the epoch whose weights the model has.
        seconds: Duration of the training.
        steps: Steps of the optimizer.
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
