"""Predictions of a model as columns of a table."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from molattn.chem.fingerprints import Fingerprint
from molattn.chem.parse import Molecule
from molattn.model.config import MolAttnConfig
from molattn.model.model import MolAttn
from molattn.model.uncertainty.model_uncertainty import Prediction, assemble_prediction
from molattn.record import MoleculeRecord
from molattn.task import check_columns, output_slices

__all__ = ["PredictionColumns", "number_text", "standardized_cells", "standardized_columns"]

_LARGE = 1000.0
_LEAST_SHARE = 0.005  # of the networks, printed as 0%


def number_text(number: float) -> str:
    """Return a number for a text table, with 7 significant digits, or all of them from 1,000 on.

    The first digits of a large number may be those of the mean of the targets.
    """
    number += 0.0  # -0 is 0
    return f"{number:.7g}" if abs(number) < _LARGE else str(float(number))


def standardized_columns(config: MolAttnConfig) -> list[str]:
    """Return the columns of standardized SMILES; none if the model does not standardize."""
    if not config.standardize:
        return []
    return ["standardized_smiles", *(["standardized_partner"] if config.has_partner else [])]


def standardized_cells(record: MoleculeRecord | None, config: MolAttnConfig) -> list[str | None]:
    """Return the cells of these columns: None where standardizing changed nothing."""
    if not config.standardize:
        return []
    molecules = (record, record and record.partner)[: len(standardized_columns(config))]
    return [(one and one.standardized) or None for one in molecules]


class PredictionColumns:
    """The columns and cells of a model's predictions.

    Each task has the columns of :attr:`molattn.task.Task.columns`. A regression of a calibrated
    model adds ``NAME_low`` and ``NAME_high``, the ends of its interval, and an ensemble adds
    ``NAME_std``, the standard deviation over members, for each task. A Gaussian process beside the
    networks is the same for all members, so that its share reduces it. The last column of a
    calibrated model is ``training_similarity``. If training labels were missing, each task has a
    column ``NAME_training_similarity`` too, to the nearest molecule with a label of the task.

    Args:
        model: The model.
        level: Level of the intervals, between 0 and 1.
    """

    def __init__(self, model: MolAttn, level: float) -> None:
        self._model = model
        self._level = level
        self._is_calibrated = model.uncertainty is not None
        known = model.uncertainty and model.uncertainty.molecules
        self._by_task = known is not None and known.labeled is not None
        self._slices = output_slices(model.config.tasks)
        process = model.gaussian_process
        shares = np.zeros(len(self._slices)) if process is None else process.shares
        self._network_shares = 1.0 - shares
        columns: list[tuple[str, str]] = []
        for task in model.config.tasks:
            numbers = list(task.output_names)
            if task.kind != "regression":
                columns.append((task.columns[0], "string"))
            elif self._is_calibrated:
                numbers += [f"{task.name}_low", f"{task.name}_high"]
            if model.config.members > 1:
                numbers.append(f"{task.name}_std")
            if self._by_task:
                numbers.append(f"{task.name}_training_similarity")
            columns += [(name, "float64") for name in numbers]
        if self._is_calibrated:
            columns.append(("training_similarity", "float64"))
        self.columns: dict[str, str] = dict(columns)
        """The Arrow type of each column, by name."""
        if len(self.columns) < len(columns):
            check_columns(model.config.tasks)

    def predict_with_uncertainty(
        self, outputs: NDArray[np.float64], molecules: Sequence[Molecule | Fingerprint]
    ) -> Prediction:
        """Combine the outputs of each member; see :func:`assemble_prediction`."""
        model = self._model
        return assemble_prediction(
            model.config, model.uncertainty, outputs, molecules, self._level, model.training_set
        )

    def cells(self, prediction: Prediction, row: int) -> list[float | str | None]:
        """Return the cells of one molecule.

        None for the ends of an infinite interval, and for the standard deviation over the networks
        where these have no share in the prediction.
        """
        cells: list[float | str | None] = []
        for place, (task, part) in enumerate(
            zip(self._model.config.tasks, self._slices, strict=True)
        ):
            outputs = prediction.prediction[row, part]
            cells += task.cells(outputs.tolist())
            if task.kind == "regression" and self._is_calibrated:
                ends = np.array([prediction.low[row, place], prediction.high[row, place]])
                cells += ends.tolist() if np.isfinite(ends).all() else [None, None]
            if self._model.config.members > 1:
                std = float(prediction.std[row, place])
                cells.append(std if self._network_shares[place] > _LEAST_SHARE else None)
            if self._by_task:
                cells.append(float(prediction.task_similarity[row, place]))
        return [*cells, *([float(prediction.similarity[row])] if self._is_calibrated else [])]

    def lines(self) -> list[str]:
        """Return a log line for each task that is not calibrated, or not for the level."""
        uncertainty = self._model.uncertainty
        return [] if uncertainty is None else uncertainty.calibration.shortfalls(self._level)
