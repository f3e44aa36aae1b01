"""Training: the only file that knows Lightning."""

import logging
import math
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader

from molattn.chem.features import Featurizer
from molattn.chem.split import Split
from molattn.config import OptimisationConfig, TrainConfig
from molattn.dataset import (
    Molecules,
    TrainingTable,
    column_scaling,
    part_rows,
    read_training_table,
    target_scaling,
)
from molattn.errors import InputError, MolattnError, quoted
from molattn.graph import MoleculeBatch
from molattn.metrics import masked_squared_error
from molattn.model import MolAttn, MolAttnConfig
from molattn.progress import TrainingProgress

__all__ = ["Epoch", "History", "TrainingRun", "fit", "train"]


class Epoch(NamedTuple):
    """What one pass over the training rows came to.

    Losses are mean squared errors of targets in units of their standard deviation.
    """

    epoch: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class History:
    """A finished training.

    Args:
        epochs: One entry for each epoch, in order.
        best: The epoch (its ``epoch``) whose weights the model was left with.
    """

    epochs: list[Epoch]
    best: int


@dataclass(frozen=True)
class TrainingRun:
    """A trained model with what it was trained on.

    Args:
        config: What was asked for.
        table: The usable rows.
        parts: Which of them trained, chose the epoch, and are for the final score.
        model: The model, in evaluation mode on the CPU.
        history: How training went.
        seconds: Seconds spent reading and training.
    """

    config: TrainConfig
    table: TrainingTable
    parts: Split
    model: MolAttn
    history: History
    seconds: float


def train(config: TrainConfig, console: Console | None = None) -> TrainingRun:
    """Read a table, train a model on a part of it, and keep the weights that validate best.

    On a CPU the same configuration gives the same weights, bit for bit.

    Args:
        config: The table, the network and how to train it.
        console: Where to report; silent without one.

    Raises:
        InputError: If the table cannot be used so.
        MolattnError: If training diverges.
    """
    start = time.perf_counter()
    optimisation = config.optimisation
    featurizer = Featurizer.default()
    table = read_training_table(config.file, config.data, featurizer)
    if console is not None:
        line = f"{table.path}: {_counts(table)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    parts = part_rows(table, config.data, optimisation.seed)
    train_rows, validation_rows = table.molecules(parts.train), table.molecules(parts.val)
    for task, name in enumerate(config.data.target_columns):
        if np.isnan(train_rows.targets[:, task]).all():
            raise InputError(
                f"{table.path}, column {quoted(name)}: no training row has a label, expected some"
            )
    with _seeded(optimisation.seed):
        model = _new_model(config, table, featurizer)
        history = fit(model, train_rows, validation_rows, optimisation, console)
    return TrainingRun(config, table, parts, model, history, time.perf_counter() - start)


