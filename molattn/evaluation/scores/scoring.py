"""Scores of a run: its model and the baselines on the test rows."""

import platform
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from molattn.data.store import MOST_BASELINE_ROWS
from molattn.evaluation.scores.metrics import (
    TaskScores,
    above_zero,
    constant_prediction,
    replaced_lines,
    score_tasks,
)
from molattn.evaluation.scores.run_metrics import RunMetrics
from molattn.evaluation.scores.site_scores import with_site_scores
from molattn.model.confidence import CONFIDENCES, expected_factor
from molattn.model.kernel import KernelInputs
from molattn.model.model import MolAttn
from molattn.model.outputs import mean_of_members
from molattn.model.sites import SitePrediction
from molattn.model.target_transform import (
    IdentityTransform,
    limits_with_transform,
    own_units,
    transformed_labels,
)
from molattn.model.uncertainty import ConformalScores, Prediction
from molattn.task import Level, Task, output_slices
from molattn.training.run import TrainingRun
from molattn.training.run_folder import History
from molattn.utils.console import counted, print_line
from molattn.utils.devices import threads

Array = NDArray[np.float64]

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_TREES = 200
_MAX_FEATURES = 0.3  # fraction at each split; as accurate as all, in a third of the time
_PACKAGES = ("molattn", "torch", "torch-geometric", "lightning", "rdkit", "numpy", "scikit-learn")


class RunScores(NamedTuple):
    """Predictions of the test rows with their uncertainty, and the scores and facts of the run."""

    prediction: Prediction
    metrics: RunMetrics
    sites: Mapping[Level, SitePrediction]  # predictions of the atoms and bonds of the test rows

    __repr__ = object.__repr__


class _Scorer(NamedTuple):
    """Scores predictions of n rows of a run; those without a finite prediction do not count."""

    run: TrainingRun
    labels: Array  # NaN where missing, censored or not counted, [n, T]
    bounds: Array  # of censored labels, NaN where there is none, [2, n, T]
    logarithms: Collection[str]  # names of the targets that are scored on log10
    console: Console | None  # where to log which predictions have no logarithm

    @classmethod
    def of(
        cls, run: TrainingRun, rows: NDArray[np.int64], prediction: Array, *options: Any
    ) -> "_Scorer":
        """Return the scorer of rows that a model predicts, ``[n, outputs]``."""
        is_finite = np.isfinite(prediction).all(axis=1, keepdims=True)
        targets = run.table.targets[rows]
        none = np.full((2, *targets.shape), np.nan)
        bounds = none if run.table.bounds is None else run.table.bounds[:, rows]
        labels, *bounds = np.where(is_finite, np.stack([targets, *bounds]), np.nan)
        return cls(run, labels, np.stack(bounds), *options)

    def score(self, name: str, prediction: Array, resamples: int = 0) -> TaskScores:
        """Score predictions ``[n, outputs]`` of a model, by its name in the log."""
        rows: Any = prediction, self.labels, self.run.table.tasks
        options: Any = {"bounds": self.bounds, "logarithms": self.logarithms}
        for line in replaced_lines(*rows, **options, model=name.replace("_", " ")):
            print_line(self.console, line)
        seed = self.run.config.training.seed
        return score_tasks(*rows, **options, resamples=resamples, seed=seed)


