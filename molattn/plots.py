"""Figures of a run: how it learned, and how its predictions compare with the labels."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from molattn.metrics import Scores
from molattn.optimise import History
from molattn.task import Task, output_slices

__all__ = ["calibration_plot", "learning_curve", "parity_plot", "roc_pr_plot", "target_label"]

Array = NDArray[np.float64]

_MOST_PANELS = 12
_MOST_CLASS_TASKS = 6
_MOST_CURVES = 8
_BINS = 10
_COLOURS = {"training": "#7f8c9b", "validation": "#c2410c", "points": "#1d4ed8"}
_CURVES = ["#1d4ed8", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#b45309", "#be185d", "#4d7c0f"]


def learning_curve(histories: Sequence[History]) -> Figure:
    """Plot training and validation loss against the epoch, with the best one marked.

    Args:
        histories: One for each member of an ensemble.
    """
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    best = ", ".join(str(history.best) for history in histories)
    for place, history in enumerate(histories):
        epochs = [epoch.epoch for epoch in history.epochs]
        marker = "o" if len(epochs) == 1 else None
        for name, losses in (
            ("training", [epoch.train_loss for epoch in history.epochs]),
            ("validation", [epoch.validation_loss for epoch in history.epochs]),
        ):
            label = None if place else name
            axes.plot(epochs, losses, color=_COLOURS[name], label=label, marker=marker)
        label = None if place else f"best epoch ({best})"
        axes.axvline(history.best, color="0.6", linestyle=":", label=label)
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
    shown = _shown(prediction, target, tasks, {"regression"})[:_MOST_PANELS]
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(4.5 * columns, 4.5 * rows), layout="constrained")
    for place, (task, guess, truth) in enumerate(shown):
        axes = figure.add_subplot(rows, columns, place + 1)
        _parity(axes, truth, guess[:, 0], target_label(task), scores[task.name])
    return figure


def roc_pr_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Figure:
    """Plot ROC and precision-recall curves, a row for each of the first 6 classifications.

    Several classes are each plotted against the rest.

    Args:
        prediction: Probabilities ``[n, outputs]``.
        target: Places of classes ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    shown = _shown(prediction, target, tasks, {"binary", "multiclass"})[:_MOST_CLASS_TASKS]
    figure = Figure(figsize=(9, 4.5 * len(shown)), layout="constrained")
    for row, (task, guess, truth) in enumerate(shown):
        roc, pr = (figure.add_subplot(len(shown), 2, 2 * row + place) for place in (1, 2))
        roc.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=0)
        curves = _curves(task, guess, truth)
        for (label, chances, is_class), colour in zip(curves, _CURVES, strict=False):
            wrong, found, _ = roc_curve(is_class, chances)
            roc.plot(wrong, found, color=colour, label=label)
            precision, recall, _ = precision_recall_curve(is_class, chances)
            pr.plot(recall, precision, color=colour, label=label, drawstyle="steps-post")
            pr.axhline(is_class.mean(), color=colour, linewidth=0.8, linestyle=":")
        given = scores[task.name]
        name, count = _plain(target_label(task)), given["count"]
        roc.set_title(f"{name}   ROC-AUC {_figure(given, 'roc_auc')}   n = {count}", fontsize=10)
        pr.set_title(f"{name}   PR-AUC {_figure(given, 'pr_auc')}", fontsize=10)
        roc.set(xlabel="false positive rate", ylabel="true positive rate")
        pr.set(xlabel="recall", ylabel="precision (dotted: by chance)")
        for axes in (roc, pr):
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
            _legend_or_reason(axes, bool(curves))
    return figure


