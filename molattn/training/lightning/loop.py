"""The training loop, on Lightning."""

import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback, LambdaCallback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console

from molattn.config import TrainingLoopConfig
from molattn.config.training import Precision
from molattn.errors import InputError
from molattn.training.batches import ResumableLoader
from molattn.training.checkpoint import CHECKPOINT_FILE, write_checkpoint
from molattn.training.history import Epoch, History
from molattn.training.lightning.callbacks import (
    CheckpointCallback,
    KeepWeights,
    ProgressCallback,
    RecordEpoch,
    StopAtSignal,
    TimeLimit,
    as_training,
)
from molattn.training.lightning.module import STATE_KEY, TrainingModule, epochs_done, is_time_over
from molattn.training.losses import Objective
from molattn.training.optimizer import FineTuningPlan
from molattn.utils.console import print_line
from molattn.utils.devices import check_device
from molattn.utils.process_group import call_everywhere, group_size, local_size, num_processes
from molattn.utils.reproducibility import seeded, threads
from molattn.utils.signals import interrupts_deferred

__all__ = ["check_processes", "fit"]

_TENSORBOARD_FOLDER = "tensorboard"
_LEAST_WIDTH_OF_BF16 = 256  # narrower networks gain little, see docs/speed.md
_PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}


def fit(
    objective: Objective,
    loader: ResumableLoader,
    validation: ResumableLoader | None,
    config: TrainingLoopConfig,
    console: Console | None = None,
    *,
    folder: Path | None = None,
    checkpoint: dict[str, Any] | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    plan: FineTuningPlan = FineTuningPlan(),
    on_epoch: Callable[[Epoch], None] | None = None,
) -> History:
    """Train the module of an objective in place; it ends with its best or last weights.

    AdamW with a learning-rate schedule, and early stopping by the validation loss. On a CPU with
    the same number of threads and processes, a resumed training has the same weights as one that
    was never interrupted, bit for bit.

    In a group of processes (:mod:`molattn.utils.process_group`) all of them train, each on a part
    of every batch, and the first one writes and logs.

    Args:
        objective: The loss, and the module to train.
        loader: Training batches.
        validation: Validation batches; None = no validation.
        config: How to train.
        console: Where to log; silent without one.
        folder: Folder for checkpoint and logs; nothing is saved without one.
        checkpoint: The checkpoint of that folder to resume from; it is emptied once loaded, so that
            it takes no memory during the training.
        fingerprint: What identifies the run in its checkpoints.
        plan: How to train pretrained weights.
        on_epoch: Called after each epoch; an exception that it raises stops the training.

    Raises:
        InputError: If an option is not available on this machine.
        MolattnError: If the training diverges.
    """
    check_processes(config)
    objective.train()
    precision = _precision(config, objective.width)
    if precision != config.precision:
        if precision == "bf16" and console is not None:
            print_line(console, "Precision: bf16, as this CPU has AMX (--precision)")
        config = replace(config, precision=precision)
    own = {"console": console, "fingerprint": fingerprint, "on_epoch": on_epoch}
    shared = objective, loader, validation, config, folder, checkpoint, plan
    return call_everywhere(_fit, *shared, own=own)


def check_processes(config: TrainingLoopConfig) -> None:
    """Check that there are the devices to train on, and a process for each of them.

    Raises:
        InputError: There are not.
    """
    count, started = config.devices * config.num_nodes, group_size()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if started > 1 else 1
    check_device(config.device, max(config.devices, local))
    if count not in (1, started):
        devices = f"--devices {config.devices} --num-nodes {config.num_nodes}"
        if started == 1:
            raise InputError(
                f"{devices}: one process was started; molattn train and molattn pretrain start "
                "more, and so do torchrun and srun"
            )
        raise InputError(f"{devices}: got {started} processes, expected {count}")


