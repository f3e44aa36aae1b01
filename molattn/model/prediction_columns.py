"""Predictions of a model as columns of a table."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError
from molattn.model.model import MolAttn
from molattn.model.uncertainty.prediction import Prediction, assemble_prediction
from molattn.task import Task, output_slices

__all__ = ["SIMILARITY_COLUMN", "PredictionColumns"]

SIMILARITY_COLUMN = "training_similarity"

Cell = float | str | None


class PredictionColumns:
    """The columns and cells of a model's predictions.

    Each task has the columns of :attr:`molattn.task.Task.columns`. A regression of a calibrated
    model adds ``NAME_low`` and ``NAME_high``, the ends of its interval, and any task of an ensemble
    ``NAME_std``, the standard deviation over members. The last column of a calibrated model is
    ``training_similarity``.

    Args:
        model: The model.
        level: Level of the intervals, between 0 and 1.

    Raises:
        InputError: A level outside the range.
    """

    def __init__(self, model: MolAttn, level: float) -> None:
        if not 0.0 < level < 1.0:
            raise InputError(f"interval: got the level {level}, expected one between 0 and 1")
        self._model = model
        self._level = level
        self._is_calibrated = model.uncertainty is not None
        self._slices = output_slices(model.config.tasks)
        names = [name for task in model.config.tasks for name in self._columns(task)]
        self.columns = [*names, *([SIMILARITY_COLUMN] if self._is_calibrated else [])]
        """Names of all columns."""
        classes = {t.columns[0] for t in model.config.tasks if t.kind != "regression"}
        self.numbers = set(self.columns) - classes
        """Names of the columns that hold numbers."""

    def _columns(self, task: Task) -> list[str]:
        names = list(task.columns)
        if task.kind == "regression" and self._is_calibrated:
            names += [f"{task.name}_low", f"{task.name}_high"]
        if self._model.config.members > 1:
            names.append(f"{task.name}_std")
        return names

    def predict_with_uncertainty(
        self, members: NDArray[np.float64], molecules: Sequence[str] | NDArray[np.uint8]
    ) -> Prediction:
        """Return predictions with intervals, standard deviations and similarities.

        Args:
            members: Predictions of each member, ``[members, n, outputs]``, uncalibrated.
            molecules: The n molecules: SMILES, or fingerprints ``uint8 [n, 256]``.
        """
        model = self._model
        return assemble_prediction(
            model.config.tasks, model.uncertainty, members, molecules, self._level
        )

    def cells(self, prediction: Prediction, row: int) -> list[Cell]:
        """Return the cells of one molecule; None for the ends of an infinite interval."""
        cells: list[Cell] = []
        for place, (task, part) in enumerate(
            zip(self._model.config.tasks, self._slices, strict=True)
        ):
            outputs = prediction.prediction[row, part]
            cells += task.cells(outputs.tolist())
            if task.kind == "regression" and self._is_calibrated:
                half = prediction.half_width[row, place]
                ends = outputs[0] + half * np.array([-1.0, 1.0])
                cells += ends.tolist() if math.isfinite(half) else [None, None]
            if self._model.config.members > 1:
                cells.append(float(prediction.std[row, place]))
        return [*cells, *([float(prediction.similarity[row])] if self._is_calibrated else [])]

    def lines(self) -> list[str]:
        """Return a sentence for each regression with too few labels for the level."""
        uncertainty = self._model.uncertainty
        return [] if uncertainty is None else uncertainty.calibration.without_interval(self._level)
