"""Confidence: one grade for each prediction, by the error that is expected of it.

The expected error comes from labeled rows that the model has not learned from, and grows with the
distance to the training molecules, to that of a guess that knows nothing of the molecule, with
which it is compared.
"""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from molattn.task import Task

Array = NDArray[np.float64]
Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)

NEAR = float(np.exp(-1.0))
"""Relative error at a similarity of 1, see :func:`difficulty`, of a model saved without it."""
_LEAST_NEAR = 3.0 ** (-1.0 / 0.3)
_NORMAL = float(np.sqrt(2.0 / np.pi))  # mean absolute deviation of a normal distribution, by its sd
_HALVINGS = 40


def difficulty(similarity: Array, near: float | Array) -> Array:
    """Return the expected error relative to that of a training molecule, r^(s - 1).

    Relative to the error of a guess it is r^s: 1 at a similarity s of 0 to the nearest training
    molecule, and r (``near``) at 1, the only number of a model and task.
    """
    return near ** (similarity - 1.0)


def near_error(errors: Array, similarity: Array, guess: float) -> float:
    """Return the r of :func:`difficulty` with which the mean of errors ``[n]`` / r^s is ``guess``.

    ``guess`` is the error of a guess. r is at most 1, of errors that are not below it, and at least
    that of :func:`least_error`.
    """
    low, high = np.log([_LEAST_NEAR, 1.0])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (errors * np.exp(-middle * similarity)).sum() > guess * len(errors):
            low = middle
        else:
            high = middle
    return float(np.exp(high))


def least_error(similarity: Array) -> Array:
    """Return the least expected error relative to that of a guess, 0.026^s.

    It is a third at a similarity s of 0.3, so that no prediction is ``high`` below.
    """
    return _LEAST_NEAR**similarity


def expected_factor(error: Any, value: Any) -> Any:
    """Return the expected error of a target that is learned as a logarithm, a factor f.

    ``error`` is that of ``NAME_expected_error``, half the distance from value / f to value · f.
    """
    return np.exp(np.arcsinh(error / value))


def grades(errors: Array, guesses: Array) -> NDArray[np.str_]:
    """Grade expected errors ``[n, T]`` by those of a guess, ``[T]``; "" where unknown (NaN).

    ``high`` is an expected error of at most a third of that of a guess, ``medium`` of at most two
    thirds, and ``low`` a larger one.
    """
    bounds = [np.isnan(errors), 3.0 * errors <= guesses, 3.0 * errors <= 2.0 * guesses]
    return np.select(bounds, ["", "high", "medium"], "low")


def guess_error(task: Task, labels: Array, scale: float) -> float:
    """Return the expected error of a guess without the molecule.

    Of a regression it is the mean absolute deviation of training labels from their median, on the
    transformed scale: of ``labels``, such as their percentiles, or of a normal distribution with
    the standard deviation ``scale`` if there are none. Of K classes it is 1 - 1 / K, the error rate
    of a random class.
    """
    if task.classes:
        return 1.0 - 1.0 / len(task.classes)
    return float(np.abs(labels - np.median(labels)).mean()) if len(labels) else _NORMAL * scale
