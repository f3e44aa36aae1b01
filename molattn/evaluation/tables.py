"""Tables of scores, for the terminal and for reports."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from molattn.config import DataConfig, TrainConfig
from molattn.data.leakage import leakage_warnings
from molattn.evaluation.metrics import (
    METRICS,
    fold_note,
    format_interval,
    format_score,
    metrics_of,
)
from molattn.task import Task, TaskKind
from molattn.utils.console import print_line

__all__ = [
    "CALIBRATION_METRICS",
    "MODELS",
    "ScoreRow",
    "ScoreTable",
    "interval_table",
    "is_exchangeable",
    "model_label",
    "print_scores",
    "rich_table",
    "score_tables",
    "scored_rows",
    "target_label",
    "tasks_of",
]

MODELS = {
    "test": "molattn",
    "member": "single model",
    "random_forest": "random forest",
    "baseline": "mean baseline",
}
"""Models that are scored on the test rows, by their key in ``metrics.json``."""

CALIBRATION_METRICS = ("nll", "brier", "ece")
"""Metrics that calibration of the probabilities changes."""


class ScoreRow(NamedTuple):
    """The scores of a model for a task: values, each with its interval or deviation."""

    task: str
    model: str
    cells: list[tuple[str, str]]


class ScoreTable(NamedTuple):
    """A table of scores."""

    title: str
    headings: list[str]
    rows: list[ScoreRow]
    note: str = ""


def scored_rows(metrics: Mapping[str, Any]) -> str:
    """Return which rows the scores of tables are of: ``test``, or ``validation`` without any."""
    return "test" if "test" in metrics else "validation"


def tasks_of(metrics: Mapping[str, Any]) -> list[Task]:
    """Return the tasks of the ``metrics.json`` of a run or of a cross-validation."""
    return [Task.from_dict(task) for task in metrics.get("folds", [metrics])[0]["tasks"]]


def target_label(task: Task) -> str:
    """Return the name of a task with its unit, if it has one."""
    return f"{task.name} ({task.unit})" if task.unit else task.name


def model_label(key: str, kind: TaskKind) -> str:
    """Return the name of a model in the scores of a kind of task.

    The constant prediction of a classification is the frequency of each class in the training rows,
    the ``prior`` of scikit-learn's ``DummyClassifier``.
    """
    if key == "baseline" and kind != "regression":
        return "class prior"
    return MODELS["test" if key == "validation" else key]


def is_exchangeable(data: DataConfig) -> bool:
    """Return whether test rows are drawn as those that the intervals are calibrated on."""
    return data.split_column is None and data.split in (None, "random")


def score_tables(tasks: Sequence[Task], metrics: Mapping[str, Any]) -> list[ScoreTable]:
    """Return the scores of all models, one table of regressions and one of classifications.

    The mean over tasks is left out if they have different units. The scores are of the test rows;
    without any, of the validation rows.

    Args:
        tasks: The tasks.
        metrics: The content of ``metrics.json`` of a run or of a cross-validation.
    """
    models = [key for key in MODELS if key in metrics] or ["validation"]
    rounds = len(metrics.get("folds", ()))
    tables = []
    for is_regression in (True, False):
        some = [task for task in tasks if (task.kind == "regression") == is_regression]
        if not some:
            continue
        scored = [
            (target_label(task), {key: metrics[key][task.name] for key in models}) for task in some
        ]
        if len(some) > 1 and len({task.unit for task in some}) == 1:
            scored.insert(0, ("mean over tasks", {key: metrics[f"{key}_mean"] for key in models}))
        shown = metrics_of(*(task.kind for task in some), with_heading=True)
        rows = [
            ScoreRow(
                label,
                model_label(key, some[0].kind),
                [_cell(scores[key], name, rounds) for name in shown],
            )
            for label, scores in scored
            for key in models
        ]
        better = {
            word: ", ".join(one.heading for one in shown.values() if one.higher_is_better == higher)
            for word, higher in (("Higher", True), ("Lower", False))
        }
        note = " ".join(f"{word} is better: {names}." for word, names in better.items() if names)
        headings = [metric.heading for metric in shown.values()]
        tables.append(ScoreTable(f"{scored_rows(metrics)} scores", headings, rows, note))
    return tables


def interval_table(
    tasks: Sequence[Task], metrics: Mapping[str, Any], config: TrainConfig
) -> ScoreTable:
    """Return the scores of the prediction intervals of each regression that has some."""
    promised, rounds = is_exchangeable(config.data), len(metrics.get("folds", ()))

    def cells(given: Mapping[str, Any]) -> list[tuple[str, str]]:
        coverage, width = (_cell(given, key, rounds) for key in ("coverage", "mean_width"))
        if rounds:
            return [coverage, width]
        expected = "not promised"
        if promised:
            mean, sd = given["coverage_expected"], given["coverage_sd"]
            expected = "-" if mean is None else f"{mean:.3f} ± {2.0 * sd:.3f}"
        return [(f"{given['count']:,}", ""), coverage, (expected, ""), width]

    headings = [f"{100 * config.report.interval:g}% PI coverage", "mean width"]
    if not rounds:
        headings = ["labels", headings[0], "expected ± 2 SD", headings[1]]
    return _uncertainty_table("prediction intervals", headings, tasks, metrics, "coverage", cells)


def _calibration_table(tasks: Sequence[Task], metrics: Mapping[str, Any]) -> ScoreTable:
    rounds = len(metrics.get("folds", ()))

    def cells(given: Mapping[str, Any]) -> list[tuple[str, str]]:
        pairs = [
            [_cell(given, f"{key}_{when}", rounds)[0] for when in ("before", "after")]
            for key in CALIBRATION_METRICS
        ]
        return [(" → ".join(pair), "") for pair in pairs]

    headings = [METRICS[name].heading for name in CALIBRATION_METRICS]
    title = "calibration: before → after"
    return _uncertainty_table(title, headings, tasks, metrics, "nll_after", cells)


def _uncertainty_table(
    title: str,
    headings: list[str],
    tasks: Sequence[Task],
    metrics: Mapping[str, Any],
    key: str,
    cells: Callable[[Mapping[str, Any]], list[tuple[str, str]]],
) -> ScoreTable:
    found = metrics.get("uncertainty", {})
    having = [task for task in tasks if key in found.get(task.name, {})]
    rows = [ScoreRow(target_label(task), "", cells(found[task.name])) for task in having]
    return ScoreTable(title, headings, rows)


def _cell(scores: Mapping[str, Any], name: str, rounds: int) -> tuple[str, str]:
    value = scores.get(name)
    if isinstance(value, Mapping):  # of a cross-validation
        sd = "" if value["sd"] is None else f"± {format_score(value['sd'])}"
        notes = filter(None, (sd, fold_note(value, rounds)))
        return format_score(value["mean"]), ", ".join(notes)
    interval = scores.get("intervals", {}).get(name)
    return format_score(value), format_interval(*interval) if interval else ""


def rich_table(table: ScoreTable) -> Table:
    """Return a table for the terminal; only the first metric has its confidence interval."""
    shown = Table(box=None, pad_edge=False)
    has_interval = any(" to " in row.cells[0][1] for row in table.rows)
    first, *others = table.headings
    shown.add_column(table.title, overflow="fold")
    for heading in (first, *["95% CI"] * has_interval, *others):
        shown.add_column(heading, justify="right", no_wrap=True)
    task = None
    for row in table.rows:
        if row.model and row.task != task:
            shown.add_row(task := row.task)
        cells = [
            value if has_interval else f"{value} {spread}".rstrip() for value, spread in row.cells
        ]
        if has_interval:
            cells.insert(1, row.cells[0][1] or "-")
        shown.add_row(f"  {row.model}" if row.model else row.task, *cells)
    return shown


def print_scores(metrics: Mapping[str, Any], config: TrainConfig, console: Console) -> None:
    """Print the scores of a run or of a cross-validation, and what limits them.

    Args:
        metrics: The content of ``metrics.json``.
        config: The options.
        console: Where to print.
    """
    tasks = tasks_of(metrics)
    intervals = interval_table(tasks, metrics, config)
    for table in (*score_tables(tasks, metrics), intervals, _calibration_table(tasks, metrics)):
        if table.rows:
            console.print(rich_table(table), markup=False)
    for line in leakage_warnings([one["leakage"] for one in metrics.get("folds", [metrics])]):
        print_line(console, line)
    if intervals.rows and not is_exchangeable(config.data):
        print_line(console, "coverage is not promised: the test rows are not drawn at random")
