"""Losses that training minimizes, among them that of several tasks with missing labels.

A loss is a sum and the weight to divide it by, so that those of several batches add up to that of
the whole data. A missing label is NaN in the target.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from molattn.config import SupervisedConfig
from molattn.model.model import MolAttn
from molattn.task import Task, output_slices
from molattn.training.batches import LabeledBatch
from molattn.training.fine_tuning import FineTuningPlan
from molattn.utils.process_group import summed

__all__ = ["LabeledObjective", "Objective", "TaskLoss", "class_weights"]


class Objective(nn.Module):
    """Returns the sum of a batch's losses and the weight to divide it by, both scalars.

    Of several processes that train together, each has the sum of its part of the batch, and the
    weight of the whole one.

    Attributes:
        plan: How to train pretrained weights; by default as random ones.
    """

    plan = FineTuningPlan()

    @property
    def trained(self) -> nn.Module:
        """The module whose weights are optimized; by default this one."""
        return self


class LabeledObjective(Objective):
    """The loss of a model on labeled molecules."""

    def __init__(self, model: MolAttn, loss: "TaskLoss", plan: FineTuningPlan) -> None:
        super().__init__()
        self.model, self.loss, self.plan = model, loss, plan

    @property
    def trained(self) -> MolAttn:
        """The model."""
        return self.model

    def forward(self, batch: LabeledBatch) -> tuple[Tensor, Tensor]:
        """Return the loss and the weight; see :class:`Objective`."""
        if batch.atoms is None:
            output = self.model(batch.molecules, batch.features)
        else:
            (output,) = self.model.member_outputs(batch.molecules, batch.features, batch.atoms)
        scale, bounds = self.model.scale, batch.bounds
        if bounds is not None:
            bounds = torch.stack([scale(limits) for limits in bounds])
        total, weight = self.loss(output, scale(batch.targets), batch.weights, bounds)
        return total, summed(weight)


class TaskLoss(nn.Module):
    """The loss of all tasks: a weighted mean over the known labels.

    For a regression the squared, absolute or Huber error of scaled targets; for a classification
    the cross-entropy, with label smoothing. A censored label of a regression costs nothing if the
    prediction is on the permitted side of its bound; otherwise the bound is the target (the bounded
    loss of Chemprop).

    Args:
        tasks: T tasks.
        config: The losses and their options.
        targets: Training labels ``[n, T]``, from which balanced class weights are computed.
        task_weights: Weight of each task; 1 by default.
    """

    regression: Tensor
    regression_outputs: Tensor
    binary: Tensor
    binary_outputs: Tensor
    binary_weights: Tensor
    task_weights: Tensor

    def __init__(
        self,
        tasks: Sequence[Task],
        config: SupervisedConfig,
        targets: Tensor,
        task_weights: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.config = config
        slices = [*enumerate(zip(tasks, output_slices(tasks), strict=True))]
        for kind in ("regression", "binary"):
            own = [(index, part.start) for index, (task, part) in slices if task.kind == kind]
            columns = torch.tensor(own, dtype=torch.long).reshape(-1, 2).T
            self.register_buffer(kind, columns[0].clone())
            self.register_buffer(f"{kind}_outputs", columns[1].clone())
        self._multiclass = [(i, part) for i, (task, part) in slices if task.kind == "multiclass"]
        self.register_buffer("task_weights", torch.tensor(task_weights or [1.0] * len(tasks)))
        weights = [class_weights(task, targets[:, i], config) for i, (task, _) in slices]
        binary = [weights[index] for index in self.binary.tolist()]
        self.register_buffer("binary_weights", torch.stack(binary) if binary else torch.ones(0, 2))
        for index, _ in self._multiclass:
            self.register_buffer(f"class_weights_{index}", weights[index])

    def forward(
        self,
        output: Tensor,
        target: Tensor,
        row_weights: Tensor | None = None,
        bounds: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of losses and the weight to divide it by, both scalars.

        Both are zero if all labels are missing, and so is the gradient.

        Args:
            output: Scaled predictions and logits ``[n, outputs]``.
            target: Scaled targets and class indices ``[n, T]``, NaN where missing or censored.
            row_weights: ``[n]``, with mean 1 over the training rows; 1 by default.
            bounds: Scaled lower and upper bounds of the censored targets ``[2, n, T]``, NaN where
                there is none; by default no target is censored.
        """
        output = output.float()
        known = ~target.isnan()
        # Masking only the loss would leave NaN in the gradient.
        filled = torch.where(known, target, 0.0)
        regression, binary = self.regression, self.binary
        predicted = output[:, self.regression_outputs]
        if bounds is not None and len(regression):
            is_censored = ~bounds.isnan().all(dim=0)
            low, high = bounds[..., regression]  # fmax and fmin pass over NaN
            nearest = predicted.detach().fmax(low).fmin(high)
            filled[:, regression] = nearest.where(is_censored[:, regression], filled[:, regression])
            known = known | is_censored
        losses = torch.zeros_like(filled)
        if len(regression):
            losses[:, regression] = self._errors(predicted, filled[:, regression])
        if len(binary):
            losses[:, binary] = self._binary(output[:, self.binary_outputs], filled[:, binary])
        for index, part in self._multiclass:
            classes, weights = filled[:, index].long(), self.get_buffer(f"class_weights_{index}")
            losses[:, index] = functional.cross_entropy(
                output[:, part],
                classes,
                reduction="none",
                label_smoothing=self.config.label_smoothing,
            )
            losses[:, index] *= weights[classes]
        weights = known * self.task_weights
        weighted = losses * weights
        if row_weights is not None:
            weighted = weighted * row_weights.unsqueeze(1)
        return weighted.sum(), weights.sum()

    def _errors(self, output: Tensor, target: Tensor) -> Tensor:
        # Missing labels are 0 here; their losses get weight 0 later.
        if self.config.loss == "mae":
            return functional.l1_loss(output, target, reduction="none")
        if self.config.loss == "huber":
            delta = self.config.huber_delta
            return functional.huber_loss(output, target, reduction="none", delta=delta)
        return functional.mse_loss(output, target, reduction="none")

    def _binary(self, logits: Tensor, target: Tensor) -> Tensor:
        smoothing = self.config.label_smoothing
        smoothed = target * (1.0 - smoothing) + 0.5 * smoothing
        losses = functional.binary_cross_entropy_with_logits(logits, smoothed, reduction="none")
        return losses * self.binary_weights.T.gather(0, target.long())


def class_weights(task: Task, labels: Tensor, config: SupervisedConfig) -> Tensor:
    """Return the weight of each class of a task; empty for a regression.

    Balanced classes have weight n / (number of classes × labels of the class), as ``"balanced"`` of
    scikit-learn; a class without labels has weight 1.
    """
    weights = torch.ones(len(task.classes))
    if config.balance_classes and task.classes:
        counts = torch.bincount(labels[~labels.isnan()].long(), minlength=len(task.classes))
        balanced = counts.sum() / (len(task.classes) * counts.clamp(min=1))
        weights = torch.where(counts > 0, balanced, weights)
    if task.kind == "binary":
        weights[1] *= config.positive_weight
    return weights
