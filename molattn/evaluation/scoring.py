"""Scores of a run: the model and the baselines on the test rows."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.evaluation.baselines import constant_prediction, forest_prediction
from molattn.evaluation.metrics import TaskScores, score_tasks
from molattn.evaluation.uncertainty_metrics import score_uncertainty
from molattn.model.prediction_columns import PredictionColumns
from molattn.model.uncertainty.prediction import Prediction
from molattn.training.run import TrainingRun
from molattn.utils.console import print_line
from molattn.utils.reproducibility import threads

__all__ = ["RunScores", "score_run"]

_MOST_FOREST_ROWS = 20_000  # beyond, descriptors alone would take many minutes


class RunScores(NamedTuple):
    """Predictions for the test rows, and all scores of a run.

    ``uncertainty`` is from :func:`molattn.evaluation.uncertainty_metrics.score_uncertainty`;
    ``baselines`` and ``seconds`` are the test scores and the duration of each baseline by name;
    ``members`` are the test scores of each member of an ensemble, uncalibrated, and empty for a
    single model.
    """

    prediction: Prediction
    uncertainty: dict[str, dict[str, Any]]
    validation: TaskScores
    test: TaskScores
    baselines: dict[str, TaskScores]
    seconds: dict[str, float]
    members: list[TaskScores]


def score_run(run: TrainingRun, console: Console | None = None) -> RunScores:
    """Score a run on its validation and test rows, with baselines beside it.

    Args:
        run: The run.
        console: Where to say what takes time; silent without one.
    """
    tasks, config, seed = run.table.tasks, run.config.report, run.config.training.seed
    target = run.table.targets[run.parts.test]

    def score(prediction: NDArray[np.float64]) -> TaskScores:
        return score_tasks(prediction, target, tasks, resamples=config.bootstrap, seed=seed)

    columns = PredictionColumns(run.model, config.interval)
    molecules = run.table.molecules(run.parts.test)
    with threads(run.config.training.threads):
        members = run.model.predict_records(
            molecules.records, features=molecules.features, members=True
        )
    validation, test = (
        columns.predict_with_uncertainty(predicted, run.table.fingerprints[rows])
        for predicted, rows in (
            (run.validation_predictions, run.parts.val),
            (members, run.parts.test),
        )
    )
    baselines: dict[str, TaskScores] = {}
    seconds: dict[str, float] = {}
    for name, prediction in _baselines(run, console) if config.baselines else ():
        start = time.perf_counter()
        baselines[name] = score(prediction())
        seconds[name] = time.perf_counter() - start
    return RunScores(
        prediction=test,
        uncertainty=score_uncertainty(
            run.model, test, members.mean(axis=0), target, config.interval
        ),
        validation=score_tasks(validation.prediction, run.table.targets[run.parts.val], tasks),
        test=score(test.prediction),
        baselines=baselines,
        seconds=seconds,
        members=[score_tasks(one, target, tasks) for one in members] if len(members) > 1 else [],
    )


def _baselines(run: TrainingRun, console: Console | None) -> Iterator[tuple[str, Any]]:
    tasks, train, test = run.table.tasks, run.parts.train, run.parts.test
    targets = run.table.targets[train]
    yield "baseline", lambda: constant_prediction(tasks, targets, len(test))
    rows = [*train, *test]
    if len(rows) > _MOST_FOREST_ROWS:
        print_line(console, f"no random forest beside it: more than {_MOST_FOREST_ROWS:,} rows")
        return

    def forest() -> NDArray[np.float64]:
        features = run.table.baseline_numbers[rows]
        if run.table.features is not None:
            features = np.hstack([features, run.table.features[rows].astype(np.float32)])
        return forest_prediction(
            tasks,
            features[: len(train)],
            targets,
            features[len(train) :],
            run.config.training.seed,
        )

    print_line(console, "random forest for comparison (not with --no-baselines) ...")
    yield "random_forest", forest
