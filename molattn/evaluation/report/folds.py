"""The page of a cross-validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molattn.config import TrainConfig
from molattn.evaluation.plots import target_label
from molattn.evaluation.report.render import write_page
from molattn.evaluation.report.score_tables import number, score_tables
from molattn.evaluation.score_names import main_score
from molattn.task import Task

__all__ = ["write_fold_page"]

_MOST_TASKS = 12
_ROUND = ("folder", "rows_train", "rows_validation", "rows_test", "seconds")


def write_fold_page(config: TrainConfig, summary: Mapping[str, Any], path: Path) -> None:
    """Write a cross-validation as a page of HTML, which links to the pages of its rounds.

    Args:
        config: What was asked for.
        summary: The content of its ``metrics.json``.
        path: The file, in the folder that holds the rounds' folders.
    """
    folds = summary["folds"]
    tasks = [Task.from_dict(task) for task in folds[0]["tasks"]]
    shown = [(task, *main_score(task)) for task in tasks[:_MOST_TASKS]]
    write_page(
        path,
        "folds.html",
        config,
        score_tables=score_tables(tasks, summary),
        headings=[f"{target_label(task)}, {heading}" for task, _, heading in shown],
        rounds=[
            {
                **{name: fold[name] for name in _ROUND},
                "best": ", ".join(str(member["kept_epoch"]) for member in fold["members"]),
                "cells": [number(fold["test"][task.name].get(key)) for task, key, _ in shown],
            }
            for fold in folds
        ],
        shown=len(shown),
        task_count=len(tasks),
        versions=folds[0]["versions"],
        digest=folds[0]["data_sha256"],
    )
