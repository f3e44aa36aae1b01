"""Metrics with bootstrap intervals: missing labels are ignored, and NaN is never returned.

A metric is computed for many weightings of the rows at once, ``[R, n]``: weights of one give the
value itself, the counts of a bootstrap sample one draw of its distribution. Rows are therefore
sorted once rather than once for each sample, and all tasks share the samples of the rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.task import Task, TaskKind, output_slices
from molattn.utils.registry import Registry

__all__ = [
    "METRICS",
    "Metric",
    "Scores",
    "TaskScores",
    "format_score",
    "main_metric",
    "mean_scores",
    "metrics_of",
    "score_tasks",
]

Array = NDArray[np.float64]

Scores = dict[str, Any]
"""``count`` (labels scored); each metric by name, None where undefined; ``intervals``, the 95%
bootstrap interval ``[low, high]`` of each metric or None; ``undefined``, why a metric is None."""


@dataclass(frozen=True)
class Metric:
    """A metric of predictions.

    Args:
        function: Takes targets ``[n]`` (values, or indices of classes), predictions and weights of
            the rows ``[R, n]``, and returns the value for each weighting ``[R]``, NaN where it is
            undefined. Predictions are values ``[n]`` of a regression, probabilities ``[n]`` of the
            second of two classes, or probabilities ``[n, K]`` of K classes.
        kinds: Kinds of task that it scores.
        heading: Of its column in tables and reports; "" = only in ``metrics.json``.
        higher_is_better: Whether a higher value is better.
    """

    function: Callable[[Array, Array, Array], Array]
    kinds: tuple[TaskKind, ...]
    heading: str = ""
    higher_is_better: bool = False


METRICS: Registry[Metric] = Registry("metric")
"""All metrics by name, in the order of tables. The first of a kind of task is its main metric."""

_CLASSES: tuple[TaskKind, ...] = ("binary", "multiclass")
_BINS = 10
_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)  # as in scikit-learn
_LEVEL = 95.0
_CELLS_AT_ONCE = 2**22
_MOST_CELLS = 2 * 10**8
_FEWEST_RESAMPLES = 100


def metrics_of(*kinds: str, with_heading: bool = False) -> dict[str, Metric]:
    """Return the metrics of any of the kinds of task by name.

    Args:
        kinds: Kinds of task.
        with_heading: Leave out those that tables do not show.
    """
    return {
        name: metric
        for name, metric in METRICS.items()
        if not {*kinds}.isdisjoint(metric.kinds) and (metric.heading or not with_heading)
    }


def main_metric(kind: TaskKind) -> tuple[str, Metric]:
    """Return the metric that summarises a kind of task, with its name."""
    return next(iter(metrics_of(kind, with_heading=True).items()))


def format_score(value: float | None) -> str:
    """Return a value with three decimals or, if very large or small, digits; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3g}"


class TaskScores(NamedTuple):
    """Scores by task, and the mean of each metric over the tasks for which it is defined."""

    tasks: dict[str, Scores]
    mean: Scores


def score_tasks(
    prediction: Array,
    target: Array,
    tasks: Sequence[Task],
    *,
    resamples: int = 0,
    seed: int = 0,
) -> TaskScores:
    """Compute all metrics of each task.

    Args:
        prediction: ``[n, outputs]``, finite: values in the units of the targets, probabilities of
            classes.
        target: ``[n, T]``, values or indices of classes, NaN where missing.
        tasks: The T tasks.
        resamples: Number of bootstrap samples for the intervals, fewer if there are very many rows;
            0 = no intervals.
        seed: Seed of the bootstrap.
    """
    rows = len(target)
    points: dict[str, dict[str, float]] = {}
    draws: dict[str, dict[str, list[Array]]] = {}
    cases = {
        task.name: _case(task, prediction[:, part], target[:, index])
        for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True))
    }
    for name, case in cases.items():
        ones = np.ones((1, len(case.target)))
        points[name] = {key: float(value[0]) for key, value in case.scores(ones).items()}
        draws[name] = {key: [] for key in points[name]}
    for weights in _resamplings(rows, resamples, seed):
        for name, case in cases.items():
            for key, values in case.scores(weights[:, case.known]).items():
                draws[name][key].append(values)
    drawn = {
        name: {key: np.concatenate(parts) for key, parts in scores.items() if parts}
        for name, scores in draws.items()
    }
    by_task = {
        name: {
            "count": len(case.target),
            **{key: _or_none(value) for key, value in points[name].items()},
            "intervals": {key: _interval(values) for key, values in drawn[name].items()},
            "undefined": case.reasons(points[name]),
        }
        for name, case in cases.items()
    }
    return TaskScores(by_task, _mean(by_task, drawn))


