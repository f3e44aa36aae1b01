"""Losses that training minimizes, such as the loss of several tasks with missing labels.

A loss is a sum and the weight to divide it by, so that the losses of batches add up to the loss of
the whole data. A missing label is NaN in the target.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from molattn.config import SupervisedConfig
from molattn.data.site_labels import SiteLabels
from molattn.model.label_limits import nearest_permitted
from molattn.model.model import MolAttn
from molattn.nn.graph_inputs import EdgeAttr
from molattn.task import Task, output_slices
from molattn.training.batches import LabeledBatch
from molattn.training.fine_tuning import FineTuningPlan
from molattn.utils.process_group import summed


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

    def __init__(
        self,
        model: MolAttn,
        loss: "TaskLoss | None",
        plan: FineTuningPlan,
        site_losses: Mapping[str, "TaskLoss"] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.plan = plan
        self.site_losses = nn.ModuleDict(site_losses)

    @property
    def trained(self) -> MolAttn:
        """The model."""
        return self.model

    def forward(self, batch: LabeledBatch) -> tuple[Tensor, Tensor]:
        """Return the loss and the weight; see :class:`Objective`."""
        atoms = batch.atoms
        edges = None
        if self.site_losses:
            (net,) = self.model.networks.members
            atoms, _, edges = net.encode_graphs(batch.molecules)
        total = weight = torch.zeros((), device=batch.targets.device)
        if self.loss is not None:
            total, weight = self._molecule_loss(batch, self.loss, atoms)
        if self.site_losses:
            assert atoms is not None
            for loss, of_sites in self._site_losses(batch, atoms, edges):
                total = total + loss
                weight = weight + of_sites
        return total, summed(weight)

    def _molecule_loss(
        self, batch: LabeledBatch, loss: "TaskLoss", atoms: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        networks = self.model.networks
        if atoms is None:
            output = self.model(batch.molecules, batch.features)
        else:
            (output,) = networks.member_outputs(batch.molecules, batch.features, atoms)
        scale = self.model.scaling.scaled_labels
        bounds = batch.bounds
        if bounds is not None:
            bounds = scale(bounds)
        return loss(output, scale(batch.targets), batch.weights, bounds)

    def _site_losses(
        self, batch: LabeledBatch, atoms: Tensor, edges: EdgeAttr
    ) -> Iterator[tuple[Tensor, Tensor]]:
        (net,) = self.model.networks.members
        vectors = net.site_vectors(batch.molecules, atoms, edges)
        outputs = net.predict_sites(batch.molecules, vectors)
        targets = {"atom": batch.atom_targets, "bond": batch.bond_targets}
        for level in net.levels:
            labels = targets[level]
            assert labels is not None
            loss = self.site_losses[level]
            head = net.site_head(level)
            columns = loss.get_buffer("outputs")
            mean, scale = (values[columns] for values in (head.mean, head.scale))
            bounds = None if labels.bounds is None else (labels.bounds - mean) / scale
            weights = None if batch.weights is None else batch.weights[labels.molecule]
            yield loss(outputs[level], (labels.targets - mean) / scale, weights, bounds)


class TaskLoss(nn.Module):
    """The loss of all tasks: a weighted mean over the known labels.

    For a regression the squared, absolute or Huber error of scaled targets; for a classification
    the cross-entropy, with label smoothing. A censored label of a regression costs nothing if the
    prediction is on the permitted side of its bound; otherwise the bound is the target (the bounded
    loss of Chemprop). An interval has two bounds; see :mod:`molattn.model.label_limits`.

    Args:
        tasks: T tasks.
        config: The losses and their options.
        targets: Training labels ``[n, T]``, from which balanced class weights are computed.
        task_weights: Weight of each task; 1 by default.
    """

    outputs: Tensor
    is_class: Tensor
    is_binary: Tensor
    class_weights: Tensor
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
        slices = output_slices(tasks)
        self._multiclass = [
            (index, columns)
            for index, (task, columns) in enumerate(zip(tasks, slices, strict=True))
            if task.kind == "multiclass"
        ]
        self.register_buffer("outputs", torch.tensor([columns.start for columns in slices]))
        self.register_buffer("is_class", torch.tensor([bool(task.classes) for task in tasks]))
        self.register_buffer("is_binary", torch.tensor([task.kind == "binary" for task in tasks]))
        columns = zip(tasks, targets.unbind(1), strict=True)
        weights = [class_weights(task, labels, config) for task, labels in columns]
        padded = nn.utils.rnn.pad_sequence(weights, padding_value=1.0)
        self.register_buffer("class_weights", padded)
        self.register_buffer("task_weights", torch.tensor(task_weights or [1.0] * len(tasks)))

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
            row_weights: ``[n]`` or of each label ``[n, T]``, with mean 1 over the training rows; 1
                by default.
            bounds: Scaled lower and upper bounds of the targets ``[2, n, T]``, NaN where there is
                none; by default no target has bounds.
        """
        output = output.float()
        has_label = ~target.isnan()
        # Masking only the loss would leave NaN in the gradient.
        filled = torch.where(has_label, target, 0.0)
        predicted = output[:, self.outputs]
        if bounds is not None:
            is_bounded = ~bounds.isnan().all(dim=0)
            nearest = nearest_permitted(predicted.detach(), bounds)
            filled = torch.where(is_bounded, nearest, filled)
            has_label = has_label | is_bounded
        losses = self._errors(predicted, filled)
        smoothing = self.config.label_smoothing
        smoothed = filled * (1.0 - smoothing) + 0.5 * smoothing
        binary = functional.binary_cross_entropy_with_logits(predicted, smoothed, reduction="none")
        losses = torch.where(self.is_binary, binary, losses)
        classes = torch.where(self.is_class, filled, 0.0).long()
        for index, columns in self._multiclass:
            losses[:, index] = functional.cross_entropy(
                output[:, columns], classes[:, index], reduction="none", label_smoothing=smoothing
            )
        weights = has_label * self.task_weights
        weighted = losses * self.class_weights.gather(0, classes) * weights
        if row_weights is not None:
            weighted = weighted * row_weights.view(len(row_weights), -1)
        return weighted.sum(), weights.sum()

    def _errors(self, output: Tensor, target: Tensor) -> Tensor:
        # Missing labels are 0 here; their losses get weight 0 later.
        if self.config.loss == "huber":
            return functional.huber_loss(output, target, reduction="none")
        function = functional.l1_loss if self.config.loss == "mae" else functional.mse_loss
        return function(output, target, reduction="none")


def make_site_loss(labels: SiteLabels, config: SupervisedConfig) -> TaskLoss:
    """Return the loss of atoms or bonds: a molecule's labels weigh one on average over molecules.

    Many labels of atoms thus do not outweigh those of molecules beside them.
    """
    weights = []
    for column in labels.labels_or_bounds.T:
        molecules = labels.molecule[~np.isnan(column)]
        weights.append(len(np.unique(molecules)) / len(molecules))
    return TaskLoss(labels.tasks, config, torch.from_numpy(labels.targets), weights)


def class_weights(task: Task, labels: Tensor, config: SupervisedConfig) -> Tensor:
    """Return the weight of each class of a task; 1 for a regression.

    Balanced classes have weight n / (number of classes × labels of the class), as ``"balanced"`` of
    scikit-learn; a class without labels has weight 1.
    """
    weights = torch.ones(max(1, len(task.classes)))
    if config.balance_classes and task.classes:
        counts = torch.bincount(labels[~labels.isnan()].long(), minlength=len(task.classes))
        balanced = counts.sum() / (len(task.classes) * counts.clamp(min=1))
        weights = torch.where(counts > 0, balanced, weights)
    if task.kind == "binary":
        weights[1] *= config.positive_weight
    return weights
