"""Standardization of targets and extra features by the training rows."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from molattn.data.dataset import Molecules
from molattn.model.model import MolAttn
from molattn.model.target_transform import TargetTransform, transformed_labels
from molattn.record import MoleculeRecord
from molattn.task import Task

__all__ = ["number_scaling", "scale_by", "target_scaling", "varies"]

_UNUSED = float(np.finfo(np.float32).max)
_ROWS_AT_ONCE = 4096


def scale_by(model: MolAttn, rows: Molecules, transforms: Sequence[TargetTransform] = ()) -> None:
    """Set the scaling of targets, with the transform of each, and extra features of a model.

    The bounds of censored labels count as labels: they are to lie near them.
    """
    targets = rows.values
    if transforms:
        targets = transformed_labels(torch.from_numpy(targets), transforms).numpy()
    model.set_target_scaling(*target_scaling(targets, model.config.tasks), transforms)
    model.set_feature_scaling(*number_scaling(rows.records, rows.features))


def target_scaling(
    targets: NDArray[np.float64], tasks: Sequence[Task]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of each target over its labels.

    They are 0 and 1 for a classification; a constant target has scale 1.

    Args:
        targets: Transformed labels ``[n, T]``, NaN where missing, at least one in each column.
        tasks: The T tasks.
    """
    mean, scale = np.nanmean(targets, axis=0), np.nanstd(targets, axis=0)
    is_number = np.array([task.kind == "regression" for task in tasks])
    does_vary = is_number & varies(mean, scale)
    return np.where(is_number, mean, 0.0), np.where(does_vary, scale, 1.0)


def varies(mean: ArrayLike, scale: ArrayLike) -> NDArray[np.bool_]:
    """Return whether values of a mean and standard deviation differ by more than rounding noise."""
    return np.asarray(scale) > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)


def number_scaling(
    records: Sequence[MoleculeRecord], features: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of the extra features of molecules, ``[F]`` each.

    A feature that is constant, or undefined for all of them, gets so large a scale that it is 0 for
    any molecule: the model cannot have learned from it.

    Args:
        records: One or more molecules, all with the same descriptors and fingerprints.
        features: Features from the columns of the table, ``[n, ...]``, or None.
    """
    size = sum(map(len, _row(records, features, 0)))
    count, total, squares = (np.zeros(size) for _ in range(3))
    for rows in _rows(records, features):
        count += (~np.isnan(rows)).sum(axis=0)
        total += np.nansum(rows, axis=0)
    mean = total / np.maximum(count, 1)
    for rows in _rows(records, features):
        squares += np.nansum((rows - mean) ** 2, axis=0)
    scale = np.sqrt(squares / np.maximum(count, 1))
    return mean, np.where(varies(mean, scale), scale, _UNUSED)


def _rows(
    records: Sequence[MoleculeRecord], features: NDArray[np.float64] | None
) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(records), _ROWS_AT_ONCE):
        places = range(start, min(start + _ROWS_AT_ONCE, len(records)))
        yield np.array(
            [np.concatenate(_row(records, features, place)) for place in places], dtype=np.float64
        )


def _row(
    records: Sequence[MoleculeRecord], features: NDArray[np.float64] | None, place: int
) -> list[NDArray[np.floating]]:
    record = records[place]
    partner = None if record.partner is None else record.partner.numbers
    parts = [None if features is None else features[place], record.numbers, partner]
    return [np.zeros(0), *(part for part in parts if part is not None)]
