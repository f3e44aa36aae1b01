"""The folder of a run: model, scores, predictions, plots and the report, an HTML file."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from molattn.config import DataConfig, TrainConfig
from molattn.config.yaml_file import write_config_file
from molattn.data.auxiliary_rows import select_auxiliary_rows
from molattn.data.dataset import SkippedRow, TrainingTable
from molattn.data.splitting import leakage_warnings
from molattn.data.table import escape_formula, free_name, write_table
from molattn.errors import quoted, reason_meaning
from molattn.evaluation.report.cliffs import find_cliffs
from molattn.evaluation.report.headline import make_headline
from molattn.evaluation.report.model_card import save_with_card
from molattn.evaluation.report.molecules import Point, plot_points, worst_molecules
from molattn.evaluation.report.plots import (
    TaskResults,
    learning_curve,
    run_plots,
    save_plot,
    task_results,
)
from molattn.evaluation.report.tables import (
    confidence_remarks,
    confidence_table,
    format_score,
    interval_table,
    is_exchangeable,
    proposed_folds,
    score_tables,
    scored_rows,
    split_text,
    target_label,
)
from molattn.evaluation.scores.metrics import main_metric, scored_kind
from molattn.evaluation.scores.run_metrics import CrossValidationMetrics, RunMetrics
from molattn.evaluation.scores.scoring import RunScores
from molattn.model.columns import (
    PredictionColumns,
    cell_text,
    standardized_cells,
    standardized_columns,
)
from molattn.model.sites import SiteColumns
from molattn.task import output_slices
from molattn.training.run import TrainingRun
from molattn.training.run_folder import (
    CONFIG_FILE,
    PAGE_FILE,
    History,
    member_folders,
    write_history,
)
from molattn.utils.files import write_file
from molattn.utils.html import data_image, page_environment

_TEMPLATES = Path(__file__).parents[1] / "templates"
_MOST_TASKS = 12
_FEWEST_ERRORS = 10  # whose mean is told from 0
_WIDE = 900  # pixels: a plot of several panels
_SPLITS = {"training": "rows_train", "validation": "rows_validation", "test": "rows_test"}
_FIGURES = {
    "learning_curve.png": "Loss by epoch",
    "parity.png": "Predicted vs. measured, test rows",
    "coverage.png": "Coverage of prediction intervals, test rows",
    "similarity.png": "Error vs. similarity, test rows",
    "roc_pr.png": "ROC and precision-recall curves, test rows",
    "calibration.png": "Calibration, test rows",
}


def write_run(run: TrainingRun, scores: RunScores, folder: Path) -> None:
    """Write the results of a run into a folder.

    These are the model (``model/``), ``config.yaml``, ``metrics.json``, ``history.csv`` (of an
    ensemble in ``member_1/`` and so on), ``predictions.csv`` (test rows), ``skipped.csv``,
    ``report.html``, ``learning_curve.png`` and, of test rows, the plots of
    :func:`molattn.evaluation.report.plots.run_plots`.
    """
    save_with_card(run.model, run.config, scores.metrics, folder)
    write_config_file(folder / CONFIG_FILE, run.config)
    write_histories(run.histories, folder)
    write_skipped(run.table, folder)
    _write_predictions(run, scores, folder / "predictions.csv")
    results = []
    if len(run.split.test):
        labels = run.table.targets[run.split.test]
        test_scores = scores.metrics.scores["test"].tasks
        uncertainty = scores.metrics.uncertainty
        tasks = run.table.tasks
        results = task_results(scores.prediction, labels, tasks, test_scores, uncertainty)
    points = write_plots(run.table, run.split.test, results, folder)
    write_run_page(run, scores, results, folder, points)
    scores.metrics.write(folder)


def write_histories(histories: Sequence[History], folder: Path) -> None:
    """Write ``history.csv`` of each member, and ``learning_curve.png``."""
    for member, history in zip(member_folders(folder, len(histories)), histories, strict=True):
        member.mkdir(exist_ok=True)
        write_history(member, history.curve)
    if histories:
        save_plot(learning_curve(histories), folder / "learning_curve.png")


def write_plots(
    table: TrainingTable,
    tested: NDArray[np.int64],
    results: Sequence[TaskResults],
    folder: Path,
) -> dict[str, list[Point]]:
    """Write the plots of results, and return which molecule is where in them."""
    saved = {name: save_plot(figure, folder / name) for name, figure in run_plots(results).items()}
    return plot_points(
        table, tested, results, {name: points for name, points in saved.items() if points}
    )


def write_skipped(table: TrainingTable, folder: Path) -> None:
    """Write ``skipped.csv``, the rows of a table that cannot be used, with their reasons.

    Labels that cannot be read, of rows with other labels and of auxiliary columns, are in
    ``unreadable.csv``, if there are any.
    """
    for name, rows in (("skipped", table.skipped), ("unreadable", table.all_unreadable)):
        if not rows and name == "unreadable":
            continue
        with write_table(folder / f"{name}.csv", SkippedRow._fields) as write:
            for row in rows:
                write(row._replace(smiles=escape_formula(row.smiles)))


def _worst_sites(run: TrainingRun, scores: RunScores) -> Iterator[dict[str, Any]]:
    """Yield the atoms or bonds of test rows with the largest errors of each task."""
    for level, prediction in scores.sites.items():
        labels = run.table.sites[level].molecules(run.split.test)
        for index, columns in enumerate(output_slices(labels.tasks)):
            targets = labels.targets[:, index]
            outputs = prediction.outputs[:, columns]
            scored = np.flatnonzero(np.isfinite(targets + outputs[:, 0]))
            about = targets[scored], scored, np.full(len(scored), np.nan), {}, {}
            results = TaskResults(labels.tasks[index], outputs[scored], *about)
            yield worst_molecules(run.table, run.split.test[labels.molecule], results, labels)


def _write_predictions(run: TrainingRun, scores: RunScores, path: Path) -> None:
    prediction = scores.prediction
    table = run.table
    output = PredictionColumns(run.model.predictor, has_measured=False)
    config = run.model.config
    sites = SiteColumns(config, run.model.site_calibration)
    columns = [*output.columns, *sites.columns, *standardized_columns(config), "split"]
    header = [*table.header, *(free_name(name, table.header) for name in columns)]
    lists = repeat([])
    if sites.columns:
        lists = sites.cells(scores.sites, run.table.molecules(run.split.test).records)
    with write_table(path, [escape_formula(name) for name in header]) as write:
        for index, (row, site_cells) in enumerate(zip(run.split.test, lists, strict=False)):
            is_finite = np.isfinite(prediction.prediction[index]).all()
            cells = output.cells(prediction, index) if is_finite else [None] * len(output.columns)
            cells += [*site_cells, *standardized_cells(table.records[row], config)]
            texts = [cell_text(cell) for cell in cells]
            write([escape_formula(cell) for cell in (*table.rows[row].cells, *texts, "test")])


def write_run_page(
    run: TrainingRun,
    scores: RunScores,
    results: Sequence[TaskResults],
    folder: Path,
    points: Mapping[str, list[Point]],
) -> None:
    """Write the report of a run beside its plots.

    It contains the scores of all tasks, the plots, and the 8 worst test predictions and the cliffs
    of the first 12 tasks.
    """
    metrics = scores.metrics
    tasks = metrics.tasks
    data = run.config.data
    level = run.config.report.interval
    has_test = "test" in metrics.scores
    uncertainty = run.model.uncertainty
    intervals = interval_table(metrics, run.config)
    promise = ""
    has_regression = any(task.kind == "regression" for task in tasks)
    if not intervals.frame.empty or (not has_test and has_regression):
        promise = interval_promise(data, tested=has_test)
    _write_page(
        folder / PAGE_FILE,
        "run.html",
        run.config,
        run.table,
        metrics,
        score_tables=score_tables(tasks, metrics.scores),
        scored=scored_rows(metrics.scores),
        has_intervals=has_test and run.config.report.bootstrap > 0,
        kept=_kept_epochs(run),
        proposal=proposed_folds(metrics, data),
        figures=_figures(folder, points),
        tasks=[
            worst_molecules(run.table, run.split.test, result) | find_cliffs(run, result)
            for result in results[:_MOST_TASKS]
        ]
        + [*islice(_worst_sites(run, scores), max(0, _MOST_TASKS - len(results)))],
        weights=_weights([metrics]),
        parts=[(name, getattr(metrics, key)) for name, key in _SPLITS.items()],
        promise=promise,
        uncalibrated=uncertainty.calibration.shortfalls(level)[:_MOST_TASKS] if uncertainty else [],
        moved=[*_moved(results, data)],
        intervals=intervals,
        graded=confidence_table(metrics),
        ungraded=[*confidence_remarks(metrics)],
        labels=[*_labels(run)],
        leakage=run.leakage.lines(),
        forest_seconds=metrics.baseline_seconds.get("random_forest"),
    )


def write_fold_page(
    config: TrainConfig,
    table: TrainingTable,
    summary: CrossValidationMetrics,
    results: Sequence[TaskResults],
    path: Path,
) -> None:
    """Write the report of a cross-validation, beside its rounds, to whose reports it links.

    ``results`` are those of all rows, each predicted by the model of the round that tested it.
    """
    folds = summary.folds
    tasks = folds[0].tasks
    means = summary.scores["test"].tasks
    summarized = [
        (task, *main_metric(scored_kind(task, means[task.name]))) for task in tasks[:_MOST_TASKS]
    ]
    final = summary.final
    tested = np.arange(len(table.rows))
    points = write_plots(table, tested, results, path.parent)
    _write_page(
        path,
        "folds.html",
        config,
        table,
        folds[0],
        summary=summary,
        score_tables=score_tables(tasks, summary.scores),
        figures=_figures(path.parent, points),
        tasks=[worst_molecules(table, tested, result) for result in results[:_MOST_TASKS]],
        weights=_weights(folds),
        shown=summarized,
        promise=interval_promise(config.data),
        intervals=interval_table(summary, config),
        level=f"{config.report.interval:g}",
        exchangeable=is_exchangeable(config.data),
        repeats=config.data.repeats,
        censored=summary.censored,
        leakage=leakage_warnings([fold.leakage for fold in folds]),
        moved=[*_moved(results, config.data)],
        findings=[fold.leakage.lines() for fold in folds],
        final=final,
        final_tasks=[task for task in tasks if final and task.name in final.uncertainty],
        rounds=folds,
    )


def _moved(results: Sequence[TaskResults], config: DataConfig) -> Iterator[str]:
    """Yield a line for each number whose mean error is two standard errors from 0 or more.

    Auxiliary columns, without which there is no line, may move the mean of predictions.
    """
    for scored in results if config.auxiliary_columns else ():
        if scored.task.kind == "regression" and len(scored.rows) >= _FEWEST_ERRORS:
            mean = scored.errors.mean()
            error = scored.errors.std(ddof=1) / len(scored.rows) ** 0.5
            if abs(mean) > 2.0 * error:
                size = f"{mean:+.2g} ± {error:.1g}{' log10' if scored.is_log else ''}"
                line = f"predictions are off by {size} on average over {len(scored.rows):,} rows"
                yield f"{quoted(scored.task.name)}: {line}; compare without auxiliary columns"


def _figures(folder: Path, points: Mapping[str, list[Point]]) -> list[dict[str, Any]]:
    """Return the plots of a folder for its page, each with its caption and points."""
    there = [name for name in _FIGURES if (folder / name).exists()]
    images = {name: (folder / name).read_bytes() for name in there}
    return [
        {
            "title": _FIGURES[name],
            "image": data_image("figure", f"{_FIGURES[name]}.", "png", image),
            "points": points.get(name, []),
            "is_wide": int.from_bytes(image[16:20]) > _WIDE,  # pixels, of the header
        }
        for name, image in images.items()
    ]


def _weights(runs: Sequence[RunMetrics]) -> list[tuple[str, float]]:
    """Return the weight of the Gaussian process for each task, the mean over runs."""
    weights = [
        metrics.gaussian_process_weights
        for metrics in runs
        if metrics.gaussian_process_weights is not None
    ]
    return [
        (task, float(np.mean([of_run[task] for of_run in weights])))
        for task in (weights or [{}])[0]
    ]


def _write_page(
    path: Path,
    template: str,
    config: TrainConfig,
    table: TrainingTable,
    metrics: RunMetrics,
    *,
    summary: CrossValidationMetrics | None = None,
    **content: Any,
) -> None:
    """Write a report from a template and its variables. Text is escaped, ``Markup`` is not."""
    page = page_environment(_TEMPLATES).get_template(template)
    text = page.render(
        name=config.report.title or Path(config.file).name,
        headline=make_headline(metrics.tasks, summary or metrics, path.parent),
        split=split_text(config.data),
        task_count=len(metrics.tasks),
        options=yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True),
        made=datetime.now(UTC),
        system=platform.platform(terse=True),
        metrics=metrics,
        skipped=Counter(row.code for row in table.skipped).most_common(),
        meaning=reason_meaning,
        target_label=target_label,
        format_score=format_score,
        **content,
    )
    write_file(path, text.encode(errors="replace"))


def interval_promise(data: DataConfig, *, tested: bool = True) -> str:
    """Return what the intervals of a run promise for its test rows, if any, and what not."""
    rows = "the validation rows"
    if data.validation_size == 0.0:
        rows = "the predictions of the other folds' models for the rows that they have not seen"
    result = "The test rows are drawn at random as those are."
    if not is_exchangeable(data):
        how = f"the split {data.split!r}" if data.split_column is None else "a column of the table"
        result = f"The test rows are chosen by {how}: no coverage is promised for them."
    if not tested:
        result = "There are no test rows on which it could be measured."
    return (
        f"Intervals are calibrated on {rows}. Their nominal coverage is promised on average for "
        "molecules that are drawn as those (exchangeable), and nothing for others, such as a new "
        f"chemical series. {result}"
    )


def _kept_epochs(run: TrainingRun) -> str:
    if not run.histories:
        return "No network was trained: the predictions are those of a Gaussian process."
    epochs = ", ".join(f"{history.kept_epoch} of {len(history.curve)}" for history in run.histories)
    is_last = run.config.training.checkpoint == "last"
    return f"Checkpoint: epoch {epochs} ({'last epoch' if is_last else 'lowest validation loss'})."


def _labels(run: TrainingRun) -> Iterator[tuple[str, list[str]]]:
    """Yield each task with the number of labels in each split, then the auxiliary columns."""
    bounds = run.table.bounds
    for index, task in enumerate(run.table.tasks):
        counts = []
        for rows in run.split:
            counts.append(f"{np.count_nonzero(~np.isnan(run.table.targets[rows, index])):,}")
            ends = (
                (~np.isnan(bounds[:, rows, index])).sum(axis=0) if bounds is not None else rows[:0]
            )
            for number, kind in ((1, "censored"), (2, "intervals")):
                if count := np.count_nonzero(ends == number):
                    counts[-1] += f", {count:,} {kind}"
        yield target_label(task), counts
    for labels in run.table.sites.values():
        of_splits = [(~np.isnan(labels.molecules(rows).targets)).sum(axis=0) for rows in run.split]
        for task, counts in zip(labels.tasks, np.stack(of_splits, axis=1), strict=True):
            yield f"{target_label(task)} ({labels.level}s)", [f"{count:,}" for count in counts]
    if (auxiliary := run.table.auxiliary) is not None:
        learned = select_auxiliary_rows(run.table, run.split).learned
        label_counts = (~np.isnan(auxiliary.targets[learned])).sum(0)
        for task, count in zip(auxiliary.tasks, label_counts, strict=True):
            yield f"{target_label(task)} (auxiliary)", [f"{count:,}", "0", "0"]
