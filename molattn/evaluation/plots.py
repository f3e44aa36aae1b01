"""Plots of a run: its learning curve, and its predictions and uncertainty against the labels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from molattn.evaluation.metrics import METRICS, Scores, format_score
from molattn.evaluation.score_tables import target_label
from molattn.task import Task, output_slices
from molattn.training.history import History

__all__ = [
    "COLOURS",
    "calibration_plot",
    "coverage_plot",
    "learning_curve",
    "parity_plot",
    "roc_pr_plot",
    "similarity_plot",
    "task_plots",
]

Array = NDArray[np.float64]

_MOST_REGRESSIONS = 12
_MOST_CLASSIFICATIONS = 6
_MOST_CURVES = 8
_BINS = 10
_QUANTILES = 5
_MOST_VECTOR_POINTS = 2000  # more are drawn as a bitmap

# Distinguishable with colour blindness (Okabe and Ito 2008), without their yellow.
COLOURS = {
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "black": "#000000",
    "grey": "#767676",
}
"""All colours of plots by name."""
_CURVES = [COLOURS[name] for name in COLOURS if name != "grey"]
_LINES = ["-", "--"]
_REFERENCE = {"color": COLOURS["grey"], "linewidth": 1, "zorder": 0}


class _TaskRows(NamedTuple):
    """The labelled rows of a task: outputs, labels, and which of all rows they are."""

    task: Task
    predicted: Array
    truth: Array
    known: NDArray[np.bool_]


def learning_curve(histories: Sequence[History]) -> Figure:
    """Plot training and validation loss against the epoch, with the kept epoch marked.

    Args:
        histories: One, or one for each member of an ensemble.
    """
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    best = ", ".join(str(history.best) for history in histories)
    for index, history in enumerate(histories):
        epochs = [epoch.epoch for epoch in history.epochs]
        marker = "o" if len(epochs) == 1 else None
        for name, colour, line, losses in (
            ("training", "blue", "--", [epoch.train_loss for epoch in history.epochs]),
            ("validation", "vermillion", "-", [epoch.validation_loss for epoch in history.epochs]),
        ):
            label = None if index else name
            axes.plot(epochs, losses, line, color=COLOURS[colour], label=label, marker=marker)
        label = None if index else f"kept epoch ({best})"
        axes.axvline(history.best, color=COLOURS["grey"], linestyle=":", label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss (scaled targets)")
    axes.set_title("Learning curve")
    axes.legend(frameon=False)
    return figure


def parity_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Figure:
    """Plot predicted against measured values, a panel for each of the first 12 regressions.

    Args:
        prediction: ``[n, outputs]``.
        target: ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    shown = _regressions(prediction, target, tasks)
    figure, rows, columns = _panels(len(shown), 4.5)
    for panel, one in enumerate(shown, start=1):
        _parity(figure.add_subplot(rows, columns, panel), one, scores[one.task.name])
    return figure


def similarity_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], similarity: Array
) -> Figure:
    """Plot absolute errors against the similarity to the training set, for 12 regressions.

    With the mean absolute error of each quintile of the similarity.

    Args:
        prediction: ``[n, outputs]``.
        target: ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        similarity: Tanimoto similarity to the nearest training molecule, ``[n]``.
    """
    shown = _regressions(prediction, target, tasks)
    figure, rows, columns = _panels(len(shown), 4.0)
    for panel, (task, predicted, truth, known) in enumerate(shown, start=1):
        axes = figure.add_subplot(rows, columns, panel)
        similar, errors = similarity[known], np.abs(predicted[:, 0] - truth)
        axes.scatter(similar, errors, s=10, alpha=0.4, color=COLOURS["blue"], linewidths=0)
        quintiles = np.array_split(np.argsort(similar, kind="stable"), _QUANTILES)
        means = [(similar[part].mean(), errors[part].mean()) for part in quintiles if len(part)]
        if means:
            axes.plot(*zip(*means, strict=True), color=COLOURS["vermillion"], marker="o")
        axes.set(xlim=(-0.02, 1.02), xlabel="Tanimoto similarity to the training set")
        axes.set_ylabel(f"absolute error of {plain(target_label(task))}")
        axes.set_title(f"line: mean of each quintile   n = {len(errors)}", fontsize=10)
    return figure


