"""What a training run leaves behind: model, scores, predictions and plots, in one folder."""

import json
import os
import platform
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray
from rich.table import Table as TextTable

from molattn.errors import InputError
from molattn.metrics import Scores, baseline_prediction, mean_scores, regression_scores
from molattn.optimise import History
from molattn.table import write_table
from molattn.training import TrainingRun

__all__ = [
    "RunScores",
    "learning_curve",
    "parity_plot",
    "run_folder",
    "score_run",
    "score_table",
    "write_run",
]

_CONTENTS = {
    "config.yaml",
    "history.csv",
    "learning_curve.png",
    "metrics.json",
    "model",
    "parity.png",
    "predictions.csv",
    "skipped.csv",
}
_PACKAGES = ("molattn", "torch", "torch-geometric", "lightning", "rdkit", "numpy")
_MOST_PANELS = 12
_COLOURS = {"training": "#7f8c9b", "validation": "#c2410c", "points": "#1d4ed8"}


class RunScores(NamedTuple):
    """Predictions of the test rows ``[n, T]`` and the scores of the run, by target."""

    prediction: NDArray[np.float64]
    validation: dict[str, Scores]
    test: dict[str, Scores]
    baseline: dict[str, Scores]


@contextmanager
def run_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder that is there whole or not at all.

    The block fills a folder beside it, which takes its name (and the place of a former run of that
    name) when the block ends without an exception.

    Args:
        path: The folder to be.

    Yields:
        The folder to fill.

    Raises:
        InputError: If the path holds something other than a former run, or cannot be written.
    """
    path = Path(path)
    _check_replaceable(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    new_parents = [parent for parent in path.parents if not parent.exists()]
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        yield partial
        former = path.with_name(f".{path.name}.{os.getpid()}.former")
        if path.exists():
            path.rename(former)
        partial.rename(path)
        shutil.rmtree(former, ignore_errors=True)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):
                parent.rmdir()
        raise


def score_run(run: TrainingRun) -> RunScores:
    """Score a run on its validation and test rows, beside the mean of its training labels."""
    names = run.config.data.target_columns
    targets, parts = run.table.targets, run.parts
    validation, test = (
        run.model.predict_records(rows.records, features=rows.features)
        for rows in map(run.table.molecules, (parts.val, parts.test))
    )
    baseline = baseline_prediction(targets[parts.train], len(parts.test))
    return RunScores(
        prediction=test,
        validation=regression_scores(validation, targets[parts.val], names),
        test=regression_scores(test, targets[parts.test], names),
        baseline=regression_scores(baseline, targets[parts.test], names),
    )


def score_table(scores: RunScores, labels: Mapping[str, str]) -> TextTable:
    """Return the test scores beside the baseline, for the terminal.

    Args:
        scores: The scores.
        labels: What to call each target, with its unit.
    """
    table = TextTable(box=None, pad_edge=False)
    for heading in ("test", "", "RMSE", "MAE", "R²"):
        table.add_column(heading, justify="left" if heading in ("test", "") else "right")
    rows = [(labels[name], scores.test[name], scores.baseline[name]) for name in scores.test]
    if len(rows) > 1:
        rows.append(("mean", mean_scores(scores.test), mean_scores(scores.baseline)))
    for label, model, baseline in rows:
        for who, values in (("molattn", model), ("predict the mean", baseline)):
            table.add_row(label if who == "molattn" else "", who, *_figures(values))
    return table


def write_run(run: TrainingRun, scores: RunScores, folder: Path) -> None:
    """Write everything about a run into a folder.

    The model (``model/``), ``config.yaml``, ``metrics.json``, ``history.csv``, ``predictions.csv``
    (test rows), ``skipped.csv``, ``learning_curve.png`` and ``parity.png``.

    Args:
        run: The run.
        scores: Its scores.
        folder: An empty folder.
    """
    run.model.save_pretrained(folder / "model")
    config = yaml.safe_dump(run.config.to_dict(), sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(config, encoding="utf-8", errors="surrogateescape")
    (folder / "metrics.json").write_text(
        json.dumps(_metrics(run, scores), indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )
    with write_table(folder / "history.csv", run.history.epochs[0]._fields) as write:
        for epoch in run.history.epochs:
            write(epoch)
    with write_table(folder / "skipped.csv", ("line", "smiles", "code", "reason")) as write:
        for row in run.table.skipped:
            write(row)
    _write_predictions(run, scores.prediction, folder / "predictions.csv")
    names = list(run.config.data.target_columns)
    test_targets = run.table.targets[run.parts.test]
    with warnings.catch_warnings():
        # A column name in a script that the plot's font lacks is not worth a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        learning_curve(run.history).savefig(folder / "learning_curve.png", dpi=150)
        parity_plot(
            scores.prediction, test_targets, names, run.config.data.target_units, scores.test
        ).savefig(folder / "parity.png", dpi=150)


def learning_curve(history: History) -> Figure:
    """Plot training and validation loss against the epoch, with the best one marked."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    epochs = [epoch.epoch for epoch in history.epochs]
    for name, losses in (
        ("training", [epoch.train_loss for epoch in history.epochs]),
        ("validation", [epoch.validation_loss for epoch in history.epochs]),
    ):
        marker = "o" if len(epochs) == 1 else None
        axes.plot(epochs, losses, color=_COLOURS[name], label=name, marker=marker)
    axes.axvline(history.best, color="0.6", linestyle=":", label=f"best epoch ({history.best})")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean squared error (scaled targets)")
    axes.set_title("Learning curve")
    axes.legend(frameon=False)
    return figure


