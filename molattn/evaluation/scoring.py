"""Scores of a run: its model and the baselines on the test rows."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from molattn.data.dataset import MOST_BASELINE_ROWS
from molattn.errors import quoted
from molattn.evaluation.metrics import Scores, TaskScores, mean_scores, score_tasks
from molattn.evaluation.tables import CALIBRATION_METRICS
from molattn.model.model import MolAttn
from molattn.model.outputs import class_probabilities, mean_of_members
from molattn.model.uncertainty import (
    Calibration,
    ConformalScores,
    Prediction,
    ProbabilityScaling,
)
from molattn.task import Task, output_slices
from molattn.training.run import TrainingRun
from molattn.utils.console import counted, print_line
from molattn.utils.reproducibility import threads

__all__ = [
    "RunScores",
    "constant_prediction",
    "forest_prediction",
    "score_run",
    "score_uncertainty",
]

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_TREES = 200
_MAX_FEATURES = 0.3  # fraction at each split; as accurate as all, in a third of the time


class RunScores(NamedTuple):
    """Test predictions and scores of a run.

    Args:
        prediction: Predictions of the test rows with their uncertainty.
        uncertainty: From :func:`score_uncertainty`.
        validation: Scores of the validation rows; None if there are none.
        test: Scores of the test rows; None if there are none.
        baselines: Test scores of each baseline by name.
        seconds: Time that each baseline took.
        members: Test scores of each member of an ensemble, uncalibrated; empty for one model.
        censored: For each target with censored test labels, which the scores leave out, their
            ``count`` and on the ``permitted`` side of how many bounds the prediction is.
        not_finite: Number of test rows without a finite prediction, which are not scored.
    """

    prediction: Prediction
    uncertainty: dict[str, dict[str, Any]]
    validation: TaskScores | None
    test: TaskScores | None
    baselines: dict[str, TaskScores]
    seconds: dict[str, float]
    members: list[TaskScores]
    censored: dict[str, dict[str, int]]
    not_finite: int

    __repr__ = object.__repr__

    def to_dict(self) -> dict[str, dict[str, Scores] | Scores]:
        """Return the scores of each model by task, and their means, as in ``metrics.json``."""
        given = {"test": self.test, **self.baselines, "validation": self.validation}
        scored = {name: scores for name, scores in given.items() if scores is not None}
        if self.members:
            scored["member"] = mean_scores(self.members)
        found: dict[str, dict[str, Scores] | Scores] = {}
        for name, scores in scored.items():
            found |= {name: scores.tasks, f"{name}_mean": scores.mean}
        return found


def score_run(run: TrainingRun, console: Console | None = None) -> RunScores:
    """Score a run on its validation and test rows, and the baselines on the test rows.

    Censored labels are not scored, nor are rows without a finite prediction. Without test rows,
    only the validation rows are scored.
    """
    tasks, config, seed = run.table.tasks, run.config.report, run.config.training.seed

    def score(prediction: NDArray[np.float64]) -> TaskScores:
        return score_tasks(prediction, target, tasks, resamples=config.bootstrap, seed=seed)

    def labels(found: Prediction, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        is_finite = np.isfinite(found.prediction).all(axis=1, keepdims=True)
        return np.where(is_finite, run.table.targets[rows], np.nan)

    molecules = run.table.molecules(run.parts.test)
    with threads(run.config.training.threads):
        outputs = run.model.predict_outputs(molecules.records, features=molecules.features)
    validation, test = (
        run.model.prediction(predicted, run.table.fingerprints(rows), config.interval)
        for predicted, rows in (
            (run.validation_outputs, run.parts.val),
            (outputs, run.parts.test),
        )
    )
    target, has_test = labels(test, run.parts.test), len(run.parts.test) > 0
    not_finite = int((~np.isfinite(test.prediction).all(axis=1)).sum())
    if not_finite:
        rows = counted(not_finite, "test row")
        print_line(console, f"not scored, without a finite prediction: {rows}")
    members = run.model.in_own_units(outputs)
    baselines: dict[str, TaskScores] = {}
    seconds: dict[str, float] = {}
    for name, prediction in _baselines(run, console) if config.baselines and has_test else ():
        start = time.perf_counter()
        baselines[name] = score(prediction())
        seconds[name] = time.perf_counter() - start
    censored = {}
    if molecules.bounds is not None and has_test:
        censored = _censored(test.prediction, molecules.bounds, tasks)
    for name, found in censored.items():
        print_line(
            console,
            f"{quoted(name)}: censored test labels, which are not scored: {found['count']:,}; "
            f"predictions on the permitted side of the bound: {found['permitted']:,}",
        )
    return RunScores(
        prediction=test,
        uncertainty=score_uncertainty(run.model, test, outputs, target, config.interval)
        if has_test
        else {},
        validation=score_tasks(validation.prediction, labels(validation, run.parts.val), tasks)
        if len(run.parts.val)
        else None,
        test=score(test.prediction) if has_test else None,
        baselines=baselines,
        seconds=seconds,
        members=[score_tasks(one, target, tasks) for one in members]
        if has_test and len(members) > 1
        else [],
        censored=censored,
        not_finite=not_finite,
    )


def _censored(
    prediction: NDArray[np.float64], bounds: NDArray[np.float64], tasks: Sequence[Task]
) -> dict[str, dict[str, int]]:
    """Count the bounds ``[2, n, T]`` of each task, and the predictions that they permit."""
    found = {}
    for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        low, high = bounds[:, :, index]
        value = prediction[:, part.start]
        if count := int((~np.isnan([low, high])).sum()):
            permitted = int(((value >= low) | (value <= high)).sum())
            found[task.name] = {"count": count, "permitted": permitted}
    return found


def _baselines(run: TrainingRun, console: Console | None) -> Iterator[tuple[str, Any]]:
    tasks, train, test = run.table.tasks, run.parts.train, run.parts.test
    targets = run.table.targets[train]
    yield "baseline", lambda: constant_prediction(tasks, targets, len(test))
    rows = [*train, *test]
    if len(run.table.rows) > MOST_BASELINE_ROWS:
        print_line(console, f"no random forest baseline: more than {MOST_BASELINE_ROWS:,} rows")
        return

    def forest() -> NDArray[np.float64]:
        features = run.table.baseline_numbers[rows]
        if run.table.features is not None:
            features = np.hstack([features, run.table.features[rows].astype(np.float32)])
        known, others = features[: len(train)], features[len(train) :]
        return forest_prediction(tasks, known, targets, others, run.config.training.seed)

    print_line(console, "training the random forest baseline (--no-baselines skips it) ...")
    yield "random_forest", forest


def score_uncertainty(
    model: MolAttn,
    prediction: Prediction,
    outputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    level: float,
) -> dict[str, dict[str, Any]]:
    """Score the prediction intervals of a nominal coverage, or the probabilities, of each task.

    Of the calibrated predictions of n molecules, and of the outputs ``[members, n, outputs]`` that
    they come from; labels are ``[n, T]``, NaN where missing.

    Returns:
        By task. For a regression: ``coverage``, the fraction of labels within their intervals;
        ``coverage_expected`` and ``coverage_sd``, mean and standard deviation of the coverage for
        so many labels and calibration errors if the intervals are valid; ``mean_width``; ``count``
        of labels; ``coverage_at``, the coverage by level. For a classification: ``nll``, ``brier``
        and ``ece``, each ``_before`` and ``_after`` calibration, if the probabilities are
        calibrated. Undefined and infinite values are None, with the reason in ``undefined``. Empty
        for a model that is not calibrated.
    """
    if model.uncertainty is None:
        return {}
    tasks, uncertainty = model.config.tasks, model.uncertainty
    mean = mean_of_members(torch.from_numpy(outputs), tasks)
    uncalibrated = class_probabilities(mean, tasks).numpy()
    before, after = (
        score_tasks(given, targets, tasks).tasks for given in (uncalibrated, prediction.prediction)
    )
    ends = {
        at: model.intervals(mean.numpy(), prediction.task_similarity, at)
        for at in (*_LEVELS, level)
    }
    return {
        task.name: _score_intervals(
            uncertainty.calibration,
            index,
            {at: (low[:, index], high[:, index]) for at, (low, high) in ends.items()},
            targets[:, index],
            level,
        )
        if task.kind == "regression"
        else _score_probabilities(
            before[task.name],
            after[task.name],
            isinstance(uncertainty.calibration.parts[index], ProbabilityScaling),
        )
        for index, task in enumerate(tasks)
    }


def _score_intervals(
    calibration: Calibration,
    index: int,
    ends: Mapping[float, tuple[NDArray[np.float64], NDArray[np.float64]]],
    target: NDArray[np.float64],
    level: float,
) -> dict[str, Any]:
    known = ~np.isnan(target)
    labels, count = target[known], int(known.sum())
    intervals = {at: (low[known], high[known]) for at, (low, high) in ends.items()}
    is_finite = {at: bool(np.isfinite(both).all()) for at, both in intervals.items()}
    inside = {
        at: float(np.mean((low <= labels) & (labels <= high)))
        for at, (low, high) in intervals.items()
        if count
    }
    reasons = [] if count else ["no label"]
    if not is_finite[level]:
        reasons += calibration.shortfalls(level, index)
    low, high = intervals[level]
    part = calibration.parts[index]
    assert isinstance(part, ConformalScores)  # of a regression
    expected, sd = part.expected_coverage(level, count) if count else (None, None)
    scores = {
        "coverage": inside.get(level),
        "coverage_expected": expected,
        "coverage_sd": sd,
        "mean_width": float((high - low).mean()) if count else None,
    }
    return {
        "count": count,
        **(dict.fromkeys(scores) if reasons else scores),
        "coverage_at": {f"{at:g}": inside[at] for at in _LEVELS if inside and is_finite[at]},
        "undefined": "; ".join(reasons),
    }


def _score_probabilities(
    before: Mapping[str, Any], after: Mapping[str, Any], is_calibrated: bool
) -> dict[str, Any]:
    if not is_calibrated:
        return {"count": after["count"], "undefined": "the probabilities are not calibrated"}
    scores = {
        f"{key}_{when}": given[key]
        for key in CALIBRATION_METRICS
        for when, given in (("before", before), ("after", after))
    }
    return {"count": after["count"], **scores, "undefined": after["undefined"]}


def constant_prediction(
    tasks: Sequence[Task], targets: NDArray[np.float64], rows: int
) -> NDArray[np.float64]:
    """Predict the mean of the training labels, or the frequency of each class, for all test rows.

    Labels are ``[n, T]``, NaN where missing; each task has some. The result is ``[rows, outputs]``.
    """
    outputs = []
    for index, task in enumerate(tasks):
        labels = targets[~np.isnan(targets[:, index]), index]
        if task.kind == "multiclass":
            outputs += [np.mean(labels == label) for label in range(len(task.classes))]
        else:
            outputs.append(labels.mean())
    return np.tile(np.asarray(outputs, dtype=np.float64), (rows, 1))


def forest_prediction(
    tasks: Sequence[Task],
    features: NDArray[np.float32],
    targets: NDArray[np.float64],
    others: NDArray[np.float32],
    seed: int,
) -> NDArray[np.float64]:
    """Train a random forest of 200 trees on each task and predict other molecules.

    Features are ``[n, F]`` and those of the others ``[m, F]``; labels ``[n, T]``, NaN where
    missing; each task has some. The result is ``[m, outputs]``: values in the units of the targets,
    probabilities of classes.
    """
    prediction = np.zeros((len(others), sum(task.num_outputs for task in tasks)))
    for index, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        known = ~np.isnan(targets[:, index])
        labels = targets[known, index]
        if task.kind == "regression":
            forest = RandomForestRegressor(
                _TREES, max_features=_MAX_FEATURES, n_jobs=-1, random_state=seed
            ).fit(features[known], labels)
            # One thread, as several would sum the trees in varying order.
            prediction[:, part.start] = forest.set_params(n_jobs=1).predict(others)
            continue
        forest = RandomForestClassifier(_TREES, n_jobs=-1, random_state=seed)
        probabilities = np.zeros((len(others), len(task.classes)))
        seen = forest.fit(features[known], labels.astype(int)).classes_
        probabilities[:, seen] = forest.set_params(n_jobs=1).predict_proba(others)
        prediction[:, part] = probabilities[:, 1:] if task.kind == "binary" else probabilities
    return prediction