def score_run(
    run: TrainingRun,
    console: Console | None = None,
    *,
    logarithms: Collection[str] | None = None,
) -> RunScores:
    """Score a run on its validation and test rows, and the baselines on the test rows.

    Targets that are learned as logarithms are scored on log10 too, or those with the names
    ``logarithms``. Rows without a finite prediction are not scored. Without test rows, only the
    validation rows are scored.
    """
    predictor = run.model.predictor
    table = run.table
    level = run.config.report.interval
    molecules = table.molecules(run.split.test)
    with threads(run.config.training.threads):
        networks = predictor.networks.predict(molecules.records, features=molecules.features)
        outputs = predictor.with_gaussian_process(*networks)
    test = predictor.prediction(outputs, molecules.records, level)
    metrics = RunMetrics(interval_level=level, **_facts(run))
    logarithms = metrics.logarithms if logarithms is None else logarithms
    if len(run.split.test) and table.tasks:
        scorer = _Scorer.of(run, run.split.test, test.prediction, logarithms, console)
        metrics = _with_test_scores(metrics, scorer, test, outputs)
        metrics = _with_part_scores(metrics, scorer, *networks)
    if len(run.split.val) and table.tasks:
        held_out = table.molecules(run.split.val).records
        validation = predictor.prediction(run.validation_outputs, held_out, level).prediction
        scorer = _Scorer.of(run, run.split.val, validation, logarithms, None)
        scores = {"validation": scorer.score("molattn", validation)}
        metrics = replace(metrics, scores={**metrics.scores, **scores})
    sites: Mapping[Level, SitePrediction] = {}
    if table.sites:
        metrics, sites = with_site_scores(metrics, run)
    not_finite = int((~np.isfinite(test.prediction).all(axis=1)).sum())
    if not_finite:
        rows = counted(not_finite, "test row")
        print_line(console, f"not scored, without a finite prediction: {rows}")
    return RunScores(test, replace(metrics, rows_test_not_finite=not_finite), sites)


def _with_test_scores(
    metrics: RunMetrics, scorer: _Scorer, test: Prediction, outputs: Array
) -> RunMetrics:
    """Add the scores of the model and the baselines on the test rows."""
    run = scorer.run
    config = run.config.report
    tasks = run.table.tasks
    scores = {"test": scorer.score("molattn", test.prediction, config.bootstrap)}
    censored = dict[str, dict[str, int]]()
    for task, ends in zip(tasks, np.moveaxis(scorer.bounds, 2, 0), strict=True):
        if count := int(np.logical_xor(*np.isnan(ends)).sum()):
            share = scores["test"].tasks[task.name]["censored_permitted"]
            censored[task.name] = {"count": count, "permitted": round(count * share)}
    seconds = {}
    for name, predict in _baselines(run, scorer.console) if config.baselines else ():
        start = time.perf_counter()
        scores[name] = scorer.score(name, predict(), config.bootstrap)
        seconds[name] = round(time.perf_counter() - start, 3)
    return replace(
        metrics,
        scores=scores,
        baseline_seconds=seconds,
        uncertainty=score_uncertainty(
            run.model, test, outputs, scorer.labels, config.interval, scorer.bounds
        ),
        confidence=score_confidence(tasks, test, scorer.labels, metrics.logarithms),
        censored=censored,
    )


def _with_part_scores(
    metrics: RunMetrics, scorer: _Scorer, network: Array, inputs: KernelInputs
) -> RunMetrics:
    """Add the scores of network and Gaussian process alone, and the weights of the latter."""
    run = scorer.run
    scaling = run.model.scaling
    head = run.model.gaussian_process
    tasks = run.table.tasks
    if head is None or not run.config.trains_network:
        return metrics
    scores = {**metrics.scores}
    parts = {"network": network, "gaussian_process": head.predict(inputs)[None]}
    for name, outputs in parts.items():
        mean = mean_of_members(torch.from_numpy(scaling.to_transformed(outputs)), tasks).numpy()
        values = scaling.in_own_units(mean).clip(*run.model.predictor.output_limits)
        scores[name] = scorer.score(name, values, run.config.report.bootstrap)
    return replace(metrics, scores=scores, gaussian_process_weights=head.share_by_task)


