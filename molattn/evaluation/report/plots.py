"""Plots of a run: its learning curve, and its predictions and uncertainty against the labels."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from molattn.evaluation.report.tables import format_score, target_label
from molattn.evaluation.scores.metrics import (
    BINS,
    METRICS,
    Scores,
    above_zero,
    confidence_bins,
    scored_kind,
)
from molattn.model.uncertainty import Prediction
from molattn.task import Task, output_slices
from molattn.training.run_folder import History

Array = NDArray[np.float64]

_MOST_TASKS = 12
_HEIGHT = 4.8  # of a row of plots, in inches
_QUINTILES = 5

# Distinguishable with color blindness (Okabe and Ito 2008), without their yellow.
_BLUE = "#0072b2"
_VERMILLION = "#d55e00"
_GREY = "#767676"
_CURVES = [_BLUE, _VERMILLION, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
_REFERENCE = {"color": _GREY, "linewidth": 1, "zorder": 0}
# Cropped, with what lies outside of the axes, such as titles.
PNG: Mapping[str, Any] = {"dpi": 150, "bbox_inches": "tight", "pad_inches": 0.1}


class TaskResults(NamedTuple):
    """The ``n`` labeled rows of a task and their scores.

    Predictions are ``[n, outputs]``, ``rows`` the indices among all predicted rows, similarities to
    the nearest training molecule of the task ``[n]``; ``coverage`` of intervals is by level.
    """

    task: Task
    prediction: Array
    target: Array
    rows: NDArray[np.intp]
    similarity: Array
    scores: Scores
    coverage: Mapping[str, float]

    @property
    def is_log(self) -> bool:
        """Whether the task is scored on log10."""
        return scored_kind(self.task, self.scores) == "log10"

    @property
    def pairs(self) -> Array:
        """Labels and predictions of a regression, ``[2, n]``, above 0 if scored on log10."""
        pairs = np.stack([self.target, self.prediction[:, 0]])
        return above_zero(pairs, self.target) if self.is_log else pairs

    @property
    def errors(self) -> Array:
        """Predictions minus labels of a regression, of logarithms if scored on log10."""
        target, prediction = np.log10(self.pairs) if self.is_log else self.pairs
        return prediction - target


def task_results(
    predicted: Prediction,
    target: Array,
    tasks: Sequence[Task],
    scores: Mapping[str, Scores],
    uncertainty: Mapping[str, Mapping[str, Any]],
) -> list[TaskResults]:
    """Return the labeled test rows of each task.

    Labels are ``[rows, T]``, NaN where missing; ``scores`` and ``uncertainty`` are by task, see
    :class:`molattn.evaluation.scores.run_metrics.Metrics`.
    """
    is_finite = np.isfinite(predicted.prediction).all(axis=1)
    results = []
    for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        rows = np.flatnonzero(~np.isnan(target[:, index]) & is_finite)
        result = TaskResults(
            task,
            predicted.prediction[rows, columns],
            target[rows, index],
            rows,
            predicted.task_similarity[rows, index],
            scores[task.name],
            uncertainty.get(task.name, {}).get("coverage_at", {}),
        )
        results.append(result)
    return results


def learning_curve(histories: Sequence[History]) -> Figure:
    """Plot the losses of each model against the epoch, with the epoch of its checkpoint marked."""
    figure = Figure(figsize=(4.5, _HEIGHT))
    axes = figure.add_subplot(box_aspect=1)
    best = ", ".join(str(history.kept_epoch) for history in histories)
    for history in histories:
        is_first = history is histories[0]
        epochs = [epoch.epoch for epoch in history.curve]
        training = [epoch.train_loss for epoch in history.curve]
        validation = [epoch.validation_loss for epoch in history.curve]
        marker = "o" if len(epochs) == 1 else None
        for losses, label, color, line in (
            (training, "training", _BLUE, "--"),
            (validation, "validation", _VERMILLION, "-"),
        ):
            if None not in losses:  # there may be no validation rows
                values: Any = losses
                legend = label if is_first else None
                axes.plot(epochs, values, line, color=color, label=legend, marker=marker)
        label = f"checkpoint (epoch {best})" if is_first else None
        axes.axvline(history.kept_epoch, color=_GREY, linestyle=":", label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="loss", title="Learning curve")
    axes.legend(frameon=False, loc="best")
    return figure


def save_plot(figure: Figure, path: Path) -> list[Array]:
    """Save a figure, and return where the points of each scatter plot are in the file.

    Positions ``[n, 2]`` are fractions of its width, from the left, and height, from the top.
    """
    with warnings.catch_warnings():  # the font may lack characters of a column's name
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, **PNG)
        box = figure.get_tightbbox().padded(PNG["pad_inches"])  # as savefig crops it
    positions = []
    for axes in figure.axes:
        for points in axes.collections[:1]:
            inches = axes.transData.transform(points.get_offsets()) / figure.dpi
            positions.append((inches - [box.x0, box.y1]) / [box.width, -box.height])
    return positions


def run_plots(results: Sequence[TaskResults]) -> dict[str, Figure]:
    """Return the plots of a run by file name, with panels for each of the first 12 tasks.

    Of regressions predicted against measured values (``parity.png``), observed against nominal
    coverage of the intervals (``coverage.png``), and absolute errors against the Tanimoto
    similarity to the nearest training molecule (``similarity.png``); of classifications ROC and
    precision-recall curves (``roc_pr.png``), and observed frequencies against predicted
    probabilities (``calibration.png``).
    """
    numbers = [result for result in results if result.task.kind == "regression"][:_MOST_TASKS]
    classes = [result for result in results if result.task.kind != "regression"][:_MOST_TASKS]
    covered = [result for result in numbers if result.coverage]
    panels = {
        "parity.png": [(_parity, result) for result in numbers],
        "coverage.png": [(_coverage, result) for result in covered],
        "similarity.png": [(_similarity, result) for result in covered],
        "roc_pr.png": [(draw, result) for result in classes for draw in (_roc, _precision_recall)],
        "calibration.png": [(_calibration, result) for result in classes],
    }
    return {file: _figure(drawn) for file, drawn in panels.items() if drawn}


def _figure(panels: Sequence[tuple[Callable[[Axes, TaskResults], None], TaskResults]]) -> Figure:
    """Draw each panel, in rows of at most four, and four as two rows of two."""
    columns = 2 if len(panels) == 4 else min(len(panels), 4)
    rows = -(-len(panels) // columns)
    # The layout takes half of the time of a figure, and moves a single panel but little.
    layout = "constrained" if len(panels) > 1 else None
    figure = Figure(figsize=(4.5 * columns, _HEIGHT * rows), layout=layout)
    for index, (draw, result) in enumerate(panels, start=1):
        draw(figure.add_subplot(rows, columns, index), result)
    return figure


def _plain(text: str) -> str:
    """Return a text as matplotlib shows it unchanged: no mathematics, no hidden legend."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def _title(axes: Axes, result: TaskResults, *metrics: str, name: str = "") -> None:
    """Set the title: a name, by default that of the task, scores and the number of labels."""
    scores = result.scores
    values = [f"{METRICS[key].heading} {format_score(scores.get(key))}" for key in metrics]
    values[1:] = [value.removeprefix("log10 ") for value in values[1:]]
    values = [name, *values, f"n = {scores['count']}"]
    axes.set_title("   ".join(filter(None, values)), fontsize=10)


