"""The training loop, on Lightning."""

import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console

from molattn.config import TrainingLoopConfig
from molattn.errors import InputError
from molattn.training.batches import ResumableLoader
from molattn.training.checkpoint import (
    CHECKPOINT_FILE,
    RUN_KEY,
    RunCheckpoint,
    write_checkpoint,
)
from molattn.training.losses import Objective
from molattn.training.module import EarlyStoppingAfterHeadSteps, SaveCheckpoint, TrainingModule
from molattn.training.run_folder import Epoch, History
from molattn.utils.console import print_line, row_progress
from molattn.utils.devices import check_device, seeded, threads
from molattn.utils.process_group import broadcast, lost_named, num_processes, summed
from molattn.utils.signals import interrupts_deferred

_PRECISIONS: dict[str, Any] = {"fp32": "32-true", "bf16": "bf16-mixed"}


class Hooks(NamedTuple):
    """What a training calls.

    Args:
        on_epoch: Called after each epoch; an exception that it raises stops the training.
        callbacks: Callbacks of Lightning.
        logger: Logger of Lightning, or several; None = none.
    """

    on_epoch: Callable[[Epoch], None] | None = None
    callbacks: Sequence[Any] = ()
    logger: Any = None


NO_HOOKS = Hooks()


def fit(
    objective: Objective,
    loader: ResumableLoader,
    validation: ResumableLoader | None,
    config: TrainingLoopConfig,
    console: Console | None = None,
    *,
    run: RunCheckpoint | None = None,
    hooks: Hooks = NO_HOOKS,
) -> History:
    """Train the module of an objective in place; it ends with its best or last weights.

    On a CPU with the same number of threads and processes, a resumed training has the same weights
    as one that was never interrupted, bit for bit. Of several processes each trains on a part of
    every batch, and the first one writes and logs.

    Args:
        objective: The loss, and the module to train.
        loader: Training batches.
        validation: Validation batches; None = no validation.
        config: How to train; its precision is not ``auto``.
        console: Where to log; silent without one.
        run: Where to save checkpoints; a checkpoint there is resumed. None = nowhere.
        hooks: What the training calls.

    Raises:
        InputError: An option is not available here, or the checkpoint is of another run.
        MolattnError: The training diverges.
    """
    check_processes(config)
    objective.train()
    checkpoint = broadcast(None if run is None else run.read(console))
    hours = config.max_hours
    timer = Timer(None if hours is None else timedelta(hours=hours), verbose=False)
    module = TrainingModule(objective, loader, config, timer, console, hooks.on_epoch)
    callbacks: list[pl.Callback] = [timer, *hooks.callbacks]
    if config.patience is not None and validation is not None:
        callbacks.append(EarlyStoppingAfterHeadSteps("validation_loss", patience=config.patience))
    with _settings(config), interrupts_deferred(), lost_named():
        trainer = _trainer(module, run, checkpoint, callbacks, hooks.logger)
        steps = checkpoint["global_step"] if checkpoint else None
        checkpoint = None  # takes no memory during the training
        _run(trainer, module, validation, steps)
    _log_early_stop(module, console)
    saved_epoch = module.best["epoch"] or len(module.curve)
    if module.best["epoch"]:
        objective.trained.load_state_dict(module.best["weights"])
    objective.cpu().eval()
    frozen = sum(w.numel() for w in objective.trained.parameters() if not w.requires_grad)
    return History(module.curve, saved_epoch, timer.time_elapsed(), trainer.global_step, frozen)


def check_processes(config: TrainingLoopConfig) -> None:
    """Check that there are the devices to train on, and a process for each of them."""
    started = num_processes()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if started > 1 else 1
    check_device(config.device, max(config.devices, local))
    if config.devices not in (1, local):
        raise InputError(
            f"got {config.devices}, but {local} processes; "
            "molattn train and molattn pretrain start more, and so does torchrun",
            option="devices",
        )