def parity_plot(
    prediction: NDArray[np.float64],
    target: NDArray[np.float64],
    names: Sequence[str],
    units: Sequence[str],
    scores: Mapping[str, Scores],
) -> Figure:
    """Plot predicted against measured values, a panel for each of the first 12 targets.

    Args:
        prediction: ``[n, T]``.
        target: ``[n, T]``, NaN where missing.
        names: The T targets.
        units: Their units, or none.
        scores: Their scores, for the titles.
    """
    shown = min(len(names), _MOST_PANELS)
    columns = min(shown, 3)
    rows = -(-shown // columns)
    figure = Figure(figsize=(4.5 * columns, 4.5 * rows), layout="constrained")
    for task, name in enumerate(names[:shown]):
        axes = figure.add_subplot(rows, columns, task + 1)
        known = ~np.isnan(target[:, task])
        label = target_label(name, units[task] if units else "")
        _parity(axes, target[known, task], prediction[known, task], label, scores[name])
    return figure


def target_label(name: str, unit: str) -> str:
    """Return the name of a target with its unit, if it has one."""
    return f"{name} ({unit})" if unit else name


def _parity(
    axes: Axes,
    target: NDArray[np.float64],
    prediction: NDArray[np.float64],
    label: str,
    scores: Scores,
) -> None:
    plain = label.replace("$", r"\$")  # no mathematics in a column's name
    axes.scatter(target, prediction, s=14, alpha=0.6, color=_COLOURS["points"], linewidths=0)
    axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=1, zorder=0)
    values = np.concatenate([target, prediction, np.zeros(0 if len(target) else 1)])
    margin = 0.05 * (values.max() - values.min()) or 1.0
    limits = (values.min() - margin, values.max() + margin)
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    axes.set_xlabel(f"measured {plain}")
    axes.set_ylabel(f"predicted {plain}")
    rmse, mae, r2 = _figures(scores)
    axes.set_title(f"RMSE {rmse}   MAE {mae}   R² {r2}   n = {scores['count']}", fontsize=10)


def _figures(scores: Scores) -> list[str]:
    values = (scores["rmse"], scores["mae"], scores["r2"])
    return ["-" if value is None else f"{value:.3f}" for value in values]


def _metrics(run: TrainingRun, scores: RunScores) -> dict[str, Any]:
    parts = zip(("rows_train", "rows_validation", "rows_test"), run.parts, strict=True)
    units = run.config.data.target_units
    return {
        "test": scores.test,
        "test_mean": mean_scores(scores.test),
        "baseline": scores.baseline,
        "baseline_mean": mean_scores(scores.baseline),
        "validation": scores.validation,
        "validation_mean": mean_scores(scores.validation),
        "units": dict(zip(run.config.data.target_columns, units, strict=True)) if units else {},
        "rows_in": run.table.rows_in,
        "rows_used": len(run.table.rows),
        "rows_skipped": len(run.table.skipped),
        **{name: len(rows) for name, rows in parts},
        "epochs": len(run.history.epochs),
        "best_epoch": run.history.best,
        "seconds": round(run.seconds, 3),
        "seed": run.config.optimisation.seed,
        "threads": run.config.optimisation.threads,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }


def _write_predictions(run: TrainingRun, prediction: NDArray[np.float64], path: Path) -> None:
    table = run.table
    columns = [*run.model.config.output_names, "split"]
    with write_table(path, [*table.header, *(_free(name, table.header) for name in columns)]) as w:
        for row, values in zip(run.parts.test, prediction, strict=True):
            w([*table.rows[row].cells, *(f"{value:.7g}" for value in values), "test"])


def _free(name: str, taken: Sequence[str]) -> str:
    return _free(f"{name}_", taken) if name in taken else name


def _check_replaceable(path: Path) -> None:
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path}: there is a file of that name, expected a folder for the run")
        contents = {entry.name for entry in path.iterdir()} if path.exists() else set()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    strange = sorted(contents - _CONTENTS)
    if contents and (strange or "config.yaml" not in contents):
        raise InputError(
            f"{path}: the folder holds {(strange or sorted(contents))[0]}, which is no part of a "
            "run; expected a new or empty folder, or a former run to replace"
        )
