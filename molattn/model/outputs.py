"""Outputs of networks: the mean over members, units and probabilities."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from molattn.task import Task, output_slices

__all__ = ["in_units", "mean_of_members", "set_scaling"]


def mean_of_members(outputs: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Return the mean of regressions, and the logits of the mean class probabilities.

    Args:
        outputs: Of each member, in scaled units and logits ``[members, ..., num_outputs]``.
        tasks: The tasks.

    Returns:
        In scaled units and logits, ``[..., num_outputs]``.
    """
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


def in_units(outputs: Tensor, tasks: Sequence[Task], mean: Tensor, scale: Tensor) -> Tensor:
    """Return regressions in the targets' own units, and classifications as probabilities.

    Outputs should be in double precision: in single precision, probabilities round to 1 from logits
    of 17.

    Args:
        outputs: In scaled units and logits ``[..., num_outputs]``.
        tasks: The tasks.
        mean: Mean of each training target ``[num_tasks]``.
        scale: Standard deviation of each training target ``[num_tasks]``.

    Returns:
        The same shape, type and device as the outputs.
    """
    parts = []
    mean, scale = mean.to(outputs), scale.to(outputs)
    for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        some = outputs[..., part]
        if task.kind == "regression":
            some = some * scale[place] + mean[place]
        elif task.kind == "binary":
            some = some.sigmoid()
        else:
            some = some.softmax(dim=-1)
        parts.append(some)
    return torch.cat(parts, dim=-1)


def set_scaling(
    what: str, mean_buffer: Tensor, mean: ArrayLike, scale_buffer: Tensor, scale: ArrayLike
) -> tuple[list[float], list[float]]:
    """Copy a mean and a scale into buffers of their shape, and return them.

    Raises:
        ValueError: Wrong number of values, one that is not finite, a scale that is not positive.
    """
    values = []
    for buffer, given in ((mean_buffer, mean), (scale_buffer, scale)):
        new = torch.as_tensor(np.asarray(given), dtype=buffer.dtype)
        if new.shape != buffer.shape or not bool(new.isfinite().all()):
            raise ValueError(
                f"{what} scaling: got {new.tolist()}, expected {buffer.numel()} finite values"
            )
        values.append(new)
    if not bool((values[1] > 0).all()):
        raise ValueError(f"{what} scale: got {values[1].tolist()}, expected values > 0")
    mean_buffer.copy_(values[0])
    scale_buffer.copy_(values[1])
    return values[0].tolist(), values[1].tolist()
