"""Plots of a run: its learning curve, and its predictions and uncertainty against the labels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from molattn.evaluation.metrics import (
    BINS,
    METRICS,
    Scores,
    confidence_bins,
    format_score,
)
from molattn.evaluation.score_tables import target_label
from molattn.model.uncertainty.model_uncertainty import Prediction
from molattn.task import Task, output_slices
from molattn.training.history import History

__all__ = [
    "COLORS",
    "PNG",
    "TaskResults",
    "calibration_plot",
    "coverage_plot",
    "learning_curve",
    "parity_plot",
    "roc_pr_plot",
    "similarity_plot",
    "task_plots",
    "task_results",
]

Array = NDArray[np.float64]

_MOST_REGRESSIONS = 12
_HEIGHT = 4.8  # of a row of plots, in inches
_MOST_CLASSIFICATIONS = 6
_MOST_CURVES = 8
_QUANTILES = 5
_MOST_VECTOR_POINTS = 2000  # more are drawn as a bitmap

# Distinguishable with color blindness (Okabe and Ito 2008), without their yellow.
COLORS = {
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "black": "#000000",
    "grey": "#767676",
}
"""All colors of plots by name."""
PNG: Mapping[str, Any] = {"dpi": 150, "bbox_inches": "tight", "pad_inches": 0.1}
"""How a figure is saved: cropped, with what lies outside of it, such as titles."""
_CURVES = [COLORS[name] for name in COLORS if name != "grey"]
_LINES = ["-", "--"]
_REFERENCE = {"color": COLORS["grey"], "linewidth": 1, "zorder": 0}


class TaskResults(NamedTuple):
    """The ``n`` labeled rows of a task and their scores.

    Args:
        task: The task.
        prediction: ``[n, outputs]``.
        target: ``[n]``.
        rows: Indices of the rows among all that were predicted.
        similarity: To the nearest training molecule of the task, ``[n]``.
        scores: For the titles.
    """

    task: Task
    prediction: Array
    target: Array
    rows: NDArray[np.intp]
    similarity: Array
    scores: Scores


def task_results(
    predicted: Prediction, target: Array, tasks: Sequence[Task], scores: Mapping[str, Scores]
) -> list[TaskResults]:
    """Return the labeled rows of each task; labels are ``[rows, T]``, NaN where missing."""
    results = []
    for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        is_finite = np.isfinite(predicted.prediction).all(axis=1)
        rows = np.flatnonzero(~np.isnan(target[:, index]) & is_finite)
        one = TaskResults(
            task,
            predicted.prediction[rows, part],
            target[rows, index],
            rows,
            predicted.task_similarity[rows, index],
            scores[task.name],
        )
        results.append(one)
    return results


def learning_curve(histories: Sequence[History]) -> Figure:
    """Plot the losses of each model against the epoch, with the epoch of its checkpoint marked."""
    figure = Figure(figsize=(6, _HEIGHT))
    axes = figure.add_subplot()
    best = ", ".join(str(history.best) for history in histories)
    for index, history in enumerate(histories):
        epochs = [epoch.epoch for epoch in history.epochs]
        marker = "o" if len(epochs) == 1 else None
        validation = [epoch.validation_loss for epoch in history.epochs]
        for name, color, line, losses in (
            ("training", "blue", "--", [epoch.train_loss for epoch in history.epochs]),
            ("validation", "vermillion", "-", [loss for loss in validation if loss is not None]),
        ):
            label = None if index else name
            if losses:  # there may be no validation rows
                axes.plot(epochs, losses, line, color=COLORS[color], label=label, marker=marker)
        label = None if index else f"checkpoint (epoch {best})"
        axes.axvline(history.best, color=COLORS["grey"], linestyle=":", label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="loss", title="Learning curve")
    axes.legend(frameon=False, loc="upper right")
    return figure


def parity_plot(results: Sequence[TaskResults]) -> Figure:
    """Plot predicted against measured values, a panel for each of the first 12 regressions."""
    return _figure([(_parity, one) for one in _regressions(results)])


def similarity_plot(results: Sequence[TaskResults]) -> Figure:
    """Plot absolute errors against the Tanimoto similarity to the nearest training molecule.

    A panel for each of the first 12 regressions, with the mean of each quintile of the similarity.
    """

    def draw(axes: Axes, one: TaskResults) -> None:
        similar, errors = one.similarity, np.abs(one.prediction[:, 0] - one.target)
        axes.scatter(similar, errors, s=10, alpha=0.4, color=COLORS["blue"], linewidths=0)
        quintiles = np.array_split(np.argsort(similar, kind="stable"), _QUANTILES)
        means = [(similar[part].mean(), errors[part].mean()) for part in quintiles if len(part)]
        if means:
            axes.plot(*zip(*means, strict=True), color=COLORS["vermillion"], marker="o")
        axes.set(xlim=(-0.02, 1.02), xlabel="Tanimoto similarity to nearest training molecule")
        axes.set_ylabel(f"absolute error of {plain(target_label(one.task))}")
        axes.set_title(f"line: mean per similarity quintile   n = {len(errors)}", fontsize=10)

    return _figure([(draw, one) for one in _regressions(results)])


def coverage_plot(tasks: Sequence[Task], uncertainty: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Plot observed against nominal coverage of the intervals of the first 7 regressions."""
    figure = Figure(figsize=(4.5, _HEIGHT))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    regressions = [task for task in tasks if task.kind == "regression"]
    for task, color in zip(regressions, _CURVES, strict=False):
        scores = uncertainty[task.name]
        levels = [float(level) for level in scores["coverage_at"]]
        observed = [*scores["coverage_at"].values()]
        label = f"{plain(task.name)} (n = {scores['count']})"
        axes.plot(levels, observed, color=color, marker="o", markersize=4, label=label)
    _unit_square(axes, "nominal coverage of the prediction intervals", "observed coverage")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def roc_pr_plot(results: Sequence[TaskResults]) -> Figure:
    """Plot ROC and precision-recall curves, a row for each of the first 6 classifications.

    Each of several classes is plotted against the rest.
    """
    shown = _classifications(results)
    return _figure([(draw, one) for one in shown for draw in (_roc, _precision_recall)], columns=2)


