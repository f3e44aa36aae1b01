"""What a report begins with: the main scores beside a baseline, and what follows from them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from molattn.evaluation.report.tables import (
    MODELS,
    few_labels,
    format_interval,
    score_cell,
    scored_rows,
    target_label,
)
from molattn.evaluation.scores.metrics import (
    METRICS,
    TaskScores,
    main_metric,
    metrics_of,
    scored_kind,
)
from molattn.evaluation.scores.run_metrics import CrossValidationMetrics, Metrics
from molattn.task import Task
from molattn.training.run_folder import final_folder
from molattn.utils.console import counted

_MOST_SCORES = 4
_BASELINES = {"random_forest": "random forest", "baseline": "constant baseline"}


class Headline(NamedTuple):
    """The beginning of a report: scores of the first tasks, one conclusion, and how to predict."""

    scores: list[tuple[str, str]]
    conclusion: str
    command: str


def make_headline(tasks: Sequence[Task], metrics: Metrics, folder: Path) -> Headline:
    """Summarize the metrics of a run or of a cross-validation in a folder."""
    scores_of_rows = metrics.scores[scored_rows(metrics.scores)].tasks
    scores = []
    for task in tasks[:_MOST_SCORES]:
        task_scores = scores_of_rows.get(task.name, {})
        key, metric = main_metric(scored_kind(task, task_scores))
        bounds = (task_scores.get("intervals") or {}).get(key)
        interval = f" (95% CI {format_interval(*bounds)})" if bounds else ""
        label = f"{metric.heading}, {target_label(task)}"
        scores.append((label, score_cell(task_scores, key) + interval))
        folds = metrics_of("fold").items() if key == "log10_rmse" and len(tasks) == 1 else ()
        scores += [(metric.heading, score_cell(task_scores, name)) for name, metric in folds]
    folder = final_folder(folder)
    relative = Path(os.path.relpath(folder))
    path = folder if ".." in relative.parts else relative
    command = f"molattn predict {quote(path.as_posix())} molecules.csv --output predictions.csv"
    if isinstance(metrics, CrossValidationMetrics) and metrics.final is None:
        command = ""  # there is no model of all rows
    conclusion = _conclusion(tasks, metrics)
    if few := few_labels(metrics):
        conclusion += f" {few[0].upper()}{few[1:]}."
    return Headline(scores, conclusion, command)


def _conclusion(tasks: Sequence[Task], metrics: Metrics) -> str:
    """Say whether the model is better than the best baseline that was scored."""
    if scored_rows(metrics.scores) == "validation":
        return "There was no test: scores of validation rows are slightly too good."
    key = next((name for name in _BASELINES if name in metrics.scores), None)
    if key is None:
        return "No baseline was scored: whether a simpler model does as well is not known."
    is_folded = isinstance(metrics, CrossValidationMetrics)
    compared = [task for task in tasks if task.name in metrics.scores[key].tasks]
    comparisons = [_comparison(task, metrics.scores, key) for task in compared]
    better = sum(gain > 0 for gain, _ in comparisons)
    clearly = sum(clear for _, clear in comparisons)
    name = f"the {_BASELINES[key]}"
    if len(tasks) > 1:
        tasks = compared
        outside = "" if is_folded else f", clearly in {clearly}"
        return f"Better than {name} in {better} of {counted(len(tasks), 'task')}{outside}."
    scores = metrics.scores[key].tasks[tasks[0].name]
    name_of_metric, metric = main_metric(scored_kind(tasks[0], scores))
    baseline = f"{metric.heading} {score_cell(scores, name_of_metric)}"
    sides = _permitted(tasks[0], metrics.scores, key)
    if not better:
        return f"The model is not better than {name} ({baseline}).{sides}"
    if is_folded:
        return f"On average over the folds, the model is better than {name} ({baseline}).{sides}"
    if clearly:
        outside = "outside of the model's 95% interval"
        return f"The model is better than {name} ({baseline}, {outside}).{sides}"
    inside = "not clearly, as that is within the model's 95% interval"
    return f"The model is better than {name} ({baseline}), but {inside}.{sides}"


def _permitted(task: Task, model_scores: Mapping[str, TaskScores], baseline: str) -> str:
    """Return how many predictions of censored labels are on the right side, "" without any."""
    both = [model_scores[name].tasks.get(task.name, {}) for name in (next(iter(MODELS)), baseline)]
    if "censored_permitted" not in both[0]:
        return ""
    error = "log10_censored_rmse" if "log10_rmse" in both[0] else "censored_rmse"
    shares, errors = (
        " and ".join(score_cell(scores, key) for scores in both)
        for key in ("censored_permitted", error)
    )
    return (
        " Predictions of censored labels on the right side, of the model and the "
        f"{_BASELINES[baseline]}: {shares} ({METRICS[error].heading} {errors})."
    )


def _comparison(
    task: Task, model_scores: Mapping[str, TaskScores], baseline: str
) -> tuple[float, bool]:
    """Return by how much the model is better, and if the baseline is outside of its interval."""
    both = [model_scores[name].tasks.get(task.name, {}) for name in (next(iter(MODELS)), baseline)]
    key, metric = main_metric(scored_kind(task, both[0]))
    values: list[Any] = [scores.get(key) for scores in both]
    if None in values:
        return 0.0, False
    first, second = (score["mean"] if isinstance(score, Mapping) else score for score in values)
    gain = (first - second) * (1 if metric.higher_is_better else -1)
    bounds = (both[0].get("intervals") or {}).get(key)
    return gain, bool(gain > 0 and bounds and not bounds[0] <= second <= bounds[1])
