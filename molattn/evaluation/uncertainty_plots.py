"""Figures of a model's word on its own errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from molattn.evaluation.plots import COLOURS, plain, target_label
from molattn.task import Task, output_slices

__all__ = ["coverage_plot", "similarity_plot"]

Array = NDArray[np.float64]

_CURVES = [colour for name, colour in COLOURS.items() if name != "grey"]
_MOST_PANELS = 12
_FIFTHS = 5


def coverage_plot(tasks: Sequence[Task], uncertainty: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Plot the part of the labels inside their intervals against the level, for 7 regressions.

    Args:
        tasks: All tasks.
        uncertainty: Of :func:`molattn.evaluation.uncertainty_metrics.score_uncertainty`.
    """
    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=COLOURS["grey"], linewidth=1, zorder=0)
    numbers = [task for task in tasks if task.kind == "regression"]
    for task, colour in zip(numbers, _CURVES, strict=False):
        given = uncertainty[task.name]
        levels = [float(level) for level in given["coverage_at"]]
        label = f"{plain(task.name)} (n = {given['count']})"
        inside = [*given["coverage_at"].values()]
        axes.plot(levels, inside, color=colour, marker="o", markersize=4, label=label)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set(xlabel="level of the intervals", ylabel="part of the labels inside")
    axes.legend(frameon=False, fontsize=8)
    return figure


def similarity_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], similarity: Array
) -> Figure:
    """Plot errors against the similarity to the nearest training molecule, for 12 regressions.

    With the mean absolute error of each fifth of the molecules.

    Args:
        prediction: ``[n, outputs]``.
        target: ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        similarity: ``[n]``.
    """
    shown = [
        (task, np.abs(prediction[:, part.start] - target[:, place]))
        for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True))
        if task.kind == "regression"
    ][:_MOST_PANELS]
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(4.5 * columns, 4 * rows), layout="constrained")
    for panel, (task, errors) in enumerate(shown, start=1):
        axes = figure.add_subplot(rows, columns, panel)
        known = ~np.isnan(errors)
        alike, errors = similarity[known], errors[known]
        axes.scatter(alike, errors, s=10, alpha=0.4, color=COLOURS["blue"], linewidths=0)
        fifths = np.array_split(np.argsort(alike, kind="stable"), _FIFTHS)
        means = [(alike[part].mean(), errors[part].mean()) for part in fifths if len(part)]
        if means:
            axes.plot(*zip(*means, strict=True), color=COLOURS["vermillion"], marker="o")
        axes.set(xlim=(-0.02, 1.02), xlabel="similarity to the nearest training molecule")
        axes.set_ylabel(f"absolute error of {plain(target_label(task))}")
        axes.set_title(f"line: mean of each fifth   n = {len(errors)}", fontsize=10)
    return figure
