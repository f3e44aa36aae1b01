"""The transform of each regression target, as asked for or chosen from its training labels."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.chem.split import Split
from molattn.config import TransformChoice
from molattn.data.dataset import TrainingTable
from molattn.errors import InputError, quoted
from molattn.model.config import MolAttnConfig
from molattn.model.target_transform import TRANSFORMS, TargetTransform
from molattn.task import Task
from molattn.training.scaling import varies

__all__ = [
    "check_logarithms",
    "select_transform",
    "target_transforms",
]

Array = NDArray[np.float64]

_CANDIDATES = ("none", "log", "yeo_johnson")
_FEWEST_LABELS = 20
_MARGIN, _MARGIN_PER_LABEL = 2.0, 0.1


def select_transform(
    labels: Array, *, positive: bool = True
) -> tuple[TargetTransform, dict[str, float]]:
    r"""Choose none, log or yeo_johnson by the log-likelihood of the labels.

    For transformed labels :math:`z_i` of mean :math:`m` and standard deviation :math:`s`, with the
    density :math:`\phi` of a standard normal distribution, it is

    .. math::
        \sum_i \log \phi\big((z_i - m) / s\big)
        + \sum_i \log \frac{\mathrm d z_i}{\mathrm d y_i} - n \log s

    In this order, a transform is taken if its log-likelihood is larger than that of the one taken
    before by more than 2 nats plus 0.1 for each label: a smaller gain hardly changes the model.
    Fewer than 20 labels, or equal ones, are not transformed.

    Args:
        labels: Training labels ``[n]``, NaN where missing.
        positive: Whether log may be chosen, if all labels are above 0.

    Returns:
        The transform, and the log-likelihood by the kind of each that was compared.
    """
    known = labels[~np.isnan(labels)]
    chosen, found = TargetTransform(), dict[str, float]()
    if len(known) < _FEWEST_LABELS:
        return chosen, found
    margin = _MARGIN + _MARGIN_PER_LABEL * len(known)
    for kind in _CANDIDATES:
        if kind == "log" and not (positive and (known > 0.0).all()):
            continue
        transform = _fit(kind, known)
        given = torch.from_numpy(known)
        values = transform.forward(given).numpy()
        mean, scale = values.mean(), values.std()
        if transform.kind != kind or not varies(mean, scale):
            continue
        jacobian = float(transform.log_jacobian(given).sum()) - len(known) * math.log(scale)
        squares = ((values - mean) / scale) ** 2
        found[kind] = -0.5 * float(np.sum(squares + math.log(2.0 * math.pi))) + jacobian
        if found[kind] > found.get(chosen.kind, -math.inf) + margin:
            chosen = transform
    return chosen, found


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
        others: Labels of the validation rows, and bounds of censored ones, ``[m, T]``: auto does
            not take log if one of them has no logarithm.
    """
    wanted = [*choices] * len(tasks) if len(choices) == 1 else choices
    transforms, lines = [], []
    columns = zip(tasks, wanted, training.T, others.T, strict=True)
    for task, choice, labels, more in columns:
        transform, found = TargetTransform(), dict[str, float]()
        if task.kind == "regression" and choice == "auto":
            positive = not (more <= 0.0).any()
            transform, found = select_transform(labels, positive=positive)
        elif task.kind == "regression":
            transform = _fit(choice, labels[~np.isnan(labels)])
        transforms.append(transform)
        if transform.kind != "none":
            scores = [f"log-likelihood {found[transform.kind]:.1f}"] if found else []
            scores += [f"{kind} {one:.1f}" for kind, one in found.items() if kind != transform.kind]
            remark = f" ({', '.join(scores)})" if scores else ""
            lines.append(f"{quoted(task.name)}: {transform.describe()}{remark}")
    return tuple(transforms), lines


def check_logarithms(config: MolAttnConfig, table: TrainingTable, parts: Split) -> None:
    """Check that labels can be transformed as those of the pretrained model, whose head is kept.

    Raises:
        InputError: A training or validation label without a logarithm; names its row and column.
    """
    for task, transform, labels in zip(
        config.tasks, config.target_transforms, table.values.T, strict=True
    ):
        for row in (*parts.train, *parts.val):
            if transform.kind == "log" and labels[row] <= 0.0:
                raise InputError(
                    f"{table.path}, {table.where(row)}, column {quoted(task.name)}: got "
                    f"{labels[row]:g}, but the model of --init-from learned logarithms; use "
                    "--target-transform none"
                )


def _fit(kind: str, labels: Array) -> TargetTransform:
    """Fit a transform to labels ``[n]``; a target that does not vary gets none."""
    does_vary = len(labels) > 1 and bool(varies(labels.mean(), labels.std()))
    return TRANSFORMS[kind].fit(labels) if does_vary else TargetTransform()
