"""Tables of scores, for the terminal and for reports."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from molattn.config import DataConfig, TrainConfig
from molattn.data.leakage import leakage_warnings
from molattn.evaluation.metrics import metrics_of
from molattn.task import Task, TaskKind
from molattn.utils.console import print_line

__all__ = [
    "MODELS",
    "ScoreTable",
    "fold_note",
    "format_interval",
    "format_mean",
    "format_score",
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
    "random_forest": "random forest",
    "baseline": "mean baseline",
}
"""Models that are scored on the test rows, by their key in ``metrics.json``."""

_Cell = tuple[str, str]  # a value, and its interval or deviation


class ScoreTable(NamedTuple):
    """A table of scores; a row is a task, a model and a cell for each heading."""

    title: str
    headings: list[str]
    rows: list[tuple[str, str, list[_Cell]]]
    note: str = ""


def format_score(value: float | None) -> str:
    """Return a value with three decimals or, if very large or small, digits; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3g}"


def format_interval(low: float, high: float) -> str:
    """Return the bounds of an interval, with three decimals unless very small or large."""
    if 1e-3 <= max(abs(low), abs(high)) < 1e5:
        return f"{low:z.3f} to {high:z.3f}"
    return f"{format_score(low)} to {format_score(high)}"


def format_mean(score: Mapping[str, Any]) -> str:
    """Return mean ± standard deviation of a score over rounds; the mean alone of a single round."""
    mean, sd = format_score(score["mean"]), score["sd"]
    return mean if sd is None else f"{mean} ± {format_score(sd)}"


def fold_note(score: Mapping[str, Any], folds: int) -> str:
    """Return of how many rounds a mean is, "" if of all."""
    return f"{score['rounds']} of {folds} folds" if score["rounds"] < folds else ""


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
    without any, of the validation rows. ``metrics`` is the content of ``metrics.json`` of a run or
    of a cross-validation.
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
            (
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

    def cells(scores: Mapping[str, Any]) -> list[_Cell]:
        coverage, width = (_cell(scores, key, rounds) for key in ("coverage", "mean_width"))
        if rounds:
            return [coverage, width]
        expected = "not promised"
        if promised:
            mean, sd = scores["coverage_expected"], scores["coverage_sd"]
            expected = "-" if mean is None else f"{mean:.3f} ± {2.0 * sd:.3f}"
        return [(f"{scores['count']:,}", ""), coverage, (expected, ""), width]

    headings = [f"{100 * config.report.interval:g}% PI coverage", "mean width"]
    if not rounds:
        headings = ["labels", headings[0], "expected ± 2 SD", headings[1]]
    scores = metrics.get("uncertainty", {})
    having = [task for task in tasks if "coverage" in scores.get(task.name, {})]
    rows = [(target_label(task), "", cells(scores[task.name])) for task in having]
    return ScoreTable("prediction intervals", headings, rows)


def _cell(scores: Mapping[str, Any], name: str, rounds: int) -> _Cell:
    value = scores.get(name)
    if isinstance(value, Mapping):  # of a cross-validation
        mean, _, sd = format_mean(value).partition(" ")
        return mean, ", ".join(filter(None, (sd, fold_note(value, rounds))))
    interval = scores.get("intervals", {}).get(name)
    return format_score(value), format_interval(*interval) if interval else ""


def rich_table(table: ScoreTable) -> Table:
    """Return a table for the terminal; only the first metric has its confidence interval."""
    shown = Table(box=None, pad_edge=False)
    has_interval = any(" to " in cells[0][1] for _, _, cells in table.rows)
    first, *others = table.headings
    shown.add_column(table.title, overflow="fold")
    for heading in (first, *["95% CI"] * has_interval, *others):
        shown.add_column(heading, justify="right", no_wrap=True)
    previous = None
    for task, model, cells in table.rows:
        if model and task != previous:
            shown.add_row(previous := task)
        texts = [value if has_interval else f"{value} {more}".rstrip() for value, more in cells]
        if has_interval:
            texts.insert(1, cells[0][1] or "-")
        shown.add_row(f"  {model}" if model else task, *texts)
    return shown


def print_scores(metrics: Mapping[str, Any], config: TrainConfig, console: Console) -> None:
    """Print the scores in ``metrics.json`` of a run or of a cross-validation, and their limits."""
    tasks = tasks_of(metrics)
    intervals = interval_table(tasks, metrics, config)
    for table in (*score_tables(tasks, metrics), intervals):
        if table.rows:
            console.print(rich_table(table), markup=False)
    for line in leakage_warnings([one["leakage"] for one in metrics.get("folds", [metrics])]):
        print_line(console, line)
    if intervals.rows and not is_exchangeable(config.data):
        print_line(console, "coverage is not promised: the test rows are not drawn at random")