def mean_scores(several: Sequence[TaskScores]) -> TaskScores:
    """Return the mean of each metric over several predictions of the same rows, without intervals.

    Args:
        several: One or more; a metric that is undefined for one is undefined for the mean.
    """

    def mean(scores: Sequence[Scores]) -> Scores:
        means: Scores = {"count": scores[0]["count"]}
        for key in (key for key in scores[0] if key in METRICS):
            values = [one[key] for one in scores if one.get(key) is not None]
            means[key] = float(np.mean(values)) if len(values) == len(scores) else None
        undefined = {key: why for one in scores for key, why in one["undefined"].items()}
        return {**means, "intervals": {}, "undefined": undefined}

    names = several[0].tasks
    return TaskScores(
        {name: mean([one.tasks[name] for one in several]) for name in names},
        mean([one.mean for one in several]),
    )


def _mean(by_task: Mapping[str, Scores], drawn: Mapping[str, Mapping[str, Array]]) -> Scores:
    keys = dict.fromkeys(key for scores in drawn.values() for key in scores) or dict.fromkeys(
        key for scores in by_task.values() for key in scores if key in METRICS
    )
    mean: Scores = {"count": sum(scores["count"] for scores in by_task.values())}
    intervals, undefined = {}, {}
    for key in keys:
        having = [name for name, scores in by_task.items() if scores.get(key) is not None]
        mean[key] = sum(by_task[name][key] for name in having) / len(having) if having else None
        if not having:
            undefined[key] = "undefined for every task"
        if drawn and any(key in scores for scores in drawn.values()):
            values = [drawn[name][key] for name in having]
            intervals[key] = _interval(_nanmean(np.stack(values))) if having else None
    return {**mean, "intervals": intervals, "undefined": undefined}


