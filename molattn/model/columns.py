"""The columns of a table of predictions, and their cells."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from molattn.model.config import MolAttnConfig
from molattn.model.predictor import Predictor
from molattn.model.training_set import CLASS_SEPARATOR, Label, Measured
from molattn.model.uncertainty import Prediction
from molattn.record import MoleculeRecord
from molattn.task import Task, check_columns, output_slices
from molattn.utils.console import three_digits

_LARGE = 1000.0
_LEAST_WEIGHT = 0.005  # of the networks, printed as 0%


def cell_text(cell: float | str | None) -> str:
    """Return a cell for a text table: a number with 7 significant digits, or at least 3 decimals.

    The first digits of a large number may be those of the mean of the targets.
    """
    if not isinstance(cell, float):
        return "" if cell is None else str(cell)
    cell += 0.0  # -0 is 0
    return f"{cell:.7g}" if abs(cell) < _LARGE else str(round(cell, 3))


def standardized_columns(config: MolAttnConfig) -> list[str]:
    """Return the columns of parents or standardized SMILES; none of a model without either."""
    if not config.standardize:
        return []
    names = ["standardized_smiles", "standardized_partner"]
    if config.standardize == "parent":
        names = ["parent", "partner_parent"]
    return names[: 1 + config.has_partner]


def standardized_cells(record: MoleculeRecord | None, config: MolAttnConfig) -> list[str | None]:
    """Return the cells of :func:`standardized_columns`; None where the molecule was as drawn."""
    molecules = (record, record and record.partner)[: len(standardized_columns(config))]
    return [(molecule and molecule.standardized) or None for molecule in molecules]


def measured_remark(task: Task, cells: Mapping[str, Any], isomer: Label = None) -> str:
    """Say that the training label of a molecule contradicts its prediction, "" if it does not.

    A number contradicts outside of the interval, a class if another one is predicted. Without a
    label, name the one of its stereoisomers, ``isomer``. ``cells`` are those of
    :class:`PredictionColumns` by column.
    """
    label = cells.get(f"{task.name}_measured")
    grade = cells.get(f"{task.name}_confidence")
    confidence = f", confidence {grade}" if grade else ""
    if label is None:
        text = three_digits(isomer) if isinstance(isomer, float) else isomer
        return f"measured of a stereoisomer: {text}" if text else ""
    if task.kind != "regression":
        predicted = cells[task.columns[0]]
        is_predicted = predicted == label or predicted in label.split(CLASS_SEPARATOR)
        return "" if is_predicted else f"measured {label}, predicted {predicted}{confidence}"
    low, high = (cells.get(f"{task.name}_{end}") for end in ("low", "high"))
    if low is None or high is None or low <= label <= high:
        return ""
    number, *ends = (three_digits(value) for value in (label, low, high))
    return f"measured {number}, outside of {' to '.join(ends)}{confidence}"


class PredictionColumns:
    """The columns and cells of a model's predictions.

    Each task has the columns of :attr:`molattn.task.Task.columns`. A regression of a calibrated
    model adds ``NAME_low`` and ``NAME_high``, the ends of its interval, and an ensemble adds
    ``NAME_std``, the standard deviation over members, for each task. A Gaussian process beside the
    networks is the same for all members, so that its share reduces it. Each task of a calibrated
    model has ``NAME_confidence`` and ``NAME_expected_error``
    (:meth:`molattn.MolAttn.predict_confidence`), and its last column is ``training_similarity``. If
    training labels were missing, each task has a column ``NAME_training_similarity`` too, to the
    nearest molecule with a label of the task.

    A model that keeps its training molecules adds ``NAME_measured``, the label of a training
    molecule, and at the end ``measured_remark``, which labels contradict their predictions, and
    which are of a stereoisomer alone.
    ``has_measured=False`` leaves them out.
    """

    def __init__(self, predictor: Predictor, *, has_measured: bool = True) -> None:
        tasks = predictor.config.tasks
        uncertainty = predictor.uncertainty
        self._tasks = [*zip(tasks, output_slices(tasks), strict=True)]
        self._is_calibrated = uncertainty is not None
        self._by_task = uncertainty is not None and uncertainty.fingerprints.labeled is not None
        self._has_measured = has_measured and predictor.keeps_labels
        self._is_ensemble = predictor.config.members > 1
        process = predictor.gaussian_process
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
            self.columns |= dict.fromkeys(numbers, "float64")
            if self._has_measured:
                kind = "string" if task.classes else "float64"
                self.columns[f"{task.name}_measured"] = kind
            if self._is_calibrated:
                self.columns[f"{task.name}_confidence"] = "string"
                self.columns[f"{task.name}_expected_error"] = "float64"
            if self._by_task:
                self.columns[f"{task.name}_training_similarity"] = "float64"
        if self._is_calibrated:
            self.columns["training_similarity"] = "float64"
        if self._has_measured:
            self.columns["measured_remark"] = "string"

    def cells(
        self, prediction: Prediction, row: int, measured: Sequence[Measured] = ()
    ) -> list[Label]:
        """Return the cells of one molecule, given its labels of :meth:`Predictor.measured`.

        None for the ends of an infinite interval, for a confidence and an expected error that are
        unknown, and for the standard deviation over the networks where the Gaussian process
        predicts alone.
        """
        cells: list[Label] = []
        for index, (task, columns) in enumerate(self._tasks):
            cells += task.cells(prediction.prediction[row, columns].tolist())
            if task.kind == "regression" and self._is_calibrated:
                ends = [float(prediction.low[row, index]), float(prediction.high[row, index])]
                cells += ends if np.isfinite(ends).all() else [None, None]
            if self._is_ensemble:
                std = float(prediction.std[row, index])
                cells.append(std if self._has_networks[index] else None)
            if self._has_measured:
                cells.append(measured[index].label)
            if self._is_calibrated:
                error = float(prediction.expected_error[row, index])
                cells.append(str(prediction.confidence[row, index]) or None)
                cells.append(None if math.isnan(error) else error)
            if self._by_task:
                cells.append(float(prediction.task_similarity[row, index]))
        if self._is_calibrated:
            cells.append(float(prediction.similarity[row]))
        return [*cells, *([self._remarks(cells, measured)] if self._has_measured else [])]

    def _remarks(self, cells: Sequence[Label], measured: Sequence[Measured]) -> str | None:
        named = dict(zip(self.columns, cells, strict=False))
        remarks = {
            task.name: measured_remark(task, named, labels.of_stereoisomers)
            for (task, _), labels in zip(self._tasks, measured, strict=True)
        }
        texts = (f"{name}: {remark}" for name, remark in remarks.items() if remark)
        return "; ".join(texts) or None
