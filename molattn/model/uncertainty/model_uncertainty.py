"""The uncertainty of a model and of its predictions."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.errors import InputError
from molattn.model.artefact import CALIBRATION_FILE, FINGERPRINTS_FILE, ModelFiles
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.uncertainty.calibration import Calibration
from molattn.task import Task, output_slices

__all__ = ["Prediction", "Uncertainty", "assemble_prediction"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of a model.

    Args:
        calibration: Fitted to labeled rows that the model was not trained on.
        molecules: Fingerprints of the training molecules.
    """

    calibration: Calibration
    molecules: FingerprintIndex

    @classmethod
    def fit(
        cls,
        tasks: Sequence[Task],
        molecules: FingerprintIndex,
        held_out: Sequence[str] | NDArray[np.uint8],
        outputs: Array,
        targets: Array,
    ) -> "Uncertainty":
        """Fit to n labeled molecules that the model was not trained on.

        ``held_out`` are their SMILES, or fingerprints ``uint8 [n, 256]``; ``outputs`` are those of
        :meth:`molattn.MolAttn.predict_outputs`, ``[members, n, outputs]``; ``targets`` are
        ``[n, T]``, NaN where missing.
        """
        mean = mean_of_members(torch.from_numpy(outputs), tasks).numpy()
        similarity = molecules.similarity(held_out)
        return cls(Calibration.fit(tasks, mean, targets, similarity), molecules)

    @classmethod
    def from_files(cls, files: ModelFiles, tasks: Sequence[Task]) -> "Optional[Uncertainty]":
        """Read the uncertainty of a saved model; None if it is not calibrated.

        Raises:
            InputError: Files that are damaged, or belong to another model.
        """
        if CALIBRATION_FILE not in files.content:
            return None
        try:
            calibration = Calibration.from_dict(tasks, files.json(CALIBRATION_FILE))
        except InputError as error:
            raise InputError(f"{files.folder / CALIBRATION_FILE}: {error}") from error
        return cls(calibration, files.fingerprints)

    def to_files(self) -> dict[str, bytes]:
        """Return the content of each file of the uncertainty by name."""
        text = json.dumps(self.calibration.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"
        return {CALIBRATION_FILE: text.encode(), FINGERPRINTS_FILE: self.molecules.to_bytes()}


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
    outputs: Array,
    molecules: Sequence[str] | NDArray[np.uint8],
    level: float,
) -> Prediction:
    """Combine the predictions of n molecules with the model's uncertainty, if it is calibrated.

    Args:
        tasks: The model's T tasks.
        uncertainty: Its uncertainty; None = not calibrated.
        outputs: From :meth:`molattn.MolAttn.predict_outputs`, ``[members, n, outputs]``.
        molecules: The n molecules: SMILES, or fingerprints ``uint8 [n, 256]``.
        level: Level of the intervals, between 0 and 1.

    Raises:
        InputError: A level outside the range.
    """
    of_members = torch.from_numpy(outputs)
    mean = mean_of_members(of_members, tasks)
    prediction = class_probabilities(mean, tasks).numpy()
    half_width = np.full((len(prediction), len(tasks)), math.nan)
    similarity = np.full(len(prediction), math.nan)
    if uncertainty is not None:
        prediction = uncertainty.calibration.calibrated(mean.numpy())
        similarity = uncertainty.molecules.similarity(molecules)
        half_width = uncertainty.calibration.half_widths(similarity, level)
    members = class_probabilities(of_members, tasks).numpy()
    return Prediction(prediction, half_width, _spread(tasks, members, prediction), similarity)


def _spread(tasks: Sequence[Task], members: Array, prediction: Array) -> Array:
    rows = np.arange(len(prediction))
    spread = np.full((len(rows), len(tasks)), math.nan)
    if len(members) > 1:
        for place, part in enumerate(output_slices(tasks)):
            likeliest = prediction[:, part].argmax(axis=1)
            spread[:, place] = members[:, rows, part.start + likeliest].std(axis=0, ddof=1)
    return spread
