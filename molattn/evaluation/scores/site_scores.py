"""Scores of predictions of atoms and bonds, over sites and over molecules."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.data.site_labels import SiteLabels
from molattn.evaluation.scores.metrics import (
    TaskScores,
    constant_prediction,
    resamplings,
    score_tasks,
)
from molattn.evaluation.scores.run_metrics import RunMetrics
from molattn.model.sites import SiteCalibration, SitePrediction, predict_sites, site_outputs
from molattn.task import Level, output_slices
from molattn.training.run import TrainingRun

Array = NDArray[np.float64]

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def with_site_scores(
    metrics: RunMetrics, run: TrainingRun
) -> tuple[RunMetrics, dict[Level, SitePrediction]]:
    """Add the scores of atoms and bonds of the test and validation rows to those of a run.

    Metrics are of all labeled sites, and their confidence intervals of bootstrap samples of
    molecules. ``molecule_mae`` (``molecule_accuracy`` of classes) is the mean over ``molecules``.
    The predictions of the test rows are returned too.
    """
    config = run.config.report
    calibration = run.model.site_calibration
    processes = calibration.processes if calibration and run.config.trains_network else {}
    weights = dict(metrics.gaussian_process_weights or {})
    for process in processes.values():
        weights |= process.head.share_by_task
    metrics = replace(metrics, gaussian_process_weights=weights or None)
    tested: dict[Level, SitePrediction] = {}
    for name, rows in {"test": run.split.test, "validation": run.split.val}.items():
        if not len(rows):
            continue
        molecules = run.table.molecules(rows)
        records = molecules.records
        predictions = predict_sites(run.model.networks, calibration, records, config.interval)
        for site, prediction in predictions.items():
            if name == "validation":  # before the Gaussian process learned from these rows
                is_missing = np.isnan(prediction.outputs)
                outputs = np.where(is_missing, np.nan, run.validation_sites[site])
                prediction = prediction._replace(outputs=outputs)
            labels = _predicted_labels(molecules.sites[site], prediction)
            options = config.bootstrap if name == "test" else 0, run.config.training.seed
            metrics = _with(metrics, name, _scores(labels, prediction.outputs, *options))
            if name == "validation":
                continue
            tested[site] = prediction
            intervals = score_intervals(labels, prediction, calibration, config.interval)
            metrics = replace(metrics, uncertainty={**metrics.uncertainty, **intervals})
            if site in processes:
                alone = site_outputs(run.model.networks, None, records)[site]
                scores = _scores(labels, alone, *options).tasks
                averaged = {task: scores[task] for task in processes[site].head.share_by_task}
                metrics = _with(metrics, "network", TaskScores(averaged, {}))
            if config.baselines:
                training = run.table.sites[site].molecules(run.split.train).targets
                constant = constant_prediction(labels.tasks, training, len(labels.targets))
                metrics = _with(metrics, "baseline", _scores(labels, constant, *options))
    return metrics, tested


def _with(metrics: RunMetrics, name: str, scores: TaskScores) -> RunMetrics:
    """Add scores of a model; there is no mean over tasks, whose units are not known."""
    tasks = metrics.scores[name].tasks if name in metrics.scores else {}
    scores = TaskScores({**tasks, **scores.tasks}, {})
    return replace(metrics, scores={**metrics.scores, name: scores})


def _predicted_labels(labels: SiteLabels, prediction: SitePrediction) -> SiteLabels:
    """Return labels without those of sites that are not predicted."""
    columns = [columns.start for columns in output_slices(labels.tasks)]
    is_predicted = np.isfinite(prediction.outputs[:, columns])
    bounds = labels.bounds
    bounds = None if bounds is None else np.where(is_predicted, bounds, np.nan)
    return replace(labels, targets=np.where(is_predicted, labels.targets, np.nan), bounds=bounds)


def _scores(labels: SiteLabels, outputs: Array, resamples: int, seed: int) -> TaskScores:
    outputs = np.nan_to_num(outputs)
    molecule = labels.molecule
    samples = resamplings(len(outputs), resamples, seed, molecule)
    options: Any = {"resamples": samples, "bounds": labels.bounds}
    scores = score_tasks(outputs, labels.targets, labels.tasks, **options)
    for index, (task, columns) in enumerate(
        zip(labels.tasks, output_slices(labels.tasks), strict=True)
    ):
        targets = labels.targets[:, index]
        if task.kind == "regression":
            values = np.abs(outputs[:, columns.start] - targets)
        else:
            both = outputs[:, columns]
            both = np.hstack([1.0 - both, both]) if task.kind == "binary" else both
            values = np.where(np.isnan(targets), np.nan, both.argmax(axis=1) == targets)
        means = molecule_means(values, molecule)
        name = "molecule_mae" if task.kind == "regression" else "molecule_accuracy"
        scores.tasks[task.name]["molecules"] = len(means)
        scores.tasks[task.name][name] = float(means.mean()) if len(means) else None
    return scores


def molecule_means(values: Array, molecule: NDArray[np.int64]) -> Array:
    """Return the mean of the sites of each molecule that has some; NaN are left out."""
    is_defined = ~np.isnan(values)
    sums = np.bincount(molecule[is_defined], values[is_defined])
    counts = np.bincount(molecule[is_defined])
    return sums[counts > 0] / counts[counts > 0]


def score_intervals(
    labels: SiteLabels,
    prediction: SitePrediction,
    calibration: SiteCalibration | None,
    level: float,
) -> Mapping[str, Mapping[str, Any]]:
    """Score the intervals of regressions as those of molecules; coverage is a mean over molecules.

    Its standard deviation is that of both means, over test and over calibration molecules; None if
    the coverage of all test molecules is the same, which does not tell how much it varies.
    """
    scores: dict[str, dict[str, Any]] = {}
    molecule = labels.molecule
    for index, (task, columns) in enumerate(
        zip(labels.tasks, output_slices(labels.tasks), strict=True)
    ):
        errors_of_task = calibration and calibration.scores.get(task.name)
        if not errors_of_task:
            continue
        errors = np.abs(labels.targets[:, index] - prediction.outputs[:, columns.start])
        widths = prediction.high[:, index] - prediction.low[:, index]
        coverage = {}
        for at in (*_LEVELS, level):
            half_widths = errors_of_task.half_widths(prediction.expected_error[:, index], at)
            within = np.where(np.isnan(errors), np.nan, errors <= half_widths)
            coverage[at] = molecule_means(within, molecule)
        is_defined = bool(len(coverage[level])) and np.isfinite(errors_of_task.bound(level))
        counts = len(coverage[level]), errors_of_task.molecules
        sd = None
        if is_defined and np.ptp(coverage[level]) > 0.0:
            sd = float(np.std(coverage[level]) * np.sqrt(sum(1.0 / n for n in counts)))
        scores[task.name] = {
            "count": int((~np.isnan(errors)).sum()),
            "coverage": float(coverage[level].mean()) if is_defined else None,
            "coverage_expected": level if is_defined else None,
            "coverage_sd": sd,
            "mean_width": float(np.mean(widths[~np.isnan(errors)])) if is_defined else None,
            "coverage_at": {
                f"{at:g}": float(coverage[at].mean())
                for at in _LEVELS
                if len(coverage[at]) and np.isfinite(errors_of_task.bound(at))
            },
        }
    return scores
