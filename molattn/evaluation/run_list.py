"""The runs in a folder, finished or not."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from molattn.config.yaml_file import read_config_file
from molattn.errors import InputError
from molattn.evaluation.metrics import main_metric
from molattn.evaluation.tables import scored_rows, tasks_of
from molattn.training.run_folder import CONFIG_FILE, RESULT_FILE, final_folder, has_checkpoint
from molattn.utils.files import UNFINISHED, locked, read_json

_COLUMNS = "name date data target split metric score baseline state".split()


def list_runs(folder: Path) -> pd.DataFrame:
    """Return the runs in a folder and its subfolders, the oldest first.

    The columns are name, date, data, target, split, metric, score, baseline (random forest, or else
    a constant prediction) and state: finished, running, interrupted (``--resume`` goes on with it)
    or failed. The score is of the test rows or, without any, of the validation rows; the mean over
    folds, and over targets of one kind and unit, otherwise that of the first target.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected one with runs")
    rows = []
    for path in sorted(config.parent for config in folder.rglob(CONFIG_FILE)):
        is_finished = (path / RESULT_FILE).is_file()
        is_fold = any((parent / CONFIG_FILE).is_file() for parent in path.parents)
        if is_fold or not (is_finished or path.name.endswith(UNFINISHED)):  # a study has no scores
            continue
        written = (path / (RESULT_FILE if is_finished else CONFIG_FILE)).stat().st_mtime
        row = {"name": final_folder(path).relative_to(folder).as_posix(), "state": _state(path)}
        row |= {"date": f"{datetime.fromtimestamp(written):%Y-%m-%d %H:%M}"}
        row |= _facts(read_config_file(path / CONFIG_FILE))
        rows.append(row | (_scores(read_json(path / RESULT_FILE)) if is_finished else {}))
    return pd.DataFrame(rows, columns=_COLUMNS).sort_values("date", kind="stable")


def _state(path: Path) -> str:
    if not path.name.endswith(UNFINISHED):
        return "finished"
    if path.with_name(f".{path.name}.lock").exists():
        try:
            with locked(path):
                pass
        except InputError:
            return "running"
    return "interrupted" if has_checkpoint(path) else "failed"


def _facts(options: Mapping[str, Any]) -> dict[str, str]:
    files = options.get("files") or [options.get("file", "")]
    facts = {"data": ", ".join(Path(file).name for file in files)}
    if not (data := options.get("data")):
        return facts | {"target": "pretraining"}
    split = f"column {data['split_column']}" if data["split_column"] else data["split"] or "random"
    if data["folds"]:
        repeats = f" x {data['repeats']}" if data["repeats"] > 1 else ""
        split = f"{split}, {data['folds']} folds{repeats}"
    return facts | {"target": ", ".join(data["target_columns"]), "split": split}


def _scores(metrics: Mapping[str, Any]) -> dict[str, Any]:
    if "tasks" not in metrics.get("folds", [metrics])[0]:
        return {}
    tasks, rows = tasks_of(metrics), scored_rows(metrics)
    key, metric = main_metric(tasks[0].kind)
    is_mean = len(tasks) > 1 and len({(one.kind, one.unit) for one in tasks}) == 1

    def value(model: str) -> float | None:
        scores = metrics[f"{model}_mean"] if is_mean else metrics[model][tasks[0].name]
        found = scores.get(key)
        return found["mean"] if isinstance(found, Mapping) else found

    known = [model for model in ("random_forest", "baseline") if model in metrics]
    return {
        "metric": metric.heading if rows == "test" else f"{metric.heading} ({rows})",
        "score": value(rows),
        "baseline": value(known[0]) if known else None,
    }