def _unit_square(axes: Axes, x: str, y: str) -> None:
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xlabel=x, ylabel=y)


def _parity(axes: Axes, result: TaskResults) -> None:
    label = _plain(target_label(result.task))
    axes.scatter(*result.pairs, s=14, c=_BLUE, alpha=0.6, linewidths=0)
    values = np.log10(result.pairs) if result.is_log else result.pairs
    (low, high) = (values.min(), values.max()) if values.size else (0.0, 0.0)
    margin = 0.05 * (high - low) or 1.0
    limits = np.array([low - margin, high + margin])
    scale = "log10_" * result.is_log
    if result.is_log:
        axes.set(xscale="log", yscale="log")
        limits = 10.0**limits
    axes.plot(limits, limits, **_REFERENCE)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.set(xlabel=f"measured {label}", ylabel=f"predicted {label}")
    _title(axes, result, *(f"{scale}{name}" for name in ("rmse", "mae", "r2")))


def _coverage(axes: Axes, result: TaskResults) -> None:
    levels = [float(level) for level in result.coverage]
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    axes.plot(levels, [*result.coverage.values()], color=_BLUE, marker="o", markersize=4)
    _title(axes, result, name=_plain(target_label(result.task)))
    _unit_square(axes, "nominal coverage of the prediction intervals", "observed coverage")


