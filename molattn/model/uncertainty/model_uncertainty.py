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
from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.errors import InputError
from molattn.model.artefact import CALIBRATION_FILE, FINGERPRINTS_FILE, ModelFiles
from molattn.model.config import MolAttnConfig
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.target_transform import own_units, transformed_labels
from molattn.model.training_set import TrainingSet
from molattn.model.uncertainty.calibration import Calibration, Part
from molattn.task import Task, output_slices

__all__ = ["Prediction", "Uncertainty", "assemble_prediction"]

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Uncertainty:
    """The uncertainty of a model.

    Args:
        calibration: Fitted to labeled rows that the model was not trained on, of transformed
            targets on the transformed scale.
        molecules: Fingerprints of the molecules that the model has learned from: with a Gaussian
            process those of the validation rows too, which are not among those that the
            similarities of the calibration are to.
    """

    calibration: Calibration
    molecules: FingerprintIndex

    @classmethod
    def fit(
        cls,
        config: MolAttnConfig,
        molecules: FingerprintIndex,
        held_out: Sequence[Molecule | Fingerprint],
        outputs: Array,
        targets: Array,
    ) -> "Uncertainty":
        """Fit to n labeled molecules that the model was not trained on.

        ``config`` is the model's; ``held_out`` are their SMILES or fingerprints; ``outputs`` are
        those of :meth:`molattn.MolAttn.predict_outputs`, ``[members, n, outputs]``; ``targets`` are
        ``[n, T]`` in own units, NaN where missing.
        """
        tasks = config.tasks
        mean = mean_of_members(torch.from_numpy(outputs), tasks).numpy()
        labels = transformed_labels(torch.tensor(targets), config.target_transforms).numpy()
        similarity = molecules.task_similarity(held_out, len(tasks))
        return cls(Calibration.fit(tasks, mean, labels, similarity), molecules)

    @classmethod
    def from_files(cls, files: ModelFiles, tasks: Sequence[Task]) -> "Optional[Uncertainty]":
        """Read the uncertainty of a saved model; None if it is not calibrated.

        Raises:
            InputError: Files that are damaged, or belong to another model.
        """
        if CALIBRATION_FILE not in files.content:
            return None
        parts = files.parse(CALIBRATION_FILE, dict[str, Part])
        calibration = Calibration.from_dict(tasks, parts)
        known, path = files.fingerprints, files.folder / FINGERPRINTS_FILE
        if known.labeled is not None and known.labeled.shape[1] != len(tasks):
            raise InputError(
                f"{path}: labels of {known.labeled.shape[1]} tasks, but the model has {len(tasks)}"
            )
        return cls(calibration, known)

    def predictions(self, config: MolAttnConfig, outputs: Array) -> Array:
        """Convert outputs ``[n, outputs]`` to own units and calibrated probabilities.

        Args:
            config: Of the model.
            outputs: Mean of its members, see :func:`molattn.model.outputs.mean_of_members`.
        """
        calibrated = torch.from_numpy(self.calibration.calibrated(outputs))
        return own_units(calibrated, config.tasks, config.target_transforms).numpy()

    def intervals(
        self,
        config: MolAttnConfig,
        outputs: Array,
        similarity: Array,
        level: float,
        training: Optional[TrainingSet] = None,
    ) -> tuple[Array, Array]:
        """Return the ends of the interval of each regression in own units, ``[n, T]`` each.

        Infinite where a task has too few labels for the level; NaN for classifications. Intervals
        of targets in percent whose training labels are from 0 to 100 end there, or at the predicted
        value if it is outside.

        Args:
            config: Of the model.
            outputs: As of :meth:`predictions`.
            similarity: To the nearest training molecule of each task, ``[n, T]``.
            level: Between 0 and 1.
            training: What is known of the training labels.

        Raises:
            InputError: A level outside the range.
        """
        half = self.calibration.half_widths(similarity, level)
        low, high = np.full_like(half, math.nan), np.full_like(half, math.nan)
        places = zip(output_slices(config.tasks), config.target_transforms, strict=True)
        for place, (part, transform) in enumerate(places):
            middle, width = outputs[:, part.start], half[:, place]
            for ends, end in ((low, middle - width), (high, middle + width)):
                found = transform.inverse(torch.from_numpy(end)).numpy()
                ends[:, place] = np.where(np.isinf(width), end, found)
            if training is not None and training.are_shares(config.tasks[place], place):
                value = transform.inverse(torch.from_numpy(middle)).numpy()
                known = np.isfinite(width)
                np.maximum(low[:, place], np.minimum(value, 0), out=low[:, place], where=known)
                np.minimum(high[:, place], np.maximum(value, 100), out=high[:, place], where=known)
        return low, high

    def to_files(self) -> dict[str, bytes]:
        """Return the content of each file of the uncertainty by name."""
        text = json.dumps(self.calibration.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"
        return {CALIBRATION_FILE: text.encode(), FINGERPRINTS_FILE: self.molecules.to_bytes()}


class Prediction(NamedTuple):
    """Predictions of n molecules and T tasks with their uncertainty; NaN where undefined.

    Args:
        prediction: ``[n, outputs]``: values in the targets' own units, calibrated probabilities.
        low: Lower end of the interval of each regression in its own units, ``[n, T]``; infinite
            where there were too few labels for the level.
        high: Upper end, likewise.
        std: Standard deviation of the members' predictions, ``[n, T]``: of values in own units, of
            the probability of the second of two classes, or of the most probable of several.
        similarity: To the nearest training molecule, ``[n]``.
        task_similarity: To the nearest one that has a label of the task, ``[n, T]``.
    """

    prediction: Array
    low: Array
    high: Array
    std: Array
    similarity: Array
    task_similarity: Array


def assemble_prediction(
    config: MolAttnConfig,
    uncertainty: Optional[Uncertainty],
    outputs: Array,
    molecules: Sequence[Molecule | Fingerprint],
    level: float,
    training: Optional[TrainingSet] = None,
) -> Prediction:
    """Combine the predictions of n molecules with the model's uncertainty, if it is calibrated.

    Args:
        config: Of the model, with T tasks.
        uncertainty: Its uncertainty; None = not calibrated.
        outputs: From :meth:`molattn.MolAttn.predict_outputs`, ``[members, n, outputs]``.
        molecules: The n molecules: SMILES or fingerprints.
        level: Level of the intervals, between 0 and 1.
        training: What is known of the training labels.

    Raises:
        InputError: A level outside the range.
    """
    tasks, transforms = config.tasks, config.target_transforms
    of_members = torch.from_numpy(outputs)
    mean = mean_of_members(of_members, tasks)
    low = high = by_task = np.full((len(mean), len(tasks)), math.nan)
    similarity = np.full(len(mean), math.nan)
    if uncertainty is None:
        prediction = own_units(class_probabilities(mean, tasks), tasks, transforms).numpy()
    else:
        prediction = uncertainty.predictions(config, mean.numpy())
        by_task = uncertainty.molecules.task_similarity(molecules, len(tasks))
        similarity = by_task.max(axis=1)  # each training molecule has a label
        low, high = uncertainty.intervals(config, mean.numpy(), by_task, level, training)
    members = own_units(class_probabilities(of_members, tasks), tasks, transforms).numpy()
    std = _spread(tasks, members, prediction)
    return Prediction(prediction, low, high, std, similarity, by_task)


def _spread(tasks: Sequence[Task], members: Array, prediction: Array) -> Array:
    rows = np.arange(len(prediction))
    spread = np.full((len(rows), len(tasks)), math.nan)
    if len(members) > 1:
        for place, part in enumerate(output_slices(tasks)):
            likeliest = prediction[:, part].argmax(axis=1)
            spread[:, place] = members[:, rows, part.start + likeliest].std(axis=0, ddof=1)
    return spread
