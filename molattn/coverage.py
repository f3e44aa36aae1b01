"""Whether a model's word on its own errors holds: on rows that it has not seen."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from molattn.calibration import Calibration
from molattn.metrics import score_tasks
from molattn.model import MolAttn
from molattn.task import output_slices
from molattn.uncertainty import Answer

__all__ = ["LEVELS", "score_uncertainty", "uncertainty_tables"]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Levels at which coverage is looked at."""
_PROPER = ("nll", "brier", "ece")
_PROPER_HEADINGS = ("NLL by calibration", "Brier", "ECE")


def score_uncertainty(
    model: MolAttn,
    said: Answer,
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
    said: Answer,
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


def uncertainty_tables(scores: Mapping[str, Mapping[str, Any]], level: float) -> list[Table]:
    """Return the scores of intervals and those of probabilities, for the terminal.

    Args:
        scores: Of :func:`score_uncertainty`.
        level: Of the intervals.
    """
    intervals = _table("test", "labels", f"in {level:.0%} intervals", "by chance", "mean width")
    probabilities = _table("test", "labels", *_PROPER_HEADINGS)
    for name, given in scores.items():
        if "coverage" in given:
            sd = given["coverage_sd"]
            chance = "-" if sd is None else f"{level:.3f} ± {2.0 * sd:.3f}"
            cells = _figure(given["coverage"]), chance, _figure(given["mean_width"])
            intervals.add_row(name, str(given["count"]), *cells)
        else:
            pairs = ((given[f"{key}_before"], given[f"{key}_after"]) for key in _PROPER)
            cells = (f"{_figure(before)} to {_figure(after)}" for before, after in pairs)
            probabilities.add_row(name, str(given["count"]), *cells)
    return [table for table in (intervals, probabilities) if table.row_count]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