def _resamplings(rows: int, count: int, seed: int) -> Iterator[Array]:
    """Yield how often each bootstrap sample draws each row, ``[some, n]``, ``count`` in all."""
    if not rows or not count:
        return
    rng = np.random.default_rng(seed)
    left = min(count, max(_FEWEST_RESAMPLES, _MOST_CELLS // rows))
    while left:
        some = min(left, max(1, _CELLS_AT_ONCE // rows))
        drawn = rng.integers(0, rows, (some, rows)) + rows * np.arange(some)[:, None]
        yield np.bincount(drawn.ravel(), minlength=some * rows).reshape(some, rows).astype(float)
        left -= some


def _interval(values: Array) -> list[float] | None:
    known = values[~np.isnan(values)]
    if len(known) < max(2, len(values) / 2):
        return None
    tail = (100.0 - _LEVEL) / 2.0
    low, high = np.percentile(known, [tail, 100.0 - tail])
    return [float(low), float(high)]


class _Case(NamedTuple):
    """The labelled rows of one task."""

    known: NDArray[np.bool_]
    target: Array
    prediction: Array
    metrics: Mapping[str, Metric]
    classes: int

    def scores(self, weights: Array) -> dict[str, Array]:
        if not len(self.target):
            return {key: np.full(len(weights), np.nan) for key in self.metrics}
        with np.errstate(invalid="ignore", divide="ignore"):
            return {
                key: metric.function(self.target, self.prediction, weights)
                for key, metric in self.metrics.items()
            }

    def reasons(self, points: Mapping[str, float]) -> dict[str, str]:
        return {key: self._reason() for key, value in points.items() if np.isnan(value)}

    def _reason(self) -> str:
        if not len(self.target):
            return "no label"
        if (self.target == self.target[0]).all():
            if len(self.target) == 1:
                return "a single label"
            return "all labels are of one class" if self.classes else "the labels do not vary"
        return "all predictions are of one class" if self.classes else "the predictions do not vary"


def _case(task: Task, prediction: Array, target: Array) -> _Case:
    known = ~np.isnan(target)
    predicted = prediction[known] if task.kind == "multiclass" else prediction[known, 0]
    return _Case(known, target[known], predicted, metrics_of(task.kind), len(task.classes))


# Regression.


def _rmse(target: Array, prediction: Array, weights: Array) -> Array:
    return np.sqrt(_average((prediction - target) ** 2, weights))


def _mae(target: Array, prediction: Array, weights: Array) -> Array:
    return _average(np.abs(prediction - target), weights)


def _r2(target: Array, prediction: Array, weights: Array) -> Array:
    centred = target - target.mean()
    spread = _average(centred**2, weights) - _average(centred, weights) ** 2
    # Equal labels leave rounding noise, not zero.
    spread[spread <= 1e-12 * np.max(centred**2)] = np.nan
    return 1.0 - _average((prediction - target) ** 2, weights) / spread


def _spearman(target: Array, prediction: Array, weights: Array) -> Array:
    """Correlation of ranks; ties have their mean rank."""
    first, second = _ranks(target, weights), _ranks(prediction, weights)
    total = weights.sum(axis=1)
    first -= ((weights * first).sum(axis=1) / total)[:, None]
    second -= ((weights * second).sum(axis=1) / total)[:, None]
    variances = (weights * first**2).sum(axis=1), (weights * second**2).sum(axis=1)
    smallest = np.minimum(*variances)
    scale = np.sqrt(variances[0] * variances[1])
    scale[smallest <= 1e-9 * total] = np.nan  # ranks are whole or half numbers
    return np.clip((weights * first * second).sum(axis=1) / scale, -1.0, 1.0)


# Classification: probabilities ``[n]`` of the second of two classes, or ``[n, K]``.


def _one_against_rest(
    function: Callable[[Array, Array, Array], Array],
) -> Callable[[Array, Array, Array], Array]:
    """Extend a binary metric to K classes: the mean over the classes for which it is defined."""

    def metric(target: Array, prediction: Array, weights: Array) -> Array:
        if prediction.ndim == 1:
            return function(target, prediction, weights)
        values = [
            function((target == label).astype(float), prediction[:, label], weights)
            for label in range(prediction.shape[1])
        ]
        return _nanmean(np.stack(values))

    return metric


@_one_against_rest
def _roc_auc(target: Array, prediction: Array, weights: Array) -> Array:
    positive, negative = _by_value(target, prediction, weights)
    below = np.cumsum(negative, axis=1) - negative
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return (positive * (below + 0.5 * negative)).sum(axis=1) / _nan_at_zero(pairs)


@_one_against_rest
def _pr_auc(target: Array, prediction: Array, weights: Array) -> Array:
    """Average precision."""
    positive, negative = (part[:, ::-1] for part in _by_value(target, prediction, weights))
    found, wrong = np.cumsum(positive, axis=1), np.cumsum(negative, axis=1)
    precision = found / np.maximum(found + wrong, np.finfo(float).tiny)
    total = np.where(wrong[:, -1] > 0, found[:, -1], 0.0)  # undefined for a single class
    return (positive * precision).sum(axis=1) / _nan_at_zero(total)


def _mcc(target: Array, prediction: Array, weights: Array) -> Array:
    """Correlation of true and predicted classes (Gorodkin 2004)."""
    classes = np.eye(2 if prediction.ndim == 1 else prediction.shape[1])
    truth, predicted = classes[target.astype(int)], classes[_labels(prediction)]
    total = weights.sum(axis=1)
    right = weights @ (truth * predicted).sum(axis=1)
    true_counts, predicted_counts = weights @ truth, weights @ predicted
    spread = [total**2 - (counts**2).sum(axis=1) for counts in (true_counts, predicted_counts)]
    covariance = right * total - (true_counts * predicted_counts).sum(axis=1)
    return covariance / _nan_at_zero(np.sqrt(spread[0] * spread[1]))


def _accuracy(target: Array, prediction: Array, weights: Array) -> Array:
    return _average(_labels(prediction) == target, weights)


def _nll(target: Array, prediction: Array, weights: Array) -> Array:
    """Mean negative logarithm of the probability of the true class."""
    if prediction.ndim == 1:
        probabilities = np.where(target == 1.0, prediction, 1.0 - prediction)
    else:
        probabilities = prediction[np.arange(len(target)), target.astype(int)]
    return _average(-np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY)), weights)


def _brier(target: Array, prediction: Array, weights: Array) -> Array:
    if prediction.ndim == 1:
        return _average((prediction - target) ** 2, weights)
    labels = np.eye(prediction.shape[1])[target.astype(int)]
    return _average(((prediction - labels) ** 2).sum(axis=1), weights)


def _ece(target: Array, prediction: Array, weights: Array) -> Array:
    """Mean distance of frequency and probability over 10 equal bins, weighted by their rows.

    Of the second of two classes, or of the most probable of several.
    """
    if prediction.ndim > 1:
        target = (_labels(prediction) == target).astype(float)
        prediction = prediction.max(axis=1)
    bins = np.minimum((prediction * _BINS).astype(int), _BINS - 1)
    gaps = weights @ (np.eye(_BINS)[bins] * (target - prediction)[:, None])
    return np.abs(gaps).sum(axis=1) / _nan_at_zero(weights.sum(axis=1))


METRICS.register("rmse")(Metric(_rmse, ("regression",), "RMSE"))
METRICS.register("mae")(Metric(_mae, ("regression",), "MAE"))
METRICS.register("r2")(Metric(_r2, ("regression",), "R²", higher_is_better=True))
METRICS.register("spearman")(Metric(_spearman, ("regression",), "Spearman", higher_is_better=True))
METRICS.register("roc_auc")(Metric(_roc_auc, _CLASSES, "ROC-AUC", higher_is_better=True))
METRICS.register("pr_auc")(Metric(_pr_auc, _CLASSES, "PR-AUC", higher_is_better=True))
METRICS.register("mcc")(Metric(_mcc, _CLASSES, "MCC", higher_is_better=True))
METRICS.register("accuracy")(Metric(_accuracy, _CLASSES, higher_is_better=True))
METRICS.register("nll")(Metric(_nll, _CLASSES, "NLL"))
METRICS.register("brier")(Metric(_brier, _CLASSES, "Brier"))
METRICS.register("ece")(Metric(_ece, _CLASSES, "ECE"))


# Building blocks.


def _average(values: NDArray[Any], weights: Array) -> Array:
    return (weights @ values.astype(float)) / _nan_at_zero(weights.sum(axis=1))


def _nan_at_zero(values: Array) -> Array:
    return np.where(values > 0.0, values, np.nan)


def _nanmean(values: Array) -> Array:
    """Mean over the first axis without NaN; NaN where all are."""
    known = ~np.isnan(values)
    return np.where(known, values, 0.0).sum(axis=0) / _nan_at_zero(known.sum(axis=0).astype(float))


def _groups(values: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the sorting order, the start of each distinct value in it, and the index of each."""
    order = np.argsort(values, kind="stable")
    changes = np.diff(values[order]) != 0
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    which = np.empty(len(values), dtype=np.intp)
    which[order] = np.concatenate([[0], np.cumsum(changes)])
    return order, starts, which


def _ranks(values: Array, weights: Array) -> Array:
    order, starts, which = _groups(values)
    ties = np.add.reduceat(weights[:, order], starts, axis=1)
    return (np.cumsum(ties, axis=1) - 0.5 * (ties - 1.0))[:, which]


def _by_value(target: Array, prediction: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weights of positives and negatives at each distinct prediction, ascending."""
    order, starts, _ = _groups(prediction)
    sorted_weights, positive = weights[:, order], target[order]
    return (
        np.add.reduceat(sorted_weights * positive, starts, axis=1),
        np.add.reduceat(sorted_weights * (1.0 - positive), starts, axis=1),
    )


def _labels(prediction: Array) -> NDArray[np.intp]:
    if prediction.ndim == 1:
        return (prediction > 0.5).astype(np.intp)
    return prediction.argmax(axis=1)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