def fit(
    model: MolAttn,
    train: Molecules,
    validation: Molecules,
    config: OptimisationConfig,
    console: Console | None = None,
) -> History:
    """Train a model in place; it ends with the weights of its best epoch.

    AdamW on the masked mean squared error of scaled targets; the learning rate rises linearly and
    falls as a cosine; training stops early without progress on the validation rows.

    Args:
        model: The model; its target scaling is set to that of the training labels.
        train: Molecules to learn from, some label for every target.
        validation: Molecules to choose the epoch by, some of them labelled.
        config: How to train.
        console: Where to report progress; silent without one.

    Raises:
        MolattnError: If a loss stops being finite.
    """
    model.set_target_scaling(*target_scaling(train.targets, model.config.tasks))
    if train.features is not None:
        model.set_feature_scaling(*column_scaling(train.features))
    best = _KeepBest(config.patience)
    callbacks: list[Callback] = [best]
    if console is not None:
        callbacks.append(_Watch(TrainingProgress(console)))
    loaders = (
        _loader(model, train, config, shuffle=True),
        _loader(model, validation, config, shuffle=False),
    )
    module = _Regression(model, config, steps=config.epochs * len(loaders[0]))
    with _quiet_lightning(), _seeded(config.seed), _threads(config.threads):
        trainer = pl.Trainer(
            accelerator=config.device,
            devices=1,
            max_epochs=config.epochs,
            gradient_clip_val=config.gradient_clip or None,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        _run(trainer, module, loaders)
    model.load_state_dict(best.state)
    model.cpu().eval()
    return History(module.epochs, best.epoch)


def _new_model(config: TrainConfig, table: TrainingTable, featurizer: Featurizer) -> MolAttn:
    features = config.data.feature_columns
    try:
        return MolAttn(MolAttnConfig(table.tasks, config.architecture, featurizer, features))
    except ValueError as error:  # the layers' own complaint about an option
        raise InputError(f"the network cannot be built so: {error}") from error


class LabelledBatch(NamedTuple):
    """Molecules ``[n]`` with targets ``[n, T]``, and weights ``[n]`` and features ``[n, F]``."""

    molecules: MoleculeBatch
    targets: Tensor
    weights: Tensor | None
    features: Tensor | None


class _Regression(pl.LightningModule):
    """The loss and the optimiser around a model."""

    def __init__(self, model: MolAttn, config: OptimisationConfig, steps: int) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.steps = steps
        self.epochs: list[Epoch] = []
        self._train = _RunningMean()
        self._validation = _RunningMean()
        self._epoch_start = 0.0

    def configure_optimizers(self) -> Any:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        optimiser = torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.ndim >= 2]},
                # Decay would only shift biases and the gains of normalisation layers.
                {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, self._rate)
        return {
            "optimizer": optimiser,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _rate(self, step: int) -> float:
        rise = self.config.warmup * self.steps
        if step < rise:
            return (step + 1) / (rise + 1)
        return 0.5 * (1.0 + math.cos(math.pi * (step - rise) / max(1.0, self.steps - rise)))

    def on_train_epoch_start(self) -> None:
        self._epoch_start = time.perf_counter()

    def training_step(self, batch: LabelledBatch, index: int) -> Tensor:
        total, count = self._squared_error(batch)
        loss = total / count.clamp(min=1)
        if not math.isfinite(value := loss.item()):
            raise MolattnError(
                f"training diverged: the loss became {value} in epoch {self.current_epoch + 1}, "
                f"step {index + 1}; a lower --learning-rate may help"
            )
        self._train.add(total.detach(), count)
        return loss

    def validation_step(self, batch: LabelledBatch, index: int) -> None:
        self._validation.add(*self._squared_error(batch))

    def on_validation_epoch_end(self) -> None:
        epoch = Epoch(
            epoch=self.current_epoch + 1,
            train_loss=self._train.pop(),
            validation_loss=self._validation.pop(),
            learning_rate=self.trainer.optimizers[0].param_groups[0]["lr"],
            seconds=time.perf_counter() - self._epoch_start,
        )
        if not math.isfinite(epoch.validation_loss):
            raise MolattnError(
                f"training diverged: the validation loss became {epoch.validation_loss} in epoch "
                f"{epoch.epoch}; a lower --learning-rate may help"
            )
        self.epochs.append(epoch)

    def _squared_error(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        prediction = self.model(batch.molecules, batch.features)
        return masked_squared_error(prediction, self.model.scale(batch.targets))


class _RunningMean:
    """A mean over batches of different size."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, total: Tensor, count: Tensor) -> None:
        self.total += total.item()
        self.count += int(count.item())

    def pop(self) -> float:
        mean = self.total / max(1, self.count)
        self.total, self.count = 0.0, 0
        return mean


class _KeepBest(Callback):
    """Remembers the best weights, and stops when they have not changed for long."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.loss = math.inf
        self.epoch = 0
        self.state: dict[str, Tensor] = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        latest = _regression(pl_module).epochs[-1]
        if latest.validation_loss < self.loss:
            self.loss, self.epoch = latest.validation_loss, latest.epoch
            weights = _regression(pl_module).model.state_dict()
            self.state = {name: weight.detach().cpu().clone() for name, weight in weights.items()}
        elif latest.epoch - self.epoch >= self.patience:
            trainer.should_stop = True


class _Watch(Callback):
    """Tells a progress display what Lightning is doing."""

    def __init__(self, progress: TrainingProgress) -> None:
        self.progress = progress

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module = _regression(pl_module)
        self.progress.start(module.config.epochs, module.steps)

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.progress.step()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        latest = _regression(pl_module).epochs[-1]
        self.progress.epoch(latest.epoch, latest.train_loss, latest.validation_loss)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.progress.stop()

    on_exception = on_train_end


def _regression(module: pl.LightningModule) -> _Regression:
    if not isinstance(module, _Regression):
        raise TypeError(f"got {type(module).__name__}, expected _Regression")
    return module


def _loader(
    model: MolAttn, molecules: Molecules, config: OptimisationConfig, *, shuffle: bool
) -> DataLoader[Any]:
    def collate(rows: list[int]) -> LabelledBatch:
        weights, features = (
            None if values is None else torch.tensor(values[rows], dtype=torch.float32)
            for values in (molecules.weights, molecules.features)
        )
        return LabelledBatch(
            model.collate([molecules.records[row] for row in rows]),
            torch.tensor(molecules.targets[rows], dtype=torch.float32),
            weights,
            features,
        )

    return DataLoader(
        range(len(molecules.records)),  # pyright: ignore[reportArgumentType]
        batch_size=config.batch_size,
        shuffle=shuffle,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(config.seed),
    )


def _run(trainer: pl.Trainer, module: _Regression, loaders: tuple[Any, Any]) -> None:
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, *loaders)
    except SystemExit as error:
        # Lightning turns Ctrl-C into an exit of its own and leaves the signal ignored.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


def _counts(table: TrainingTable) -> str:
    shown = "; ".join(f"line {row.line}: {row.reason}" for row in table.skipped[:3])
    more = ", ..." if len(table.skipped) > 3 else ""
    return f"{len(table.rows)} rows used, {len(table.skipped)} skipped" + (
        f" ({shown}{more})" if shown else ""
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch for a while, without a trace afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for a while.

    Its threads wait for each other busily: on a shared machine two can be 20 times slower than one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
