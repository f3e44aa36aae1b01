"""Scores of predictions, with bootstrap intervals: missing labels are skipped, nothing is ever NaN.

Every score is computed for many weightings of the rows at once, ``[R, n]``: ones give the score
itself, the counts of a resampling one draw from its bootstrap distribution. So rows are sorted once
and not once for each resampling, and all tasks share the resamplings of the rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.task import Task, output_slices

__all__ = ["SCORES", "Scores", "TaskScores", "mean_scores", "score_tasks"]

Array = NDArray[np.float64]

Scores = dict[str, Any]
"""``count`` (labels scored); each score by name, None where undefined; ``intervals``, the 95 %
bootstrap interval ``[low, high]`` of each score or None; ``undefined``, why a score is None."""

_BINS = 10
_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)  # as scikit-learn has it
_LEVEL = 95.0
_CELLS_AT_ONCE = 2**22
_MOST_CELLS = 2 * 10**8
_FEWEST_RESAMPLES = 100


class TaskScores(NamedTuple):
    """Scores of each task by name, and their mean over the tasks that have them."""

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
    """Score predictions task by task.

    Args:
        prediction: ``[n, outputs]``, finite: values in the targets' own units, probabilities of
            classes.
        target: ``[n, T]`` in original units or as places of classes, NaN where missing.
        tasks: The T tasks.
        resamples: Resamplings of the rows for the intervals; fewer for very many rows. Without
            any, ``intervals`` is empty.
        seed: Their seed.
    """
    rows = len(target)
    points: dict[str, dict[str, float]] = {}
    draws: dict[str, dict[str, list[Array]]] = {}
    cases = {
        task.name: _case(task, prediction[:, part], target[:, place])
        for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True))
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
    """Return the mean of each score over several predictions of the same rows, without intervals.

    Args:
        several: Scores of each of them, one at least; what one has not the mean has not.
    """

    def mean(scores: Sequence[Scores]) -> Scores:
        means: Scores = {"count": scores[0]["count"]}
        for key in (key for key in scores[0] if key in _ALL_SCORES):
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
        key for scores in by_task.values() for key in scores if key in _ALL_SCORES
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
    """Yield how often each row is drawn, ``[some, n]``, ``count`` times in all."""
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
    functions: Mapping[str, Callable[[Array, Array, Array], Array]]
    classes: int

    def scores(self, weights: Array) -> dict[str, Array]:
        if not len(self.target):
            return {key: np.full(len(weights), np.nan) for key in self.functions}
        with np.errstate(invalid="ignore", divide="ignore"):
            return {
                key: function(self.target, self.prediction, weights)
                for key, function in self.functions.items()
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
    guess = prediction[known] if task.kind == "multiclass" else prediction[known, 0]
    return _Case(known, target[known], guess, SCORES[task.kind], len(task.classes))


# Scores of numbers.


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
    """Correlation of ranks, ties at their mean rank."""
    first, second = _ranks(target, weights), _ranks(prediction, weights)
    total = weights.sum(axis=1)
    first -= ((weights * first).sum(axis=1) / total)[:, None]
    second -= ((weights * second).sum(axis=1) / total)[:, None]
    variances = (weights * first**2).sum(axis=1), (weights * second**2).sum(axis=1)
    smallest = np.minimum(*variances)
    scale = np.sqrt(variances[0] * variances[1])
    scale[smallest <= 1e-9 * total] = np.nan  # ranks are whole or half numbers
    return np.clip((weights * first * second).sum(axis=1) / scale, -1.0, 1.0)


# Scores of probabilities of the second of two classes.


def _roc_auc(target: Array, prediction: Array, weights: Array) -> Array:
    positive, negative = _by_value(target, prediction, weights)
    below = np.cumsum(negative, axis=1) - negative
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return (positive * (below + 0.5 * negative)).sum(axis=1) / _nan_at_zero(pairs)


def _pr_auc(target: Array, prediction: Array, weights: Array) -> Array:
    """Average precision."""
    positive, negative = (part[:, ::-1] for part in _by_value(target, prediction, weights))
    found, wrong = np.cumsum(positive, axis=1), np.cumsum(negative, axis=1)
    precision = found / np.maximum(found + wrong, np.finfo(float).tiny)
    total = np.where(wrong[:, -1] > 0, found[:, -1], 0.0)  # one class alone is no search
    return (positive * precision).sum(axis=1) / _nan_at_zero(total)


def _binary_mcc(target: Array, prediction: Array, weights: Array) -> Array:
    return _matthews(target, (prediction > 0.5).astype(float), weights, 2)


def _binary_accuracy(target: Array, prediction: Array, weights: Array) -> Array:
    return _average((prediction > 0.5) == target, weights)


def _calibration_error(target: Array, confidence: Array, weights: Array) -> Array:
    """Mean distance of frequency from probability over 10 equal bins, weighted by their rows."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = weights @ (np.eye(_BINS)[bins] * (target - confidence)[:, None])
    return np.abs(gaps).sum(axis=1) / _nan_at_zero(weights.sum(axis=1))


