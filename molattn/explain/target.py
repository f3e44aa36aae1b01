"""The output of a model that an explanation is about, and its unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
import torch
from torch import Tensor

from molattn.errors import InputError
from molattn.model.model import MolAttn
from molattn.model.outputs import class_logits
from molattn.model.readable import target_name
from molattn.model.uncertainty import ProbabilityScaling
from molattn.task import Task, output_slices


@dataclass(frozen=True, eq=False)
class Target:
    r"""One number that a model predicts for a molecule.

    A regression is explained in the unit of its task. A class is explained as its log-odds
    :math:`\log \frac{p}{1 - p}`, which are 0 at a probability of 0.5: log-odds can be attributed
    additively, whereas probabilities saturate near 0 and 1. The probability :math:`p` is the
    calibrated one, if the model is calibrated. ``index`` is that of the explained output among
    those of the task.
    """

    model: MolAttn
    task_index: int
    index: int

    @property
    def task(self) -> Task:
        """The task."""
        return self.model.config.tasks[self.task_index]

    @property
    def name(self) -> str:
        """Name of the output, see :func:`find_target`."""
        task = self.task
        return task.output_names[self.index] if task.kind == "multiclass" else task.name

    @property
    def unit(self) -> str:
        """Unit of the explained value."""
        return self.task.unit if self.task.kind == "regression" else "log-odds"

    @property
    def is_logarithm(self) -> bool:
        """Whether the model learned the logarithm of the target."""
        return self.model.config.target_transforms[self.task_index].kind == "log"

    @property
    def outputs(self) -> slice:
        """The outputs of the task among all outputs."""
        return output_slices(self.model.config.tasks)[self.task_index]

    @property
    def spread(self) -> float:
        """Half the distance between mean ± standard deviation of the training labels."""
        low, high = self._regression(torch.tensor([-1.0, 1.0], dtype=torch.float64)).tolist()
        return 0.5 * (high - low)

    def _regression(self, scaled: Tensor) -> Tensor:
        mean = self.model.target_mean  # 0 for a class
        scale = self.model.target_scale  # 1 for a class
        transformed = scaled * float(scale[self.task_index]) + float(mean[self.task_index])
        return self.model.config.target_transforms[self.task_index].inverse(transformed)

    def value(self, outputs: Tensor) -> Tensor:
        """Return the explained value in its unit, for scaled outputs and logits ``[..., outputs]``.

        ``float64 [...]``, as a mean may be much larger than the scale; from an MPS device, which
        has no such numbers, on the CPU.
        """
        if outputs.device.type == "mps":
            outputs = outputs.cpu()
        outputs = outputs[..., self.outputs].double()
        if self.task.kind == "regression":
            return self._regression(outputs[..., 0])
        logits = class_logits(outputs, self.task)
        uncertainty = self.model.uncertainty
        scaling = uncertainty and uncertainty.calibration.parts[self.task_index]
        if isinstance(scaling, ProbabilityScaling):
            logits = scaling.logits(logits.flatten(end_dim=-2)).view_as(logits)
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
    """Return the target of a name, see :func:`target_name`; None = the first task.

    Of a multiclass task without a class, it is the most probable class of the predictions for the
    molecule; without these, the first class. ``option`` is what a message calls the name.
    """
    model.check_predicts_molecules()
    if model.config.hydrogens:
        raise InputError("the graphs have hydrogens, expected a model without", option=option)
    tasks = model.config.tasks
    if name is None:
        name = tasks[0].name
    else:
        name = target_name(tasks, model.endpoints, name, option=option)
    task_index = {
        output: k for k, task in reversed([*enumerate(tasks)]) for output in task.output_names
    }
    task_index |= {task.name: k for k, task in enumerate(tasks)}
    k = task_index[name]
    index = 0
    if tasks[k].kind == "multiclass" and name != tasks[k].name:
        index = tasks[k].output_names.index(name)
    elif tasks[k].kind == "multiclass" and predicted is not None:
        index = int(np.argmax(predicted[output_slices(tasks)[k]]))
    return Target(model, k, index)
