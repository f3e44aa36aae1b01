"""Tables of scores, for the terminal and for reports."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from rich.console import Console
from rich.table import Table

from molattn.config import DataConfig, TrainConfig
from molattn.data.splitting import leakage_warnings, proposed_split
from molattn.errors import quoted
from molattn.evaluation.scores.metrics import (
    METRICS,
    Metric,
    ScoredKind,
    TaskScores,
    metrics_of,
    score_tasks,
    scored_kind,
)
from molattn.evaluation.scores.run_metrics import FoldMetrics, Metrics, RunMetrics
from molattn.model.confidence import CONFIDENCES
from molattn.task import Task, TaskKind
from molattn.utils.console import counted, decimals, print_line

if TYPE_CHECKING:
    from molattn.inference.predict import PredictedTable

_FEWEST_GRADED = 20  # rows of a grade whose errors are compared
_FEWEST_SCORED = 30  # labels, below which scores depend much on chance
_MOST_NAMED = 3  # tasks with few labels
_RESAMPLES = 1000  # of the bootstrap
_FIRST_WORD = re.compile("(log10|median|within) ")  # of headings that take two lines
MODELS = {
    "test": "molattn",
    "network": "its network alone",
    "gaussian_process": "its Gaussian process alone",
    "random_forest": "random forest",
    "baseline": "mean baseline",
}
"""Models that are scored on the test rows, by their key in ``metrics.json``."""


class ScoreTable(NamedTuple):
    """A table of scores: a title, a row for each task and model, and a note below it.

    ``labels`` is the number of labels in the scores of a run; 0 in other tables.
    """

    title: str
    frame: pd.DataFrame
    note: str = ""
    labels: int = 0


class TableContent(NamedTuple):
    """What a table of scores is of: tasks that are scored on a scale, and kinds of metrics."""

    title: str
    tasks: tuple[ScoredKind, ...]
    metrics: tuple[ScoredKind, ...]
    note: str = ""

    def headed(self, tasks: Sequence[Task]) -> dict[str, Metric]:
        """Return the metrics of its columns by name."""
        kinds = self.metrics or tuple(task.kind for task in tasks)
        metrics = metrics_of(*kinds, with_heading=True)
        return metrics | ({"rmse": METRICS["rmse"]} if "fold" in kinds else {})


_LIMIT = (
    "Right side: fraction of predictions that the limit permits, which have no error; the error of "
    "others is their distance to the limit."
)
_INTERVAL = (
    "ST-RAE: the mean distance of predictions to the limits of all labels over the distance of the "
    "mean of the test labels; MAE to the interval: the mean distance itself."
)
_CONTENTS = (
    TableContent("scores", ("regression",), ("regression",)),
    TableContent("log10 scores", ("log10",), ("log10",)),
    TableContent("fold errors", ("log10",), ("fold",), "RMSE is in the unit of the target."),
    TableContent("scores of censored labels", ("regression",), ("censored",), _LIMIT),
    TableContent("scores of censored labels", ("log10",), ("log10_censored",), _LIMIT),
    TableContent("scores of intervals", ("regression",), ("interval",), _INTERVAL),
    TableContent("scores of intervals", ("log10",), ("log10_interval",), _INTERVAL),
    TableContent("scores", ("binary", "multiclass"), ()),
)


def format_score(value: float | None) -> str:
    """Return a value with three digits, at most three decimals; "-" if undefined.

    Of magnitudes below 0.001 and from 100,000 on, three significant digits.
    """
    if value is None or math.isnan(value):
        return "-"
    return _with_decimals(value, value)


def format_interval(low: float, high: float) -> str:
    """Return the bounds of an interval with the same decimals, those of the larger one."""
    if math.isnan(low):
        return "-"
    largest = max(abs(low), abs(high))
    return f"{_with_decimals(low, largest)} to {_with_decimals(high, largest)}"


def _with_decimals(value: float, scale: float) -> str:
    """Return a value with the decimals of another one."""
    if scale == 0.0 or 1e-3 <= abs(scale) < 1e5:
        return f"{value:z.{min(3, decimals(scale)) if scale else 3}f}"
    return f"{value:.3g}"


def score_cell(scores: Mapping[str, Any], name: str) -> str:
    """Return a score of a run, or its mean ± standard deviation over rounds, if more than one.

    The standard deviation has two significant digits, and the mean as many decimals.
    """
    value = scores.get(name)
    if not isinstance(value, Mapping):
        return format_score(value)
    mean = value["mean"]
    sd = value["sd"]
    if not sd or not 1e-3 <= abs(mean) < 1e5:
        return format_score(mean) + ("" if sd is None else f" ± {format_score(sd)}")
    digits = min(3, 1 - math.floor(math.log10(sd)))
    texts = (f"{round(number, digits):z.{max(0, digits)}f}" for number in (mean, sd))
    return " ± ".join(texts)


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
    """Return the scores of all models, one table for each scale.

    These are regressions in their unit, regressions that are scored on log10 with their fold
    errors, classifications, censored labels and intervals. The mean over tasks is left out if they
    have different units or scales. The scores are of the test rows; without any, of the validation
    rows; see :class:`molattn.evaluation.scores.run_metrics.Metrics`. Only the first metric has its
    confidence interval.
    """
    models = [key for key in MODELS if key in scores] or ["validation"]
    first = scores[models[0]].tasks
    tables = []
    for content in _CONTENTS:
        compared = [task for task in tasks if content in contents_of(task, first[task.name])]
        if compared:
            is_regression = compared[0].kind == "regression"
            alike = [task for task in tasks if (task.kind == "regression") == is_regression]
            rows = [
                (
                    target_label(task),
                    {
                        key: scores[key].tasks[task.name]
                        for key in models
                        if task.name in scores[key].tasks
                    },
                )
                for task in compared
            ]
            are_all = all(len(of_task) == len(models) for _, of_task in rows)
            is_mean = len(alike) == len(compared) > 1 and len({task.unit for task in compared}) == 1
            if is_mean and are_all and scores[models[0]].mean:
                rows.insert(0, ("mean over tasks", {key: scores[key].mean for key in models}))
            table = _score_table(content, scored_rows(scores), rows, compared)
            if "censored" not in content.title:
                labels = sum(first[task.name].get("count", 0) for task in compared)
                table = table._replace(labels=labels)
            tables.append(table)
    return [*tables, *_molecule_tables(tasks, scores, models)]


def _molecule_tables(
    tasks: Sequence[Task], scores: Mapping[str, TaskScores], models: Sequence[str]
) -> Iterator[ScoreTable]:
    """Yield the scores of atoms and bonds that are means over molecules, if there are some."""
    headings = {"molecule_mae": "mean MAE", "molecule_accuracy": "mean accuracy"}
    for key, heading in headings.items():
        rows = [
            {
                "task": target_label(task),
                "model": _model_label(model, task.kind),
                heading: score_cell(scores[model].tasks[task.name], key),
            }
            for task in tasks
            for model in models
            if key in scores[model].tasks.get(task.name, {})
        ]
        if rows:
            yield ScoreTable(f"{scored_rows(scores)} means over molecules", pd.DataFrame(rows))


def few_labels(metrics: Metrics) -> str:
    """Return which tasks are scored on fewer than 30 labels, "" if none is.

    Of a cross-validation, these are the labels of all folds.
    """
    counts = Counter[str]()
    for run in metrics.runs:
        if not isinstance(run, FoldMetrics) or run.repeat == 1:
            tasks = run.scores[scored_rows(run.scores)].tasks
            counts.update({name: scores["count"] for name, scores in tasks.items()})
    few = [f"{n} of {quoted(name)}" for name, n in counts.items() if n < _FEWEST_SCORED]
    if not few:
        return ""
    more = f" and {counted(len(few) - _MOST_NAMED, 'more task')}" * (len(few) > _MOST_NAMED)
    line = f"scores of fewer than {_FEWEST_SCORED} labels depend much on chance"
    return f"{line}: {', '.join(few[:_MOST_NAMED])}{more}"


def proposed_folds(run: RunMetrics, data: DataConfig) -> str:
    """Return a proposal to cross-validate a run of few rows, "" of many or if it has folds."""
    proposal = proposed_split(run.rows_used, run.rows_test, data)
    if proposal == data:
        return ""
    options = f"--folds {proposal.folds}" + " --validation-size 0" * (data.split != "time")
    return f"few rows ({run.rows_used:,}; test: {run.rows_test:,}): {options} tests more of them"


def contents_of(task: Task, scores: Mapping[str, Any]) -> list[TableContent]:
    """Return which tables have some scores of a task."""
    kind = scored_kind(task, scores)
    return [
        content
        for content in _CONTENTS
        if kind in content.tasks
        and ("censored" not in content.title or "censored_permitted" in scores)
        and ("intervals" not in content.title or not {"st_rae", "log10_st_rae"}.isdisjoint(scores))
    ]


def _score_table(
    content: TableContent,
    scored: str,
    task_rows: Sequence[tuple[str, Mapping[str, Any]]],
    tasks: Sequence[Task],
) -> ScoreTable:
    """Return a table of the scores of each model by the label of a task."""
    headed = content.headed(tasks)
    rows = []
    for label, model_scores in task_rows:
        for key, scores in model_scores.items():
            row = {"task": label, "model": _model_label(key, tasks[0].kind)}
            for name, metric in headed.items():
                row[metric.heading] = score_cell(scores, name)
                if len(row) == 3 and (intervals := scores.get("intervals")):
                    bounds = intervals.get(name)
                    row["95% CI"] = format_interval(*bounds) if bounds else "-"
            rows.append(row)
    better = {
        word: ", ".join(
            metric.heading for metric in headed.values() if metric.higher_is_better == higher
        )
        for word, higher in (("Higher", True), ("Lower", False))
    }
    notes = [f"{word} is better: {names}." for word, names in better.items() if names]
    note = " ".join([*notes, content.note]).strip()
    return ScoreTable(f"{scored} {content.title}", pd.DataFrame(rows), note)


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
            more = f" ± {2.0 * sd:.3f}" if sd else ""
            row["expected ± 2 SD"] = "-" if mean is None else f"{mean:.3f}{more}"
            if not is_exchangeable(config.data):
                row["expected ± 2 SD"] = "not promised"
        rows.append({**row, "mean width": _cell_on_scale(scores, "mean_width")})
    return ScoreTable("prediction intervals", pd.DataFrame(rows))


def confidence_table(metrics: Metrics) -> ScoreTable:
    """Return the errors on the test rows by confidence, beside the expected ones."""
    rows = [
        {
            **{"task": target_label(task), "confidence": name, "labels": f"{scores['count']:,}"},
            "mean error": _cell_on_scale(scores, "error"),
            "expected error": _cell_on_scale(scores, "expected_error"),
        }
        for task in metrics.runs[0].tasks
        for name, scores in (metrics.confidence or {}).get(task.name, {}).items()
    ]
    return ScoreTable("confidence", pd.DataFrame(rows))


def confidence_remarks(metrics: Metrics) -> Iterator[str]:
    """Yield a line for each task whose grades do not tell the test rows apart.

    They all have one grade, or the mean errors of grades with 20 rows or more do not rise from high
    to low.
    """
    for task in metrics.runs[0].tasks:
        grades = (metrics.confidence or {}).get(task.name, {})
        rows = sum(scores["count"] for scores in grades.values())
        enough = [name for name in grades if grades[name]["count"] >= _FEWEST_GRADED]
        errors = [grades[name].get("log10_error", grades[name]["error"]) for name in enough]
        if len(grades) == 1 and rows >= _FEWEST_GRADED:
            line = f"all {rows:,} test rows have the confidence {enough[0]}"
            yield f"{quoted(task.name)}: {line}, so it says little"
        elif any(later <= error for error, later in pairwise(errors)):
            line = f"errors do not rise from {' to '.join(enough)}"
            yield f"{quoted(task.name)}: {line}, so the confidence says little"


def _cell_on_scale(scores: Mapping[str, Any], name: str) -> str:
    """Return a score, on log10 if it is known on that scale."""
    if f"log10_{name}" in scores:
        return f"{score_cell(scores, f'log10_{name}')} log10"
    return score_cell(scores, name)


def print_tables(tables: Iterable[ScoreTable], console: Console) -> None:
    """Print tables of scores, with models or grades below their task."""
    for table in tables:
        if table.frame.empty:
            continue
        text_table = Table(box=None, pad_edge=False)
        text_table.add_column(table.title, overflow="fold")
        for heading in table.frame.columns[2:]:
            lines = _FIRST_WORD.sub(r"\1\n", heading)  # so that a table fits 80 columns
            text_table.add_column(lines, justify="right", no_wrap=True)
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
    for name, counts in metrics.censored.items():
        labels = counted(counts["count"], "censored test label")
        print_line(console, f"{quoted(name)}: {labels}, {counts['permitted']:,} on the right side")
    lines = [few_labels(metrics), proposed_folds(metrics.runs[0], config.data)]
    lines += leakage_warnings([run.leakage for run in metrics.runs])
    for line in filter(None, lines):
        print_line(console, line)
    for line in confidence_remarks(metrics):
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
    for counts, text in ((tally.unusable, "cannot be read"), (tally.censored, "censored")):
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
        transforms = zip(tasks, table.model.config.target_transforms, strict=True)
        logs = [task.name for task, transform in transforms if transform.kind == "log"]
        options: Any = {"resamples": _RESAMPLES, "logarithms": logs, "bounds": table.bounds}
        scores = score_tasks(table.prediction, target, tasks, **options)
        labeled_tasks = [
            task
            for task in tasks
            if scores.tasks[task.name]["count"] or "censored_permitted" in scores.tasks[task.name]
        ]
        print_tables(score_tables(labeled_tasks, {"test": scores}), console)
