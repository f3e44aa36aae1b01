"""Tables of scores for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.table import Table as TextTable

from molattn.evaluation.metrics import mean_scores
from molattn.evaluation.plots import target_label
from molattn.evaluation.report import HEADINGS, MODELS
from molattn.evaluation.scoring import RunScores
from molattn.evaluation.uncertainty_metrics import _PROPER
from molattn.task import Task
from molattn.training.run import TrainingRun

__all__ = ["score_table", "summary_table", "uncertainty_tables"]


def score_table(scores: RunScores, run: TrainingRun) -> Group:
    """Return the test scores beside those of the baselines, for the terminal.

    Args:
        scores: The scores.
        run: The run.
    """
    tables = []
    for kind, headings in HEADINGS.items():
        is_number = kind == "regression"
        tasks = [task for task in run.table.tasks if (task.kind == "regression") == is_number]
        if tasks:
            tables.append(_score_table(scores, tasks, headings))
    return Group(*tables, *uncertainty_tables(scores.uncertainty, run.config.report.interval))


def _score_table(scores: RunScores, tasks: Sequence[Task], headings: dict[str, str]) -> TextTable:
    first, *_ = headings
    intervals = bool(scores.test.mean["intervals"])
    table = TextTable(box=None, pad_edge=False)
    for heading in ("test", ""):
        table.add_column(heading)
    for key, heading in headings.items():
        table.add_column(heading, justify="right")
        if key == first and intervals:
            table.add_column("95 % interval", justify="right")
    constant = "the mean" if "rmse" in headings else "the majority"
    models = {
        "molattn": scores.test,
        **({"one member": mean_scores(scores.members)} if scores.members else {}),
        **{
            {"baseline": constant, "random_forest": "random forest"}[name]: given
            for name, given in scores.baselines.items()
        },
    }
    places = [(target_label(task), task.name) for task in tasks]
    for label, name in [*places, ("mean", None)] if len(tasks) > 1 else places:
        for who, given in models.items():
            values = given.mean if name is None else given.tasks[name]
            cells = []
            for key in headings:
                cells.append(_figure(values.get(key)))
                if key == first and intervals:
                    interval = values["intervals"].get(key)
                    cells.append(
                        "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
                    )
            table.add_row(label if who == "molattn" else "", who, *cells)
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


_PROPER_HEADINGS = ("NLL by calibration", "Brier", "ECE")


def uncertainty_tables(scores: Mapping[str, Mapping[str, Any]], level: float) -> list[Table]:
    """Return the scores of intervals and those of probabilities, for the terminal.

    Args:
        scores: Of :func:`score_uncertainty`.
        level: Of the intervals.
    """
    intervals = _table("test", "labels", f"in {level:.0%} intervals", "by chance", "mean width")
    probabilities = _table("test", "labels", *_PROPER_HEADINGS)
    for name, given in scores.items():
        if "coverage" in given:
            sd = given["coverage_sd"]
            chance = "-" if sd is None else f"{level:.3f} ± {2.0 * sd:.3f}"
            cells = _figure(given["coverage"]), chance, _figure(given["mean_width"])
            intervals.add_row(name, str(given["count"]), *cells)
        else:
            pairs = ((given[f"{key}_before"], given[f"{key}_after"]) for key in _PROPER)
            cells = (f"{_figure(before)} to {_figure(after)}" for before, after in pairs)
            probabilities.add_row(name, str(given["count"]), *cells)
    return [table for table in (intervals, probabilities) if table.row_count]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


_SHOWN = {**MODELS, "uncertainty": MODELS["test"]}


def summary_table(summary: dict[str, Any]) -> TextTable:
    """Return the mean and standard deviation of the test scores, for the terminal.

    Args:
        summary: Of :func:`cross_validate`.
    """
    table = TextTable(box=None, pad_edge=False)
    for heading in ("test", "", "score", "mean", "sd"):
        table.add_column(heading, justify="right" if heading in ("mean", "sd") else "left")
    for task in summary["test"]:
        for judged, label in _SHOWN.items():
            for score, values in summary.get(judged, {}).get(task, {}).items():
                table.add_row(task, label, score, f"{values['mean']:.3f}", f"{values['sd']:.3f}")
    return table
