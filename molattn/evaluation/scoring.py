"""Scores of a run: its model and the baselines on the test rows."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from molattn.data.dataset import MOST_BASELINE_ROWS
from molattn.errors import quoted
from molattn.evaluation.baselines import constant_prediction, forest_prediction
from molattn.evaluation.metrics import Scores, TaskScores, mean_scores, score_tasks
from molattn.evaluation.uncertainty_metrics import score_uncertainty
from molattn.model.outputs import class_probabilities
from molattn.model.prediction_columns import PredictionColumns
from molattn.model.target_transform import own_units
from molattn.model.uncertainty.model_uncertainty import Prediction
from molattn.task import Task, output_slices
from molattn.training.run import TrainingRun
from molattn.utils.console import counted, print_line
from molattn.utils.reproducibility import threads

__all__ = ["RunScores", "score_run"]


class RunScores(NamedTuple):
    """Test predictions and scores of a run.

    Args:
        prediction: Predictions of the test rows with their uncertainty.
        uncertainty: From :func:`molattn.evaluation.uncertainty_metrics.score_uncertainty`.
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

    output = PredictionColumns(run.model, config.interval)
    molecules = run.table.molecules(run.parts.test)
    with threads(run.config.training.threads):
        outputs = run.model.predict_outputs(molecules.records, features=molecules.features)
    validation, test = (
        output.predict_with_uncertainty(predicted, run.table.fingerprints(rows))
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
    probabilities = class_probabilities(torch.from_numpy(outputs), tasks)
    members = own_units(probabilities, tasks, run.model.config.target_transforms).numpy()
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
    for place, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        low, high = bounds[:, :, place]
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
