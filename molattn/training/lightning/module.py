"""What Lightning trains: an objective, its optimiser, and the record of its epochs."""

import math
import time
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from molattn.config import TrainingLoopConfig
from molattn.errors import MolattnError
from molattn.training.batches import Batches
from molattn.training.history import Epoch, RunningMean
from molattn.training.objective import Objective
from molattn.training.optimizer import FineTuningPlan, learning_rate_factor, new_optimiser
from molattn.utils.reproducibility import random_state, set_random_state

__all__ = ["ABOUT", "STATE", "TrainingModule", "epochs_done", "is_over"]

ABOUT = "molattn_about"
"""Key of a checkpoint under which ``about`` of :func:`molattn.training.lightning.loop.fit` is kept."""
STATE = "molattn_state"
"""Key under which a checkpoint has what Lightning does not keep."""


def epochs_done(checkpoint: Mapping[str, Any]) -> int:
    """Return how many epochs the training of a checkpoint has finished."""
    return len(checkpoint[STATE]["epochs"])


class TrainingModule(pl.LightningModule):
    """An objective and its optimiser."""

    def __init__(
        self,
        objective: Objective,
        batches: Batches,
        config: TrainingLoopConfig,
        beginning: FineTuningPlan,
        about: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.objective, self.batches = objective, batches
        self.config = config
        self.beginning = beginning
        self.about = dict(about)
        self.steps, self.steps_done = config.epochs * len(batches), 0
        self.wait = min(beginning.wait, self.steps // 2)
        self.epochs: list[Epoch] = []
        self._train, self._validation = RunningMean(), RunningMean()
        self._clock = time.perf_counter()
        self._seconds = 0.0  # before the clock
        self._epoch_start = 0.0
        self._random_state: dict[str, Tensor] = {}
        self._waiting = [
            weight
            for name, weight in objective.learned.named_parameters()
            if name in beginning.learning_rate_factors and weight.requires_grad
        ]

    @property
    def seconds(self) -> float:
        """Seconds of training, over all interruptions."""
        return self._seconds + time.perf_counter() - self._clock

    def configure_optimizers(self) -> Any:
        optimiser = new_optimiser(self.objective.learned, self.config, self.beginning)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, learning_rate_factor(self.config, self.steps)
        )
        return {
            "optimizer": optimiser,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_train_start(self) -> None:
        if self._random_state:
            set_random_state(self._random_state, self.device)

    def on_train_epoch_start(self) -> None:
        self.batches.begin(self.current_epoch)
        self._epoch_start = self.seconds

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        self.set_waiting(self.trainer.global_step < self.wait)

    def set_waiting(self, waits: bool) -> None:
        """Let what has been trained before wait for the rest, or learn with it."""
        for weight in self._waiting:
            weight.requires_grad_(not waits)

    def training_step(self, batch: Any, index: int) -> Tensor:
        total, weight = self.objective(batch)
        loss = total / torch.where(weight > 0, weight, 1.0)
        if not math.isfinite(value := loss.item()):
            raise MolattnError(
                f"training diverged: the loss became {value} in epoch {self.current_epoch + 1}, "
                f"step {index + 1}; a lower --learning-rate may help"
            )
        self._train.add(total.detach(), weight)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self._validation.add(*self.objective(batch))

    def on_validation_epoch_end(self) -> None:
        epoch = Epoch(
            epoch=self.current_epoch + 1,
            train_loss=self._train.pop(),
            validation_loss=self._validation.pop(),
            learning_rate=self.trainer.optimizers[0].param_groups[0]["lr"],
            seconds=self.seconds - self._epoch_start,
        )
        if not math.isfinite(epoch.validation_loss):
            raise MolattnError(
                f"training diverged: the validation loss became {epoch.validation_loss} in epoch "
                f"{epoch.epoch}; a lower --learning-rate may help"
            )
        self.epochs.append(epoch)
        if self.logger is not None:
            self.logger.log_metrics(epoch._asdict(), step=epoch.epoch)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[ABOUT] = self.about
        checkpoint[STATE] = {
            "epochs": [tuple(epoch) for epoch in self.epochs],
            "running": (self._train.total, self._train.weight),
            "seconds": self.seconds,
            "epoch_start": self._epoch_start,
            "random_state": random_state(self.device),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint[STATE]
        self.epochs = [Epoch(*epoch) for epoch in state["epochs"]]
        self._train = RunningMean(*state["running"])
        self._seconds, self._clock = state["seconds"], time.perf_counter()
        self._epoch_start = state["epoch_start"]
        self._random_state = state["random_state"]


def is_over(config: TrainingLoopConfig, seconds: float) -> bool:
    """Return whether a training of so many seconds has used up its hours."""
    return config.max_hours is not None and seconds >= 3600.0 * config.max_hours