def _nll(target: Array, prediction: Array, weights: Array) -> Array:
    """Mean negative logarithm of the probability given to what was true."""
    return _surprise(np.where(target == 1.0, prediction, 1.0 - prediction), weights)


def _surprise(given: Array, weights: Array) -> Array:
    return _average(-np.log(np.maximum(given, _SMALLEST_PROBABILITY)), weights)


def _brier(target: Array, prediction: Array, weights: Array) -> Array:
    return _average((prediction - target) ** 2, weights)


# Scores of probabilities of several classes, ``[n, K]``.


def _over_classes(function: Callable[[Array, Array, Array], Array]) -> Callable[..., Array]:
    """Return the mean of a binary score over the classes that have it, each against the rest."""

    def score(target: Array, prediction: Array, weights: Array) -> Array:
        return _nanmean(
            np.stack(
                [
                    function((target == label).astype(float), prediction[:, label], weights)
                    for label in range(prediction.shape[1])
                ]
            )
        )

    return score


def _several_mcc(target: Array, prediction: Array, weights: Array) -> Array:
    return _matthews(target, prediction.argmax(axis=1), weights, prediction.shape[1])


def _several_accuracy(target: Array, prediction: Array, weights: Array) -> Array:
    return _average(prediction.argmax(axis=1) == target, weights)


def _several_brier(target: Array, prediction: Array, weights: Array) -> Array:
    labels = np.eye(prediction.shape[1])[target.astype(int)]
    return _average(((prediction - labels) ** 2).sum(axis=1), weights)


def _several_nll(target: Array, prediction: Array, weights: Array) -> Array:
    return _surprise(prediction[np.arange(len(target)), target.astype(int)], weights)


def _several_calibration_error(target: Array, prediction: Array, weights: Array) -> Array:
    right = (prediction.argmax(axis=1) == target).astype(float)
    return _calibration_error(right, prediction.max(axis=1), weights)


SCORES: dict[str, dict[str, Callable[[Array, Array, Array], Array]]] = {
    "regression": {"rmse": _rmse, "mae": _mae, "r2": _r2, "spearman": _spearman},
    "binary": {
        "roc_auc": _roc_auc,
        "pr_auc": _pr_auc,
        "mcc": _binary_mcc,
        "accuracy": _binary_accuracy,
        "nll": _nll,
        "brier": _brier,
        "ece": _calibration_error,
    },
    "multiclass": {
        "roc_auc": _over_classes(_roc_auc),
        "pr_auc": _over_classes(_pr_auc),
        "mcc": _several_mcc,
        "accuracy": _several_accuracy,
        "nll": _several_nll,
        "brier": _several_brier,
        "ece": _several_calibration_error,
    },
}
"""Scores by kind of task and name; each of (target ``[n]``, prediction ``[n]`` or ``[n, K]``,
weights ``[R, n]``) gives ``[R]``, NaN where undefined."""

_ALL_SCORES = {key for scores in SCORES.values() for key in scores}


# What they are made of.


def _average(values: NDArray[Any], weights: Array) -> Array:
    return (weights @ values.astype(float)) / _nan_at_zero(weights.sum(axis=1))


def _nan_at_zero(values: Array) -> Array:
    return np.where(values > 0.0, values, np.nan)


def _nanmean(values: Array) -> Array:
    """Mean over the first axis of what is not NaN; NaN where nothing is."""
    known = ~np.isnan(values)
    return np.where(known, values, 0.0).sum(axis=0) / _nan_at_zero(known.sum(axis=0).astype(float))


def _groups(values: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the order that sorts, where each distinct value begins in it, and which each is."""
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


def _matthews(target: Array, label: NDArray[Any], weights: Array, classes: int) -> Array:
    """Correlation of true and predicted classes (Gorodkin 2004)."""
    truth, guess = np.eye(classes)[target.astype(int)], np.eye(classes)[label.astype(int)]
    total = weights.sum(axis=1)
    right = weights @ (truth * guess).sum(axis=1)
    true_counts, guess_counts = weights @ truth, weights @ guess
    spread = [total**2 - (counts**2).sum(axis=1) for counts in (true_counts, guess_counts)]
    covariance = right * total - (true_counts * guess_counts).sum(axis=1)
    return covariance / _nan_at_zero(np.sqrt(spread[0] * spread[1]))


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