def coverage_plot(tasks: Sequence[Task], uncertainty: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Plot the observed coverage of prediction intervals against the nominal one.

    For the first 7 regressions.

    Args:
        tasks: All tasks.
        uncertainty: From :func:`molattn.evaluation.uncertainty_metrics.score_uncertainty`.
    """
    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    regressions = [task for task in tasks if task.kind == "regression"]
    for task, colour in zip(regressions, _CURVES, strict=False):
        scores = uncertainty[task.name]
        levels = [float(level) for level in scores["coverage_at"]]
        observed = [*scores["coverage_at"].values()]
        label = f"{plain(task.name)} (n = {scores['count']})"
        axes.plot(levels, observed, color=colour, marker="o", markersize=4, label=label)
    _unit_square(axes, "nominal coverage of the intervals", "fraction of labels in the interval")
    axes.legend(frameon=False, fontsize=8)
    return figure


def roc_pr_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Figure:
    """Plot ROC and precision-recall curves, a row for each of the first 6 classifications.

    Each of several classes is plotted against the rest.

    Args:
        prediction: Probabilities ``[n, outputs]``.
        target: Indices of classes ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    shown = _classifications(prediction, target, tasks)
    figure = Figure(figsize=(9, 4.5 * len(shown)), layout="constrained")
    for row, one in enumerate(shown):
        roc, pr = (figure.add_subplot(len(shown), 2, 2 * row + panel) for panel in (1, 2))
        _roc(roc, one, scores[one.task.name])
        _precision_recall(pr, one, scores[one.task.name])
    return figure


def calibration_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Figure:
    """Plot observed frequencies against predicted probabilities (reliability diagram).

    In 10 equal bins, above the fraction of predictions in each bin. Of the second of two classes,
    or of the most probable of several; a panel for each of the first 6 classifications.

    Args:
        prediction: Probabilities ``[n, outputs]``.
        target: Indices of classes ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    shown = _classifications(prediction, target, tasks)
    figure, rows, columns = _panels(len(shown), 5.2)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[4, 1] * rows)
    for index, one in enumerate(shown):
        row, column = divmod(index, columns)
        axes = figure.add_subplot(grid[2 * row, column])
        below = figure.add_subplot(grid[2 * row + 1, column], sharex=axes)
        _calibration(axes, below, one, scores[one.task.name])
    return figure


def task_plots(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Iterator[tuple[Task, dict[str, Figure]]]:
    """Yield each task with its plots by title, a figure each.

    Args:
        prediction: ``[n, outputs]``.
        target: ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    for one in _labelled(prediction, target, tasks):
        task, given = one.task, scores[one.task.name]
        if task.kind == "regression":
            figure = Figure(figsize=(4.5, 4.5), layout="constrained")
            _parity(figure.add_subplot(), one, given)
            yield task, {"Predicted against measured": figure}
            continue
        roc, pr, calibration = (Figure(figsize=(4.5, 4.5), layout="constrained") for _ in range(3))
        _roc(roc.add_subplot(), one, given)
        _precision_recall(pr.add_subplot(), one, given)
        grid = calibration.add_gridspec(2, 1, height_ratios=[4, 1])
        axes = calibration.add_subplot(grid[0])
        below = calibration.add_subplot(grid[1], sharex=axes)
        _calibration(axes, below, one, given)
        yield task, {"ROC curve": roc, "Precision and recall": pr, "Calibration": calibration}


def plain(text: str) -> str:
    """Escape dollar signs, between which matplotlib would typeset mathematics."""
    return text.replace("$", r"\$")


def _labelled(prediction: Array, target: Array, tasks: Sequence[Task]) -> Iterator[_TaskRows]:
    for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        known = ~np.isnan(target[:, index])
        yield _TaskRows(task, prediction[known, part], target[known, index], known)


def _regressions(prediction: Array, target: Array, tasks: Sequence[Task]) -> list[_TaskRows]:
    rows = _labelled(prediction, target, tasks)
    return [one for one in rows if one.task.kind == "regression"][:_MOST_REGRESSIONS]


def _classifications(prediction: Array, target: Array, tasks: Sequence[Task]) -> list[_TaskRows]:
    rows = _labelled(prediction, target, tasks)
    return [one for one in rows if one.task.kind != "regression"][:_MOST_CLASSIFICATIONS]


def _panels(count: int, height: float) -> tuple[Figure, int, int]:
    """Return a figure for so many panels, with the numbers of their rows and columns."""
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(4.5 * columns, height * rows), layout="constrained")
    return figure, rows, columns


