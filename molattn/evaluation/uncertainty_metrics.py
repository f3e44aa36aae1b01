"""Scores of prediction intervals and of calibrated probabilities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from molattn.evaluation.metrics import score_tasks
from molattn.model.model import MolAttn
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.uncertainty.calibration import Calibration, ConformalScores, ProbabilityScaling
from molattn.model.uncertainty.model_uncertainty import Prediction

__all__ = ["CALIBRATION_METRICS", "expected_coverage", "score_uncertainty"]

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)

CALIBRATION_METRICS = ("nll", "brier", "ece")
"""Metrics that calibration of the probabilities changes."""


def score_uncertainty(
    model: MolAttn,
    prediction: Prediction,
    outputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    level: float,
) -> dict[str, dict[str, Any]]:
    """Score the prediction intervals of a nominal coverage, or the probabilities, of each task.

    Of the calibrated predictions of n molecules, and of the outputs ``[members, n, outputs]`` that
    they come from; labels are ``[n, T]``, NaN where missing.

    Returns:
        By task. For a regression: ``coverage``, the fraction of labels within their intervals;
        ``coverage_expected`` and ``coverage_sd``, mean and standard deviation of the coverage for
        so many labels and calibration errors if the intervals are valid; ``mean_width``; ``count``
        of labels; ``coverage_at``, the coverage by level. For a classification: ``nll``, ``brier``
        and ``ece``, each ``_before`` and ``_after`` calibration, if the probabilities are
        calibrated. Undefined and infinite values are None, with the reason in ``undefined``. Empty
        for a model that is not calibrated.
    """
    if model.uncertainty is None:
        return {}
    tasks, uncertainty = model.config.tasks, model.uncertainty
    mean = mean_of_members(torch.from_numpy(outputs), tasks)
    uncalibrated = class_probabilities(mean, tasks).numpy()
    before, after = (
        score_tasks(given, targets, tasks).tasks for given in (uncalibrated, prediction.prediction)
    )
    ends = {
        at: uncertainty.intervals(
            model.config, mean.numpy(), prediction.task_similarity, at, model.training_set
        )
        for at in (*_LEVELS, level)
    }
    return {
        task.name: _score_intervals(
            uncertainty.calibration,
            index,
            {at: (low[:, index], high[:, index]) for at, (low, high) in ends.items()},
            targets[:, index],
            level,
        )
        if task.kind == "regression"
        else _score_probabilities(
            before[task.name],
            after[task.name],
            isinstance(uncertainty.calibration.parts[index], ProbabilityScaling),
        )
        for index, task in enumerate(tasks)
    }


def expected_coverage(scores: Mapping[str, Any]) -> str:
    """Return the expected coverage of a regression ± two standard deviations; "-" if undefined."""
    mean, sd = scores["coverage_expected"], scores["coverage_sd"]
    return "-" if mean is None else f"{mean:.3f} ± {2.0 * sd:.3f}"


def _score_intervals(
    calibration: Calibration,
    index: int,
    ends: Mapping[float, tuple[NDArray[np.float64], NDArray[np.float64]]],
    target: NDArray[np.float64],
    level: float,
) -> dict[str, Any]:
    known = ~np.isnan(target)
    labels, count = target[known], int(known.sum())
    intervals = {at: (low[known], high[known]) for at, (low, high) in ends.items()}
    is_finite = {at: bool(np.isfinite(both).all()) for at, both in intervals.items()}
    inside = {
        at: float(np.mean((low <= labels) & (labels <= high)))
        for at, (low, high) in intervals.items()
        if count
    }
    reasons = [] if count else ["no label"]
    if not is_finite[level]:
        reasons += calibration.shortfalls(level, index)
    low, high = intervals[level]
    part = calibration.parts[index]
    assert isinstance(part, ConformalScores)  # of a regression
    expected, sd = part.expected_coverage(level, count) if count else (None, None)
    scores = {
        "coverage": inside.get(level),
        "coverage_expected": expected,
        "coverage_sd": sd,
        "mean_width": float((high - low).mean()) if count else None,
    }
    return {
        "count": count,
        **(dict.fromkeys(scores) if reasons else scores),
        "coverage_at": {f"{at:g}": inside[at] for at in _LEVELS if inside and is_finite[at]},
        "undefined": "; ".join(reasons),
    }


def _score_probabilities(
    before: Mapping[str, Any], after: Mapping[str, Any], is_calibrated: bool
) -> dict[str, Any]:
    if not is_calibrated:
        return {"count": after["count"], "undefined": "the probabilities are not calibrated"}
    scores = {
        f"{key}_{when}": given[key]
        for key in CALIBRATION_METRICS
        for when, given in (("before", before), ("after", after))
    }
    return {"count": after["count"], **scores, "undefined": after["undefined"]}
