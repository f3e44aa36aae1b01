"""The output of a model that an explanation is about, and its unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Optional

import numpy as np
import torch
from torch import Tensor

from molattn.errors import check_one_of
from molattn.model.model import MolAttn
from molattn.model.outputs import class_logits
from molattn.model.target_transform import TargetTransform
from molattn.model.uncertainty import ProbabilityScaling
from molattn.task import Task, output_slices

__all__ = ["Target", "describe_target", "find_target"]


@dataclass(frozen=True)
class Target:
    r"""One number that a model predicts for a molecule.

    A regression is explained in the unit of its task. A class is explained as its log-odds
    :math:`\log \frac{p}{1 - p}`, which are 0 at a probability of 0.5: log-odds can be attributed
    additively, whereas probabilities saturate near 0 and 1. The probability :math:`p` is the
    calibrated one, if the model is calibrated.

    Args:
        name: Name of the output, see :func:`find_target`.
        task: The task.
        column: Index of the output among all outputs.
        first: Index of the task's first output.
        mean: Mean of the transformed training labels, 0 for a class.
        scale: Their standard deviation, 1 for a class.
        transform: The transform of the labels.
        scaling: The calibration of the task's probabilities; None = they are not calibrated.
    """

    name: str
    task: Task
    column: int
    first: int
    mean: float
    scale: float
    transform: TargetTransform
    scaling: Optional[ProbabilityScaling] = None

    @property
    def unit(self) -> str:
        """Unit of the explained value."""
        return self.task.unit if self.task.kind == "regression" else "log-odds"

    @cached_property
    def spread(self) -> float:
        """Half the distance in own units between one ``scale`` below and above the mean."""
        around = [self.mean - self.scale, self.mean + self.scale]
        ends = torch.tensor(around, dtype=torch.float64)
        low, high = self.transform.inverse(ends).tolist()
        return 0.5 * (high - low)

    def transformed(self, outputs: Tensor) -> Tensor:
        """Return the value on the transformed scale for scaled outputs and logits.

        Args:
            outputs: ``[..., outputs]``, before calibration.

        Returns:
            ``float64 [...]``: a mean may be much larger than the scale. From an MPS device, which
            has no such numbers, it is on the CPU.
        """
        if outputs.device.type == "mps":
            outputs = outputs.cpu()
        outputs = outputs.double()
        if self.task.kind == "regression":
            return outputs[..., self.column] * self.scale + self.mean
        part = outputs[..., self.first : self.first + self.task.num_outputs]
        logits = class_logits(part, self.task)
        if self.scaling is not None:
            logits = self.scaling.logits(logits.flatten(end_dim=-2)).view_as(logits)
        own = self.column - self.first + (self.task.kind == "binary")  # its second class
        others = [one for one in range(logits.size(-1)) if one != own]
        return logits[..., own] - logits[..., others].logsumexp(dim=-1)

    def value(self, outputs: Tensor) -> Tensor:
        """Return the explained value, in its unit, for scaled outputs and logits.

        Args:
            outputs: ``[..., outputs]``.

        Returns:
            ``float64 [...]``, see :meth:`transformed`.
        """
        return self.transform.inverse(self.transformed(outputs))


def describe_target(model: MolAttn, name: Optional[str]) -> str:
    """Return a name of the target for all molecules of a table; see :func:`find_target`."""
    target = find_target(model, name, [0.0] * len(model.config.output_names), option="target")
    if target.task.kind == "multiclass" and name in (None, target.task.name):
        return f"{target.task.name} (the most probable class of each molecule)"
    return target.name


def find_target(
    model: MolAttn, name: Optional[str], predicted: Sequence[float], *, option: str = "target"
) -> Target:
    """Return the target of that name.

    Args:
        model: The model.
        name: A task, or one class of a multiclass task by its column of predictions
            (``phase_probability_solid``); None = the first task.
        predicted: Predictions for the molecule: given a multiclass task without a class, the most
            probable class is the target.
        option: What a message calls the name.

    Raises:
        InputError: The model has no such target.
    """
    tasks = model.config.tasks
    name = tasks[0].name if name is None else name
    known: dict[str, int] = {}
    for index, task in enumerate(tasks):
        for one in (task.name, *task.output_names):
            known.setdefault(one, index)
    if name not in known:  # a column is another name of its task, unless there are several
        several = (task.output_names for task in tasks if task.kind == "multiclass")
        check_one_of(option, name, [*(task.name for task in tasks), *chain.from_iterable(several)])
    index = known[name]
    task, part = tasks[index], output_slices(tasks)[index]
    mean, scale = float(model.target_mean[index]), float(model.target_scale[index])
    calibrated = None if model.uncertainty is None else model.uncertainty.calibration.parts[index]
    scaling = calibrated if isinstance(calibrated, ProbabilityScaling) else None
    parts = part.start, mean, scale, model.config.target_transforms[index], scaling
    if task.kind != "multiclass":
        return Target(task.name, task, part.start, *parts)
    if name == task.name:
        name = task.output_names[int(np.argmax(predicted[part]))]
    return Target(name, task, part.start + task.output_names.index(name), *parts)
