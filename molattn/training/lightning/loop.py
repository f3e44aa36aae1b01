"""The training loop, and all that knows Lightning."""

import logging
import signal
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

from molattn.config import TrainingLoopConfig
from molattn.config.training import Device
from molattn.errors import InputError
from molattn.training.batches import Batches
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint, write_checkpoint
from molattn.training.history import Epoch, History
from molattn.training.lightning.callbacks import (
    CheckpointCallback,
    KeepWeights,
    ProgressCallback,
    TimeLimit,
    training,
)
from molattn.training.lightning.module import ABOUT, STATE, TrainingModule, epochs_done, is_over
from molattn.training.objective import Objective
from molattn.training.optimizer import FineTuningPlan
from molattn.utils.console import print_line
from molattn.utils.progress import TrainingProgress
from molattn.utils.reproducibility import seeded, threads

__all__ = ["ABOUT", "check_device", "epochs_done", "fit"]


def check_device(device: Device) -> None:
    """Refuse a device that is not there.

    Args:
        device: ``auto`` takes what there is.

    Raises:
        InputError: torch finds no GPU, and one was asked for.
    """
    if device == "gpu" and not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        raise InputError(
            "--device: got 'gpu', but torch finds none here; expected cpu or auto, or a driver and "
            "a build of torch for the GPU"
        )


_TENSORBOARD_FOLDER = "tensorboard"

_PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}


def fit(
    objective: Objective,
    batches: Batches,
    validation: Batches,
    config: TrainingLoopConfig,
    console: Console | None = None,
    *,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    beginning: FineTuningPlan = FineTuningPlan(),
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
    module = TrainingModule(objective, batches, config, beginning, about or {})
    kept = KeepWeights(config.checkpoint, config.patience, module.wait // len(batches))
    callbacks: list[Callback] = [kept, TimeLimit()]
    if console is not None:
        callbacks.append(ProgressCallback(TrainingProgress(console)))
    if on_epoch is not None:
        tell = LambdaCallback(on_validation_end=lambda _, m: on_epoch(training(m).epochs[-1]))
        callbacks.append(tell)
    path, former = None, None
    if folder is not None:
        path = folder / CHECKPOINT_FILE
        former = read_checkpoint(path) if path.exists() else None
        callbacks.append(CheckpointCallback(path, config.checkpoint_steps))
    with _quiet_lightning(), seeded(config.seed), threads(config.threads):
        try:
            if former is None or not _load_if_finished(former, module, kept):
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
        finally:
            module.set_waiting(False)
    _tell_early_end(module, console)
    objective.learned.load_state_dict(kept.state)
    objective.cpu().eval()
    return History(module.epochs, kept.epoch, module.seconds, module.steps_done)


def _tell_early_end(module: TrainingModule, console: Console | None) -> None:
    config, count = module.config, len(module.epochs)
    if count < config.epochs:
        is_late = is_over(config, module.seconds)
        cause = "time is over" if is_late else f"no progress for {config.patience} epochs"
        print_line(console, f"ended after epoch {count} of {config.epochs}: {cause}")
    if module.steps_done <= module.wait > 0:
        print_line(
            console, "ended before what was pretrained could learn: --head-steps 0 does not wait"
        )


def _load_if_finished(
    checkpoint: dict[str, Any], module: TrainingModule, kept: KeepWeights
) -> bool:
    """Take over a training that needs no further epoch; return whether it was one."""
    kept.load_state_dict(checkpoint["callbacks"][kept.state_key])
    count = epochs_done(checkpoint)
    in_time = not is_over(module.config, checkpoint[STATE]["seconds"])
    if count < module.config.epochs and not kept.is_exhausted(count) and (in_time or not count):
        return False
    module.on_load_checkpoint(checkpoint)
    module.steps_done = checkpoint["global_step"]
    return True


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


def _tensorboard(
    config: TrainingLoopConfig, folder: Path | None, former: dict[str, Any] | None
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
    trainer: pl.Trainer,
    module: TrainingModule,
    loaders: tuple[Batches, Batches],
    former: Path | None,
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
