"""What a training run leaves behind: model, scores, predictions and plots, in one folder."""

import json
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.table import Table as TextTable

from molattn.answers import Answers
from molattn.baselines import constant_prediction, forest_prediction
from molattn.config_file import write_config_file
from molattn.coverage import score_uncertainty, uncertainty_tables
from molattn.metrics import Scores, TaskScores, mean_scores, score_tasks
from molattn.optimise import write_history
from molattn.page import HEADINGS, write_run_page
from molattn.plots import (
    calibration_plot,
    learning_curve,
    parity_plot,
    roc_pr_plot,
    target_label,
)
from molattn.pretrained import pretrained_digest
from molattn.reproducible import threads
from molattn.run_folder import CONFIG_FILE, PAGE_FILE, RESULT_FILE, member_folders
from molattn.say import say
from molattn.table import free_name, no_formula, write_table
from molattn.task import Task
from molattn.training import TrainingRun
from molattn.uncertainty import Answer
from molattn.uncertainty_plots import coverage_plot, similarity_plot

__all__ = ["RunScores", "score_run", "score_table", "write_run"]

_PACKAGES = ("molattn", "torch", "torch-geometric", "lightning", "rdkit", "numpy", "scikit-learn")
_MOST_FOREST_ROWS = 20_000  # beyond, descriptors alone would take many minutes


class RunScores(NamedTuple):
    """What the model says of the test rows, and the scores of the run.

    ``uncertainty`` is of :func:`molattn.coverage.score_uncertainty`. Baselines are scored on the
    test rows, by name; ``seconds`` is what each took. ``members`` are the scores of each member of
    an ensemble on them, uncalibrated, and none of a model that is none.
    """

    answer: Answer
    uncertainty: dict[str, dict[str, Any]]
    validation: TaskScores
    test: TaskScores
    baselines: dict[str, TaskScores]
    seconds: dict[str, float]
    members: list[TaskScores]


def score_run(run: TrainingRun, console: Console | None = None) -> RunScores:
    """Score a run on its validation and test rows, with baselines beside it.

    Args:
        run: The run.
        console: Where to say what takes time; silent without one.
    """
    tasks, config, seed = run.table.tasks, run.config.report, run.config.optimisation.seed
    target = run.table.targets[run.parts.test]

    def score(prediction: NDArray[np.float64]) -> TaskScores:
        return score_tasks(prediction, target, tasks, resamples=config.bootstrap, seed=seed)

    answers = Answers(run.model, config.interval)
    members, said = [], []
    for rows in (run.parts.val, run.parts.test):
        molecules = run.table.molecules(rows)
        with threads(run.config.optimisation.threads):
            members.append(
                run.model.predict_records(
                    molecules.records, features=molecules.features, members=True
                )
            )
        said.append(answers.of(members[-1], [run.table.smiles[row] for row in rows]))
    validation, test = said
    baselines: dict[str, TaskScores] = {}
    seconds: dict[str, float] = {}
    for name, prediction in _baselines(run, console) if config.baselines else ():
        start = time.perf_counter()
        baselines[name] = score(prediction())
        seconds[name] = time.perf_counter() - start
    return RunScores(
        answer=test,
        uncertainty=score_uncertainty(
            run.model, test, members[-1].mean(axis=0), target, config.interval
        ),
        validation=score_tasks(validation.prediction, run.table.targets[run.parts.val], tasks),
        test=score(test.prediction),
        baselines=baselines,
        seconds=seconds,
        members=[score_tasks(one, target, tasks) for one in members[-1]]
        if len(members[-1]) > 1
        else [],
    )


def score_table(scores: RunScores, run: TrainingRun) -> Group:
    """Return the test scores beside those of the baselines, for the terminal.

    Args:
        scores: The scores.
        run: The run.
    """
    tables = []
    for kind, headings in HEADINGS.items():
        is_number = kind == "regression"
        tasks = [task for task in run.table.tasks if (task.kind == "regression") == is_number]
        if tasks:
            tables.append(_score_table(scores, tasks, headings))
    return Group(*tables, *uncertainty_tables(scores.uncertainty, run.config.report.interval))


