"""Predictions with their uncertainty."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from molattn.model.uncertainty.model_uncertainty import Uncertainty
from molattn.task import Task, output_slices

__all__ = ["Prediction", "assemble_prediction"]

Array = NDArray[np.float64]


class Prediction(NamedTuple):
    """Predictions of n molecules and T tasks with their uncertainty; NaN where undefined.

    Args:
        prediction: ``[n, outputs]``: values in the targets' own units, calibrated probabilities.
        half_width: Half the width of the interval around each regression, ``[n, T]``; infinite
            where there were too few labels for the level.
        std: Standard deviation of the members' predictions, ``[n, T]``: of values, of the
            probability of the second of two classes, or of the most probable of several.
        similarity: To the nearest training molecule, ``[n]``.
    """

    prediction: Array
    half_width: Array
    std: Array
    similarity: Array


def assemble_prediction(
    tasks: Sequence[Task],
    uncertainty: Optional[Uncertainty],
    members: Array,
    molecules: Sequence[str] | NDArray[np.uint8],
    level: float,
) -> Prediction:
    """Combine the members' predictions of n molecules with the model's uncertainty.

    Args:
        tasks: The model's T tasks.
        uncertainty: Its uncertainty; None = it has not been calibrated.
        members: Predictions of each member, ``[members, n, outputs]``, uncalibrated.
        molecules: The n molecules: SMILES, or fingerprints ``uint8 [n, 256]``.
        level: Level of the intervals, between 0 and 1.

    Raises:
        InputError: A level outside the range.
    """
    prediction = members.mean(axis=0)
    half_width = np.full((len(prediction), len(tasks)), math.nan)
    similarity = np.full(len(prediction), math.nan)
    if uncertainty is not None:
        prediction = uncertainty.calibration.calibrated(prediction)
        similarity = uncertainty.molecules.similarity(molecules)
        half_width = uncertainty.calibration.half_widths(similarity, level)
    return Prediction(prediction, half_width, _spread(tasks, members, prediction), similarity)


def _spread(tasks: Sequence[Task], members: Array, prediction: Array) -> Array:
    rows = np.arange(len(prediction))
    spread = np.full((len(rows), len(tasks)), math.nan)
    if len(members) > 1:
        for place, part in enumerate(output_slices(tasks)):
            likeliest = prediction[:, part].argmax(axis=1)
            spread[:, place] = members[:, rows, part.start + likeliest].std(axis=0, ddof=1)
    return spread
