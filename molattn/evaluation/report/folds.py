"""The report of a cross-validation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.data.dataset import TrainingTable
from molattn.data.leakage import leakage_warnings
from molattn.evaluation.metrics import format_score, main_metric
from molattn.evaluation.report.render import interval_promise, skipped_rows, write_page
from molattn.evaluation.tables import (
    interval_table,
    is_exchangeable,
    score_tables,
    target_label,
    tasks_of,
)
from molattn.task import Task

__all__ = ["write_fold_page"]

_MOST_TASKS = 12
_ROUND = ("folder", "rows_train", "rows_validation", "rows_test", "seconds")


def write_fold_page(
    config: TrainConfig, table: TrainingTable, summary: Mapping[str, Any], path: Path
) -> None:
    """Write the report of a cross-validation, beside its rounds, to whose reports it links."""
    folds = summary["folds"]
    tasks = tasks_of(summary)
    shown = [(task, *main_metric(task.kind)) for task in tasks[:_MOST_TASKS]]
    write_page(
        path,
        "folds.html",
        config,
        score_tables=score_tables(tasks, summary),
        headings=[f"{target_label(task)}, {metric.heading}" for task, _, metric in shown],
        promise=interval_promise(config.data),
        intervals=interval_table(tasks, summary, config),
        level=f"{config.report.interval:g}",
        exchangeable=is_exchangeable(config.data),
        repeats=config.data.repeats,
        censored=summary["censored"],
        leakage=leakage_warnings([fold["leakage"] for fold in folds]),
        final=summary.get("final"),
        final_coverage=_final_coverage(tasks, summary),
        rounds=[
            {
                **{name: fold[name] for name in _ROUND},
                "best": ", ".join(str(member["kept_epoch"]) for member in fold["members"]),
                "cells": [format_score(fold["test"][task.name].get(key)) for task, key, _ in shown],
            }
            for fold in folds
        ],
        rows=folds[0],
        skipped=skipped_rows(table),
        unit=table.unit,
        shown=len(shown),
        task_count=len(tasks),
        versions=folds[0]["versions"],
        digest=folds[0]["data_sha256"],
    )


def _final_coverage(
    tasks: Sequence[Task], summary: Mapping[str, Any]
) -> list[tuple[str, str, int]]:
    """Return each regression with the coverage of the final model's intervals, and labels."""
    found = summary.get("final", {}).get("uncertainty", {})
    return [
        (target_label(task), format_score(one["coverage"]), one["count"])
        for task in tasks
        if (one := found.get(task.name))
    ]
