"""The Lightning module: an objective, its optimizer and its history."""

import math
import time
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor

from molattn.config import TrainingLoopConfig
from molattn.errors import MolattnError
from molattn.training.batches import ResumableLoader
from molattn.training.history import Epoch, RunningMean
from molattn.training.losses import Objective
from molattn.training.optimizer import FineTuningPlan, learning_rate_factor, new_optimizer
from molattn.utils.devices import to_device
from molattn.utils.process_group import leave_together, num_processes, process_rank, summed
from molattn.utils.reproducibility import random_state, set_random_state
from molattn.utils.signals import Interrupted, pending_interrupt

__all__ = [
    "RUN_KEY",
    "STATE_KEY",
    "VALIDATION_SECONDS",
    "TrainingModule",
    "epochs_done",
    "is_time_over",
]

RUN_KEY = "molattn_about"
"""Key of a checkpoint for the fingerprint of its run."""
STATE_KEY = "molattn_state"
"""Key of a checkpoint for the state that Lightning does not save."""
_STEPS_READ_AT_ONCE = 50  # losses on a GPU, as reading one waits for all steps before it
VALIDATION_SECONDS = 5.0
"""Seconds in which a validation is finished although a signal has come."""


def epochs_done(checkpoint: Mapping[str, Any]) -> int:
    """Return how many epochs were finished when a checkpoint was written."""
    return len(checkpoint[STATE_KEY]["epochs"])


def _is_read(part: Tensor, index: int) -> bool:
    """Return whether the losses up to this step of an epoch are read after it."""
    return part.device.type == "cpu" or (index + 1) % _STEPS_READ_AT_ONCE == 0