def write_run(run: TrainingRun, scores: RunScores, folder: Path) -> None:
    """Write everything about a run into a folder.

    The model (``model/``), ``config.yaml``, ``metrics.json``, ``history.csv``, ``predictions.csv``
    (test rows), ``skipped.csv`` and the plots: ``learning_curve.png``, ``parity.png`` of
    regressions with ``coverage.png`` and ``similarity.png``, ``roc_pr.png`` and ``calibration.png``
    of classifications; and ``report.html``, all of it as one page. Of an ensemble each member's
    history is in ``member_1/`` and so on.

    Args:
        run: The run.
        scores: Its scores.
        folder: A folder.
    """
    run.model.save_pretrained(folder / "model")
    write_config_file(folder / CONFIG_FILE, run.config)
    places = member_folders(folder, len(run.histories))
    for place, history in zip(places, run.histories, strict=True):
        place.mkdir(exist_ok=True)
        write_history(place, history.epochs)
    with write_table(folder / "skipped.csv", ("line", "smiles", "code", "reason")) as write:
        for row in run.table.skipped:
            write(row._replace(smiles=no_formula(row.smiles)))
    _write_predictions(run, scores.answer, folder / "predictions.csv")
    with warnings.catch_warnings():
        # A column name in a script that the plot's font lacks is not worth a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        for name, figure in _figures(run, scores):
            # Square panels leave their titles outside the figure unless it is drawn around them.
            figure.savefig(folder / name, dpi=150, bbox_inches="tight", pad_inches=0.1)
        metrics = _metrics(run, scores)
        write_run_page(run, scores, metrics, folder / PAGE_FILE)
    (folder / RESULT_FILE).write_text(
        json.dumps(metrics, indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )


def _baselines(run: TrainingRun, console: Console | None) -> Iterator[tuple[str, Any]]:
    tasks, train, test = run.table.tasks, run.parts.train, run.parts.test
    targets = run.table.targets[train]
    yield "baseline", lambda: constant_prediction(tasks, targets, len(test))
    rows = [*train, *test]
    if len(rows) > _MOST_FOREST_ROWS:
        say(console, f"no random forest beside it: more than {_MOST_FOREST_ROWS:,} rows")
        return

    def forest() -> NDArray[np.float64]:
        features = run.table.fingerprints[rows]
        if run.table.features is not None:
            features = np.hstack([features, run.table.features[rows].astype(np.float32)])
        return forest_prediction(
            tasks,
            features[: len(train)],
            targets,
            features[len(train) :],
            run.config.optimisation.seed,
        )

    say(console, "random forest for comparison (not with --no-baselines) ...")
    yield "random_forest", forest


def _score_table(scores: RunScores, tasks: Sequence[Task], headings: dict[str, str]) -> TextTable:
    first, *_ = headings
    intervals = bool(scores.test.mean["intervals"])
    table = TextTable(box=None, pad_edge=False)
    for heading in ("test", ""):
        table.add_column(heading)
    for key, heading in headings.items():
        table.add_column(heading, justify="right")
        if key == first and intervals:
            table.add_column("95 % interval", justify="right")
    constant = "the mean" if "rmse" in headings else "the majority"
    models = {
        "molattn": scores.test,
        **({"one member": mean_scores(scores.members)} if scores.members else {}),
        **{
            {"baseline": constant, "random_forest": "random forest"}[name]: given
            for name, given in scores.baselines.items()
        },
    }
    places = [(target_label(task), task.name) for task in tasks]
    for label, name in [*places, ("mean", None)] if len(tasks) > 1 else places:
        for who, given in models.items():
            values = given.mean if name is None else given.tasks[name]
            cells = []
            for key in headings:
                cells.append(_figure(values.get(key)))
                if key == first and intervals:
                    interval = values["intervals"].get(key)
                    cells.append(
                        "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
                    )
            table.add_row(label if who == "molattn" else "", who, *cells)
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _figures(run: TrainingRun, scores: RunScores) -> Iterator[tuple[str, Figure]]:
    tasks = run.table.tasks
    shown = scores.answer.prediction, run.table.targets[run.parts.test], tasks, scores.test.tasks
    yield "learning_curve.png", learning_curve(run.histories)
    if any(task.kind == "regression" for task in tasks):
        yield "parity.png", parity_plot(*shown)
        if any("coverage" in given for given in scores.uncertainty.values()):
            yield "coverage.png", coverage_plot(tasks, scores.uncertainty)
            yield "similarity.png", similarity_plot(*shown[:3], scores.answer.similarity)
    if any(task.kind != "regression" for task in tasks):
        yield "roc_pr.png", roc_pr_plot(*shown)
        yield "calibration.png", calibration_plot(*shown)


def _metrics(run: TrainingRun, scores: RunScores) -> dict[str, Any]:
    parts = zip(("rows_train", "rows_validation", "rows_test"), run.parts, strict=True)
    judged = {"test": scores.test, **scores.baselines, "validation": scores.validation}
    if scores.members:
        judged["member"] = mean_scores(scores.members)
    by_name: dict[str, dict[str, Scores] | Scores] = {}
    for name, given in judged.items():
        by_name |= {name: given.tasks, f"{name}_mean": given.mean}
    return {
        **by_name,
        **{f"{name}_seconds": round(seconds, 3) for name, seconds in scores.seconds.items()},
        "uncertainty": scores.uncertainty,
        "interval_level": run.config.report.interval,
        "tasks": [task.to_dict() for task in run.table.tasks],
        "rows_in": run.table.rows_in,
        "rows_used": len(run.table.rows),
        "rows_skipped": len(run.table.skipped),
        **{name: len(rows) for name, rows in parts},
        "leakage": run.leakage.to_dict(),
        "members": [*_members(run, scores)],
        "seconds": round(run.seconds, 3),
        "seed": run.config.optimisation.seed,
        "threads": run.config.optimisation.threads,
        "init_from_sha256": pretrained_digest(run.config.fine_tuning.init_from),
        "data_sha256": run.table.digest,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }


def _members(run: TrainingRun, scores: RunScores) -> Iterator[dict[str, Any]]:
    for place, history in enumerate(run.histories):
        own = scores.members[place] if scores.members else None
        yield {
            "seed": run.config.optimisation.seed + place,
            "epochs": len(history.epochs),
            "kept_epoch": history.best,
            "seconds": round(history.seconds, 3),
            **({} if own is None else {"test": own.tasks, "test_mean": own.mean}),
        }


def _write_predictions(run: TrainingRun, said: Answer, path: Path) -> None:
    table, answers = run.table, Answers(run.model, run.config.report.interval)
    columns = [*answers.columns, "split"]
    header = [*table.header, *(free_name(name, table.header) for name in columns)]
    with write_table(path, header) as w:
        for place, row in enumerate(run.parts.test):
            cells = answers.cells(said, place)
            texts = (f"{cell:.7g}" if isinstance(cell, float) else cell for cell in cells)
            w([*table.rows[row].cells, *texts, "test"])
