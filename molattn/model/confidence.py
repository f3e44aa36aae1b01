"""Confidence: one grade for each prediction, by the error that is expected of it.

The expected error comes from labeled rows that the model has not learned from, and grows with the
distance to the training molecules. It is compared with the error of a guess that knows nothing of
the molecule.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from molattn.task import Task

Array = NDArray[np.float64]
Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)

_TYPICAL = np.array(0.5)  # similarity of calibration rows to the training molecules of their model
_NORMAL = float(np.sqrt(2.0 / np.pi))  # mean absolute deviation of a normal distribution, by its sd


def difficulty(similarity: Array) -> Array:
    """Return the expected error relative to that of a training molecule, exp(1 - s).

    Errors grow with falling similarity s to the nearest training molecule by about this factor on
    measured data. It has no fitted parameter, so intervals stay valid.
    """
    return np.exp(1.0 - similarity)


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


def error_rate(prediction: Array, similarity: Array) -> Array:
    """Return how often the most probable class is expected to be wrong, ``[n]``.

    That is 1 - max p by calibrated probabilities p, times the square root of
    :func:`difficulty` relative to that at a similarity of 0.5, which calibration rows have on
    average: probabilities are too sure further away. It is at most the rate of a random class.

    Args:
        prediction: Probabilities of all classes, or of the second of two, ``[n, K]`` or ``[n, 1]``.
        similarity: To the nearest training molecule, ``[n]``.
    """
    if prediction.shape[1] == 1:
        prediction = np.hstack([1.0 - prediction, prediction])
    distance = np.sqrt(difficulty(similarity) / difficulty(_TYPICAL))
    rate = (1.0 - prediction.max(axis=1)) * distance
    return np.minimum(rate, 1.0 - 1.0 / prediction.shape[1])
