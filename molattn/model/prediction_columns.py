"""Predictions of a model as columns of a table."""

import numpy as np

from molattn.model.config import MolAttnConfig
from molattn.model.model import MolAttn
from molattn.model.uncertainty import Prediction
from molattn.record import MoleculeRecord
from molattn.task import check_columns, output_slices

_LARGE = 1000.0
_LEAST_WEIGHT = 0.005  # of the networks, printed as 0%


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
    """

    def __init__(self, model: MolAttn) -> None:
        tasks, known = model.config.tasks, model.uncertainty and model.uncertainty.fingerprints
        self._tasks = [*zip(tasks, output_slices(tasks), strict=True)]
        self._is_calibrated = known is not None
        self._by_task = known is not None and known.labeled is not None
        self._is_ensemble = model.config.members > 1
        process = model.gaussian_process
        shares = np.zeros(len(tasks)) if process is None else process.shares
        self._has_networks = (1.0 - shares > _LEAST_WEIGHT).tolist()
        check_columns(tasks)
        self.columns: dict[str, str] = {}
        """The Arrow type of each column, by name."""
        for task in tasks:
            numbers = list(task.output_names)
            if task.kind != "regression":
                self.columns[task.columns[0]] = "string"
            elif self._is_calibrated:
                numbers += [f"{task.name}_low", f"{task.name}_high"]
            numbers += [f"{task.name}_std"] * self._is_ensemble
            numbers += [f"{task.name}_training_similarity"] * self._by_task
            self.columns |= dict.fromkeys(numbers, "float64")
        if self._is_calibrated:
            self.columns["training_similarity"] = "float64"

    def cells(self, prediction: Prediction, row: int) -> list[float | str | None]:
        """Return the cells of one molecule.

        None for the ends of an infinite interval, and for the standard deviation over the networks
        where these have no share in the prediction.
        """
        cells: list[float | str | None] = []
        for index, (task, part) in enumerate(self._tasks):
            cells += task.cells(prediction.prediction[row, part].tolist())
            if task.kind == "regression" and self._is_calibrated:
                ends = [float(prediction.low[row, index]), float(prediction.high[row, index])]
                cells += ends if np.isfinite(ends).all() else [None, None]
            if self._is_ensemble:
                std = float(prediction.std[row, index])
                cells.append(std if self._has_networks[index] else None)
            if self._by_task:
                cells.append(float(prediction.task_similarity[row, index]))
        return [*cells, *([float(prediction.similarity[row])] if self._is_calibrated else [])]
