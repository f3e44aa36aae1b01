"""The tables of a comparison of runs on the terminal, and its page."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from molattn.data.table import escape_formula
from molattn.evaluation.compare.comparison import RunPredictions
from molattn.evaluation.report.molecules import molecule_image
from molattn.evaluation.report.tables import (
    ScoreTable,
    contents_of,
    format_interval,
    format_score,
    target_label,
)
from molattn.evaluation.scores.metrics import METRICS, above_zero, main_metric, scored_kind
from molattn.task import Task, output_slices
from molattn.training.run_folder import PAGE_FILE
from molattn.utils.files import atomic_folder, check_output_folder, write_file
from molattn.utils.html import page_environment

_TEMPLATES = Path(__file__).parents[1] / "templates"
_TABLE_FILE = "comparison.csv"
_MOST_TASKS = 12
_MOST_MOLECULES = 8
_INTERVAL = Markup(
    '<svg class="interval" viewBox="-52 0 104 12" aria-hidden="true"><path d="M0 0V12"/>'
    '<path d="M{:.1f} 6H{:.1f}"/><circle cx="{:.1f}" cy="6" r="3"/></svg>'
)


def comparison_tables(table: pd.DataFrame, tasks: Sequence[Task]) -> list[ScoreTable]:
    """Return the scores, and the differences in the main metric, by scale."""
    rows_of: dict[tuple[str, str], list[dict[str, str]]] = {}
    for task in tasks:
        label = {"task": target_label(task)}
        estimates = table[(table["task"] == task.name) & (table["rows"] == "all")]
        metrics = dict.fromkeys(estimates["metric"])
        (key, metric) = main_metric(scored_kind(task, metrics))
        heading = f"{metric.heading} {'↑' if metric.higher_is_better else '↓'}"
        of_runs = estimates[estimates["minus"] == ""].set_index("metric")
        for content in contents_of(task, metrics):
            headed = content.headed([task])
            (main, *_) = headed.items()
            for run, scores in of_runs.groupby("run", sort=False):
                values = scores["value"].reindex([*headed])
                cells = [format_score(value) for value in values]
                headings = [metric.heading for metric in headed.values()]
                ends: Any = scores.loc[main[0], ["low", "high"]]
                first = {main[1].heading: "", "95% CI": format_interval(*ends)}
                row = {**label, "run": str(run), **first, **dict(zip(headings, cells, strict=True))}
                rows_of.setdefault((f"test {content.title}", main[0]), []).append(row)
        differences = estimates[(estimates["minus"] != "") & (estimates["metric"] == key)]
        pairs: list[Any] = differences.to_dict("records")
        widest = np.nanmax([1e-300, *(abs(pair[end]) for pair in pairs for end in ("low", "high"))])
        for pair in pairs:
            better = pair["run" if (pair["value"] > 0) == metric.higher_is_better else "minus"]
            drawn = 50 * np.array([pair["low"], pair["high"], pair["value"]]) / widest
            value = format_score(pair["value"])
            p = pair["p_value"]
            row = {**label, "run": f"{pair['run']} - {pair['minus']}", heading: value}
            row["95% CI"] = format_interval(pair["low"], pair["high"])
            row["p"] = "< 0.001" if p < 0.001 else format_score(p)
            row |= {"interval": _INTERVAL.format(*drawn) if np.isfinite(drawn).all() else ""}
            row |= {"better": better if p < 0.05 else "undecided"}
            rows_of.setdefault(("paired differences", key), []).append(row)
    return [
        ScoreTable(title, pd.DataFrame(rows, dtype=object)) for (title, _), rows in rows_of.items()
    ]


def write_comparison(
    runs: Mapping[str, RunPredictions], table: pd.DataFrame, output: Path
) -> list[ScoreTable]:
    """Write a folder with the table of a comparison and its page; return the tables of that."""
    check_output_folder(output, "a comparison", {_TABLE_FILE, PAGE_FILE}.__contains__)
    first, *_ = runs.values()
    tables = comparison_tables(table, first.tasks)
    with atomic_folder(output) as folder:
        escaped = table.map(lambda cell: escape_formula(cell) if isinstance(cell, str) else cell)
        escaped.to_csv(folder / _TABLE_FILE, index=False, float_format="%.7g")
        page = page_environment(_TEMPLATES).get_template("comparison.html")
        text = page.render(
            name="Comparison of runs",
            runs=runs,
            first=first,
            file=Path(first.config.file).name,
            tables=tables,
            degrees=table["degrees_of_freedom"].dropna().unique(),
            tasks=[_task_part(runs, table, index) for index in range(len(first.tasks))][
                :_MOST_TASKS
            ],
            replaced=[line for run in runs.values() for line in run.replaced_lines()],
            made=datetime.now(UTC),
        )
        write_file(folder / PAGE_FILE, text.encode(errors="replace"))
    return tables


def _task_part(
    runs: Mapping[str, RunPredictions], table: pd.DataFrame, index: int
) -> dict[str, Any]:
    """Return what the page shows of a task: errors of some of the rows, and disagreements."""
    task = next(iter(runs.values())).tasks[index]
    parts = table[(table["task"] == task.name) & (table["rows"] != "all")]
    errors: dict[str, list[dict[str, Any]]] = {}
    for name, rows in parts.groupby("rows", sort=False):
        kind, _, words = str(name).partition(": ")
        is_drawn = kind == "scaffold" and words not in ("none", "others")
        title = molecule_image(words, "") + words if is_drawn else words.replace("none", "acyclic")
        cells = dict(zip(rows["run"], map(format_score, rows["value"]), strict=True))
        row = {kind: title, "labels": f"{rows['count'].iloc[0]:,}", **cells}
        errors.setdefault(kind, []).append(row)
    return {
        "label": target_label(task),
        "error": METRICS[parts["metric"].iloc[0]].heading if len(parts) else "",
        "errors": {kind: pd.DataFrame(rows, dtype=object) for kind, rows in errors.items()},
        "molecules": [*_disagreements(runs, index)],
    }


def _disagreements(runs: Mapping[str, RunPredictions], index: int) -> Iterator[dict[str, Any]]:
    """Yield the molecules whose predictions differ most between two runs."""
    first, *_ = runs.values()
    task = first.tasks[index]
    columns = output_slices(first.tasks)[index]
    outputs = np.stack([run.frame["output"].to_numpy()[:, columns] for run in runs.values()])
    scaled = outputs
    if task.name in first.logarithms:
        scaled = np.log10(above_zero(outputs, first.frame["label", task.name].to_numpy()))
    keys = first.frame.index.tolist()
    seen = dict[tuple[str, str], int]()
    for row in np.argsort(-np.ptp(scaled, axis=0).max(axis=1), kind="stable").tolist():
        _, smiles, partner, *_ = keys[row]
        seen.setdefault((smiles, partner), row)  # of several repeats, the first
    for (smiles, partner), row in [*seen.items()][:_MOST_MOLECULES]:
        label = first.frame["label", task.name].iloc[row]
        is_class = bool(task.classes) and not np.isnan(label)
        facts = {"measured": task.classes[int(label)] if is_class else format_score(label)}
        for run, values in zip(runs, outputs[:, row].tolist(), strict=True):
            predicted_class = task.classes[-1] if task.kind == "binary" else task.cells(values)[0]
            facts[run] = f"{predicted_class if task.classes else ''} {format_score(max(values))}"
        drawing = molecule_image(smiles, f"Structure of {smiles}")
        name = first.frame["name", "name"].iloc[row]
        yield {"drawing": drawing, "name": name, "smiles": [smiles, partner], "facts": facts}
