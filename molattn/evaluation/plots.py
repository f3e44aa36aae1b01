"""Figures of a run: how it learned, and how its predictions compare with the labels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from molattn.evaluation.metrics import Scores
from molattn.task import Task, TaskKind, output_slices
from molattn.training.history import History

__all__ = [
    "COLOURS",
    "calibration_plot",
    "learning_curve",
    "parity_plot",
    "roc_pr_plot",
    "target_label",
    "task_plots",
]

Array = NDArray[np.float64]

_MOST_PANELS = 12
_MOST_CLASS_TASKS = 6
_MOST_CURVES = 8
_BINS = 10
_MOST_VECTOR_POINTS = 2000  # beyond, points are drawn as one picture

# Told apart by whoever does not see all colours (Okabe and Ito 2008), the yellow left out.
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
"""Every colour that a plot has, by name."""
_CURVES = [COLOURS[name] for name in COLOURS if name != "grey"]
_LINES = ["-", "--"]
_FAINT = {"color": COLOURS["grey"], "linewidth": 1, "zorder": 0}


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
        for name, colour, line, losses in (
            ("training", "blue", "--", [epoch.train_loss for epoch in history.epochs]),
            ("validation", "vermillion", "-", [epoch.validation_loss for epoch in history.epochs]),
        ):
            label = None if place else name
            axes.plot(epochs, losses, line, color=COLOURS[colour], label=label, marker=marker)
        label = None if place else f"kept epoch ({best})"
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
        _roc(roc, task, guess, truth, scores[task.name])
        _precision_recall(pr, task, guess, truth, scores[task.name])
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
        _calibration(axes, below, task, guess, truth, scores[task.name])
    return figure


def task_plots(
    prediction: Array, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> Iterator[tuple[Task, dict[str, Figure]]]:
    """Yield each task with its plots, a figure each, named by what they show.

    Args:
        prediction: ``[n, outputs]``.
        target: ``[n, T]``, NaN where missing.
        tasks: The T tasks.
        scores: Their scores, for the titles.
    """
    for task, guess, truth in _shown(prediction, target, tasks, set(get_args(TaskKind))):
        given = scores[task.name]
        if task.kind == "regression":
            figure = Figure(figsize=(4.5, 4.5), layout="constrained")
            _parity(figure.add_subplot(), truth, guess[:, 0], target_label(task), given)
            yield task, {"Predicted against measured": figure}
            continue
        roc, pr, calibration = (Figure(figsize=(4.5, 4.5), layout="constrained") for _ in range(3))
        _roc(roc.add_subplot(), task, guess, truth, given)
        _precision_recall(pr.add_subplot(), task, guess, truth, given)
        grid = calibration.add_gridspec(2, 1, height_ratios=[4, 1])
        axes = calibration.add_subplot(grid[0])
        below = calibration.add_subplot(grid[1], sharex=axes)
        _calibration(axes, below, task, guess, truth, given)
        yield task, {"ROC curve": roc, "Precision and recall": pr, "Calibration": calibration}


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
    many = len(target) > _MOST_VECTOR_POINTS
    colour = COLOURS["blue"]
    axes.scatter(target, prediction, 14, colour, alpha=0.6, linewidths=0, rasterized=many)
    axes.axline((0.0, 0.0), slope=1.0, **_FAINT)
    values = np.concatenate([target, prediction, np.zeros(0 if len(target) else 1)])
    margin = 0.05 * (values.max() - values.min()) or 1.0
    limits = (values.min() - margin, values.max() + margin)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.set_xlabel(f"measured {plain(label)}")
    axes.set_ylabel(f"predicted {plain(label)}")
    rmse, mae, r2 = (_figure(scores, key) for key in ("rmse", "mae", "r2"))
    axes.set_title(f"RMSE {rmse}   MAE {mae}   R² {r2}   n = {scores['count']}", fontsize=10)


def _roc(axes: Axes, task: Task, guess: Array, truth: Array, scores: Scores) -> None:
    axes.plot([0, 1], [0, 1], **_FAINT)
    curves = _curves(task, guess, truth)
    for (label, chances, is_class), style in zip(curves, _styles(), strict=False):
        wrong, found, _ = roc_curve(is_class, chances)
        axes.plot(wrong, found, label=label, **style)
    name, score, count = plain(target_label(task)), _figure(scores, "roc_auc"), scores["count"]
    axes.set_title(f"{name}   ROC-AUC {score}   n = {count}", fontsize=10)
    _unit_square(axes, "false positive rate", "true positive rate")
    _legend_or_reason(axes, bool(curves))


def _precision_recall(axes: Axes, task: Task, guess: Array, truth: Array, scores: Scores) -> None:
    curves = _curves(task, guess, truth)
    for (label, chances, is_class), style in zip(curves, _styles(), strict=False):
        precision, recall, _ = precision_recall_curve(is_class, chances)
        axes.plot(recall, precision, label=label, drawstyle="steps-post", **style)
        axes.axhline(is_class.mean(), color=style["color"], linewidth=0.8, linestyle=":")
    name, score = plain(target_label(task)), _figure(scores, "pr_auc")
    axes.set_title(f"{name}   PR-AUC {score}", fontsize=10)
    _unit_square(axes, "recall", "precision (dotted: by chance)")
    _legend_or_reason(axes, bool(curves))


def _unit_square(axes: Axes, x: str, y: str) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=x, ylabel=y)


def _styles() -> list[dict[str, Any]]:
    """Return how to draw each of several curves; colours come again with another line."""
    return [{"color": colour, "linestyle": line} for line in _LINES for colour in _CURVES]


def _curves(task: Task, guess: Array, truth: Array) -> list[tuple[str, Array, NDArray[np.bool_]]]:
    """Return name, probability and membership of each class that has a curve."""
    labels = [1] if task.kind == "binary" else range(len(task.classes))
    curves = []
    for label in labels:
        is_class = truth == label
        if is_class.any() and not is_class.all():
            chances = guess[:, 0 if task.kind == "binary" else label]
            curves.append((plain(task.classes[label]), chances, is_class))
    return curves[:_MOST_CURVES]


def _calibration(
    axes: Axes, below: Axes, task: Task, guess: Array, truth: Array, scores: Scores
) -> None:
    if task.kind == "binary":
        confidence, right = guess[:, 0], truth == 1
        what = f"probability of class {task.classes[1]}"
    else:
        confidence, right = guess.max(axis=1), guess.argmax(axis=1) == truth
        what = "probability of the likeliest class"
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    some = counts > 0
    said, seen = (
        np.bincount(bins, weights=values, minlength=_BINS)[some] / counts[some]
        for values in (confidence, right.astype(float))
    )
    axes.plot([0, 1], [0, 1], **_FAINT)
    axes.plot(said, seen, color=COLOURS["blue"], marker="o", markersize=4)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
    axes.tick_params(labelbottom=False)
    below.bar(
        edges[:-1], counts / max(1, counts.sum()), 0.9 / _BINS, align="edge", color=COLOURS["grey"]
    )
    below.set_ylabel("share")
    title = f"{target_label(task)}   ECE {_figure(scores, 'ece')}   n = {scores['count']}"
    axes.set_title(plain(title), fontsize=10)
    below.set_xlabel(plain(what))


def _legend_or_reason(axes: Axes, has_curves: bool) -> None:
    if has_curves:
        axes.legend(title="class", frameon=False, fontsize=8, title_fontsize=8)
    else:
        axes.text(0.5, 0.5, "one class only", ha="center", va="center", color=COLOURS["grey"])


def plain(text: str) -> str:
    """Return a text of the table as matplotlib shows it: with no mathematics between dollars."""
    return text.replace("$", r"\$")


def _figure(scores: Scores, key: str) -> str:
    return "-" if scores.get(key) is None else f"{scores[key]:.3f}"
