"""The output of a model that an explanation is about, and its unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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

__all__ = ["Target", "find_target"]


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
        task_index: Its index.
        outputs: Its outputs among all outputs.
        index: Index of the explained output among these.
        mean: Mean of the transformed training labels, 0 for a class.
        scale: Their standard deviation, 1 for a class.
        transform: The transform of the labels.
        scaling: The calibration of the task's probabilities, if there is one.
    """

    name: str
    task: Task
    task_index: int
    outputs: slice
    index: int
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
        ends = [self.mean - self.scale, self.mean + self.scale]
        low, high = self.transform.inverse(torch.tensor(ends, dtype=torch.float64)).tolist()
        return 0.5 * (high - low)

    def value(self, outputs: Tensor) -> Tensor:
        """Return the explained value in its unit, for scaled outputs and logits ``[..., outputs]``.

        ``float64 [...]``, as a mean may be much larger than the scale; from an MPS device, which
        has no such numbers, on the CPU.
        """
        if outputs.device.type == "mps":
            outputs = outputs.cpu()
        outputs = outputs[..., self.outputs].double()
        if self.task.kind == "regression":
            return self.transform.inverse(outputs[..., 0] * self.scale + self.mean)
        logits = class_logits(outputs, self.task)
        if self.scaling is not None:
            logits = self.scaling.logits(logits.flatten(end_dim=-2)).view_as(logits)
        index = self.index + (self.task.kind == "binary")  # its second class
        others = [k for k in range(logits.size(-1)) if k != index]
        return logits[..., index] - logits[..., others].logsumexp(dim=-1)


def find_target(
    model: MolAttn,
    name: Optional[str],
    predicted: Optional[Sequence[float]] = None,
    *,
    option: str = "target",
) -> Target:
    """Return the target of that name.

    Args:
        model: The model.
        name: A task, or a class by its column of predictions; None = the first task.
        predicted: Predictions for the molecule: of a multiclass task without a class, the most
            probable class is the target. None = its first class.
        option: What a message calls the name.

    Raises:
        InputError: The model has no such target.
    """
    tasks = model.config.tasks
    name = tasks[0].name if name is None else name
    known: dict[str, int] = {}
    for k, task in enumerate(tasks):
        for known_name in (task.name, *task.output_names):
            known.setdefault(known_name, k)
    check_one_of(option, name, known)
    k = known[name]
    task, outputs = tasks[k], output_slices(tasks)[k]
    index = 0
    if task.kind == "multiclass" and name != task.name:
        index = task.output_names.index(name)
    elif task.kind == "multiclass" and predicted is not None:
        index = int(np.argmax(predicted[outputs]))
    parts = None if model.uncertainty is None else model.uncertainty.calibration.parts[k]
    return Target(
        task.output_names[index] if task.kind == "multiclass" else task.name,
        task,
        k,
        outputs,
        index,
        float(model.target_mean[k]),
        float(model.target_scale[k]),
        model.config.target_transforms[k],
        parts if isinstance(parts, ProbabilityScaling) else None,
    )
