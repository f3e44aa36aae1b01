"""The report of a cross-validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.evaluation.metrics import format_score, main_metric
from molattn.evaluation.report.render import write_page
from molattn.evaluation.score_tables import score_tables, target_label
from molattn.task import Task

__all__ = ["write_fold_page"]

_MOST_TASKS = 12
_ROUND = ("folder", "rows_train", "rows_validation", "rows_test", "seconds")


def write_fold_page(config: TrainConfig, summary: Mapping[str, Any], path: Path) -> None:
    """Write the report of a cross-validation, beside its rounds, to whose reports it links."""
    folds = summary["folds"]
    tasks = [Task.from_dict(task) for task in folds[0]["tasks"]]
    shown = [(task, *main_metric(task.kind)) for task in tasks[:_MOST_TASKS]]
    write_page(
        path,
        "folds.html",
        config,
        score_tables=score_tables(tasks, summary),
        headings=[f"{target_label(task)}, {metric.heading}" for task, _, metric in shown],
        rounds=[
            {
                **{name: fold[name] for name in _ROUND},
                "best": ", ".join(str(member["kept_epoch"]) for member in fold["members"]),
                "cells": [format_score(fold["test"][task.name].get(key)) for task, key, _ in shown],
            }
            for fold in folds
        ],
        shown=len(shown),
        task_count=len(tasks),
        versions=folds[0]["versions"],
        digest=folds[0]["data_sha256"],
    )
