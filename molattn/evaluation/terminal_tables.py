"""Tables of scores for the terminal, 80 columns wide if the names of the tasks are short."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from molattn.evaluation.interval_promise import is_exchangeable, test_rows
from molattn.evaluation.metrics import METRICS, TaskScores, fold_note, format_score
from molattn.evaluation.score_tables import (
    MODELS,
    ScoreTable,
    model_label,
    score_tables,
    scored_rows,
)
from molattn.evaluation.scoring import RunScores
from molattn.evaluation.uncertainty_metrics import CALIBRATION_METRICS, expected_coverage
from molattn.task import Task
from molattn.training.run import TrainingRun

__all__ = ["label_score_table", "score_table", "summary_table", "uncertainty_tables"]


def score_table(scores: RunScores, run: TrainingRun) -> Group:
    """Return the test scores of the model and of the baselines.

    Without test rows they are the scores of the validation rows.
    """
    metrics = scores.to_dict()
    heading = f"{scored_rows(metrics)} scores"
    data = run.config.data
    tables = uncertainty_tables(
        scores.uncertainty, run.config.report.interval, promised=is_exchangeable(data)
    )
    remarks = run.leakage.warnings()
    if not is_exchangeable(data) and any("coverage" in one for one in scores.uncertainty.values()):
        remarks.append(f"coverage is not promised: the test rows {test_rows(data)}")
    return Group(
        *(_score_table(table, heading) for table in score_tables(run.table.tasks, metrics)),
        *tables,
        *(Text(remark) for remark in remarks),
    )


def label_score_table(tasks: Sequence[Task], scores: TaskScores) -> Group:
    """Return the scores of predictions of labeled rows."""
    known = [task for task in tasks if scores.tasks[task.name]["count"]]
    tables = score_tables(known, {"test": scores.tasks, "test_mean": scores.mean})
    return Group(*(_score_table(table, "scores") for table in tables))


def uncertainty_tables(
    scores: Mapping[str, Mapping[str, Any]], level: float, *, promised: bool = True
) -> list[Table]:
    """Return the scores of prediction intervals of a level, and of calibrated probabilities.

    Args:
        scores: Of each task.
        level: Of the intervals.
        promised: Whether the coverage is expected to be the level.
    """
    intervals = _table(
        "prediction intervals",
        "labels",
        _coverage_label(level),
        "expected ± 2 SD",
        "mean width",
    )
    headings = (METRICS[name].heading for name in CALIBRATION_METRICS)
    probabilities = _table("calibration: before → after", "labels", *headings)
    for name, given in scores.items():
        count = str(given["count"])
        if "coverage" in given:
            expected = expected_coverage(given) if promised else "not promised"
            coverage, width = (format_score(given[key]) for key in ("coverage", "mean_width"))
            intervals.add_row(_Name(name), count, coverage, expected, width)
        elif f"{CALIBRATION_METRICS[0]}_after" in given:
            pairs = ((given[f"{key}_before"], given[f"{key}_after"]) for key in CALIBRATION_METRICS)
            cells = (" → ".join(map(format_score, pair)) for pair in pairs)
            probabilities.add_row(_Name(name), count, *cells)
    return [table for table in (intervals, probabilities) if table.row_count]


def summary_table(
    summary: Mapping[str, Any], level: float, units: Mapping[str, str] | None = None
) -> Table:
    """Return the mean and standard deviation of the test scores over the rounds.

    Args:
        summary: Of :func:`molattn.evaluation.cross_validation.cross_validate`.
        level: Level of the prediction intervals.
        units: Unit of each task that has one.
    """
    table = _table("test scores", "model", "metric", "mean", "SD", texts=3)
    rounds = len(summary["folds"])
    hidden = {"coverage_expected", "coverage_sd"}  # of a single round
    hidden |= {name for name, metric in METRICS.items() if not metric.heading}
    for task in summary["test"]:
        unit = (units or {}).get(task)
        label = _Name(f"{task} ({unit})" if unit else task)
        for key in (*MODELS, "uncertainty"):
            for name, values in summary.get(key, {}).get(task, {}).items():
                is_whole = values["rounds"] == rounds
                # After calibration in all rounds it is the score itself.
                if name in hidden or (name.endswith("_after") and is_whole):
                    continue
                mean, sd = values["mean"], values["sd"]
                if sd is not None and sd < 1e-12 * abs(mean):  # rounding
                    sd = 0.0
                metric = _metric_label(name, level)
                if note := fold_note(values, rounds):
                    metric += f", {note}"
                cells = format_score(mean), format_score(sd)
                table.add_row(label, _model_label(key, name), metric, *cells)
    return table


def _score_table(scores: ScoreTable, heading: str = "test scores") -> Table:
    """Return the metrics of one kind of task; only the first has its confidence interval."""
    first, *others = scores.headings
    has_interval = any(cells[0][1] for _, models in scores.rows for _, cells in models)
    table = _table(heading, first, *["95% CI"] * has_interval, *others)
    for label, models in scores.rows:
        table.add_row(_Name(label))
        for model, ((value, interval), *rest) in models:
            intervals = [interval or "-"] * has_interval
            table.add_row(f"  {model}", value, *intervals, *(other for other, _ in rest))
    return table


class _Name:
    """A name of a column that breaks after spaces and punctuation; texts break at spaces alone."""

    def __init__(self, text: str) -> None:
        *pieces, _ = re.findall(r"[^\s_./:,;-]*[\s_./:,;-]*", text)  # the last one is empty
        self._pieces = pieces or [""]

    def __str__(self) -> str:
        return "".join(self._pieces)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [cell_len(piece.rstrip()) for piece in self._pieces]
        return Measurement(max(widths), cell_len(str(self)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = [""]
        for piece in self._pieces:
            if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > options.max_width:
                lines.append("")
            lines[-1] += piece
        yield Text("\n".join(map(str.rstrip, lines)), overflow="fold")


def _table(*headings: str, texts: int = 1) -> Table:
    """Return an empty table whose columns are numbers, except the first few; only texts wrap."""
    table = Table(box=None, pad_edge=False)
    for index, heading in enumerate(headings):
        if index < texts:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def _model_label(key: str, name: str) -> str:
    if key == "uncertainty":
        return MODELS["test"]
    return model_label(key, METRICS[name].kinds[0])


def _coverage_label(level: float) -> str:
    return f"{100 * level:g}% PI coverage"


def _metric_label(name: str, level: float) -> str:
    if name == "coverage":
        return _coverage_label(level)
    key, _, when = name.rpartition("_")
    if when in ("before", "after"):
        return f"{METRICS[key].heading} {when} calibration"
    heading = METRICS[name].heading if name in METRICS else ""
    return heading or name.replace("_", " ")
