"""Metrics with bootstrap confidence intervals. Missing labels are ignored; NaN is never returned.

A metric is computed for many weightings of the rows at once, ``[R, n]``: with all weights 1 it is
the score, with the counts of a bootstrap sample it is the score of that sample. Rows are therefore
sorted once, not once per sample, and all tasks share the samples.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.errors import quoted
from molattn.model.label_limits import nearest_permitted
from molattn.task import Task, TaskKind, output_slices
from molattn.utils.console import counted
from molattn.utils.registry import Registry

Array = NDArray[np.float64]

Scores = dict[str, Any]
"""``count`` (labels scored); each metric by name, None where undefined; ``intervals``, the 95%
confidence interval ``[low, high]`` of each metric (percentile bootstrap) or None."""

ScoredKind = (
    TaskKind | Literal["log10", "fold", "censored", "log10_censored", "interval", "log10_interval"]
)
"""What a metric scores: a kind of task; labels and predictions on log10 (``log10``, and ``fold``
for ratios) of a target that is learned as a logarithm; or, in the unit of the target or on log10,
censored labels, or all labels of a target of which some are intervals; see :func:`sample_scores`.
"""


@dataclass(frozen=True)
class Metric:
    """A metric of predictions.

    Args:
        function: Takes targets ``[n]`` (values, or indices of classes; of intervals ``[n, 3]``:
            value, lower and upper limit), predictions and weights of the rows ``[R, n]``, and
            returns the value for each weighting ``[R]``, NaN where it is undefined. Predictions are
            values ``[n]`` of a regression, probabilities ``[n]`` of the second of two classes, or
            probabilities ``[n, K]`` of K classes.
        kinds: Kinds of task and scale that it scores.
        heading: Heading of its column in tables and reports; "" = only in ``metrics.json``.
        higher_is_better: Whether a higher value is better.
    """

    function: Callable[[Array, Array, Array], Array]
    kinds: tuple[ScoredKind, ...]
    heading: str = ""
    higher_is_better: bool = False


METRICS: Registry[Metric] = Registry("metric")
"""All metrics by name, in the order of tables. The first of a kind of task is its main metric."""

_CLASSES: tuple[ScoredKind, ...] = ("binary", "multiclass")
_EQUAL = 1e-9  # difference of logarithms that counts as none
BINS = 10  # of probabilities
_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)  # as in scikit-learn
_CELLS_AT_ONCE = 2**22
_MOST_CELLS = 5 * 10**7
_FEWEST_RESAMPLES = 100


def metrics_of(*kinds: str, with_heading: bool = False) -> dict[str, Metric]:
    """Return the metrics of any of the kinds by name, or only those that tables show."""
    return {
        name: metric
        for name, metric in METRICS.items()
        if not {*kinds}.isdisjoint(metric.kinds) and (metric.heading or not with_heading)
    }


def main_metric(kind: ScoredKind) -> tuple[str, Metric]:
    """Return the metric that summarizes a kind of task, with its name."""
    return next(iter(metrics_of(kind, with_heading=True).items()))


def scored_kind(task: Task, scores: Mapping[str, Any]) -> ScoredKind:
    """Return the kind of the main scores of a task: ``log10`` if they are on log10."""
    return "log10" if "log10_rmse" in scores else task.kind


class TaskScores(NamedTuple):
    """Scores by task, and the mean of each metric over the tasks for which it is defined.

    With tasks of atoms or bonds there are no means.
    """

    tasks: dict[str, Scores]
    mean: Scores

    __repr__ = object.__repr__


def score_tasks(
    prediction: Array,
    target: Array,
    tasks: Sequence[Task],
    *,
    resamples: int | Iterable[Array] = 0,
    seed: int = 0,
    logarithms: Collection[str] = (),
    bounds: Array | None = None,
) -> TaskScores:
    """Compute all metrics of each of T tasks.

    Args:
        prediction: Finite values in the units of the targets and probabilities of classes,
            ``[n, outputs]``.
        target: Values or indices of classes, NaN where missing or censored, ``[n, T]``.
        tasks: The T tasks.
        resamples: Number of bootstrap samples for the confidence intervals, fewer of very many
            rows; 0 = no intervals. Or the samples, as of :func:`resamplings`.
        seed: Seed of the samples.
        logarithms: Names of regressions that are scored on log10 too. Labels and predictions that
            are not above 0 count as half of the smallest label that is, lower bounds as none.
        bounds: Lower and upper bounds of labels, NaN where there is none, ``[2, n, T]``; a label
            with both has a value too. The distance of a prediction to a bound is 0 on the permitted
            side.
    """
    is_count = isinstance(resamples, int)
    samples = resamplings(len(target), resamples, seed) if is_count else resamples
    values = sample_scores(prediction, target, tasks, samples, logarithms=logarithms, bounds=bounds)
    scores = {}
    for index, task in enumerate(tasks):
        scores[task.name] = _summary(values[task.name], np.sum(~np.isnan(target[:, index])))
    means = {}
    for key in dict.fromkeys(key for drawn in values.values() for key in drawn):
        drawn = [
            scores_of_task[key]
            for scores_of_task in values.values()
            if key in scores_of_task and not np.isnan(scores_of_task[key][0])
        ]
        means[key] = _nanmean(np.array(drawn)) if drawn else np.full(1, np.nan)
    count = sum(task_scores["count"] for task_scores in scores.values())
    return TaskScores(scores, _summary(means, count))


def sample_scores(
    prediction: Array,
    target: Array,
    tasks: Sequence[Task],
    samples: Iterable[Array],
    *,
    logarithms: Collection[str] = (),
    bounds: Array | None = None,
) -> dict[str, dict[str, Array]]:
    """Compute all metrics of each task, on all rows and on bootstrap samples: ``[1 + samples]``.

    ``samples`` are those of :func:`resamplings`, all other arguments as of :func:`score_tasks`.
    """
    compared = dict[str, dict[str, tuple[Metric, ScaledRows]]]()
    limits = np.full((2, *target.shape), np.nan) if bounds is None else bounds
    for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        outputs = prediction[:, columns]
        outputs = outputs if task.kind == "multiclass" else outputs[:, 0]
        labels = target[:, index], limits[:, :, index]
        metrics = dict[str, tuple[Metric, ScaledRows]]()
        for rows in scaled_rows(task, outputs, *labels, is_log=task.name in logarithms):
            for key, metric in metrics_of(*rows.kinds).items():
                metrics.setdefault(key, (metric, rows))  # a rank is the same on each scale
        compared[task.name] = metrics
    values: dict[str, dict[str, Array]] = {task.name: {} for task in tasks}
    for weights in chain([np.ones((1, len(target)))], samples):
        for name, metrics in compared.items():
            for key, (metric, rows) in metrics.items():
                drawn = _values(metric, rows.target, rows.prediction, weights[:, rows.mask])
                values[name][key] = np.append(values[name].get(key, np.zeros(0)), drawn)
    return values


def constant_prediction(tasks: Sequence[Task], targets: Array, rows: int) -> Array:
    """Predict the mean of labels ``[n, T]``, or the frequency of each class, for all test rows."""
    outputs = []
    for index, task in enumerate(tasks):
        labels = targets[~np.isnan(targets[:, index]), index]
        if task.kind == "multiclass":
            outputs += [np.mean(labels == label) for label in range(len(task.classes))]
        else:
            outputs.append(labels.mean())
    return np.tile(np.asarray(outputs, dtype=np.float64), (rows, 1))


class ScaledRows(NamedTuple):
    """Labels ``[m]`` and predictions of the rows of a ``mask`` ``[n]``, on the scale of kinds."""

    kinds: tuple[ScoredKind, ...]
    target: Array
    prediction: Array
    mask: NDArray[np.bool_]


def scaled_rows(
    task: Task, prediction: Array, target: Array, bounds: Array, *, is_log: bool
) -> Iterator[ScaledRows]:
    """Yield the labeled rows of a task, the censored ones, and all if some are intervals, by scale.

    The label of a censored row is the nearest value to its prediction that the bounds permit.

    Args:
        task: The task.
        prediction: Its outputs, ``[n]`` or ``[n, K]``.
        target: Labels ``[n]``, NaN where missing or censored.
        bounds: Bounds ``[2, n]``, NaN where there is none.
        is_log: Whether log10 is a scale too.
    """
    is_labeled = ~np.isnan(target)
    yield ScaledRows((task.kind,), target[is_labeled], prediction[is_labeled], is_labeled)
    if task.kind != "regression":
        return
    numbers = np.stack([target, *bounds, prediction])
    kinds: list[tuple[ScoredKind, ScoredKind]] = [("censored", "interval")]
    scales = [numbers]
    if is_log:
        kinds.append(("log10_censored", "log10_interval"))
        scales.append(np.log10(above_zero(numbers, numbers[:3])))
        scales[1][1, bounds[0] <= 0.0] = -np.inf  # permits all logarithms
        labels, *_, predicted = scales[1][:, is_labeled]
        yield ScaledRows(("log10", "fold"), labels, predicted, is_labeled)
    is_bounded: Any = ~np.isnan(bounds).all(axis=0)
    is_censored = is_bounded & ~is_labeled
    is_any: Any = is_bounded | is_labeled
    for (censored, interval), scaled in zip(kinds, scales, strict=True):
        if is_censored.any():
            *_, predicted = scaled[:, is_censored]
            permitted = nearest_permitted(predicted, scaled[1:3, is_censored])
            yield ScaledRows((censored,), permitted, predicted, is_censored)
        if (is_bounded & is_labeled).any():
            values, *limits, predicted = scaled[:, is_any]
            ends = (np.where(is_labeled[is_any] & np.isnan(end), values, end) for end in limits)
            yield ScaledRows((interval,), np.column_stack([values, *ends]), predicted, is_any)


def above_zero(values: Array, labels: Array) -> Array:
    """Replace values that are not above 0 by half of the smallest label that is; NaN stays."""
    return np.where(values <= 0.0, 0.5 * np.min(labels[labels > 0.0], initial=np.inf), values)


def replaced_lines(
    prediction: Array,
    target: Array,
    tasks: Sequence[Task],
    *,
    logarithms: Collection[str],
    bounds: Array,
    model: str,
) -> list[str]:
    """Return how many predictions of a model have no logarithm, a line for each task with some."""
    lines = []
    for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        labels = np.stack([target[:, index], *bounds[:, :, index]])
        is_replaced = ~np.isnan(labels).all(axis=0) & (prediction[:, columns.start] <= 0.0)
        if task.name in logarithms and is_replaced.any():
            count = counted(int(is_replaced.sum()), "prediction")
            lines.append(
                f"{quoted(task.name)}: {count} of {model} not above 0, counted as half of the "
                "smallest label on log10"
            )
    return lines


def _values(metric: Metric, target: Array, prediction: Array, weights: Array) -> Array:
    """Return a metric for each weighting of the labeled rows, NaN where it is undefined."""
    if not len(target) or (len(target) == 1 and len(weights) > 1):  # no interval of a single label
        return np.full(len(weights), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return metric.function(target, prediction, weights)


def _summary(values: Mapping[str, Array], count: int) -> Scores:
    """Return the scores, given each metric of the rows and of the bootstrap samples."""
    points = {key: None if np.isnan(drawn[0]) else float(drawn[0]) for key, drawn in values.items()}
    return {
        "count": int(count),
        **points,
        "intervals": {
            key: percentile_interval(drawn[1:]) for key, drawn in values.items() if len(drawn) > 1
        },
    }


def resamplings(
    rows: int, count: int, seed: int = 0, groups: NDArray[np.intp] | None = None
) -> Iterator[Array]:
    """Yield how often each bootstrap sample draws each row, ``[some, n]``, ``count`` in all.

    ``groups`` are indices ``[n]`` of groups that are drawn as a whole, by default rows. Scores of
    several models on the same rows are paired: with the same groups and seed, samples are the same.
    """
    rng = np.random.default_rng(seed)
    units = rows
    if groups is not None:
        names, groups = np.unique(groups, return_inverse=True)
        units = len(names)
    remaining = min(count, max(_FEWEST_RESAMPLES, _MOST_CELLS // rows)) if rows else 0
    while remaining:
        samples = min(remaining, max(1, _CELLS_AT_ONCE // rows))
        drawn = rng.integers(0, units, (samples, units)) + units * np.arange(samples)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=samples * units).reshape(samples, units)
        yield (counts if groups is None else counts[:, groups]).astype(float)
        remaining -= samples


def percentile_interval(drawn: Array) -> list[float] | None:
    """Return the 95% interval of a metric on bootstrap samples; None if half are undefined."""
    defined = drawn[~np.isnan(drawn)]
    if len(defined) < max(2, len(drawn) / 2):
        return None
    return np.percentile(defined, [2.5, 97.5]).tolist()


def _rmse(target: Array, prediction: Array, weights: Array) -> Array:
    return np.sqrt(_average((prediction - target) ** 2, weights))


def _mae(target: Array, prediction: Array, weights: Array) -> Array:
    return _average(np.abs(prediction - target), weights)


def _median_fold_error(target: Array, prediction: Array, weights: Array) -> Array:
    """Median ratio of prediction and label, the larger to the smaller, of logarithms."""
    folds = 10.0 ** np.abs(prediction - target)
    order = np.argsort(folds)
    total = np.cumsum(weights[:, order], axis=1)
    half = 0.5 * total[:, -1:]
    ranks = np.stack([(total < half).sum(axis=1), (total <= half).sum(axis=1)])
    middle = folds[order][np.minimum(ranks, len(folds) - 1)]
    return np.where(half[:, 0] > 0.0, middle.mean(axis=0), np.nan)


def _within(ratio: float, target: Array, prediction: Array, weights: Array) -> Array:
    """Fraction of predictions that differ from the label at most by a ratio, of logarithms."""
    return _average(np.abs(prediction - target) <= np.log10(ratio) + _EQUAL, weights)


def _permitted(target: Array, prediction: Array, weights: Array) -> Array:
    return _average(prediction == target, weights)


def _interval_mae(target: Array, prediction: Array, weights: Array) -> Array:
    """Mean distance of predictions ``[..., n]`` to the limits of labels."""
    distances = np.abs(prediction - nearest_permitted(prediction, target.T[1:]))
    return (weights * distances).sum(axis=1) / _nan_at_zero(weights.sum(axis=1))


def _st_rae(target: Array, prediction: Array, weights: Array) -> Array:
    """The mean distance to the limits of labels, relative to the distance of their mean."""
    values = target[:, 0]
    is_labeled = ~np.isnan(values)
    mean = _average(values[is_labeled], weights[:, is_labeled])[:, None]
    of_mean = _interval_mae(target, np.broadcast_to(mean, weights.shape), weights)
    return _interval_mae(target, prediction, weights) / _nan_at_zero(of_mean)


def _r2(target: Array, prediction: Array, weights: Array) -> Array:
    mean = _average(target, weights)[:, None]
    spread = (weights * (target - mean) ** 2).sum(axis=1) / _nan_at_zero(weights.sum(axis=1))
    # Equal labels leave rounding noise, not zero.
    is_drawn = weights > 0.0
    lowest = np.where(is_drawn, target, np.inf).min(axis=1)
    spread[lowest == np.where(is_drawn, target, -np.inf).max(axis=1)] = np.nan
    return 1.0 - _average((prediction - target) ** 2, weights) / spread


def _spearman(target: Array, prediction: Array, weights: Array) -> Array:
    """Correlation of ranks; ties have their mean rank."""
    first = _ranks(target, weights)
    second = _ranks(_as_written(prediction), weights)
    total = weights.sum(axis=1)
    first -= ((weights * first).sum(axis=1) / total)[:, None]
    second -= ((weights * second).sum(axis=1) / total)[:, None]
    variances = (weights * first**2).sum(axis=1), (weights * second**2).sum(axis=1)
    smallest = np.minimum(*variances)
    scale = np.sqrt(variances[0] * variances[1])
    scale[smallest <= 1e-9 * total] = np.nan  # ranks are whole or half numbers
    return np.clip((weights * first * second).sum(axis=1) / scale, -1.0, 1.0)


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
    written = _as_written(prediction)
    _, (positive, negative) = _group_sums(written, weights * target, weights * (1.0 - target))
    below = np.cumsum(negative, axis=1) - negative
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return (positive * (below + 0.5 * negative)).sum(axis=1) / _nan_at_zero(pairs)


@_one_against_rest
def _pr_auc(target: Array, prediction: Array, weights: Array) -> Array:
    """Average precision."""
    written = _as_written(prediction)
    _, (positive, negative) = _group_sums(-written, weights * target, weights * (1.0 - target))
    true_positives = np.cumsum(positive, axis=1)
    false_positives = np.cumsum(negative, axis=1)
    precision = true_positives / np.maximum(true_positives + false_positives, np.finfo(float).tiny)
    total = np.where(
        false_positives[:, -1] > 0, true_positives[:, -1], 0.0
    )  # undefined for a single class
    return (positive * precision).sum(axis=1) / _nan_at_zero(total)


def _mcc(target: Array, prediction: Array, weights: Array) -> Array:
    """Correlation of true and predicted classes (Gorodkin 2004)."""
    classes = np.eye(2 if prediction.ndim == 1 else prediction.shape[1])
    truth = classes[target.astype(int)]
    predicted = classes[_labels(prediction)]
    total = weights.sum(axis=1)
    right = weights @ (truth * predicted).sum(axis=1)
    true_counts = weights @ truth
    predicted_counts = weights @ predicted
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


def confidence_bins(target: Array, prediction: Array) -> tuple[Array, Array, NDArray[np.intp]]:
    """Return the probability of a class, whether it is the label, and its bin, of each row.

    The class is the second of two, or the most probable of more.
    """
    if prediction.ndim > 1:
        target = (_labels(prediction) == target).astype(float)
        prediction = prediction.max(axis=1)
    bins = (prediction * BINS).astype(np.intp)
    return prediction, target, np.minimum(bins, BINS - 1)


def _ece(target: Array, prediction: Array, weights: Array) -> Array:
    """Mean distance of frequency and probability over the bins, weighted by their rows."""
    confidence, right, bins = confidence_bins(target, prediction)
    gaps = weights @ (np.eye(BINS)[bins] * (right - confidence)[:, None])
    return np.abs(gaps).sum(axis=1) / _nan_at_zero(weights.sum(axis=1))


METRICS.register("rmse")(Metric(_rmse, ("regression",), "RMSE"))
METRICS.register("mae")(Metric(_mae, ("regression",), "MAE"))
METRICS.register("r2")(Metric(_r2, ("regression",), "R²", higher_is_better=True))
METRICS.register("log10_rmse")(Metric(_rmse, ("log10",), "log10 RMSE"))
METRICS.register("log10_mae")(Metric(_mae, ("log10",), "log10 MAE"))
METRICS.register("log10_r2")(Metric(_r2, ("log10",), "log10 R²", higher_is_better=True))
METRICS.register("spearman")(
    Metric(_spearman, ("regression", "log10"), "Spearman", higher_is_better=True)
)
METRICS.register("median_fold_error")(Metric(_median_fold_error, ("fold",), "median fold error"))
METRICS.register("within_2_fold")(
    Metric(partial(_within, 2.0), ("fold",), "within 2-fold", higher_is_better=True)
)
METRICS.register("within_3_fold")(
    Metric(partial(_within, 3.0), ("fold",), "within 3-fold", higher_is_better=True)
)
METRICS.register("censored_permitted")(
    Metric(_permitted, ("censored", "log10_censored"), "right side", higher_is_better=True)
)
METRICS.register("censored_rmse")(Metric(_rmse, ("censored",), "RMSE to the limit"))
METRICS.register("log10_censored_rmse")(
    Metric(_rmse, ("log10_censored",), "log10 RMSE to the limit")
)
METRICS.register("st_rae")(Metric(_st_rae, ("interval",), "ST-RAE"))
METRICS.register("interval_mae")(Metric(_interval_mae, ("interval",), "MAE to the interval"))
METRICS.register("log10_st_rae")(Metric(_st_rae, ("log10_interval",), "log10 ST-RAE"))
METRICS.register("log10_interval_mae")(
    Metric(_interval_mae, ("log10_interval",), "log10 MAE to the interval")
)
METRICS.register("roc_auc")(Metric(_roc_auc, _CLASSES, "ROC-AUC", higher_is_better=True))
METRICS.register("pr_auc")(Metric(_pr_auc, _CLASSES, "PR-AUC", higher_is_better=True))
METRICS.register("mcc")(Metric(_mcc, _CLASSES, "MCC", higher_is_better=True))
METRICS.register("accuracy")(Metric(_accuracy, _CLASSES, higher_is_better=True))
METRICS.register("nll")(Metric(_nll, _CLASSES, "NLL"))
METRICS.register("brier")(Metric(_brier, _CLASSES, "Brier"))
METRICS.register("ece")(Metric(_ece, _CLASSES, "ECE"))


def _average(values: NDArray[Any], weights: Array) -> Array:
    return (weights @ values.astype(float)) / _nan_at_zero(weights.sum(axis=1))


def _nan_at_zero(values: Array) -> Array:
    return np.where(values > 0.0, values, np.nan)


def _nanmean(values: Array) -> Array:
    """Mean over the first axis without NaN; NaN where all are."""
    is_defined = ~np.isnan(values)
    return np.where(is_defined, values, 0.0).sum(axis=0) / _nan_at_zero(
        is_defined.sum(axis=0).astype(float)
    )


def _as_written(prediction: Array) -> Array:
    """Round as in ``predictions.csv``: 7 significant digits, of numbers below 1,000.

    Predictions of equal molecules differ by rounding errors, and are ties.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scale = 10.0 ** (6.0 - np.floor(np.log10(np.abs(prediction))))
        rounded = np.round(prediction * scale) / scale
    return np.where((np.abs(prediction) < 1000.0) & np.isfinite(rounded), rounded, prediction)


def _group_sums(values: Array, *weights: Array) -> tuple[NDArray[np.intp], list[Array]]:
    """Return the index of each value among the distinct ones, and the sums of weights of these."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    starts = np.cumsum(counts) - counts
    return which, [np.add.reduceat(part[:, order], starts, axis=1) for part in weights]


def _ranks(values: Array, weights: Array) -> Array:
    which, (ties,) = _group_sums(values, weights)
    return (np.cumsum(ties, axis=1) - 0.5 * (ties - 1.0))[:, which]


def _labels(prediction: Array) -> NDArray[np.intp]:
    if prediction.ndim == 1:
        return (prediction > 0.5).astype(np.intp)
    return prediction.argmax(axis=1)