def _trainer(
    module: TrainingModule,
    run: RunCheckpoint | None,
    checkpoint: dict[str, Any] | None,
    callbacks: list[pl.Callback],
    logger: Any,
) -> pl.Trainer:
    config = module.config
    count = num_processes()
    folder = broadcast(run and run.folder)
    saves = SaveCheckpoint(folder and folder / CHECKPOINT_FILE, config.checkpoint_steps)
    devices: dict[str, Any] = {"devices": 1}
    if count > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(config.threads))  # else Lightning sets threads
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        unused = module.head_steps > 0 or _has_unused_weights(module)
        strategy = DDPStrategy(find_unused_parameters=unused, gradient_as_bucket_view=True)
        devices = {"devices": local, "num_nodes": count // local, "strategy": strategy}
    # A Slurm job would otherwise be queued again at a signal.
    environment = TorchElasticEnvironment() if count > 1 else LightningEnvironment()
    return pl.Trainer(
        accelerator=config.device,
        **devices,
        max_epochs=config.num_epochs,
        precision=_PRECISIONS[config.precision],
        gradient_clip_val=config.gradient_clip or None,
        callbacks=[*callbacks, saves],
        plugins=[_CheckpointIO(run, checkpoint), environment],
        use_distributed_sampler=False,
        logger=logger or False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _has_unused_weights(module: TrainingModule) -> bool:
    """Return whether a weight gets no gradient from a batch, as a layer does not use it."""
    objective = module.objective
    objective(next(iter(module.loader)))[0].backward()
    trained = (weight for weight in objective.parameters() if weight.requires_grad)
    is_unused = any(weight.grad is None for weight in trained)
    objective.zero_grad(set_to_none=True)
    return bool(summed(torch.tensor(float(is_unused))))


class _CheckpointIO(CheckpointIO):
    """Saves the state of Lightning without pickle; the checkpoint to load is already in memory."""

    def __init__(self, run: RunCheckpoint | None, checkpoint: dict[str, Any] | None) -> None:
        self.run = run
        self.checkpoint = checkpoint

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        identity = {} if self.run is None else self.run.identity
        Path(path).parent.mkdir(parents=True, exist_ok=True)  # of a user's ModelCheckpoint
        write_checkpoint(Path(path), {**checkpoint, RUN_KEY: identity})

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        checkpoint = self.checkpoint
        self.checkpoint = None
        return checkpoint or {}

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _log_early_stop(module: TrainingModule, console: Console | None) -> None:
    config = module.config
    count = len(module.curve)
    if count < config.num_epochs:
        is_late = config.max_hours and module.timer.time_elapsed() >= 3600.0 * config.max_hours
        reason = "by a callback"
        if config.patience is not None:
            reason = f"no improvement (--patience {config.patience})"
        reason = "time limit reached (--max-hours)" if is_late else reason
        print_line(console, f"Stopped early after epoch {count} of {config.num_epochs}: {reason}")


def _run(
    trainer: pl.Trainer,
    module: TrainingModule,
    validation: ResumableLoader | None,
    steps: int | None,
) -> None:
    """Train; ``steps`` were done before, if a run is resumed."""
    handler = signal.getsignal(signal.SIGINT)
    path = None if steps is None else CHECKPOINT_FILE
    epochs, batches = divmod(steps or 0, len(module.loader))
    count = module.loader.count
    size = module.loader.batch_size
    total = module.config.num_epochs * count
    rows_seen = epochs * count + batches * size
    try:
        with row_progress(module.console, "training", total, done=rows_seen) as module.advance:
            trainer.fit(module, module.loader, validation, ckpt_path=path)
    except SystemExit as error:
        # Lightning replaces KeyboardInterrupt by SystemExit, and leaves the signal ignored.
        interrupt = error.__context__
        if not isinstance(interrupt, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise interrupt from None
    finally:
        module.set_pretrained_frozen(False)


@contextmanager
def _settings(config: TrainingLoopConfig) -> Iterator[None]:
    """Seed torch, set threads, and silence Lightning's tips and its warnings about loaders."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with seeded(config.seed), threads(config.threads), warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            # Lightning 2.6 uses a deprecated name of torch's pytree.
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