class TrainingModule(pl.LightningModule):
    """An objective and its optimizer."""

    def __init__(
        self,
        objective: Objective,
        loader: ResumableLoader,
        config: TrainingLoopConfig,
        plan: FineTuningPlan,
        fingerprint: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.objective, self.loader = objective, loader
        self.config, self.plan = config, plan
        self.fingerprint = dict(fingerprint)
        self.steps, self.steps_done = config.num_epochs * len(loader), 0
        self.head_steps = min(plan.head_steps, self.steps // 2)
        self.epochs: list[Epoch] = []
        self._train, self._validation = RunningMean(), RunningMean()
        self._latest_step = 0  # of the epoch
        self._clock = time.perf_counter()
        self._seconds = 0.0  # before this process, if resumed
        self._epoch_start = 0.0
        self._random_state: dict[str, Tensor] = {}
        self._agreed = 0, False  # of several processes: the signal, and whether time is over
        self._pretrained = [
            weight
            for name, weight in objective.trained.named_parameters()
            if name in plan.learning_rate_factors and weight.requires_grad
        ]

    @property
    def seconds(self) -> float:
        """Duration of the training, including any before it was interrupted and resumed."""
        return self._seconds + time.perf_counter() - self._clock

    def configure_optimizers(self) -> Any:
        optimizer = new_optimizer(self.objective.trained, self.config, self.plan)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, learning_rate_factor(self.config, self.steps)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Lightning refuses a fused optimizer in mixed precision, on account of scaled gradients;
        # those of bf16 are not scaled.
        if gradient_clip_val:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            torch.nn.utils.clip_grad_norm_(weights, gradient_clip_val)

    def on_train_start(self) -> None:
        if self._random_state:
            set_random_state(self._random_state, self.device)

    def on_train_epoch_start(self) -> None:
        self.loader.set_epoch(self.current_epoch)
        self._epoch_start = self.seconds

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        self.set_pretrained_frozen(self.trainer.global_step < self.head_steps)
        if rank := process_rank():  # other random numbers than in the first, whose state is saved
            seeds = [self.config.seed, rank, self.trainer.global_step]
            torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))

    def set_pretrained_frozen(self, frozen: bool) -> None:
        """Freeze the pretrained weights, or unfreeze them."""
        for weight in self._pretrained:
            weight.requires_grad_(not frozen)

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        moved = (
            part if part is None or isinstance(part, int) else to_device(part, device)
            for part in batch
        )
        return type(batch)(*moved)

    def training_step(self, batch: Any, index: int) -> Tensor:
        part, weight = self.objective(batch)
        divisor = torch.where(weight > 0, weight, 1.0)
        self._latest_step = index + 1
        self._train.add(self._agree(part, index), weight)
        if _is_read(part, index):
            self._read_losses()
        # DDP takes the mean of the gradients, and the whole loss is the sum of its parts.
        return part * (num_processes() / divisor) if num_processes() > 1 else part / divisor

    def _read_losses(self) -> None:
        """Read the losses of the latest steps, for which the CPU waits, and check them."""
        losses = self._train.read()
        for step, loss in enumerate(losses, start=self._latest_step - len(losses) + 1):
            if not math.isfinite(loss):
                leave_together()
                raise MolattnError(
                    f"training diverged: the loss became {loss} in epoch {self.current_epoch + 1}, "
                    f"step {step}; a lower --learning-rate may help"
                )

    def on_validation_epoch_start(self) -> None:
        self._agreed = 0, False  # what was decided at the last step waits for the validation

    def validation_step(self, batch: Any, index: int) -> None:
        part, weight = self.objective(batch)
        self._validation.add(self._agree(part, index, VALIDATION_SECONDS), weight)

    def _agree(self, part: Tensor, index: int | None = None, grace: float = 0.0) -> Tensor:
        """Return the sum of a number over the processes, and let the first decide when to stop.

        On a GPU its decision is read with the losses, or without an index at once.
        """
        if num_processes() == 1:
            return part.detach()
        decision = [0, False]
        if not process_rank():
            interrupt = pending_interrupt(grace)
            decision = [interrupt.signum if interrupt else 0, self._has_no_time()]
        total, signum, is_over = summed(
            torch.stack([part.detach().double(), *(part.new_full((), n) for n in decision)])
        )
        if index is None or _is_read(part, index):
            self._agreed = int(signum), bool(is_over)
        return total

    def interrupt(self, grace: float = 0.0) -> Interrupted | None:
        """Return the signal to stop at, if one came to the first process ``grace`` seconds ago."""
        if num_processes() == 1:
            return pending_interrupt(grace)
        return Interrupted(self._agreed[0]) if self._agreed[0] else None

    def is_time_over(self) -> bool:
        """Return whether the time limit is reached."""
        return self._has_no_time() if num_processes() == 1 else self._agreed[1]

    def _has_no_time(self) -> bool:
        return is_time_over(self.config, self.seconds)

    def record_epoch(self) -> None:
        """Record the losses of an epoch at its end, after validation."""
        self._read_losses()
        validated = self.trainer.val_dataloaders is not None
        epoch = Epoch(
            epoch=self.current_epoch + 1,
            train_loss=self._train.pop(),
            validation_loss=self._validation.pop() if validated else None,
            learning_rate=self.trainer.optimizers[0].param_groups[0]["lr"],
            seconds=self.seconds - self._epoch_start,
        )
        self._agree(torch.zeros((), device=self.device))
        if epoch.validation_loss is not None and not math.isfinite(epoch.validation_loss):
            leave_together()
            raise MolattnError(
                f"training diverged: the validation loss became {epoch.validation_loss} in epoch "
                f"{epoch.epoch}; a lower --learning-rate may help"
            )
        self.epochs.append(epoch)
        if self.logger is not None:
            metrics = {key: value for key, value in epoch._asdict().items() if value is not None}
            self.logger.log_metrics(metrics, step=epoch.epoch)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._read_losses()
        checkpoint[RUN_KEY] = self.fingerprint
        checkpoint[STATE_KEY] = {
            "epochs": [tuple(epoch) for epoch in self.epochs],
            "running": (self._train.total, self._train.weight),
            "seconds": self.seconds,
            "epoch_start": self._epoch_start,
            "random_state": random_state(self.device),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint[STATE_KEY]
        self.epochs = [Epoch(*epoch) for epoch in state["epochs"]]
        self._train = RunningMean(*state["running"])
        self._seconds, self._clock = state["seconds"], time.perf_counter()
        self._epoch_start = state["epoch_start"]
        self._random_state = state["random_state"]


def is_time_over(config: TrainingLoopConfig, seconds: float) -> bool:
    """Return whether a training of this duration has reached its time limit."""
    return config.max_hours is not None and seconds >= 3600.0 * config.max_hours
