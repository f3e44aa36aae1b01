"""The training loop: the only file that knows Lightning."""

import logging
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback, LambdaCallback
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console
from torch import Tensor

from molattn.batches import Batches
from molattn.checkpoint import CHECKPOINT_FILE, read_checkpoint, write_checkpoint
from molattn.config import LoopConfig
from molattn.device import check_device
from molattn.errors import InputError, MolattnError
from molattn.objective import Objective
from molattn.optimise import (
    Beginning,
    Epoch,
    History,
    RunningMean,
    learning_rate_factor,
    new_optimiser,
    write_history,
)
from molattn.progress import TrainingProgress
from molattn.reproducible import random_state, seeded, set_random_state, threads

__all__ = ["ABOUT", "epochs_done", "fit"]

ABOUT = "molattn_about"
"""Key of a checkpoint under which ``about`` of :func:`fit` is kept."""
_TENSORBOARD_FOLDER = "tensorboard"
_STATE = "molattn_state"
_PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}


def fit(
    objective: Objective,
    batches: Batches,
    validation: Batches,
    config: LoopConfig,
    console: Console | None = None,
    *,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    beginning: Beginning = Beginning(),
    on_epoch: Callable[[Epoch], None] | None = None,
) -> History:
    """Train what an objective holds, in place; it ends with the weights of its best or last epoch.

    AdamW; the learning rate follows a schedule; training stops early without progress on the
    validation batches. On a CPU, and with the same threads, a training that goes on from its
    checkpoint comes to the weights of one that was never interrupted, bit for bit.

    Args:
        objective: The loss, and the weights.
        batches: What to learn from.
        validation: What to validate each epoch on.
        config: How to train.
        console: Where to report progress; silent without one.
        folder: Where to keep checkpoint and logs; if there is a checkpoint already, training goes
            on from it. Without a folder nothing is kept.
        about: What a checkpoint says of the training, in the types it can hold.
        beginning: What the weights have from a training before.
        on_epoch: Called with each finished epoch; what it raises ends the training.

    Raises:
        InputError: If an option cannot be had here, or the checkpoint cannot be read.
        MolattnError: If a loss stops being finite.
    """
    check_device(config.device)
    objective.train()
    kept = _Kept(config.keep, config.patience)
    callbacks: list[Callback] = [kept, _StopInTime()]
    if console is not None:
        callbacks.append(_Watch(TrainingProgress(console)))
    if on_epoch is not None:
        tell = LambdaCallback(on_validation_end=lambda _, m: on_epoch(_training(m).epochs[-1]))
        callbacks.append(tell)
    path, former = None, None
    if folder is not None:
        path = folder / CHECKPOINT_FILE
        former = read_checkpoint(path) if path.exists() else None
        callbacks.append(_Save(path, config.checkpoint_steps))
    module = _Training(objective, batches, config, beginning, about or {})
    with _quiet_lightning(), seeded(config.seed), threads(config.threads):
        if former is None or not module.load_if_finished(former, kept):
            trainer = pl.Trainer(
                accelerator=config.device,
                devices=1,
                max_epochs=config.epochs,
                precision=_PRECISIONS[config.precision],  # pyright: ignore[reportArgumentType]
                gradient_clip_val=config.gradient_clip or None,
                callbacks=callbacks,
                plugins=[_PlainCheckpoints(former)],
                logger=_tensorboard(config, folder, former),
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
            )
            _run(trainer, module, (batches, validation), None if former is None else path)
            module.steps_done = trainer.global_step
    objective.learned.load_state_dict(kept.state)
    objective.cpu().eval()
    return History(module.epochs, kept.epoch, module.seconds, module.steps_done)


def epochs_done(checkpoint: Mapping[str, Any]) -> int:
    """Return how many epochs the training of a checkpoint has finished."""
    return len(checkpoint[_STATE]["epochs"])


