"""Callbacks: early stopping, time limit, signals, progress and checkpoints."""

import math
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from molattn.training.history import write_history
from molattn.training.lightning.module import VALIDATION_SECONDS, TrainingModule
from molattn.utils.console import print_line
from molattn.utils.process_group import leave_together

__all__ = [
    "CheckpointCallback",
    "KeepWeights",
    "ProgressCallback",
    "RecordEpoch",
    "StopAtSignal",
    "TimeLimit",
    "as_training",
]

_LINES_IN_LOG = 10
_SECONDS_IN_LOG = 10.0


def as_training(module: pl.LightningModule) -> TrainingModule:
    """Narrow the type of the module that Lightning passes to callbacks."""
    if not isinstance(module, TrainingModule):
        raise TypeError(f"got {type(module).__name__}, expected TrainingModule")
    return module


class RecordEpoch(Callback):
    """Records each epoch at its end; precedes the callbacks that read the record."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        as_training(pl_module).record_epoch()


class KeepWeights(Callback):
    """Keeps the best or the last weights, and stops early without improvement.

    Patience, None for no limit, counts from the epoch ``start``.
    """

    def __init__(self, keep: str, patience: int | None, start: int = 0) -> None:
        self.keeps_last, self.start = keep == "last", start
        self.patience = math.inf if patience is None else patience
        self.loss, self.best, self.epoch = math.inf, 0, 0
        self.state: dict[str, Tensor] = {}

    @property
    def state_key(self) -> str:
        """The key of its state in checkpoints, independent of the name of the class."""
        return "Kept"

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        latest = as_training(pl_module).epochs[-1]
        if latest.validation_loss is not None and latest.validation_loss < self.loss:
            self.loss, self.best = latest.validation_loss, latest.epoch
        if self.keeps_last or self.best == latest.epoch:
            self.epoch = latest.epoch
            weights = as_training(pl_module).objective.trained.state_dict()
            self.state = {name: weight.detach().cpu().clone() for name, weight in weights.items()}
        if self.is_exhausted(latest.epoch):
            trainer.should_stop = True

    def is_exhausted(self, epoch: int) -> bool:
        """Return whether there was no improvement for ``patience`` epochs."""
        return epoch - max(self.best, self.start) >= self.patience

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("loss", "best", "epoch", "state")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)


class TimeLimit(Callback):
    """Stops at the time limit, after a last validation."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        if as_training(pl_module).is_time_over():
            trainer.should_stop = True


class ProgressCallback(Callback):
    """One bar over all epochs, with molecules per second and the time left.

    Without a terminal, a line every few epochs and every ten seconds.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("training", speed="")
        self.first_step, self.started, self.printed = 0, 0.0, 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        steps = as_training(pl_module).steps
        self.first_step = trainer.global_step
        self.started = self.printed = time.monotonic()
        self.bar.update(self.task, total=steps, completed=trainer.global_step)
        self.bar.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        module, step, now = as_training(pl_module), trainer.global_step, time.monotonic()
        rate = (step - self.first_step) / max(now - self.started, 1e-9)
        speed = f"{rate * module.config.batch_size:.0f} molecules/s"
        self.bar.update(self.task, advance=1, speed=speed)
        if not self.console.is_terminal and now >= self.printed + _SECONDS_IN_LOG:
            self.printed = now
            left = timedelta(seconds=round((module.steps - step) / rate))
            print_line(self.console, f"step {step}/{module.steps}  {speed}  {left} left")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        latest = as_training(pl_module).epochs[-1]
        epochs = as_training(pl_module).config.num_epochs
        line = f"epoch {latest.epoch}/{epochs}  train loss {latest.train_loss:.4f}"
        if latest.validation_loss is not None:
            line += f"  val loss {latest.validation_loss:.4f}"
        if self.console.is_terminal:
            self.bar.update(self.task, description=line)
        elif latest.epoch % max(1, epochs // _LINES_IN_LOG) == 0:
            self.printed = time.monotonic()
            print_line(self.console, line)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.bar.stop()

    on_exception = on_train_end


class CheckpointCallback(Callback):
    """Writes checkpoint and history after each epoch, and a checkpoint every so many steps."""

    def __init__(self, path: Path, steps: int) -> None:
        self.path, self.steps = path, steps

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        index: int,
    ) -> None:
        # After the last step of an epoch, the checkpoint is written with its validation loss.
        is_last = index + 1 == len(as_training(pl_module).loader)
        is_due = self.steps and trainer.global_step % self.steps == 0
        if (is_due or as_training(pl_module).interrupt()) and not is_last:
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.path)
        if trainer.is_global_zero:
            write_history(self.path.parent, as_training(pl_module).epochs)


class StopAtSignal(Callback):
    """Stops after the step in which a signal came; follows the callback that saves checkpoints.

    Several GPUs agree on it at most 50 steps later.

    A validation that has begun is finished if that takes a few seconds, and repeated on resume if
    not.
    """

    def __init__(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # In place of Lightning's, which would exit with code 0.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        index: int,
    ) -> None:
        if index + 1 < len(as_training(pl_module).loader):
            _stop_if_interrupted(pl_module)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        _stop_if_interrupted(pl_module, VALIDATION_SECONDS)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _stop_if_interrupted(pl_module)


def _stop_if_interrupted(module: pl.LightningModule, grace: float = 0.0) -> None:
    if (interrupt := as_training(module).interrupt(grace)) is not None:
        leave_together()
        raise interrupt
