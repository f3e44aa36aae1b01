"""Outputs of networks to probabilities and to the prediction of an ensemble."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from molattn.task import Task, output_slices

__all__ = ["class_logits", "class_probabilities", "mean_of_members"]


def class_logits(outputs: Tensor, task: Task) -> Tensor:
    """Return a logit for each class of a classification, ``[..., K]``.

    Args:
        outputs: Logits of the task, ``[..., task.num_outputs]``.
        task: The task.
    """
    if task.kind == "multiclass":
        return outputs
    return torch.cat([torch.zeros_like(outputs), outputs], dim=-1)


def class_probabilities(outputs: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Convert logits ``[..., num_outputs]`` to probabilities; regressions stay as they are.

    Pass outputs in double precision: in single precision, the probability of a logit above 17
    rounds to 1.
    """
    parts = []
    for task, part in zip(tasks, output_slices(tasks), strict=True):
        some = outputs[..., part]
        if task.kind == "binary":
            some = some.sigmoid()
        elif task.kind == "multiclass":
            some = some.softmax(dim=-1)
        parts.append(some)
    return torch.cat(parts, dim=-1)


def mean_of_members(outputs: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Return the mean of regressions, and the logits of the mean class probabilities.

    Args:
        outputs: Of each member, ``[members, ..., num_outputs]``.
        tasks: The tasks.
    """
    if len(outputs) == 1:
        return outputs[0]
    parts = []
    for task, part in zip(tasks, output_slices(tasks), strict=True):
        some = outputs[..., part]
        if task.kind == "regression":
            parts.append(some.mean(dim=0))
        elif task.kind == "binary":
            # Sums in place of means, as the common factor cancels in their ratio.
            yes, no = (F.logsigmoid(x).logsumexp(dim=0) for x in (some, -some))
            parts.append(yes - no)
        else:
            parts.append(some.log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(outputs)))
    return torch.cat(parts, dim=-1)
