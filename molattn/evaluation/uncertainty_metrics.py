"""Scores of prediction intervals and of calibrated probabilities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.evaluation.metrics import score_tasks
from molattn.model.model import MolAttn
from molattn.model.uncertainty.calibration import Calibration
from molattn.model.uncertainty.model_uncertainty import Prediction
from molattn.task import output_slices

__all__ = ["CALIBRATION_METRICS", "score_uncertainty"]

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)

CALIBRATION_METRICS = ("nll", "brier", "ece")
"""Metrics that calibration of the probabilities changes."""


def score_uncertainty(
    model: MolAttn,
    prediction: Prediction,
    uncalibrated: NDArray[np.float64],
    targets: NDArray[np.float64],
    level: float,
) -> dict[str, dict[str, Any]]:
    """Score the prediction intervals of a nominal coverage, or the probabilities, of each task.

    Of the calibrated predictions of n molecules, and of the uncalibrated ones ``[n, outputs]``;
    labels are ``[n, T]``, NaN where missing.

    Returns:
        By task. For a regression: ``coverage``, the fraction of labels within their intervals;
        ``coverage_sd``, the standard deviation of the coverage for so many labels and calibration
        errors if the intervals are valid; ``mean_width``; ``count`` of labels; ``coverage_at``, the
        coverage by level. For a classification: ``nll``, ``brier`` and ``ece``, each ``_before``
        and ``_after`` calibration. Undefined and infinite values are None, with the reason in
        ``undefined``. Empty for a model that is not calibrated.
    """
    if model.uncertainty is None:
        return {}
    tasks, calibration = model.config.tasks, model.uncertainty.calibration
    before, after = (
        score_tasks(given, targets, tasks).tasks for given in (uncalibrated, prediction.prediction)
    )
    return {
        task.name: _score_intervals(
            calibration, index, prediction, part.start, targets[:, index], level
        )
        if task.kind == "regression"
        else _score_probabilities(before[task.name], after[task.name])
        for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True))
    }


def _score_intervals(
    calibration: Calibration,
    index: int,
    prediction: Prediction,
    output: int,
    target: NDArray[np.float64],
    level: float,
) -> dict[str, Any]:
    known = ~np.isnan(target)
    errors = np.abs(target - prediction.prediction[:, output])[known]
    similarity = prediction.similarity[known]
    widths = {at: calibration.half_widths(similarity, at)[:, index] for at in (*_LEVELS, level)}
    is_finite = bool(np.isfinite(widths[level]).all())
    inside = {at: float(np.mean(errors <= width)) for at, width in widths.items() if known.any()}
    reasons = [] if known.any() else ["no label"]
    if not is_finite:
        reasons += calibration.without_interval(level, index)
    scores = {
        "coverage": inside.get(level),
        "coverage_sd": calibration.coverage_sd(index, level, len(errors)) if known.any() else None,
        "mean_width": float(2.0 * widths[level].mean()) if known.any() else None,
    }
    return {
        "count": int(known.sum()),
        **(dict.fromkeys(scores) if reasons else scores),
        "coverage_at": {
            f"{at:g}": inside[at] for at in _LEVELS if inside and np.isfinite(widths[at]).all()
        },
        "undefined": "; ".join(reasons),
    }


def _score_probabilities(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    scores = {
        f"{key}_{when}": given[key]
        for key in CALIBRATION_METRICS
        for when, given in (("before", before), ("after", after))
    }
    return {"count": after["count"], **scores, "undefined": after["undefined"]}
