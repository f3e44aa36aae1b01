"""Supervised training: learning from labels."""

from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from molattn.config import SupervisedConfig
from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn
from molattn.model.target_transform import TargetTransform
from molattn.training.batches import LabeledBatch, LabeledLoader
from molattn.training.history import History
from molattn.training.lightning.loop import fit
from molattn.training.losses import Objective, TaskLoss
from molattn.training.optimizer import FineTuningPlan
from molattn.training.scaling import scale_by
from molattn.utils.process_group import summed

__all__ = ["fit_model"]


def fit_model(
    model: MolAttn,
    train: Molecules,
    validation: Molecules,
    config: SupervisedConfig,
    console: Console | None = None,
    *,
    transforms: Sequence[TargetTransform] = (),
    task_weights: tuple[float, ...] = (),
    plan: FineTuningPlan = FineTuningPlan(),
    **options: Any,
) -> History:
    """Train a model in place; see :func:`molattn.training.lightning.loop.fit`.

    Its scaling is set to that of the training rows, with at least one label for each target, and a
    transform of each target; by default the identity. There may be no validation rows.

    Raises:
        ValueError: If the model has several members.
    """
    if model.config.members != 1:
        raise ValueError(f"model: got {model.config.members} members, expected one at a time")
    if not plan.keeps_scaling:
        scale_by(model, train, transforms)
    loss = TaskLoss(model.config.tasks, config, torch.from_numpy(train.targets), task_weights)
    return fit(
        _LabeledObjective(model, loss),
        LabeledLoader(model, train, config.batch_size, config.seed),
        LabeledLoader(model, validation, config.batch_size) if validation.records else None,
        config,
        console,
        plan=plan,
        **options,
    )


class _LabeledObjective(Objective):
    """The loss of a model on labeled molecules."""

    def __init__(self, model: MolAttn, loss: TaskLoss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    @property
    def trained(self) -> MolAttn:
        return self.model

    @property
    def width(self) -> int:
        return self.model.config.network.width

    def forward(self, batch: LabeledBatch) -> tuple[Tensor, Tensor]:
        if batch.atoms is None:
            output = self.model(batch.molecules, batch.features)
        else:
            (output,) = self.model.member_outputs(batch.molecules, batch.features, batch.atoms)
        scale, bounds = self.model.scale, batch.bounds
        if bounds is not None:
            bounds = torch.stack([scale(limits) for limits in bounds])
        total, weight = self.loss(output, scale(batch.targets), batch.weights, bounds)
        return total, summed(weight)
