"""All that a model says of molecules, as columns of a table."""

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

    For each task those of :attr:`molattn.task.Task.columns`; of a number then ``NAME_low`` and
    ``NAME_high``, the ends of its interval, and of several members ``NAME_std``, their standard
    deviation. Last ``training_similarity``. A model that has not been calibrated has neither
    intervals nor a similarity.

    Args:
        model: The model.
        level: Of the intervals, between 0 and 1.

    Raises:
        InputError: Another level.
    """

    def __init__(self, model: MolAttn, level: float) -> None:
        if not 0.0 < level < 1.0:
            raise InputError(f"interval: got the level {level}, expected one between 0 and 1")
        self._model = model
        self._level = level
        self._is_known = model.uncertainty is not None
        self._slices = output_slices(model.config.tasks)
        names = [name for task in model.config.tasks for name in self._columns(task)]
        self.columns = [*names, *([SIMILARITY_COLUMN] if self._is_known else [])]
        """Names of the columns."""
        classes = {t.columns[0] for t in model.config.tasks if t.kind != "regression"}
        self.numbers = set(self.columns) - classes
        """Those that hold numbers."""

    def _columns(self, task: Task) -> list[str]:
        names = list(task.columns)
        if task.kind == "regression" and self._is_known:
            names += [f"{task.name}_low", f"{task.name}_high"]
        if self._model.config.members > 1:
            names.append(f"{task.name}_std")
        return names

    def predict_with_uncertainty(
        self, members: NDArray[np.float64], molecules: Sequence[str] | NDArray[np.uint8]
    ) -> Prediction:
        """Return what the model says.

        Args:
            members: What each member predicts, ``[members, n, outputs]``, uncalibrated.
            molecules: The n molecules: SMILES, or fingerprints ``uint8 [n, 256]``.
        """
        model = self._model
        return assemble_prediction(
            model.config.tasks, model.uncertainty, members, molecules, self._level
        )

    def cells(self, said: Prediction, row: int) -> list[Cell]:
        """Return the cells of one molecule; None where an interval has no end."""
        cells: list[Cell] = []
        for place, (task, part) in enumerate(
            zip(self._model.config.tasks, self._slices, strict=True)
        ):
            outputs = said.prediction[row, part]
            cells += task.cells(outputs.tolist())
            if task.kind == "regression" and self._is_known:
                half = said.half_width[row, place]
                ends = outputs[0] + half * np.array([-1.0, 1.0])
                cells += ends.tolist() if math.isfinite(half) else [None, None]
            if self._model.config.members > 1:
                cells.append(float(said.std[row, place]))
        return [*cells, *([float(said.similarity[row])] if self._is_known else [])]

    def lines(self) -> list[str]:
        """Return a sentence for each task without an interval of that level."""
        known = self._model.uncertainty
        return [] if known is None else known.calibration.without_interval(self._level)
