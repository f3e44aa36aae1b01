"""What a model knows of its own errors: calibration, and the molecules it was trained on."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from .artefact import CALIBRATION_FILE, FINGERPRINTS_FILE, read_json, write_file
from .calibration import Calibration
from .domain import TrainingMolecules
from .task import Task, output_slices

__all__ = ["Answer", "Uncertainty", "answer", "save_uncertainty"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """What a model knows of its own errors.

    Args:
        calibration: What labelled rows told that did not train the weights.
        molecules: The molecules that did.
    """

    calibration: Calibration
    molecules: TrainingMolecules

    @classmethod
    def fit(
        cls,
        tasks: Sequence[Task],
        molecules: TrainingMolecules,
        smiles: Sequence[str],
        prediction: Array,
        targets: Array,
    ) -> "Uncertainty":
        """Learn from n labelled molecules that did not train the weights.

        Args:
            tasks: The T tasks of a model.
            molecules: Its training molecules.
            smiles: The n molecules.
            prediction: What it gives for them, ``[n, outputs]``, uncalibrated.
            targets: Their labels ``[n, T]``, NaN where missing.
        """
        similarity = molecules.similarity(smiles)
        return cls(Calibration.fit(tasks, prediction, targets, similarity), molecules)

    @classmethod
    def load(cls, folder: Path, tasks: Sequence[Task]) -> "Optional[Uncertainty]":
        """Read it from the folder of a saved model; None if there is none.

        Raises:
            InputError: Files that are damaged, or not this model's.
        """
        if not (folder / CALIBRATION_FILE).is_file():
            return None
        parts = read_json(folder / CALIBRATION_FILE)
        molecules = TrainingMolecules.load(folder / FINGERPRINTS_FILE)
        return cls(Calibration.from_dict(tasks, parts), molecules)


def save_uncertainty(uncertainty: Optional[Uncertainty], folder: Path) -> None:
    """Write it into the folder of a saved model, or nothing, in place of what is there."""
    if uncertainty is None:
        for name in (CALIBRATION_FILE, FINGERPRINTS_FILE):
            (folder / name).unlink(missing_ok=True)
        return
    uncertainty.molecules.save(folder / FINGERPRINTS_FILE)
    parts = uncertainty.calibration.to_dict()
    text = json.dumps(parts, ensure_ascii=False, allow_nan=False) + "\n"
    write_file(folder / CALIBRATION_FILE, text.encode())


class Answer(NamedTuple):
    """All that a model says of n molecules and T tasks; NaN where it says nothing.

    Args:
        prediction: ``[n, outputs]``: values in the targets' own units, calibrated probabilities.
        half_width: Half the width of the interval around each value, ``[n, T]``; infinite where
            there were too few labels for the level.
        std: Standard deviation of the members' predictions, ``[n, T]``: of values, of the
            probability of the second of two classes, or of the likeliest of several.
        similarity: To the nearest training molecule, ``[n]``.
    """

    prediction: Array
    half_width: Array
    std: Array
    similarity: Array


def answer(
    tasks: Sequence[Task],
    uncertainty: Optional[Uncertainty],
    members: Array,
    molecules: Sequence[str] | NDArray[np.uint8],
    level: float,
) -> Answer:
    """Put together what a model says of some molecules.

    Args:
        tasks: Its T tasks.
        uncertainty: What it knows of its errors, if anything.
        members: What each member predicts, ``[members, n, outputs]``, uncalibrated.
        molecules: The n molecules: SMILES, or fingerprints ``uint8 [n, 256]``.
        level: Of the intervals, between 0 and 1.

    Raises:
        InputError: Another level.
    """
    prediction = members.mean(axis=0)
    half_width = np.full((len(prediction), len(tasks)), math.nan)
    similarity = np.full(len(prediction), math.nan)
    if uncertainty is not None:
        prediction = uncertainty.calibration.calibrated(prediction)
        similarity = uncertainty.molecules.similarity(molecules)
        half_width = uncertainty.calibration.half_widths(similarity, level)
    return Answer(prediction, half_width, _spread(tasks, members, prediction), similarity)


def _spread(tasks: Sequence[Task], members: Array, prediction: Array) -> Array:
    rows = np.arange(len(prediction))
    spread = np.full((len(rows), len(tasks)), math.nan)
    if len(members) > 1:
        for place, part in enumerate(output_slices(tasks)):
            likeliest = prediction[:, part].argmax(axis=1)
            spread[:, place] = members[:, rows, part.start + likeliest].std(axis=0, ddof=1)
    return spread
