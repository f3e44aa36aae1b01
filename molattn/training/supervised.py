"""Learning from labels."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from molattn.config import SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn
from molattn.training.batches import LabelledBatch, LabelledLoader
from molattn.training.history import Epoch, History
from molattn.training.lightning.loop import fit
from molattn.training.losses import TaskLoss
from molattn.training.objective import Objective
from molattn.training.optimizer import FineTuningPlan
from molattn.training.scaling import scale_by

__all__ = ["fit_model"]


def fit_model(
    model: MolAttn,
    train: Molecules,
    validation: Molecules,
    config: SupervisedConfig,
    console: Console | None = None,
    *,
    task_weights: tuple[float, ...] = (),
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    beginning: FineTuningPlan = FineTuningPlan(),
    on_epoch: Callable[[Epoch], None] | None = None,
) -> History:
    """Train a model in place, on the masked loss of scaled targets; see :func:`molattn.training.lightning.loop.fit`.

    Args:
        model: The model, of one member; its scaling is set to that of the training rows.
        train: Molecules to learn from, some label for every target.
        validation: Molecules to validate each epoch on, some of them labelled.
        config: How to train.
        console: Where to report progress; silent without one.
        task_weights: Weight of each task in the loss; by default 1.
        folder: Where to keep checkpoint and logs, and what to go on from.
        about: What a checkpoint says of the training.
        beginning: What the model has from a training before.
        on_epoch: Called with each finished epoch.

    Raises:
        ValueError: If the model has several members.
        InputError: If an option cannot be had here, or the checkpoint cannot be read.
        MolattnError: If a loss stops being finite.
    """
    if model.config.members != 1:
        raise ValueError(f"model: got {model.config.members} members, expected one at a time")
    if not beginning.keeps_scaling:
        scale_by(model, train)
    loss = TaskLoss(model.config.tasks, config, torch.from_numpy(train.targets), task_weights)
    return fit(
        _OfLabels(model, loss),
        LabelledLoader(model, train, config.batch_size, config.seed),
        LabelledLoader(model, validation, config.batch_size),
        config,
        console,
        folder=folder,
        about=about,
        beginning=beginning,
        on_epoch=on_epoch,
    )


class _OfLabels(Objective):
    """The loss of what a model predicts of labelled molecules."""

    def __init__(self, model: MolAttn, loss: TaskLoss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    @property
    def learned(self) -> MolAttn:
        return self.model

    def forward(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        output = self.model(batch.molecules, batch.features)
        return self.loss(output, self.model.scale(batch.targets), batch.weights)
