"""Which of a model's numbers is explained, and in what unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from torch import Tensor

from molattn.errors import InputError, quoted
from molattn.model.model import MolAttn
from molattn.task import Task, output_slices

__all__ = ["Target", "described", "find_output"]


@dataclass(frozen=True)
class Target:
    r"""One number that a model predicts of a molecule.

    A regression is explained in its own unit. A class is explained as its log-odds
    :math:`\log \frac{p}{1 - p}`, of which 0 means even odds: sums of scores make sense there,
    while a probability near 0 or 1 hides how much speaks for it.

    Args:
        name: What it is called, see :func:`find_output`.
        task: The task.
        column: Its place among all outputs.
        first: The place of the task's first output.
        mean: Of the target, 0 for a class.
        scale: Likewise, 1.
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
        """Read it from outputs in scaled units and logits ``[..., num_outputs]``: ``[...]``."""
        own = outputs[..., self.column]
        if self.task.kind != "multiclass":
            return own * self.scale + self.mean
        places = range(self.first, self.first + self.task.num_outputs)
        others = [place for place in places if place != self.column]
        return own - outputs[..., others].logsumexp(dim=-1)


def described(model: MolAttn, target: Optional[str]) -> str:
    """Say what of all molecules together is explained; see :func:`find_output`."""
    output = find_output(model, target, [0.0] * len(model.config.output_names))
    if output.task.kind == "multiclass" and target in (None, output.task.name):
        return f"{output.task.name} (of each molecule its likeliest class)"
    return output.name


def find_output(model: MolAttn, target: Optional[str], predicted: Sequence[float]) -> Target:
    """Find the output of that name.

    Args:
        model: The model.
        target: The name of a task, or of one of several classes its column in a table of
            predictions (``phase_probability_solid``); None = the first task.
        predicted: What the model predicts of the molecule: of several classes of which none is
            named, the likeliest is explained.

    Raises:
        InputError: There is none; says which there are.
    """
    tasks = model.config.tasks
    scalings = zip(model.target_mean.tolist(), model.target_scale.tolist(), strict=True)
    target = tasks[0].name if target is None else target
    for task, part, scaling in zip(tasks, output_slices(tasks), scalings, strict=True):
        places = range(part.start, part.stop)
        if task.kind != "multiclass" and target in (task.name, *task.output_names):
            return Target(task.name, task, part.start, part.start, *scaling)
        if task.kind == "multiclass" and target == task.name:
            target = task.output_names[max(places, key=lambda p: predicted[p]) - part.start]
        if task.kind == "multiclass" and target in task.output_names:
            column = part.start + task.output_names.index(target)
            return Target(target, task, column, part.start, *scaling)
    known = [name for task in tasks for name in (task.name, *task.output_names)]
    raise InputError(
        f"target: got {quoted(target)}, expected one of {', '.join(dict.fromkeys(known))}"
    )