def calibration_plot(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Figure:
    """Plot how often a prediction is right against how probable it says it is.

    In 10 equal bins, above the share of predictions in each: for two classes the probability of the
    positive one, for several that of the likeliest; a panel for each of the first 6.

    Args:
        prediction: Probabilities ``[n, outputs]``.
        target: Places of classes ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    shown = _shown(prediction, target, tasks, {"binary", "multiclass"})[:_MOST_CLASS_TASKS]
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(4.5 * columns, 5.2 * rows), layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[4, 1] * rows)
    for place, (task, guess, truth) in enumerate(shown):
        row, column = divmod(place, columns)
        axes = figure.add_subplot(grid[2 * row, column])
        below = figure.add_subplot(grid[2 * row + 1, column], sharex=axes)
        if task.kind == "binary":
            confidence, right = guess[:, 0], truth == 1
            what = f"probability of class {task.classes[1]}"
        else:
            confidence, right = guess.max(axis=1), guess.argmax(axis=1) == truth
            what = "probability of the likeliest class"
        _calibration(axes, below, confidence, right)
        given = scores[task.name]
        title = f"{target_label(task)}   ECE {_figure(given, 'ece')}   n = {given['count']}"
        axes.set_title(_plain(title), fontsize=10)
        below.set_xlabel(_plain(what))
    return figure


def target_label(task: Task) -> str:
    """Return the name of a task with its unit, if it has one."""
    return f"{task.name} ({task.unit})" if task.unit else task.name


def _shown(
    prediction: Array, target: Array, tasks: Sequence[Task], kinds: set[str]
) -> list[tuple[Task, Array, Array]]:
    """Return the tasks of some kinds, with outputs and labels of their labelled rows."""
    shown = []
    for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        if task.kind in kinds:
            known = ~np.isnan(target[:, place])
            shown.append((task, prediction[known, part], target[known, place]))
    return shown


def _parity(axes: Axes, target: Array, prediction: Array, label: str, scores: Scores) -> None:
    axes.scatter(target, prediction, s=14, alpha=0.6, color=_COLOURS["points"], linewidths=0)
    axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=1, zorder=0)
    values = np.concatenate([target, prediction, np.zeros(0 if len(target) else 1)])
    margin = 0.05 * (values.max() - values.min()) or 1.0
    limits = (values.min() - margin, values.max() + margin)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.set_xlabel(f"measured {_plain(label)}")
    axes.set_ylabel(f"predicted {_plain(label)}")
    rmse, mae, r2 = (_figure(scores, key) for key in ("rmse", "mae", "r2"))
    axes.set_title(f"RMSE {rmse}   MAE {mae}   R² {r2}   n = {scores['count']}", fontsize=10)


def _curves(task: Task, guess: Array, truth: Array) -> list[tuple[str, Array, NDArray[np.bool_]]]:
    """Return name, probability and membership of each class that has a curve."""
    labels = [1] if task.kind == "binary" else range(len(task.classes))
    curves = []
    for label in labels:
        is_class = truth == label
        if is_class.any() and not is_class.all():
            chances = guess[:, 0 if task.kind == "binary" else label]
            curves.append((_plain(task.classes[label]), chances, is_class))
    return curves[:_MOST_CURVES]


def _calibration(axes: Axes, below: Axes, confidence: Array, right: NDArray[np.bool_]) -> None:
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    some = counts > 0
    said, seen = (
        np.bincount(bins, weights=values, minlength=_BINS)[some] / counts[some]
        for values in (confidence, right.astype(float))
    )
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=0)
    axes.plot(said, seen, color=_COLOURS["points"], marker="o", markersize=4)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
    axes.tick_params(labelbottom=False)
    below.bar(
        edges[:-1], counts / max(1, counts.sum()), 1 / _BINS, align="edge", color="0.75", ec="w"
    )
    below.set_ylabel("share")


def _legend_or_reason(axes: Axes, has_curves: bool) -> None:
    if has_curves:
        axes.legend(title="class", frameon=False, fontsize=8, title_fontsize=8)
    else:
        axes.text(0.5, 0.5, "one class only", ha="center", va="center", color="0.4")


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # no mathematics in a column's name


def _figure(scores: Scores, key: str) -> str:
    return "-" if scores.get(key) is None else f"{scores[key]:.3f}"
