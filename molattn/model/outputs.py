"""Outputs of networks, converted to probabilities and averaged over members."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from molattn.task import Task, output_slices

Array = NDArray[np.float64]

_PRIOR_ROWS = 20.0
_SHARES = np.linspace(0.0, 1.0, 101)
_SHARES[-1] = np.nextafter(1.0, 0.0)  # with a share of 1 there is no trained network


def class_logits(outputs: Tensor, task: Task) -> Tensor:
    """Return a logit for each class, ``[..., K]``, of outputs ``[..., task.num_outputs]``."""
    if task.kind == "multiclass":
        return outputs
    return torch.cat([torch.zeros_like(outputs), outputs], dim=-1)


def class_probabilities(outputs: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Convert logits ``[..., num_outputs]``, in double precision, to probabilities."""
    converted = [outputs[..., :0]]
    for task, columns in zip(tasks, output_slices(tasks), strict=True):
        values = outputs[..., columns]
        if task.kind == "binary":
            values = values.sigmoid()
        elif task.kind == "multiclass":
            values = values.softmax(dim=-1)
        converted.append(values)
    return torch.cat(converted, dim=-1)


def mean_of_members(outputs: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Return the mean over members, the first axis, and the logits of mean probabilities."""
    if len(outputs) == 1:
        return outputs[0]
    means = [outputs[0][..., :0]]
    for task, columns in zip(tasks, output_slices(tasks), strict=True):
        values = outputs[..., columns]
        if task.kind == "regression":
            means.append(values.mean(dim=0))
        elif task.kind == "binary":
            # Sums in place of means, as the common factor cancels in their ratio.
            yes, no = (F.logsigmoid(x).logsumexp(dim=0) for x in (values, -values))
            means.append(yes - no)
        else:
            means.append(values.log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(outputs)))
    return torch.cat(means, dim=-1)


def gaussian_process_shares(
    tasks: Sequence[Task],
    network: Array,
    gp: Array,
    labels: Array,
    prior_rows: Array | float = _PRIOR_ROWS,
) -> NDArray[np.float64]:
    r"""Return the weight of the Gaussian process in the average of both predictions, ``[T]``.

    The average is :math:`f = (1 - w) f_1 + w f_2` with a weight from 0 to 1. For each task it is
    the :math:`w` with the least loss on rows that neither has learned from; a prior for half and
    half counts as much as :math:`n_0` rows, by default 20 (``prior_rows``, of all or each task):

    .. math::
        \sum_i \ell(y_i, f(x_i)) + n_0\, c\, (w - \tfrac12)^2

    The loss is the squared error of a regression, with :math:`c` the mean of
    :math:`(f_1 - f_2)^2`, or the cross-entropy of logits, with a quarter of that, its curvature.
    Outputs are values or logits ``[n, outputs]``, labels ``[n, T]`` are NaN where missing.
    """
    priors = np.broadcast_to(prior_rows, len(tasks)).tolist()
    columns = zip(tasks, output_slices(tasks), labels.T, priors, strict=True)
    shares = [_share(task, network[:, at], gp[:, at], y, prior) for task, at, y, prior in columns]
    return np.array(shares)


def _share(task: Task, first: Array, second: Array, labels: Array, prior_rows: float) -> float:
    is_finite = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    rows = np.flatnonzero(~np.isnan(labels) & is_finite)
    first = first[rows]
    labels = labels[rows]
    difference = second[rows] - first
    if task.kind == "multiclass":  # a constant added to all logits of a row means nothing
        difference -= difference.mean(axis=1, keepdims=True)
    spread = float(np.mean(difference**2)) if len(rows) else 0.0

    def loss(share: float) -> float:
        mixed = first + share * difference
        prior = prior_rows * spread * (share - 0.5) ** 2
        if task.kind == "regression":
            return float(((mixed[:, 0] - labels) ** 2).sum()) + prior
        logits = class_logits(torch.from_numpy(mixed), task)
        classes = torch.from_numpy(labels)
        return float(F.cross_entropy(logits, classes.long(), reduction="sum")) + prior / 4.0

    # Of equal losses the one nearest to a half.
    return float(min(_SHARES, key=lambda share: (loss(share), abs(share - 0.5))))