def _fit(
    objective: Objective,
    loader: ResumableLoader,
    validation: ResumableLoader | None,
    config: TrainingLoopConfig,
    folder: Path | None,
    checkpoint: dict[str, Any] | None,
    plan: FineTuningPlan,
    *,
    console: Console | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> History:
    """Train, in each of the processes; see :func:`fit`."""
    module = TrainingModule(objective, loader, config, plan, fingerprint or {})
    kept = KeepWeights(config.checkpoint, config.patience, module.head_steps // len(loader))
    callbacks: list[Callback] = [RecordEpoch(), kept, TimeLimit()]
    if console is not None:
        callbacks.append(ProgressCallback(console))
    if on_epoch is not None:
        callbacks.append(
            LambdaCallback(on_train_epoch_end=lambda _, m: on_epoch(as_training(m).epochs[-1]))
        )
    path = None if folder is None else folder / CHECKPOINT_FILE
    if path is not None:
        callbacks.append(CheckpointCallback(path, config.checkpoint_steps))
    callbacks.append(StopAtSignal())
    if checkpoint is not None:
        callbacks.append(LambdaCallback(on_train_start=lambda *_: checkpoint.clear()))
    with _quiet_lightning(), seeded(config.seed), threads(config.threads), interrupts_deferred():
        try:
            if checkpoint is None or not _load_if_finished(checkpoint, module, kept):
                trainer = pl.Trainer(
                    accelerator=config.device,
                    **_strategy(config),
                    max_epochs=config.num_epochs,
                    precision=_PRECISIONS[config.precision],  # pyright: ignore[reportArgumentType]
                    gradient_clip_val=config.gradient_clip or None,
                    callbacks=callbacks,
                    # A Slurm job would otherwise be queued again at a signal.
                    plugins=[_CheckpointIO(checkpoint), _environment()],
                    use_distributed_sampler=False,
                    logger=_tensorboard(config, folder, checkpoint),
                    enable_checkpointing=False,
                    enable_progress_bar=False,
                    enable_model_summary=False,
                    num_sanity_val_steps=0,
                )
                _run(trainer, module, (loader, validation), None if checkpoint is None else path)
                module.steps_done = trainer.global_step
        finally:
            module.set_pretrained_frozen(False)
    _log_early_stop(module, console)
    objective.trained.load_state_dict(kept.state)
    objective.cpu().eval()
    frozen = sum(w.numel() for w in objective.trained.parameters() if not w.requires_grad)
    return History(module.epochs, kept.epoch, module.seconds, module.steps_done, frozen)


def _environment() -> ClusterEnvironment:
    # The variables that torchrun sets are there in any group of processes.
    return TorchElasticEnvironment() if num_processes() > 1 else LightningEnvironment()


def _strategy(config: TrainingLoopConfig) -> dict[str, Any]:
    """Return the arguments of the trainer that depend on the number of processes."""
    if num_processes() == 1:
        return {"devices": 1}
    os.environ.setdefault("OMP_NUM_THREADS", str(config.threads))  # else Lightning sets threads
    return {
        # Weights that are frozen, or that a layer does not use, have no gradients.
        "strategy": DDPStrategy(find_unused_parameters=True, gradient_as_bucket_view=True),
        "devices": local_size(),
        "num_nodes": num_processes() // local_size(),
    }


def _precision(config: TrainingLoopConfig, width: int) -> Precision:
    """Return the precision to train a network of this width in."""
    if config.precision != "auto":
        return config.precision
    on_cpu = config.device == "cpu" or not (
        torch.cuda.is_available() or torch.backends.mps.is_available()
    )
    is_wide = width >= _LEAST_WIDTH_OF_BF16
    return "bf16" if on_cpu and is_wide and torch.cpu._is_amx_tile_supported() else "fp32"


def _log_early_stop(module: TrainingModule, console: Console | None) -> None:
    config, count = module.config, len(module.epochs)
    if count < config.num_epochs:
        if is_time_over(config, module.seconds):
            reason = "time limit reached (--max-hours)"
        else:
            reason = f"no improvement (--patience {config.patience})"
        print_line(console, f"Stopped early after epoch {count} of {config.num_epochs}: {reason}")
    if module.steps_done <= module.head_steps > 0:
        print_line(
            console,
            "Stopped before the pretrained weights were trained; --head-steps 0 trains them from "
            "the first step",
        )


def _load_if_finished(
    checkpoint: dict[str, Any], module: TrainingModule, kept: KeepWeights
) -> bool:
    """Load a checkpoint if its training needs no further epoch; return whether it was loaded."""
    kept.load_state_dict(checkpoint["callbacks"][kept.state_key])
    count = epochs_done(checkpoint)
    in_time = not is_time_over(module.config, checkpoint[STATE_KEY]["seconds"])
    if count < module.config.num_epochs and not kept.is_exhausted(count) and (in_time or not count):
        return False
    module.on_load_checkpoint(checkpoint)
    module.steps_done = checkpoint["global_step"]
    return True


class _CheckpointIO(CheckpointIO):
    """Saves the state of Lightning without pickle; the checkpoint to load is already in memory."""

    def __init__(self, checkpoint: dict[str, Any] | None) -> None:
        self.checkpoint = checkpoint

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        write_checkpoint(Path(path), checkpoint)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: Any = None
    ) -> dict[str, Any]:
        if self.checkpoint is None:
            raise ValueError(f"{path}: a checkpoint that was not read before the training")
        return self.checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _tensorboard(
    config: TrainingLoopConfig, folder: Path | None, checkpoint: dict[str, Any] | None
) -> TensorBoardLogger | bool:
    if not config.tensorboard or folder is None:
        return False
    if find_spec("tensorboard") is None:
        raise InputError(
            "--tensorboard needs the package tensorboard, which is not installed: "
            "pip install 'molattn[tensorboard]'"
        )
    # Epochs logged after the checkpoint are logged again.
    epochs = 0 if checkpoint is None else epochs_done(checkpoint)
    return TensorBoardLogger(folder, _TENSORBOARD_FOLDER, "", purge_step=epochs + 1)


def _run(
    trainer: pl.Trainer,
    module: TrainingModule,
    loaders: tuple[ResumableLoader, ResumableLoader | None],
    checkpoint: Path | None,
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, *loaders, ckpt_path=checkpoint)
    except SystemExit as error:
        # Lightning replaces KeyboardInterrupt by SystemExit, and leaves the signal ignored.
        interrupt = error.__context__
        if not isinstance(interrupt, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise interrupt from None


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Silence Lightning's tips and its warnings about loaders."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            # Lightning 2.6 uses a deprecated name of torch's pytree.
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