def _facts(run: TrainingRun) -> dict[str, Any]:
    """Return the fields of :class:`RunMetrics` besides scores."""
    table = run.table
    model = run.model
    transforms = zip(table.tasks, model.config.target_transforms, strict=True)
    names = ("rows_train", "rows_validation", "rows_test")
    return {
        "tasks": table.all_tasks,
        "target_transforms": {
            task.name: transform.describe()
            for task, transform in transforms
            if transform.kind != "none"
        },
        "rows_in": table.rows_in,
        "rows_used": len(table.rows),
        "rows_skipped": len(table.skipped),
        "rows_skipped_by_code": Counter(row.code for row in table.skipped),
        "labels_unreadable": len(table.all_unreadable),
        "remarks": table.remarks,
        "rows_standardized": table.standardized,
        "rows_redrawn": table.redrawn,
        **{name: len(rows) for name, rows in zip(names, run.split, strict=True)},
        "leakage": run.leakage,
        "members": member_facts(run.histories, run.config.training.seed),
        "seconds": round(run.seconds, 3),
        "seed": run.config.training.seed,
        "threads": run.config.training.threads,
        "init_from_sha256": run.init_from_digest,
        "data_sha256": table.digest,
        "auxiliary_sha256": table.auxiliary and table.auxiliary.digest,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }


def member_facts(histories: Sequence[History], seed: int) -> list[dict[str, Any]]:
    """Return the epochs and the time of each member of a model."""
    return [
        {
            "seed": seed + index,
            "epochs": len(history.curve),
            "kept_epoch": history.kept_epoch,
            "frozen_weights": history.frozen_weights,
            "seconds": round(history.seconds, 3),
        }
        for index, history in enumerate(histories)
    ]


def _baselines(run: TrainingRun, console: Console | None) -> Iterator[tuple[str, Any]]:
    """Yield the name of each baseline, and the function that predicts the test rows.

    They learn logarithms of the targets of which the model does.
    """
    table = run.table
    train = run.split.train
    test = run.split.test
    transforms = [
        transform if transform.kind == "log" else IdentityTransform()
        for transform in run.model.config.target_transforms
    ]
    targets = transformed_labels(torch.from_numpy(table.targets[train]), transforms).numpy()

    def in_own_units(prediction: Array) -> Array:
        return own_units(torch.from_numpy(prediction), table.tasks, transforms).numpy()

    yield "baseline", lambda: in_own_units(constant_prediction(table.tasks, targets, len(test)))
    numbers = table.baseline_numbers
    if numbers is None:
        print_line(console, f"no random forest baseline: more than {MOST_BASELINE_ROWS:,} rows")
        return

    def forest() -> Array:
        features = numbers[[*train, *test]]
        if table.features is not None:
            more = table.features[[*train, *test]].astype(np.float32)
            features = np.hstack([features, more])
        train_features, test_features = np.split(features, [len(train)])
        seed = run.config.training.seed
        return in_own_units(
            forest_prediction(table.tasks, train_features, targets, test_features, seed)
        )

    print_line(console, "training the random forest baseline (--no-baselines skips it) ...")
    yield "random_forest", forest


def score_uncertainty(
    model: MolAttn,
    prediction: Prediction,
    outputs: Array,
    targets: Array,
    level: float,
    bounds: Array | None = None,
) -> dict[str, dict[str, Any]]:
    """Score the prediction intervals of each regression, of labels ``[n, T]``, NaN where missing.

    By task these are ``coverage``, the fraction of labels within their intervals, an interval of a
    label (``bounds`` ``[2, n, T]``) with both ends;
    ``coverage_expected`` and ``coverage_sd``, its mean and standard deviation for so many labels
    and calibration errors if the intervals are valid; ``mean_width``, and ``log10_mean_width`` of a
    target that is learned as a logarithm; ``count`` of labels; and ``coverage_at``, the coverage by
    level. Undefined values are None.
    """
    if model.uncertainty is None:
        return {}
    calibration = model.uncertainty.calibration
    mean = mean_of_members(torch.from_numpy(outputs), model.config.tasks).numpy()
    intervals = model.predictor.intervals
    ends = {at: intervals(mean, prediction.closeness, at) for at in (*_LEVELS, level)}
    scores: dict[str, dict[str, Any]] = {}
    for index, (task, part) in enumerate(zip(model.config.tasks, calibration.parts, strict=True)):
        if not isinstance(part, ConformalScores):
            continue
        is_labeled = ~np.isnan(targets[:, index])
        limits = targets
        if bounds is not None:
            limits = limits_with_transform(bounds, model.config.target_transforms)
            limits = np.where(np.isnan(limits), targets, limits)
        ends_of_labels = limits[..., is_labeled, index]
        count = int(is_labeled.sum())
        coverage: dict[float, float] = {}
        for at in ends if count else ():
            low, high = (end[is_labeled, index] for end in ends[at])
            if np.isfinite([low, high]).all():
                is_within = (low <= ends_of_labels) & (ends_of_labels <= high)
                coverage[at] = float(is_within.reshape(-1, count).all(axis=0).mean())
        is_defined = level in coverage
        expected, sd = part.expected_coverage(level, count) if is_defined else (None, None)
        low, high = (end[is_labeled, index] for end in ends[level])
        scores[task.name] = {
            "count": count,
            "coverage": coverage.get(level),
            "coverage_expected": expected,
            "coverage_sd": sd,
            "mean_width": float(np.mean(high - low)) if is_defined else None,
            "coverage_at": {f"{at:g}": coverage[at] for at in _LEVELS if at in coverage},
        }
        if is_defined and model.config.target_transforms[index].kind == "log":
            scores[task.name]["log10_mean_width"] = float(np.mean(np.log10(high / low)))
    return scores


