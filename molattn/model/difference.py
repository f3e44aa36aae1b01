r"""Differences between predictions of two molecules, with intervals from both errors together.

The errors of similar molecules are alike, so that much of them cancels in their difference. With
half the widths :math:`h_a` and :math:`h_b` of both intervals and the correlation :math:`\rho` of
both errors, half the width of the interval of a difference is

.. math::

    h = \sqrt{h_a^2 + h_b^2 - 2 \rho\, h_a h_b}

The correlation is :math:`w \rho_\mathrm{GP} + (1 - w) \max(\rho_\mathrm{GP}, \lambda s)`. The
first is that of the posterior of the Gaussian process, of the weight w: what it does not know of
both molecules. The networks learned from the same labels and do not know it either. Their errors
are also as alike as held-out errors show, :math:`\lambda` of molecules of the Tanimoto similarity
s = 1 (:func:`molattn.model.uncertainty.error_correlation`), which is all without a Gaussian
process.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.model.config import MolAttnConfig
from molattn.model.gaussian_process.process import blocks
from molattn.model.kernel import KernelInputs
from molattn.model.networks import Records
from molattn.model.predictor import Predictor
from molattn.model.target_transform import TargetTransform
from molattn.model.uncertainty import Prediction
from molattn.task import Task, output_slices

Array = NDArray[np.float64]

_PAIRS_AT_ONCE = 256
_LEAST_VARIANCE = 1e-300


class Side(NamedTuple):
    """One molecule of each of n pairs, and what is predicted of it."""

    records: Records  # with SMILES and, if the model is calibrated, fingerprints
    inputs: KernelInputs
    prediction: Prediction

    @classmethod
    def of(
        cls,
        predictor: Predictor,
        records: Records,
        level: float,
        batch_size: int,
        features: ArrayLike | None = None,
    ) -> "Side":
        """Predict molecules, with intervals of a nominal coverage."""
        networks, inputs = predictor.networks.predict(records, batch_size, features=features)
        outputs = predictor.with_gaussian_process(networks, inputs)
        outputs = predictor.with_written(outputs, records, batch_size)
        return cls(records, inputs, predictor.prediction(outputs, records, level))

    def rows(self, rows: NDArray[np.int64]) -> "Side":
        """Return the molecules of some pairs, ``[m]``."""
        arrays: Any = [values[rows] for values in self.prediction]
        return Side([self.records[row] for row in rows], self.inputs[rows], Prediction(*arrays))


class Difference(NamedTuple):
    """Differences of n pairs of molecules; ratios of targets that are learned as logarithms."""

    difference: Array  # of values in own units, or of probabilities, [n, outputs]
    low: Array  # lower end of the interval; infinite or NaN as of a prediction, [n, T]
    high: Array  # upper end, likewise


def differences(
    predictor: Predictor, molecules: Side, references: Side, level: float
) -> Difference:
    """Return how molecules differ from others, with intervals of a nominal coverage.

    A molecule differs from itself by exactly 0, so does a salt from its parent in tasks that are
    predicted of parents. Differences of probabilities have no intervals, nor have differences of a
    model for which :func:`missing_interval` has a reason.
    """
    config = predictor.config
    is_same = _is_same(config, molecules.records, references.records)
    first = molecules.prediction.prediction
    is_same_output = is_same.repeat([task.num_outputs for task in config.tasks], axis=1)
    second = np.where(is_same_output, first, references.prediction.prediction)
    difference = first - second
    halves, shares = _half_widths(predictor, molecules, references, level)
    halves[is_same] = 0.0
    low, high = np.full((2, *halves.shape), math.nan)
    slices = output_slices(config.tasks)
    for task, (columns, transform) in enumerate(zip(slices, config.target_transforms, strict=True)):
        if config.tasks[task].kind != "regression":
            continue
        values = torch.from_numpy(np.hstack([first[:, columns], second[:, columns]]).T)
        centers = transform.forward(values).numpy()
        half = halves[:, task]
        if transform.kind == "log":
            logs = centers[0] - centers[1]
            difference[:, columns.start] = np.exp(logs)
            ends = np.exp([logs - half, logs + half])
        else:
            shifts = half * np.stack([shares[:, task], shares[:, task] - 1.0])
            moved = torch.from_numpy(np.stack([centers - shifts, centers + shifts], axis=1))
            limits = predictor.output_limits[:, columns.start]
            ends = np.subtract(*transform.inverse(moved).numpy().clip(*limits))
        low[:, task], high[:, task] = np.where(np.isinf(half), [[-math.inf], [math.inf]], ends)
    return Difference(difference, low, high)


def _is_same(config: MolAttnConfig, molecules: Records, references: Records) -> NDArray[np.bool_]:
    """Return whether both molecules of n pairs are the same in the form of a task, ``[n, T]``."""
    pairs = [*zip(molecules, references, strict=True)]
    is_same = np.zeros((len(pairs), len(config.tasks)), dtype=bool)
    is_same.T[:] = [first.identity == second.identity for first, second in pairs]
    is_same.T[config.written_task_indices] = [
        (first.written or first).identity == (second.written or second).identity
        for first, second in pairs
    ]
    return is_same


def missing_interval(predictor: Predictor) -> str:
    """Return why differences of a model have no intervals; "" = they have."""
    if predictor.uncertainty is None:
        return "the model is not calibrated"
    parts = predictor.uncertainty.calibration.parts
    unknown = [getattr(scores, "correlation", None) is None for scores in parts]
    if predictor.gaussian_process is None and all(unknown):
        return "the model has no Gaussian process, and was saved without the correlation of errors"
    return ""


def _half_widths(
    predictor: Predictor, molecules: Side, references: Side, level: float
) -> tuple[Array, Array]:
    """Return half the width of each interval, and the share of it that the first molecule moves.

    Both are on the transformed scale, ``[n, T]``. At an end of the interval the errors of both
    molecules are the most likely ones for this difference, in so far as they move them apart.
    """
    sides = molecules, references
    if missing_interval(predictor):
        shape = len(molecules.records), len(predictor.config.tasks)
        return np.full(shape, math.nan), np.full(shape, math.nan)
    calibration = predictor.calibrated_uncertainty().calibration
    widths = [calibration.half_widths(side.prediction.closeness, level) for side in sides]
    is_infinite = np.isinf(widths).any(axis=0)
    first, second = np.where(is_infinite, 1.0, widths)
    covariance = first * second * _correlations(predictor, molecules, references)
    variance = np.maximum(first**2 + second**2 - 2.0 * covariance, _LEAST_VARIANCE)
    share = ((first**2 - covariance) / variance).clip(0.0, 1.0)
    return np.where(is_infinite, math.inf, np.sqrt(variance)), share


def _correlations(predictor: Predictor, molecules: Side, references: Side) -> Array:
    """Return the correlation of the errors of n pairs, ``[n, T]``; 0 for classifications."""
    tasks = predictor.config.tasks
    parts = predictor.calibrated_uncertainty().calibration.parts
    process = predictor.gaussian_process
    shares = np.zeros(len(tasks)) if process is None else process.shares
    correlations = np.zeros((len(molecules.records), len(tasks)))
    numbers = [n for n, task in enumerate(tasks) if task.kind == "regression"]
    outputs = {output_slices(tasks)[n].start: n for n in numbers if shares[n] > 0.0}
    if process is not None:
        errors = {output: predictor.least_std(n) for output, n in outputs.items()}
        of_outputs = process.correlations(molecules.inputs, references.inputs, errors)
        for output, task in outputs.items():
            correlations[:, task] = of_outputs[output]
    alike = [getattr(scores, "correlation", None) or 0.0 for scores in parts]
    pairs = zip(molecules.records, references.records, strict=True)
    written = [first.written is not None or second.written is not None for first, second in pairs]
    prints: Any = [[row.fingerprint for row in side.records] for side in (molecules, references)]
    for rows in blocks(np.arange(len(correlations)), _PAIRS_AT_ONCE):
        first, second = ([side[row] for row in rows] for side in prints)
        similarity = FingerprintIndex(second).similarities(first).diagonal()
        of_networks = np.maximum(np.outer(similarity, alike), correlations[rows])
        correlations[rows] += (1.0 - shares) * (of_networks - correlations[rows])
    # Inputs and fingerprints are of parents, which the errors of salts are not.
    correlations[np.ix_(written, predictor.config.written_task_indices)] = 0.0
    return correlations


def difference_columns(config: MolAttnConfig) -> dict[str, str]:
    """Return the columns of differences in a table of predictions, with their Arrow types."""
    of_tasks = map(task_columns, config.tasks, config.target_transforms)
    return dict.fromkeys(chain.from_iterable(of_tasks), "float64")


def task_columns(task: Task, transform: TargetTransform) -> list[str]:
    """Return the columns of differences of a task, ``NAME_ratio`` of logarithms."""
    if task.kind != "regression":
        return [f"{name}_difference" for name in task.output_names]
    name = f"{task.name}_{'ratio' if transform.kind == 'log' else 'difference'}"
    return [name, f"{name}_low", f"{name}_high"]


def difference_cells(
    config: MolAttnConfig, difference: Difference
) -> Iterator[list[float | None] | None]:
    """Yield the cells of :func:`difference_columns` of each pair, None for unknown ends.

    A pair with a difference that is not finite has none.
    """
    slices = output_slices(config.tasks)
    for row, values in enumerate(difference.difference):
        cells: list[float | None] = []
        for task, columns in enumerate(slices):
            cells += values[columns].tolist()
            if config.tasks[task].kind == "regression":
                ends = [float(difference.low[row, task]), float(difference.high[row, task])]
                cells += ends if np.isfinite(ends).all() else [None, None]
        yield cells if np.isfinite(values).all() else None
