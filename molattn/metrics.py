"""Losses and scores that skip missing labels.

A missing label is NaN in the target. Scores are in the units of the arrays they are given.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics.functional.regression import (
    mean_absolute_error,
    mean_squared_error,
    r2_score,
)

__all__ = [
    "Scores",
    "baseline_prediction",
    "masked_squared_error",
    "mean_scores",
    "regression_scores",
]

Scores = dict[str, float | int | None]
"""RMSE, MAE and R² by these names (``rmse``, ``mae``, ``r2``), and ``count``, the labels scored."""


def masked_squared_error(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of squared errors over the labels that are there, and their number.

    Their quotient is the masked mean squared error; sums and counts of several batches add up to
    that of the whole.

    Args:
        prediction: ``[n, T]``.
        target: ``[n, T]``, NaN where missing.

    Returns:
        The sum (zero, with zero gradient, where nothing is labelled) and the count, both scalars.
    """
    known = ~target.isnan()
    # Masking the difference, not its square, keeps NaN out of the gradient.
    difference = torch.where(known, prediction - torch.where(known, target, 0.0), 0.0)
    return difference.square().sum(), known.sum()


def regression_scores(
    prediction: NDArray[np.float64], target: NDArray[np.float64], names: Sequence[str]
) -> dict[str, Scores]:
    """Score predictions task by task.

    Args:
        prediction: ``[n, T]``, finite.
        target: ``[n, T]``, NaN where missing.
        names: The T tasks.

    Returns:
        Scores of each task by name, None where they have no meaning (no label; R² of labels that
        do not vary).
    """
    scores: dict[str, Scores] = {}
    for task, name in enumerate(names):
        known = ~np.isnan(target[:, task])
        # Copies: torch warns of arrays it may not write to.
        guess = torch.tensor(prediction[known, task], dtype=torch.float64)
        truth = torch.tensor(target[known, task], dtype=torch.float64)
        count = int(known.sum())
        varies = count > 1 and bool((truth != truth[0]).any())
        scores[name] = {
            "rmse": mean_squared_error(guess, truth, squared=False).item() if count else None,
            "mae": mean_absolute_error(guess, truth).item() if count else None,
            "r2": r2_score(guess, truth).item() if varies else None,
            "count": count,
        }
    return scores


def mean_scores(scores: dict[str, Scores]) -> Scores:
    """Return the mean of each score over the tasks that have it, and the sum of the counts."""
    means: Scores = {}
    for key in ("rmse", "mae", "r2"):
        values = [task[key] for task in scores.values()]
        known = [value for value in values if value is not None]
        means[key] = sum(known) / len(known) if known else None
    means["count"] = sum(int(task["count"] or 0) for task in scores.values())
    return means


def baseline_prediction(train_target: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """Predict the mean of each task's training labels for every row.

    Args:
        train_target: ``[n, T]``, NaN where missing, some label in every column.
        rows: Number of rows to predict.

    Returns:
        ``[rows, T]``.
    """
    return np.tile(np.nanmean(train_target, axis=0), (rows, 1))
