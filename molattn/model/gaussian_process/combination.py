"""Weights of two predictors in their mean."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.model.outputs import class_logits
from molattn.task import Task, output_slices

__all__ = ["share_of_second", "shares_of_second"]

Array = NDArray[np.float64]

_PRIOR_ROWS = 20.0
_SHARES = np.linspace(0.0, 1.0, 101)
_SHARES[-1] = np.nextafter(1.0, 0.0)  # with a share of 1 there is no trained network


def shares_of_second(
    tasks: Sequence[Task], first: Array, second: Array, labels: Array
) -> NDArray[np.float64]:
    """Return :func:`share_of_second` of each task, ``[T]``.

    Args:
        tasks: The tasks.
        first: Outputs of the first predictor, ``[n, outputs of all tasks]``.
        second: Those of the second.
        labels: ``[n, T]``, NaN where missing.
    """
    columns = zip(tasks, output_slices(tasks), labels.T, strict=True)
    return np.array(
        [share_of_second(task, first[:, at], second[:, at], y) for task, at, y in columns]
    )


def share_of_second(task: Task, first: Array, second: Array, labels: Array) -> float:
    r"""Return the weight of the second of two predictors in their mean, from 0 to 1.

    Of :math:`f = (1 - w) f_1 + w f_2` it is the :math:`w` with the least loss on rows that neither
    has learned from, where half and half counts as much as 20 rows:

    .. math::
        \sum_i \ell(y_i, f(x_i)) + 20\, c\, (w - \tfrac12)^2

    The loss is the squared error of a regression, with :math:`c` the mean of
    :math:`(f_1 - f_2)^2`, or the cross-entropy of logits, with a quarter of that, its curvature.

    Args:
        task: The task.
        first: Outputs of the first, ``[n, num_outputs]``: values, or logits.
        second: Those of the second.
        labels: ``[n]``, NaN where missing.
    """
    known = ~np.isnan(labels) & np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    first, second, labels = first[known], second[known], labels[known]
    difference = second - first
    if task.kind == "multiclass":  # a constant added to all logits of a row means nothing
        difference -= difference.mean(axis=1, keepdims=True)
    spread = float(np.mean(difference**2)) if known.any() else 0.0
    if task.kind != "regression":
        spread /= 4.0
    losses = [
        _loss(task, first + share * difference, labels) + _PRIOR_ROWS * spread * (share - 0.5) ** 2
        for share in _SHARES
    ]
    # Of equal losses the one nearest to a half.
    order = np.argsort(np.abs(_SHARES - 0.5), kind="stable")
    return float(_SHARES[order[np.argmin(np.array(losses)[order])]])


def _loss(task: Task, outputs: Array, labels: Array) -> float:
    if task.kind == "regression":
        return float(((outputs[:, 0] - labels) ** 2).sum())
    logits = class_logits(torch.from_numpy(outputs), task)
    target = torch.from_numpy(labels).long()
    return float(torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
