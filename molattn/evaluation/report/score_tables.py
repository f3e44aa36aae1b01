"""Scores as tables of a page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from molattn.evaluation.plots import target_label
from molattn.evaluation.score_names import HEADINGS, MODELS
from molattn.task import Task

__all__ = ["ScoreTable", "number", "score_tables"]


class ScoreTable(NamedTuple):
    """A table of scores.

    Args:
        headings: Of the columns, after the task and the model.
        rows: Task and, for each model, its name and cells: a value and its interval or spread, both
            texts.
    """

    headings: list[str]
    rows: list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]


def score_tables(tasks: Sequence[Task], metrics: Mapping[str, Any]) -> list[ScoreTable]:
    """Return the test scores beside those of baselines, a table for each kind of task.

    Args:
        tasks: The tasks.
        metrics: The content of ``metrics.json``: of a run, or of a cross-validation.
    """
    known = [key for key in MODELS if key in metrics]
    tables = []
    for kind, headings in HEADINGS.items():
        some = [task for task in tasks if (task.kind == "regression") == (kind == "regression")]
        judged = [(target_label(t), {key: metrics[key][t.name] for key in known}) for t in some]
        if 1 < len(some) == len(tasks):
            judged.insert(0, ("mean of tasks", {key: metrics[f"{key}_mean"] for key in known}))
        rows = [
            (
                label,
                [(MODELS[key], [_cell(by[key], score) for score in headings]) for key in known],
            )
            for label, by in judged
        ]
        if rows:
            tables.append(ScoreTable([*headings.values()], rows))
    return tables


def number(value: float | None) -> str:
    """Return a number in few digits, or a dash for none."""
    if value is None:
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3f}"
    return f"{value:.3g}"


def _cell(given: Mapping[str, Any], score: str) -> tuple[str, str]:
    value = given.get(score)
    if isinstance(value, Mapping):  # of several rounds
        return number(value["mean"]), f"± {number(value['sd'])}"
    interval = given.get("intervals", {}).get(score)
    return number(value), f"{number(interval[0])} to {number(interval[1])}" if interval else ""