def calibration_plot(results: Sequence[TaskResults]) -> Figure:
    """Plot observed frequencies against predicted probabilities (reliability diagram).

    In 10 equal bins, above the fraction of predictions in each bin. Of the second of two classes,
    or of the most probable of several; a panel for each of the first 6 classifications.
    """
    return _figure([(_calibration, one) for one in _classifications(results)])


def task_plots(
    result: TaskResults, uncertainty: Mapping[str, Mapping[str, Any]]
) -> dict[str, Figure]:
    """Return the plots of one task by title, as the functions above draw them."""
    if result.task.kind != "regression":
        return {
            "ROC curve": _figure([(_roc, result)]),
            "Precision-recall curve": _figure([(_precision_recall, result)]),
            "Calibration": calibration_plot([result]),
        }
    figures = {"Predicted vs. measured": parity_plot([result])}
    if result.task.name in uncertainty:
        figures["Coverage of prediction intervals"] = coverage_plot([result.task], uncertainty)
        figures["Error vs. similarity"] = similarity_plot([result])
    return figures


def plain(text: str) -> str:
    """Return a text as matplotlib shows it unchanged.

    Between dollar signs it would typeset mathematics, and legends leave out a label with an
    underscore in front.
    """
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def _regressions(results: Sequence[TaskResults]) -> list[TaskResults]:
    return [one for one in results if one.task.kind == "regression"][:_MOST_REGRESSIONS]


def _classifications(results: Sequence[TaskResults]) -> list[TaskResults]:
    return [one for one in results if one.task.kind != "regression"][:_MOST_CLASSIFICATIONS]


