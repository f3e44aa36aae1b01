"""Transforms and standardization of targets, and of extra features, by the training rows."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from molattn.config.data import TransformChoice
from molattn.data.dataset import Molecules
from molattn.errors import quoted
from molattn.model.model import MolAttn
from molattn.model.target_transform import (
    TRANSFORMS,
    IdentityTransform,
    TargetTransform,
    transformed_labels,
)
from molattn.record import MoleculeRecord
from molattn.task import Task

Array = NDArray[np.float64]

_UNUSED = float(np.finfo(np.float32).max)
_ROWS_AT_ONCE = 4096
_CANDIDATES = ("none", "log", "yeo_johnson")
_MIN_LABELS = 20
_MARGIN = 2.0
_MARGIN_PER_LABEL = 0.1


def scale_by(model: MolAttn, rows: Molecules, transforms: Sequence[TargetTransform] = ()) -> None:
    """Set the scaling of targets, with the transform of each, and extra features of a model.

    A bound counts as a label, because predictions should lie near it.
    """
    targets = rows.labels_or_bounds
    if transforms:
        targets = transformed_labels(torch.from_numpy(targets), transforms).numpy()
    model.set_target_scaling(*target_scaling(targets, model.config.tasks), transforms)
    model.set_feature_scaling(*number_scaling(rows.records, rows.features))
    for level, labels in rows.sites.items():
        mean, scale = target_scaling(labels.labels_or_bounds, labels.tasks)
        sizes = [task.num_outputs for task in labels.tasks]
        for net in model.networks.members:
            head = net.site_head(level)
            head.mean.copy_(torch.from_numpy(np.repeat(mean, sizes)))
            head.scale.copy_(torch.from_numpy(np.repeat(scale, sizes)))


def target_scaling(targets: Array, tasks: Sequence[Task]) -> tuple[Array, Array]:
    """Return the mean and standard deviation of each target over its labels ``[n, T]``.

    They are 0 and 1 for a classification; a constant target has scale 1.
    """
    mean = np.nanmean(targets, axis=0)
    scale = np.nanstd(targets, axis=0)
    is_number = np.array([task.kind == "regression" for task in tasks], dtype=bool)
    does_vary = is_number & _varies(mean, scale)
    return np.where(is_number, mean, 0.0), np.where(does_vary, scale, 1.0)


def number_scaling(
    records: Sequence[MoleculeRecord], features: Array | None
) -> tuple[Array, Array]:
    """Return mean and standard deviation of the extra features of molecules, ``[F]`` each.

    A feature that is constant, or undefined for all of them, gets so large a scale that it is 0 for
    any molecule: the model cannot have learned from it.
    """
    size = len(_numbers(records, features, 0))
    count, total, squares = (np.zeros(size) for _ in range(3))
    for rows in _blocks(records, features):
        count += (~np.isnan(rows)).sum(axis=0)
        total += np.nansum(rows, axis=0)
    count = np.maximum(count, 1)
    mean = total / count
    for rows in _blocks(records, features):
        squares += np.nansum((rows - mean) ** 2, axis=0)
    scale = np.sqrt(squares / count)
    return mean, np.where(_varies(mean, scale), scale, _UNUSED)


def _blocks(records: Sequence[MoleculeRecord], features: Array | None) -> Iterator[Array]:
    for start in range(0, len(records), _ROWS_AT_ONCE):
        rows = range(start, min(start + _ROWS_AT_ONCE, len(records)))
        yield np.array([_numbers(records, features, row) for row in rows], dtype=np.float64)


def _numbers(
    records: Sequence[MoleculeRecord], features: Array | None, row: int
) -> NDArray[np.floating]:
    record = records[row]
    partner = None if record.partner is None else record.partner.numbers
    groups = [None if features is None else features[row], record.numbers, partner]
    return np.concatenate([np.zeros(0), *(numbers for numbers in groups if numbers is not None)])


def select_transform(
    labels: Array, *, positive: bool = True
) -> tuple[TargetTransform, dict[str, float]]:
    r"""Choose none, log or yeo_johnson by the log-likelihood of the labels.

    For transformed labels :math:`z_i` of mean :math:`m` and standard deviation :math:`s`, with the
    density :math:`\phi` of a standard normal distribution, it is

    .. math::
        \sum_i \log \phi\big((z_i - m) / s\big)
        + \sum_i \log \frac{\mathrm d z_i}{\mathrm d y_i} - n \log s

    In this order, a transform takes the place of the former if its log-likelihood is larger by more
    than 2 nats plus 0.1 for each label: a smaller gain hardly changes the model.
    Fewer than 20 labels, or equal ones, are not transformed; log may be chosen if ``positive``.

    Returns:
        The transform, and the log-likelihood by the kind of each that was compared.
    """
    measured = labels[~np.isnan(labels)]
    best = IdentityTransform()
    likelihoods = dict[str, float]()
    if len(measured) < _MIN_LABELS:
        return best, likelihoods
    margin = _MARGIN + _MARGIN_PER_LABEL * len(measured)
    for kind in _CANDIDATES:
        if kind == "log" and not (positive and (measured > 0.0).all()):
            continue
        transform = _fit(kind, measured)
        tensor = torch.from_numpy(measured)
        values = transform.forward(tensor).numpy()
        mean = values.mean()
        scale = values.std()
        if transform.kind != kind or not _varies(mean, scale):
            continue
        jacobian = float(transform.log_jacobian(tensor).sum()) - len(measured) * math.log(scale)
        squares = ((values - mean) / scale) ** 2
        likelihoods[kind] = -0.5 * float(np.sum(squares + math.log(2.0 * math.pi))) + jacobian
        if likelihoods[kind] > likelihoods.get(best.kind, -math.inf) + margin:
            best = transform
    return best, likelihoods


def target_transforms(
    tasks: Sequence[Task],
    choices: Sequence[TransformChoice],
    training: Array,
    others: Array,
) -> tuple[tuple[TargetTransform, ...], list[str]]:
    """Return the transform of each task, and a log line for each that is transformed.

    ``auto`` calls :func:`select_transform`; a transform that is asked for is fitted to the training
    labels. A target that does not vary, and a classification, is not transformed.

    Args:
        tasks: T tasks.
        choices: One for all of them, or one for each.
        training: Labels of the training rows ``[n, T]``, NaN where missing or censored.
        others: Further labels and bounds ``[m, T]``: no log by auto if one has no logarithm.
    """
    wanted = [*choices] * len(tasks) if len(choices) == 1 else choices
    transforms = []
    lines = []
    for task, choice, labels, more in zip(tasks, wanted, training.T, others.T, strict=True):
        transform = IdentityTransform()
        likelihoods = dict[str, float]()
        if task.kind == "regression" and choice == "auto":
            transform, likelihoods = select_transform(labels, positive=not (more <= 0.0).any())
        elif task.kind == "regression":
            transform = _fit(choice, labels[~np.isnan(labels)])
        transforms.append(transform)
        if transform.kind != "none":
            scores = ", ".join(
                f"{kind} {likelihood:.1f}" for kind, likelihood in likelihoods.items()
            )
            remark = f" (log-likelihood: {scores})" if scores else ""
            lines.append(f"{quoted(task.name)}: {transform.describe()}{remark}")
    return tuple(transforms), lines


def _fit(kind: str, labels: Array) -> TargetTransform:
    """Fit a transform to labels ``[n]``; a target that does not vary gets none."""
    does_vary = len(labels) > 1 and bool(_varies(labels.mean(), labels.std()))
    return TRANSFORMS[kind].fit(labels) if does_vary else IdentityTransform()


def _varies(mean: ArrayLike, scale: ArrayLike) -> NDArray[np.bool_]:
    """Return whether values of a mean and standard deviation differ by more than rounding noise."""
    return np.asarray(scale) > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
