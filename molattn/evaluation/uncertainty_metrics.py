"""Whether a model's word on its own errors holds: on rows that it has not seen."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.evaluation.metrics import score_tasks
from molattn.model.model import MolAttn
from molattn.model.uncertainty.calibration import Calibration
from molattn.model.uncertainty.prediction import Prediction
from molattn.task import output_slices

__all__ = ["LEVELS", "score_uncertainty"]


LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Levels at which coverage is looked at."""

_PROPER = ("nll", "brier", "ece")


def score_uncertainty(
    model: MolAttn,
    said: Prediction,
    uncalibrated: NDArray[np.float64],
    targets: NDArray[np.float64],
    level: float,
) -> dict[str, dict[str, Any]]:
    """Score intervals and probabilities, task by task.

    Args:
        model: The model, of T tasks.
        said: What it says of n molecules.
        uncalibrated: What it predicts without calibration, ``[n, outputs]``.
        targets: Their labels ``[n, T]``, NaN where missing.
        level: Of the intervals that are told of.

    Returns:
        By task, of regressions: ``coverage``, the part of the labels inside their intervals;
        ``coverage_sd``, the standard deviation around the level that chance alone gives so many
        labels and calibration errors; ``mean_width``; ``count`` of labels; ``coverage_at`` by
        level. Of classifications: ``nll``, ``brier`` and ``ece``, each as ``_before`` and
        ``_after`` calibration. None where undefined or infinite, and ``undefined`` says why.
        Nothing for a model that has not been calibrated.
    """
    if model.uncertainty is None:
        return {}
    tasks, calibration = model.config.tasks, model.uncertainty.calibration
    before, after = (
        score_tasks(given, targets, tasks).tasks for given in (uncalibrated, said.prediction)
    )
    return {
        task.name: _of_interval(calibration, place, said, part.start, targets[:, place], level)
        if task.kind == "regression"
        else _of_probability(before[task.name], after[task.name])
        for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True))
    }


def _of_interval(
    calibration: Calibration,
    place: int,
    said: Prediction,
    output: int,
    target: NDArray[np.float64],
    level: float,
) -> dict[str, Any]:
    known = ~np.isnan(target)
    errors = np.abs(target - said.prediction[:, output])[known]
    widths = {
        at: calibration.half_widths(said.similarity[known], at)[:, place] for at in (*LEVELS, level)
    }
    is_finite = bool(np.isfinite(widths[level]).all())
    inside = {at: float(np.mean(errors <= width)) for at, width in widths.items() if known.any()}
    reasons = [] if known.any() else ["no label"]
    if not is_finite:
        reasons += calibration.without_interval(level, place)
    scores = {
        "coverage": inside.get(level),
        "coverage_sd": calibration.coverage_sd(place, level, len(errors)) if known.any() else None,
        "mean_width": float(2.0 * widths[level].mean()) if known.any() else None,
    }
    return {
        "count": int(known.sum()),
        **(dict.fromkeys(scores) if reasons else scores),
        "coverage_at": {
            f"{at:g}": inside[at] for at in LEVELS if inside and np.isfinite(widths[at]).all()
        },
        "undefined": "; ".join(reasons),
    }


def _of_probability(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    scores = {
        f"{key}_{when}": given[key]
        for key in _PROPER
        for when, given in (("before", before), ("after", after))
    }
    return {"count": after["count"], **scores, "undefined": after["undefined"]}


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