def _figure(
    panels: Sequence[tuple[Callable[[Axes, TaskResults], None], TaskResults]], columns: int = 3
) -> Figure:
    """Draw each panel, in rows of at most so many columns."""
    columns = min(len(panels), columns)
    rows = -(-len(panels) // columns)
    # The layout takes half of the time of a figure, and moves a single panel but little.
    layout = "constrained" if len(panels) > 1 else None
    figure = Figure(figsize=(4.5 * columns, _HEIGHT * rows), layout=layout)
    for place, (draw, result) in enumerate(panels, start=1):
        draw(figure.add_subplot(rows, columns, place), result)
    return figure


def _parity(axes: Axes, result: TaskResults) -> None:
    prediction, target = result.prediction[:, 0], result.target
    label = plain(target_label(result.task))
    many = len(target) > _MOST_VECTOR_POINTS
    color = COLORS["blue"]
    axes.scatter(target, prediction, 14, color, alpha=0.6, linewidths=0, rasterized=many)
    axes.axline((0.0, 0.0), slope=1.0, **_REFERENCE)
    values = np.concatenate([target, prediction, np.zeros(0 if len(target) else 1)])
    margin = 0.05 * (values.max() - values.min()) or 1.0
    limits = (values.min() - margin, values.max() + margin)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.set(xlabel=f"measured {label}", ylabel=f"predicted {label}")
    axes.set_title(_title(result, "rmse", "mae", "r2"), fontsize=10)


def _roc(axes: Axes, result: TaskResults) -> None:
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    for probabilities, is_class, style in _curves(result):
        wrong, found, _ = roc_curve(is_class, probabilities)
        axes.plot(wrong, found, **style)
    _finish_curves(axes, result, "roc_auc")
    _unit_square(axes, "false positive rate", "true positive rate")


def _precision_recall(axes: Axes, result: TaskResults) -> None:
    for probabilities, is_class, style in _curves(result):
        precision, recall, _ = precision_recall_curve(is_class, probabilities)
        axes.plot(recall, precision, drawstyle="steps-post", **style)
        axes.axhline(is_class.mean(), color=style["color"], linewidth=0.8, linestyle=":")
    _finish_curves(axes, result, "pr_auc")
    _unit_square(axes, "recall", "precision (dotted: random classifier)")


def _unit_square(axes: Axes, x: str, y: str) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=x, ylabel=y)


def _curves(result: TaskResults) -> Iterator[tuple[Array, NDArray[np.bool_], dict[str, Any]]]:
    """Yield probabilities, labels and style of each class that has a curve: solid lines first."""
    styles = ({"color": color, "linestyle": line} for line in _LINES for color in _CURVES)
    is_binary = result.task.kind == "binary"
    curves = 0
    for label in [1] if is_binary else range(len(result.task.classes)):
        is_class = result.target == label
        if curves < _MOST_CURVES and is_class.any() and not is_class.all():
            curves += 1
            style = {**next(styles), "label": plain(result.task.classes[label])}
            yield result.prediction[:, 0 if is_binary else label], is_class, style


def _finish_curves(axes: Axes, result: TaskResults, metric: str) -> None:
    """Add the title, and a legend or the reason why there are no curves."""
    axes.set_title(plain(f"{target_label(result.task)}   {_title(result, metric)}"), fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        # Of a fixed place: matplotlib warns if it takes more than a second to find the best one.
        loc = "lower left" if metric == "pr_auc" else "lower right"
        axes.legend(title="class", frameon=False, fontsize=8, title_fontsize=8, loc=loc)
    else:
        axes.text(0.5, 0.5, "only one class", ha="center", va="center", color=COLORS["grey"])


def _calibration(axes: Axes, result: TaskResults) -> None:
    task, predicted, target, *_ = result
    is_binary = task.kind == "binary"
    confidence, right, bins = confidence_bins(target, predicted[:, 0] if is_binary else predicted)
    spec = axes.get_subplotspec()
    assert spec is not None  # the axes are in a grid
    grid = spec.subgridspec(2, 1, height_ratios=[4, 1])
    axes.set_subplotspec(grid[0])
    below = axes.figure.add_subplot(grid[1], sharex=axes)
    counts = np.bincount(bins, minlength=BINS)
    some = counts > 0
    mean_probability, frequency = (
        np.bincount(bins, values, BINS)[some] / counts[some] for values in (confidence, right)
    )
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    axes.plot(mean_probability, frequency, color=COLORS["blue"], marker="o", markersize=4)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
    axes.tick_params(labelbottom=False)
    middles = (np.arange(BINS) + 0.5) / BINS
    below.bar(middles, counts / max(1, counts.sum()), 0.9 / BINS, color=COLORS["grey"])
    below.set_ylabel("fraction of rows")
    axes.set_title(plain(f"{target_label(task)}   {_title(result, 'ece')}"), fontsize=10)
    of = task.classes[1] if is_binary else "the most probable class"
    below.set_xlabel(plain(f"predicted probability of {of}"))


def _title(result: TaskResults, *metrics: str) -> str:
    scores = result.scores
    values = [f"{METRICS[name].heading} {format_score(scores.get(name))}" for name in metrics]
    return "   ".join([*values, f"n = {scores['count']}"])
