"""An objective as a Lightning module, its optimizer, and the callbacks of its training."""

import math
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, Timer
from rich.console import Console
from torch import Tensor, nn

from molattn.config import TrainingLoopConfig
from molattn.errors import MolattnError
from molattn.model.scaling import number_type
from molattn.training.batches import ResumableLoader
from molattn.training.checkpoint import STATE_KEY
from molattn.training.fine_tuning import FineTuningPlan
from molattn.training.losses import Objective
from molattn.training.run_folder import Epoch, write_history
from molattn.utils.console import print_line
from molattn.utils.devices import to_device
from molattn.utils.process_group import num_processes, process_rank, summed
from molattn.utils.signals import Interrupted, pending_interrupt

_LINES_IN_LOG = 10
_STEPS_READ_AT_ONCE = 50  # of a GPU, as reading a number waits for all steps before it


class TrainingModule(pl.LightningModule):
    """An objective and its optimizer; it records each epoch and calls ``on_epoch`` with it."""

    def __init__(
        self,
        objective: Objective,
        loader: ResumableLoader,
        config: TrainingLoopConfig,
        timer: Timer,
        console: Console | None = None,
        on_epoch: Callable[[Epoch], None] | None = None,
    ) -> None:
        super().__init__()
        self.objective = objective
        self.loader = loader
        self.config = config
        self.timer = timer
        self.console = console
        self.on_epoch = on_epoch
        self.advance: Callable[[int], None] = lambda rows: None  # counts rows
        self.steps = config.num_epochs * len(loader)
        self.head_steps = min(objective.plan.head_steps, self.steps // 2)
        self.curve: list[Epoch] = []
        self.best: dict[str, Any] = {"loss": math.inf, "epoch": 0, "weights": {}}
        self._sums: dict[str, Tensor] = {}  # loss and weight of the epoch, [2]
        self._epoch_start = 0.0
        self._random_state: dict[str, Tensor] = {}
        factors = objective.plan.learning_rate_factors
        self._pretrained = [
            weight
            for name, weight in objective.trained.named_parameters()
            if name in factors and weight.requires_grad
        ]

    def configure_optimizers(self) -> Any:
        optimizer = new_optimizer(self.objective.trained, self.config, self.objective.plan)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, learning_rate_factor(self.config, self.steps)
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

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

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        moved = (
            value if value is None or isinstance(value, int) else to_device(value, device)
            for value in batch
        )
        return type(batch)(*moved)

    def set_pretrained_frozen(self, frozen: bool) -> None:
        """Freeze the pretrained weights, or unfreeze them."""
        for weight in self._pretrained:
            weight.requires_grad_(not frozen)

    def on_train_start(self) -> None:
        if self._random_state:  # of the run that is resumed
            torch.set_rng_state(self._random_state["cpu"])
        if "gpu" in self._random_state and self.device.type == "cuda":
            torch.cuda.set_rng_state(self._random_state["gpu"], self.device)

    def on_train_epoch_start(self) -> None:
        self.loader.set_epoch(self.current_epoch)
        self._epoch_start = self.timer.time_elapsed()

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        self.set_pretrained_frozen(self.trainer.global_step < self.head_steps)
        if rank := process_rank():  # other random numbers than in the first, whose state is saved
            seeds = [self.config.seed, rank, self.trainer.global_step]
            torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))

    def training_step(self, batch: Any, index: int) -> Tensor:
        loss, weight = self._losses("train", batch)
        if reads_numbers(self.device, index):
            self._mean("train", "the loss")
        # DDP takes the mean of the gradients, and the whole loss is the sum of its parts.
        return num_processes() * loss / torch.where(weight > 0, weight, 1.0)

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        size = self.loader.batch_size
        self.advance(min(size, self.loader.count - index * size))

    def validation_step(self, batch: Any, index: int) -> None:
        self._losses("validation", batch)

    def _losses(self, name: str, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of this process and the weight of the whole batch, and add them up."""
        loss, weight = self.objective(batch)
        both = torch.stack([summed(loss.detach()), weight.detach()]).to(number_type())
        self._sums[name] = both + self._sums.get(name, 0.0)
        return loss, weight

    def _mean(self, name: str, what: str) -> float:
        """Return the mean loss of the epoch so far, for which the CPU waits; 0 without labels.

        Raises:
            MolattnError: It is not finite.
        """
        total, weight = self._sums.get(name, torch.zeros(2)).tolist()
        mean = total / (weight or 1.0)
        if not math.isfinite(mean):
            raise MolattnError(
                f"training diverged: {what} became {mean} in epoch {self.current_epoch + 1}; a "
                "lower --learning-rate may help"
            )
        return mean

    def on_train_epoch_end(self) -> None:
        """Record the epoch, after its validation."""
        loss = None
        if self.trainer.val_dataloaders is not None:
            loss = self._mean("validation", "the validation loss")
            self.log("validation_loss", loss)
        epoch = Epoch(
            epoch=self.current_epoch + 1,
            train_loss=self._mean("train", "the loss"),
            validation_loss=loss,
            learning_rate=self.trainer.optimizers[0].param_groups[0]["lr"],
            seconds=self.timer.time_elapsed() - self._epoch_start,
        )
        self.log("train_loss", epoch.train_loss)
        self._sums.clear()
        self.curve.append(epoch)
        if self.config.checkpoint == "best" and loss is not None and loss < self.best["loss"]:
            weights = self.objective.trained.state_dict().items()
            copied = {name: weight.detach().cpu().clone() for name, weight in weights}
            self.best = {"loss": loss, "epoch": epoch.epoch, "weights": copied}
        epochs = self.config.num_epochs
        if epoch.epoch % max(1, epochs // _LINES_IN_LOG) == 0:
            line = f"epoch {epoch.epoch}/{epochs}  train loss {epoch.train_loss:.4f}"
            line += "" if loss is None else f"  val loss {loss:.4f}"
            print_line(self.console, line)
        if self.on_epoch is not None:
            self.on_epoch(epoch)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        random_state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random_state["gpu"] = torch.cuda.get_rng_state(self.device)
        checkpoint[STATE_KEY] = {
            "curve": [tuple(epoch) for epoch in self.curve],
            "best": self.best,
            "sums": self._sums,
            "epoch_start": self._epoch_start,
            "random_state": random_state,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint[STATE_KEY]
        self.curve = [Epoch(*epoch) for epoch in state["curve"]]
        self.best = state["best"]
        self._epoch_start = state["epoch_start"]
        self._sums = {name: sums.to(self.device) for name, sums in state["sums"].items()}
        self._random_state = state["random_state"]


def reads_numbers(device: torch.device, index: int) -> bool:
    """Return whether the CPU waits for numbers after this step of an epoch."""
    return device.type == "cpu" or (index + 1) % _STEPS_READ_AT_ONCE == 0


class EarlyStoppingAfterHeadSteps(EarlyStopping):
    """Early stopping that does not count epochs in which only the head is trained."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= self.patience:  # of a run that is resumed
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.global_step > pl_module.head_steps:
            super().on_train_epoch_end(trainer, pl_module)


class SaveCheckpoint(Checkpoint):
    """Writes checkpoint and history after each epoch and some steps; stops when a signal has come.

    Args:
        path: The file; None = nothing is written.
        steps: Steps between checkpoints; 0 = only one for each epoch.
    """

    def __init__(self, path: Path | None, steps: int) -> None:
        self.path = path
        self.steps = steps
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # In place of Lightning's, which would exit with code 0.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        if index + 1 == len(pl_module.loader):
            return  # the checkpoint of the epoch's end follows, with its validation loss
        interrupt = _interrupt(trainer) if reads_numbers(pl_module.device, index) else None
        if interrupt or (self.steps and trainer.global_step % self.steps == 0):
            self._save(trainer)
        if interrupt:
            raise interrupt

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._save(trainer)
        if self.path is not None and trainer.is_global_zero:
            write_history(self.path.parent, pl_module.curve)
        if interrupt := _interrupt(trainer):
            raise interrupt

    def _save(self, trainer: pl.Trainer) -> None:
        if self.path is not None:
            trainer.save_checkpoint(self.path)


def _interrupt(trainer: pl.Trainer) -> Interrupted | None:
    """Return the signal that this or another process received, if any."""
    interrupt = pending_interrupt()
    if num_processes() == 1:
        return interrupt
    is_any = trainer.strategy.reduce_boolean_decision(interrupt is not None, all=False)
    return interrupt or (Interrupted(signal.SIGTERM) if is_any else None)


def new_optimizer(
    model: nn.Module, config: TrainingLoopConfig, plan: FineTuningPlan = FineTuningPlan()
) -> torch.optim.AdamW:
    """Return AdamW over all weights that are not frozen (Loshchilov and Hutter 2019)."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    factors = plan.learning_rate_factors
    groups = []
    # No decay for biases, the gains of normalization layers, and directions, whose length only
    # decides how fast they turn.
    decayed = {p for name, p in trained.items() if p.ndim >= 2 and not name.endswith(".directions")}
    # The full learning rate comes first: it is the one that is logged.
    for factor in sorted({1.0, *(factors.get(name, 1.0) for name in trained)}, reverse=True):
        weights = [p for name, p in trained.items() if factors.get(name, 1.0) == factor]
        rate = factor * config.learning_rate
        undecayed = [p for p in weights if p not in decayed]
        groups.append({"params": [p for p in weights if p in decayed], "lr": rate})
        groups.append({"params": undecayed, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def learning_rate_factor(config: TrainingLoopConfig, steps: int) -> Callable[[int], float]:
    """Return the schedule: the multiplier of the learning rate at each step.

    It rises linearly over the warm-up, then stays constant or falls to zero, linearly or as a
    cosine.
    """
    warmup = config.warmup * steps
    decays = {
        "constant": lambda _: 1.0,
        "linear": lambda progress: 1.0 - progress,
        "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
    }
    decay = decays[config.schedule]

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return decay((step - warmup) / max(1.0, steps - warmup))

    return factor
