"""The output of a model that is explained, and its unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from torch import Tensor

from molattn.errors import InputError, quoted
from molattn.model.model import MolAttn
from molattn.task import Task, output_slices

__all__ = ["Target", "describe_target", "find_target"]


@dataclass(frozen=True)
class Target:
    r"""One number that a model predicts for a molecule.

    A regression is explained in its own unit. A class is explained as its log-odds
    :math:`\log \frac{p}{1 - p}`, where 0 means even odds: log-odds can be attributed additively,
    whereas probabilities saturate near 0 and 1.

    Args:
        name: Its name, see :func:`find_target`.
        task: The task.
        column: Its index among all outputs.
        first: Index of the task's first output.
        mean: Mean of the training targets, 0 for a class.
        scale: Their standard deviation, 1 for a class.
    """

    name: str
    task: Task
    column: int
    first: int
    mean: float
    scale: float

    @property
    def unit(self) -> str:
        """Unit of its value."""
        return self.task.unit if self.task.kind == "regression" else "log-odds"

    def value(self, outputs: Tensor) -> Tensor:
        """Compute it from scaled outputs and logits ``[..., num_outputs]``: ``[...]``."""
        own = outputs[..., self.column]
        if self.task.kind != "multiclass":
            return own * self.scale + self.mean
        columns = range(self.first, self.first + self.task.num_outputs)
        others = [column for column in columns if column != self.column]
        return own - outputs[..., others].logsumexp(dim=-1)


def describe_target(model: MolAttn, name: Optional[str]) -> str:
    """Name the target of all molecules of a table together; see :func:`find_target`."""
    target = find_target(model, name, [0.0] * len(model.config.output_names))
    if target.task.kind == "multiclass" and name in (None, target.task.name):
        return f"{target.task.name} (the most probable class of each molecule)"
    return target.name


def find_target(model: MolAttn, name: Optional[str], predicted: Sequence[float]) -> Target:
    """Return the target of that name.

    Args:
        model: The model.
        name: A task, or one class of a multiclass task by its column of predictions
            (``phase_probability_solid``); None = the first task.
        predicted: Predictions for the molecule: given a multiclass task without a class, the most
            probable class is the target.

    Raises:
        InputError: No such target; the message lists them.
    """
    tasks = model.config.tasks
    scalings = zip(model.target_mean.tolist(), model.target_scale.tolist(), strict=True)
    name = tasks[0].name if name is None else name
    for task, part, scaling in zip(tasks, output_slices(tasks), scalings, strict=True):
        columns = range(part.start, part.stop)
        if task.kind != "multiclass" and name in (task.name, *task.output_names):
            return Target(task.name, task, part.start, part.start, *scaling)
        if task.kind == "multiclass" and name == task.name:
            name = task.output_names[max(columns, key=lambda c: predicted[c]) - part.start]
        if task.kind == "multiclass" and name in task.output_names:
            column = part.start + task.output_names.index(name)
            return Target(name, task, column, part.start, *scaling)
    known = [name for task in tasks for name in (task.name, *task.output_names)]
    raise InputError(
        f"target: got {quoted(name)}, expected one of {', '.join(dict.fromkeys(known))}"
    )