def score_confidence(
    tasks: Sequence[Task],
    prediction: Prediction,
    targets: Array,
    logarithms: Collection[str] = (),
) -> dict[str, dict[str, dict[str, float]]]:
    """Compare the errors of predictions of each confidence with those that were expected.

    By task and confidence these are the ``count`` of labels ``[n, T]`` (NaN where missing), the
    mean ``error``, absolute or of the most probable class, and the mean ``expected_error``; also
    ``log10_error`` and ``log10_expected_error`` of targets that are scored on log10, the
    latter by :func:`molattn.model.confidence.expected_factor`.
    """
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        labels = targets[:, index]
        values = prediction.prediction[:, part]
        errors = np.abs(labels - values[:, 0])
        if task.classes:
            both = np.hstack([1.0 - values, values]) if task.kind == "binary" else values
            errors = (both.argmax(axis=1) != labels).astype(float)
        expected = prediction.expected_error[:, index]
        columns = {"error": errors, "expected_error": expected}
        if task.name in logarithms:
            columns["log10_error"] = np.abs(np.log10(above_zero(labels, labels) / values[:, 0]))
            columns["log10_expected_error"] = np.log10(expected_factor(expected, values[:, 0]))
        for name in CONFIDENCES:
            is_graded = ~np.isnan(labels) & (prediction.confidence[:, index] == name)
            if is_graded.any():
                means = {key: float(column[is_graded].mean()) for key, column in columns.items()}
                scores.setdefault(task.name, {})[name] = {"count": int(is_graded.sum()), **means}
    return scores


def forest_prediction(
    tasks: Sequence[Task],
    features: NDArray[np.float32],
    targets: Array,
    others: NDArray[np.float32],
    seed: int,
) -> Array:
    """Train a random forest on each task, of labels ``[n, T]``, and predict other molecules.

    The result is ``[m, outputs]``: values in the units of the targets, probabilities of classes.
    """
    prediction = np.zeros((len(others), sum(task.num_outputs for task in tasks)))
    for index, (task, columns) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        is_labeled = ~np.isnan(targets[:, index])
        labels = targets[is_labeled, index]
        options: dict[str, Any] = {"n_estimators": _TREES, "n_jobs": -1, "random_state": seed}
        # One thread in prediction, as several would sum the trees in varying order.
        if task.kind == "regression":
            forest = RandomForestRegressor(max_features=_MAX_FEATURES, **options)
            forest.fit(features[is_labeled], labels).set_params(n_jobs=1)
            prediction[:, columns.start] = forest.predict(others)
            continue
        forest = RandomForestClassifier(**options).fit(features[is_labeled], labels.astype(int))
        probabilities = np.zeros((len(others), len(task.classes)))
        probabilities[:, forest.classes_] = forest.set_params(n_jobs=1).predict_proba(others)
        prediction[:, columns] = probabilities[:, 1:] if task.kind == "binary" else probabilities
    return prediction