def _similarity(axes: Axes, result: TaskResults) -> None:
    similar = result.similarity
    errors = np.abs(result.errors)
    axes.scatter(similar, errors, s=10, alpha=0.4, color=_BLUE, linewidths=0)
    quintiles = np.array_split(np.argsort(similar, kind="stable"), _QUINTILES)
    means = [(similar[rows].mean(), errors[rows].mean()) for rows in quintiles if len(rows)]
    if means:
        axes.plot(*zip(*means, strict=True), color=_VERMILLION, marker="o")
    axes.set(xlim=(-0.02, 1.02), xlabel="Tanimoto similarity to nearest training molecule")
    axes.set_box_aspect(1)
    scale = "log10 " if result.is_log else ""
    axes.set_ylabel(f"absolute {scale}error of {_plain(target_label(result.task))}")
    axes.set_title(f"line: mean per similarity quintile   n = {len(errors)}", fontsize=10)


def _roc(axes: Axes, result: TaskResults) -> None:
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    for probabilities, is_class, style in _curves(result):
        false_rate, true_rate, _ = roc_curve(is_class, probabilities)
        axes.plot(false_rate, true_rate, **style)
    _finish_curves(axes, result, "roc_auc", "lower right")
    _unit_square(axes, "false positive rate", "true positive rate")


def _precision_recall(axes: Axes, result: TaskResults) -> None:
    for probabilities, is_class, style in _curves(result):
        precision, recall, _ = precision_recall_curve(is_class, probabilities)
        axes.plot(recall, precision, drawstyle="steps-post", **style)
        axes.axhline(is_class.mean(), color=style["color"], linewidth=0.8, linestyle=":")
    _finish_curves(axes, result, "pr_auc", "lower left")
    _unit_square(axes, "recall", "precision (dotted: random classifier)")


def _curves(result: TaskResults) -> Iterator[tuple[Array, NDArray[np.bool_], dict[str, Any]]]:
    """Yield probabilities, labels and style of each of the first classes that has a curve."""
    classes = [*enumerate(result.task.classes)][1 if result.task.kind == "binary" else 0 :]
    for column, (label, name) in enumerate(classes[: len(_CURVES)]):
        is_class = result.target == label
        if is_class.any() and not is_class.all():
            style = {"color": _CURVES[column], "label": _plain(name)}
            yield result.prediction[:, column], is_class, style


def _finish_curves(axes: Axes, result: TaskResults, metric: str, legend: Any) -> None:
    """Add the title, and a legend or the reason why there are no curves."""
    _title(axes, result, metric, name=_plain(target_label(result.task)))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title="class", frameon=False, fontsize=8, title_fontsize=8, loc=legend)
    else:
        axes.text(0.5, 0.5, "only one class", ha="center", va="center", color=_GREY)


def _calibration(axes: Axes, result: TaskResults) -> None:
    """Draw a reliability diagram above the fractions of predictions in each of 10 bins.

    Of the second of two classes, or of the most probable of more.
    """
    predicted = result.prediction
    is_binary = result.task.kind == "binary"
    confidence, right, bins = confidence_bins(
        result.target, predicted[:, 0] if is_binary else predicted
    )
    counts = np.bincount(bins, minlength=BINS)
    is_filled = counts > 0
    probability, frequency = (
        np.bincount(bins, values, BINS)[is_filled] / counts[is_filled]
        for values in (confidence, right)
    )
    middles = (np.arange(BINS) + 0.5) / BINS
    axes.bar(middles, counts / max(1, counts.sum()), 0.9 / BINS, color=_GREY, alpha=0.3)
    axes.plot([0, 1], [0, 1], **_REFERENCE)
    axes.plot(probability, frequency, color=_BLUE, marker="o", markersize=4)
    _title(axes, result, "ece", name=_plain(target_label(result.task)))
    name = result.task.classes[1] if is_binary else "the most probable class"
    label = _plain(f"predicted probability of {name}")
    _unit_square(axes, label, "observed frequency (bars: fraction of rows)")
