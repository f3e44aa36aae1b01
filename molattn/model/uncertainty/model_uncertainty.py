"""The uncertainty of a model: its calibration, and the molecules it was trained on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.model.artefact import CALIBRATION_FILE, FINGERPRINTS_FILE
from molattn.model.uncertainty.calibration import Calibration
from molattn.task import Task
from molattn.utils.files import read_json, write_file

__all__ = ["Uncertainty", "save_uncertainty"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of a model.

    Args:
        calibration: Fitted to labelled rows that the weights were not trained on.
        molecules: Fingerprints of the molecules that they were trained on.
    """

    calibration: Calibration
    molecules: FingerprintIndex

    @classmethod
    def fit(
        cls,
        tasks: Sequence[Task],
        molecules: FingerprintIndex,
        held_out: Sequence[str] | NDArray[np.uint8],
        prediction: Array,
        targets: Array,
    ) -> "Uncertainty":
        """Fit to n labelled molecules that the weights were not trained on.

        Args:
            tasks: The T tasks of a model.
            molecules: Its training molecules.
            held_out: The n molecules: SMILES, or fingerprints ``uint8 [n, 256]``.
            prediction: Its predictions for them, ``[n, outputs]``, uncalibrated.
            targets: Their labels ``[n, T]``, NaN where missing.
        """
        similarity = molecules.similarity(held_out)
        return cls(Calibration.fit(tasks, prediction, targets, similarity), molecules)

    @classmethod
    def load(cls, folder: Path, tasks: Sequence[Task]) -> "Optional[Uncertainty]":
        """Read the uncertainty from the folder of a saved model; None if it was not calibrated.

        Raises:
            InputError: Files that are damaged, or belong to another model.
        """
        if not (folder / CALIBRATION_FILE).is_file():
            return None
        parts = read_json(folder / CALIBRATION_FILE)
        molecules = FingerprintIndex.load(folder / FINGERPRINTS_FILE)
        return cls(Calibration.from_dict(tasks, parts), molecules)


def save_uncertainty(uncertainty: Optional[Uncertainty], folder: Path) -> None:
    """Write the uncertainty into the folder of a saved model; None removes the files there."""
    if uncertainty is None:
        for name in (CALIBRATION_FILE, FINGERPRINTS_FILE):
            (folder / name).unlink(missing_ok=True)
        return
    uncertainty.molecules.save(folder / FINGERPRINTS_FILE)
    parts = uncertainty.calibration.to_dict()
    text = json.dumps(parts, ensure_ascii=False, allow_nan=False) + "\n"
    write_file(folder / CALIBRATION_FILE, text.encode())