class _Training(pl.LightningModule):
    """An objective and its optimiser."""

    def __init__(
        self,
        objective: Objective,
        batches: Batches,
        config: LoopConfig,
        beginning: Beginning,
        about: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.objective, self.batches = objective, batches
        self.config = config
        self.beginning = beginning
        self.about = dict(about)
        self.steps, self.steps_done = config.epochs * len(batches), 0
        self.epochs: list[Epoch] = []
        self._train, self._validation = RunningMean(), RunningMean()
        self._clock = time.perf_counter()
        self._seconds = 0.0  # before the clock
        self._epoch_start = 0.0
        self._random_state: dict[str, Tensor] = {}

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
        checkpoint[_STATE] = {
            "epochs": [tuple(epoch) for epoch in self.epochs],
            "running": (self._train.total, self._train.weight),
            "seconds": self.seconds,
            "epoch_start": self._epoch_start,
            "random_state": random_state(self.device),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint[_STATE]
        self.epochs = [Epoch(*epoch) for epoch in state["epochs"]]
        self._train = RunningMean(*state["running"])
        self._seconds, self._clock = state["seconds"], time.perf_counter()
        self._epoch_start = state["epoch_start"]
        self._random_state = state["random_state"]

    def load_if_finished(self, checkpoint: dict[str, Any], kept: "_Kept") -> bool:
        """Take over a training that needs no further epoch; return whether it was one."""
        kept.load_state_dict(checkpoint["callbacks"][kept.state_key])
        count = epochs_done(checkpoint)
        in_time = not _is_over(self.config, checkpoint[_STATE]["seconds"])
        if count < self.config.epochs and not kept.is_exhausted(count) and (in_time or not count):
            return False
        self.on_load_checkpoint(checkpoint)
        self.steps_done = checkpoint["global_step"]
        return True


class _Kept(Callback):
    """Remembers the best weights, or the last, and stops when none were better for long."""

    def __init__(self, keep: str, patience: int | None) -> None:
        self.keeps_last = keep == "last"
        self.patience = math.inf if patience is None else patience
        self.loss, self.best, self.epoch = math.inf, 0, 0
        self.state: dict[str, Tensor] = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        latest = _training(pl_module).epochs[-1]
        if latest.validation_loss < self.loss:
            self.loss, self.best = latest.validation_loss, latest.epoch
        if self.keeps_last or self.best == latest.epoch:
            self.epoch = latest.epoch
            weights = _training(pl_module).objective.learned.state_dict()
            self.state = {name: weight.detach().cpu().clone() for name, weight in weights.items()}
        if self.is_exhausted(latest.epoch):
            trainer.should_stop = True

    def is_exhausted(self, epoch: int) -> bool:
        return epoch - self.best >= self.patience

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("loss", "best", "epoch", "state")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)


class _StopInTime(Callback):
    """Ends a training whose time is over, with a validation."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        if _is_over(_training(pl_module).config, _training(pl_module).seconds):
            trainer.should_stop = True


def _is_over(config: LoopConfig, seconds: float) -> bool:
    return config.max_hours is not None and seconds >= 3600.0 * config.max_hours


class _Watch(Callback):
    """Tells a progress display what Lightning is doing."""

    def __init__(self, progress: TrainingProgress) -> None:
        self.progress = progress

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module = _training(pl_module)
        self.progress.start(module.config.epochs, module.steps, trainer.global_step)

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.progress.step()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        latest = _training(pl_module).epochs[-1]
        self.progress.epoch(latest.epoch, latest.train_loss, latest.validation_loss)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.progress.stop()

    on_exception = on_train_end


class _Save(Callback):
    """Writes a checkpoint after each epoch, and within it if asked to, and the history so far."""

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
        # The last step of an epoch is saved with its validation.
        is_last = index + 1 == len(_training(pl_module).batches)
        if self.steps and trainer.global_step % self.steps == 0 and not is_last:
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.path)
        write_history(self.path.parent, _training(pl_module).epochs)


class _PlainCheckpoints(CheckpointIO):
    """Lightning's state in a file that needs no pickle; ``former`` has been read already."""

    def __init__(self, former: dict[str, Any] | None) -> None:
        self.former = former

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        write_checkpoint(Path(path), checkpoint)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: Any = None
    ) -> dict[str, Any]:
        return self.former or read_checkpoint(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _training(module: pl.LightningModule) -> _Training:
    if not isinstance(module, _Training):
        raise TypeError(f"got {type(module).__name__}, expected _Training")
    return module


def _tensorboard(
    config: LoopConfig, folder: Path | None, former: dict[str, Any] | None
) -> TensorBoardLogger | bool:
    if not config.tensorboard or folder is None:
        return False
    if find_spec("tensorboard") is None:
        raise InputError(
            "--tensorboard: the package tensorboard is not installed, expected it: "
            "pip install 'molattn[tensorboard]'"
        )
    # What an interrupted training logged after its checkpoint is logged again.
    epochs = 0 if former is None else epochs_done(former)
    return TensorBoardLogger(folder, _TENSORBOARD_FOLDER, "", purge_step=epochs + 1)


def _run(
    trainer: pl.Trainer, module: _Training, loaders: tuple[Batches, Batches], former: Path | None
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, *loaders, ckpt_path=former)
    except SystemExit as error:
        # Lightning turns Ctrl-C into an exit of its own and leaves the signal ignored.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Keep Lightning's tips and its advice on loaders off the terminal."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            # Lightning 2.6 calls torch's pytree by an old name.
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
