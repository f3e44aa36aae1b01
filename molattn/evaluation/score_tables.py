"""Scores of several models side by side, for the terminal and for reports."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from molattn.evaluation.metrics import Metric, fold_note, format_interval, format_score, metrics_of
from molattn.task import Task, TaskKind

__all__ = ["MODELS", "ScoreTable", "model_label", "score_tables", "scored_rows", "target_label"]

MODELS = {
    "test": "molattn",
    "member": "single model",
    "random_forest": "random forest",
    "baseline": "mean baseline",
}
"""Models that are scored on the test rows, by their key in ``metrics.json``."""


def scored_rows(metrics: Mapping[str, Any]) -> str:
    """Return which rows the scores of tables are of: ``test``, or ``validation`` without any."""
    return "test" if "test" in metrics else "validation"


def model_label(key: str, kind: TaskKind) -> str:
    """Return the name of a model in the scores of a kind of task.

    The constant prediction of a classification is the frequency of each class in the training rows,
    the ``prior`` of scikit-learn's ``DummyClassifier``.
    """
    if key == "baseline" and kind != "regression":
        return "class prior"
    return MODELS["test" if key == "validation" else key]


class ScoreTable(NamedTuple):
    """A table of scores.

    A row is a task and, for each model, its name and cells: a value and its confidence interval or
    standard deviation.
    """

    metrics: list[Metric]
    rows: list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]

    @property
    def headings(self) -> list[str]:
        """Headings of the columns."""
        return [metric.heading for metric in self.metrics]

    @property
    def better(self) -> dict[str, list[str]]:
        """Headings of the metrics of which a higher value is better, and of the others."""
        return {
            word: [one.heading for one in self.metrics if one.higher_is_better == is_higher]
            for word, is_higher in (("Higher", True), ("Lower", False))
        }


def score_tables(tasks: Sequence[Task], metrics: Mapping[str, Any]) -> list[ScoreTable]:
    """Return the scores of all models, one table of regressions and one of classifications.

    The mean over tasks is left out if they have different units.

    They are of the test rows; without any, of the validation rows.

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
        scored = [(target_label(t), {key: metrics[key][t.name] for key in models}) for t in some]
        if len(some) > 1 and len({task.unit for task in some}) == 1:
            scored.insert(0, ("mean over tasks", {key: metrics[f"{key}_mean"] for key in models}))
        shown = metrics_of(*(task.kind for task in some), with_heading=True)
        rows = [
            (
                label,
                [
                    (
                        model_label(key, some[0].kind),
                        [_cell(by[key], name, rounds) for name in shown],
                    )
                    for key in models
                ],
            )
            for label, by in scored
        ]
        tables.append(ScoreTable([*shown.values()], rows))
    return tables


def target_label(task: Task) -> str:
    """Return the name of a task with its unit, if it has one."""
    return f"{task.name} ({task.unit})" if task.unit else task.name


def _cell(scores: Mapping[str, Any], name: str, rounds: int) -> tuple[str, str]:
    value = scores.get(name)
    if isinstance(value, Mapping):  # of a cross-validation
        sd = "" if value["sd"] is None else f"± {format_score(value['sd'])}"
        notes = filter(None, (sd, fold_note(value, rounds)))
        return format_score(value["mean"]), ", ".join(notes)
    interval = scores.get("intervals", {}).get(name)
    return format_score(value), format_interval(*interval) if interval else ""
