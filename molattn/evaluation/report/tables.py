"""Tables of scores, for the terminal and for reports."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from rich.console import Console
from rich.table import Table

from molattn.config import DataConfig, TrainConfig
from molattn.data.splitting import leakage_warnings
from molattn.errors import quoted
from molattn.evaluation.scores.metrics import TaskScores, metrics_of, score_tasks
from molattn.evaluation.scores.run_metrics import Metrics, RunMetrics
from molattn.model.confidence import CONFIDENCES
from molattn.task import Task, TaskKind
from molattn.utils.console import counted, print_line

if TYPE_CHECKING:
    from molattn.inference.predict import PredictedTable

_RESAMPLES = 1000  # of the bootstrap
MODELS = {
    "test": "molattn",
    "network": "its network alone",
    "gaussian_process": "its Gaussian process alone",
    "random_forest": "random forest",
    "baseline": "mean baseline",
}
"""Models that are scored on the test rows, by their key in ``metrics.json``."""


class ScoreTable(NamedTuple):
    """A table of scores: a title, a row for each task and model, and what is better."""

    title: str
    frame: pd.DataFrame
    note: str = ""


def format_score(value: float | None) -> str:
    """Return a value with three decimals or, if very large or small, digits; "-" if undefined."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3g}"


def format_interval(low: float, high: float) -> str:
    """Return the bounds of an interval, with three decimals unless very small or large."""
    if math.isnan(low):
        return "-"
    if 1e-3 <= max(abs(low), abs(high)) < 1e5:
        return f"{low:z.3f} to {high:z.3f}"
    return f"{format_score(low)} to {format_score(high)}"


def score_cell(scores: Mapping[str, Any], name: str) -> str:
    """Return a score of a run, or its mean ± standard deviation over rounds, if more than one."""
    value = scores.get(name)
    if not isinstance(value, Mapping):
        return format_score(value)
    sd = "" if value["sd"] is None else f" ± {format_score(value['sd'])}"
    return f"{format_score(value['mean'])}{sd}"


def scored_rows(scores: Mapping[str, TaskScores]) -> str:
    """Return which rows the scores of tables are of: ``test``, or ``validation`` without any."""
    return "test" if "test" in scores else "validation"


def target_label(task: Task) -> str:
    """Return the name of a task with its unit, if it has one."""
    return f"{task.name} ({task.unit})" if task.unit else task.name


def _model_label(key: str, kind: TaskKind) -> str:
    """Return the name of a model in a table."""
    if key == "baseline" and kind != "regression":
        return "class prior"  # as of scikit-learn's DummyClassifier
    return MODELS["test" if key == "validation" else key]


def split_text(data: DataConfig) -> str:
    """Return how the rows of a run were split."""
    if data.split_column is not None:
        return f"column {data.split_column!r}"
    if data.only_fold is not None:
        return f"fold {data.only_fold} of {data.folds}, {data.split or 'random'}"
    return str(data.split or "random")


def is_exchangeable(data: DataConfig) -> bool:
    """Return whether test rows are drawn as those that the intervals are calibrated on."""
    return data.split_column is None and data.split in (None, "random")


def score_tables(tasks: Sequence[Task], scores: Mapping[str, TaskScores]) -> list[ScoreTable]:
    """Return the scores of all models, one table of regressions and one of classifications.

    The mean over tasks is left out if they have different units. The scores are of the test rows;
    without any, of the validation rows; see
    :class:`molattn.evaluation.scores.run_metrics.Metrics`. Only the first metric has its confidence
    interval.
    """
    models = [key for key in MODELS if key in scores] or ["validation"]
    tables = []
    for is_regression in (True, False):
        tasks_of_kind = [task for task in tasks if (task.kind == "regression") == is_regression]
        if not tasks_of_kind:
            continue
        scored = [
            (target_label(task), {key: scores[key].tasks[task.name] for key in models})
            for task in tasks_of_kind
        ]
        if len(tasks_of_kind) > 1 and len({task.unit for task in tasks_of_kind}) == 1:
            scored.insert(0, ("mean over tasks", {key: scores[key].mean for key in models}))
        headed = metrics_of(*(task.kind for task in tasks_of_kind), with_heading=True)
        rows = []
        for label, model_scores in scored:
            for key in models:
                row = {"task": label, "model": _model_label(key, tasks_of_kind[0].kind)}
                for name, metric in headed.items():
                    row[metric.heading] = score_cell(model_scores[key], name)
                    if len(row) == 3 and (intervals := model_scores[key].get("intervals")):
                        bounds = intervals.get(name)
                        row["95% CI"] = format_interval(*bounds) if bounds else "-"
                rows.append(row)
        better = {
            word: ", ".join(
                metric.heading for metric in headed.values() if metric.higher_is_better == higher
            )
            for word, higher in (("Higher", True), ("Lower", False))
        }
        note = " ".join(f"{word} is better: {names}." for word, names in better.items() if names)
        tables.append(ScoreTable(f"{scored_rows(scores)} scores", pd.DataFrame(rows), note))
    return tables