def _parity(axes: Axes, rows: _TaskRows, scores: Scores) -> None:
    prediction, target, label = rows.predicted[:, 0], rows.truth, plain(target_label(rows.task))
    many = len(target) > _MOST_VECTOR_POINTS
    colour = COLOURS["blue"]
    axes.scatter(target, prediction, 14, colour, alpha=0.6, linewidths=0, rasterized=many)
    axes.axline((0.0, 0.0), slope=1.0, **_REFERENCE)
    values = np.concatenate([target, prediction, np.zeros(0 if len(target) else 1)])
    margin = 0.05 * (values.max() - values.min()) or 1.0
    limits = (values.min() - margin, values.max() + margin)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.set_xlabel(f"measured {label}")
    axes.set_ylabel(f"predicted {label}")
    axes.set_title(_title(scores, "rmse", "mae", "r2"), fontsize=10)


def _roc(axes: Axes, rows: _TaskRows, scores: Scores) -> None:
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    curves = _curves(rows)
    for (label, probabilities, is_class), style in zip(curves, _styles(), strict=False):
        wrong, found, _ = roc_curve(is_class, probabilities)
        axes.plot(wrong, found, label=label, **style)
    title = f"{target_label(rows.task)}   {_title(scores, 'roc_auc')}"
    axes.set_title(plain(title), fontsize=10)
    _unit_square(axes, "false positive rate", "true positive rate")
    _legend_or_reason(axes, bool(curves))


def _precision_recall(axes: Axes, rows: _TaskRows, scores: Scores) -> None:
    curves = _curves(rows)
    for (label, probabilities, is_class), style in zip(curves, _styles(), strict=False):
        precision, recall, _ = precision_recall_curve(is_class, probabilities)
        axes.plot(recall, precision, label=label, drawstyle="steps-post", **style)
        axes.axhline(is_class.mean(), color=style["color"], linewidth=0.8, linestyle=":")
    title = f"{target_label(rows.task)}   {_title(scores, 'pr_auc')}"
    axes.set_title(plain(title), fontsize=10)
    _unit_square(axes, "recall", "precision (dotted: random)")
    _legend_or_reason(axes, bool(curves))


def _unit_square(axes: Axes, x: str, y: str) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=x, ylabel=y)


def _styles() -> list[dict[str, Any]]:
    """Return the styles of curves: all colours with solid lines, then with dashed ones."""
    return [{"color": colour, "linestyle": line} for line in _LINES for colour in _CURVES]


def _curves(rows: _TaskRows) -> list[tuple[str, Array, NDArray[np.bool_]]]:
    """Return name, probabilities and labels of each class that has a curve."""
    task, predicted, truth, _ = rows
    labels = [1] if task.kind == "binary" else range(len(task.classes))
    curves = []
    for label in labels:
        is_class = truth == label
        if is_class.any() and not is_class.all():
            probabilities = predicted[:, 0 if task.kind == "binary" else label]
            curves.append((plain(task.classes[label]), probabilities, is_class))
    return curves[:_MOST_CURVES]


def _calibration(axes: Axes, below: Axes, rows: _TaskRows, scores: Scores) -> None:
    task, predicted, truth, _ = rows
    if task.kind == "binary":
        confidence, right = predicted[:, 0], truth == 1
        what = f"probability of class {task.classes[1]}"
    else:
        confidence, right = predicted.max(axis=1), predicted.argmax(axis=1) == truth
        what = "probability of the most probable class"
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    some = counts > 0
    mean_probability, frequency = (
        np.bincount(bins, weights=values, minlength=_BINS)[some] / counts[some]
        for values in (confidence, right.astype(float))
    )
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    axes.plot(mean_probability, frequency, color=COLOURS["blue"], marker="o", markersize=4)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
    axes.tick_params(labelbottom=False)
    below.bar(
        edges[:-1], counts / max(1, counts.sum()), 0.9 / _BINS, align="edge", color=COLOURS["grey"]
    )
    below.set_ylabel("fraction")
    axes.set_title(plain(f"{target_label(task)}   {_title(scores, 'ece')}"), fontsize=10)
    below.set_xlabel(plain(what))


def _legend_or_reason(axes: Axes, has_curves: bool) -> None:
    if has_curves:
        axes.legend(title="class", frameon=False, fontsize=8, title_fontsize=8)
    else:
        axes.text(0.5, 0.5, "one class only", ha="center", va="center", color=COLOURS["grey"])


def _title(scores: Scores, *metrics: str) -> str:
    values = [f"{METRICS[name].heading} {format_score(scores.get(name))}" for name in metrics]
    return "   ".join([*values, f"n = {scores['count']}"])
