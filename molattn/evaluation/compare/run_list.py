"""The runs in a folder, finished or not."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from molattn.config.yaml_file import read_config_file
from molattn.errors import InputError
from molattn.evaluation.report.tables import scored_rows
from molattn.evaluation.scores.metrics import ScoredKind, main_metric, scored_kind
from molattn.evaluation.scores.run_metrics import Metrics, read_metrics
from molattn.training.run_folder import CONFIG_FILE, RESULT_FILE, final_folder, has_checkpoint
from molattn.utils.files import UNFINISHED, locked


class ListedRun(NamedTuple):
    """A run of a list: its folder, last change, table, targets, split, scores and state."""

    name: str
    date: str
    data: str
    target: str
    split: str
    metric: str
    score: float | None
    baseline: float | None
    state: str


def list_runs(folder: Path) -> list[ListedRun]:
    """Return the runs in a folder and its subfolders, the oldest first.

    The score is of the test rows or, without any, of the validation rows: the mean over folds and
    over targets of one scale and unit, otherwise that of the first target. The baseline is the
    random forest, or else a constant prediction. The state is finished, running, interrupted
    (``--resume`` goes on with it), failed or unreadable.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected one with runs")
    run_folders = []
    for path in (config.parent for config in folder.rglob(CONFIG_FILE)):
        is_finished = (path / RESULT_FILE).is_file()
        parents = path.relative_to(folder).parents  # above it a config.yaml is not of a run
        is_fold = any((folder / parent / CONFIG_FILE).is_file() for parent in parents)
        if is_fold or not (is_finished or path.name.endswith(UNFINISHED)):  # a study has no scores
            continue
        name = final_folder(path).relative_to(folder).as_posix()
        written = (path / (RESULT_FILE if is_finished else CONFIG_FILE)).stat().st_mtime
        state = _state(path)
        scores = ("", None, None)
        try:
            options = read_config_file(path / CONFIG_FILE)
            facts = _facts(options)
            if is_finished and "data" in options:  # not of a pretraining
                scores = _scores(read_metrics(path))
        except (InputError, LookupError, TypeError, AttributeError):
            facts = ("", "", "")
            state = "unreadable"  # damaged, or of another program
        date = f"{datetime.fromtimestamp(written):%Y-%m-%d %H:%M:%S}"
        run_folders.append(ListedRun(name, date, *facts, *scores, state))
    return sorted(run_folders, key=lambda run: (run.date, run.name))


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


def _facts(options: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the table, the targets and the split of a run with some options."""
    files = options["files"] if "files" in options else [options["file"]]
    table = ", ".join(Path(file).name for file in files)
    if not (data := options.get("data")):
        return table, "pretraining", ""
    split = f"column {data['split_column']}" if data["split_column"] else data["split"] or "random"
    if data["folds"]:
        repeats = f" x {data['repeats']}" if data["repeats"] > 1 else ""
        split = f"{data['folds']} folds{repeats}, {split}"
    levels = ("", "atom_", "bond_")
    targets = [name for level in levels for name in data.get(f"{level}target_columns", ())]
    return table, ", ".join(targets), split


def _scores(metrics: Metrics) -> tuple[str, float | None, float | None]:
    """Return the name of the main metric, its value and that of the baseline."""
    tasks = metrics.runs[0].tasks
    rows = scored_rows(metrics.scores)
    scored = metrics.scores[rows].tasks
    kinds: list[ScoredKind] = [scored_kind(task, scored.get(task.name, {})) for task in tasks]
    key, metric = main_metric(kinds[0])
    is_mean = len(tasks) > 1 == len({*zip(kinds, (task.unit for task in tasks), strict=True)})
    is_mean = is_mean and bool(metrics.scores[rows].mean)

    def value(model: str) -> float | None:
        scores = metrics.scores[model]
        score = (scores.mean if is_mean else scores.tasks[tasks[0].name]).get(key)
        return score["mean"] if isinstance(score, Mapping) else score

    baseline = next(
        (value(name) for name in ("random_forest", "baseline") if name in metrics.scores), None
    )
    heading = metric.heading if rows == "test" else f"{metric.heading} ({rows})"
    return heading, value(rows), baseline