def interval_table(metrics: Metrics, config: TrainConfig) -> ScoreTable:
    """Return the scores of the prediction intervals of each regression that has some."""
    rows = []
    for task in metrics.runs[0].tasks:
        scores = metrics.uncertainty.get(task.name)
        if not scores:
            continue
        mean = scores.get("coverage_expected")
        sd: Any = scores.get("coverage_sd")
        row = {"task": target_label(task), "model": ""}
        row[f"{100 * config.report.interval:g}% PI coverage"] = score_cell(scores, "coverage")
        if isinstance(metrics, RunMetrics):
            row["labels"] = f"{scores['count']:,}"
            row["expected ± 2 SD"] = "-" if mean is None else f"{mean:.3f} ± {2.0 * sd:.3f}"
            if not is_exchangeable(config.data):
                row["expected ± 2 SD"] = "not promised"
        rows.append({**row, "mean width": score_cell(scores, "mean_width")})
    return ScoreTable("prediction intervals", pd.DataFrame(rows))


def confidence_table(metrics: Metrics) -> ScoreTable:
    """Return the errors on the test rows by confidence, beside the expected ones."""
    rows = [
        {
            **{"task": target_label(task), "confidence": name, "labels": f"{scores['count']:,}"},
            "mean error": format_score(scores["error"]),
            "expected error": format_score(scores["expected_error"]),
        }
        for task in metrics.runs[0].tasks
        for name, scores in (metrics.confidence or {}).get(task.name, {}).items()
    ]
    return ScoreTable("confidence", pd.DataFrame(rows))


def print_tables(tables: Iterable[ScoreTable], console: Console) -> None:
    """Print tables of scores, with models or grades below their task."""
    for table in tables:
        if table.frame.empty:
            continue
        text_table = Table(box=None, pad_edge=False)
        text_table.add_column(table.title, overflow="fold")
        for heading in table.frame.columns[2:]:
            text_table.add_column(heading, justify="right", no_wrap=True)
        for task, rows in table.frame.groupby("task", sort=False):
            if rows.iloc[:, 1].any():
                text_table.add_row(str(task))
            for _, name, *cells in rows.itertuples(index=False):
                text_table.add_row(f"  {name}" if name else str(task), *cells)
        console.print(text_table, markup=False)


def run_tables(metrics: Metrics, config: TrainConfig) -> list[ScoreTable]:
    """Return the scores, then the intervals, then the confidence."""
    tables = score_tables(metrics.runs[0].tasks, metrics.scores)
    return [*tables, interval_table(metrics, config), confidence_table(metrics)]


def print_scores(metrics: Metrics, config: TrainConfig, console: Console) -> None:
    """Print the scores of a run or of a cross-validation, and their limits."""
    *_, intervals, _ = tables = run_tables(metrics, config)
    print_tables(tables, console)
    for line in leakage_warnings([run.leakage for run in metrics.runs]):
        print_line(console, line)
    if not (intervals.frame.empty or is_exchangeable(config.data)):
        print_line(console, "coverage is not promised: the test rows are not drawn at random")


def print_label_scores(table: "PredictedTable", console: Console) -> None:
    """Print how many predictions have each confidence, and the scores if there are labels."""
    tally = table.tally
    tasks = table.tasks
    target = table.target
    if graded := tally.confidence:
        grades = ", ".join(f"{graded[name]:,} {name}" for name in CONFIDENCES if name in graded)
        print_line(console, f"confidence: {grades}")
    for counts, text in (
        (tally.unusable, "cannot be read"),
        (tally.censored, "censored, not scored"),
    ):
        for name, count in counts.items():
            if count:
                print_line(console, f"{quoted(name)}: {counted(count, 'label')} {text}")
    if len(target):
        line = f"{counted(len(target), 'row')} with labels"
        if trained := tally.trained:
            line += (
                f"; {trained:,} with the fingerprint of a training molecule, whose errors are "
                "smaller than those of new molecules"
            )
        print_line(console, f"{line}:")
        scores = score_tasks(table.prediction, target, tasks, resamples=_RESAMPLES)
        labeled_tasks = [task for task in tasks if scores.tasks[task.name]["count"]]
        print_tables(score_tables(labeled_tasks, {"test": scores}), console)
