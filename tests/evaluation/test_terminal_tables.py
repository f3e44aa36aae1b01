import io
import re

import numpy as np
import pytest
from rich.console import Console

from molattn.config import (
    DataConfig,
    FineTuningConfig,
    GaussianProcessConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.data.table import bundled_dataset
from molattn.evaluation.metrics import score_tasks
from molattn.evaluation.score_tables import score_tables
from molattn.evaluation.scoring import score_run
from molattn.evaluation.terminal_tables import _score_table, score_table, uncertainty_tables
from molattn.task import Task
from molattn.training.run import train

COVERAGE = {
    "count": 20,
    "coverage": 0.8,
    "coverage_expected": 0.91,
    "coverage_sd": 0.1,
    "mean_width": 1.0,
}


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_tables_fit_80_columns(kind):
    task = Task("y") if kind == "regression" else Task("y", "binary", ("n", "y"))
    rng = np.random.default_rng(0)
    prediction, target = rng.random((20, 1)), rng.integers(0, 2, (20, 1)).astype(float)
    scores = score_tasks(prediction, target, [task], resamples=100)
    models = {"test": scores.tasks, "random_forest": scores.tasks, "baseline": scores.tasks}
    (table,) = map(_score_table, score_tables([task], models))
    found = scores.tasks["y"]
    calibrated = {key: found.get(key) for key in ("nll", "brier", "ece")}
    uncertainty = (
        COVERAGE
        if kind == "regression"
        else {"count": 20}
        | {f"{key}_before": value for key, value in calibrated.items()}
        | {f"{key}_after": value for key, value in calibrated.items()}
    )
    for one in (table, *uncertainty_tables({"y": uncertainty}, 0.9)):
        console = Console(file=io.StringIO(), width=80)
        console.print(one, markup=False)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)
        assert sum("95% CI" in line for line in lines) == (one is table)


def shown(*tables, width=80):
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(table, markup=False)
    return console.file.getvalue()


def test_a_coverage_that_is_not_promised_is_expected_nowhere():
    scores = {"y": COVERAGE}
    assert "0.910 ± 0.200" in shown(*uncertainty_tables(scores, 0.9))
    text = shown(*uncertainty_tables(scores, 0.9, promised=False))
    assert "not promised" in text.splitlines()[-1]
    assert "0.800" in text


@pytest.mark.parametrize(
    "name, lines",
    [
        ("logS", ["logS"]),
        ("clearance_hepatocyte_az", ["clearance_", "hepatocyte_az"]),
        ("solubility in water (mol/L)", ["solubility in water", "(mol/L)"]),
        ("", [""]),
        ("[red]" + 21 * "x", ["[red]" + 15 * "x", 6 * "x"]),
    ],
)
def test_long_names_break_between_words(name, lines):
    values = {
        f"{key}_{at}": 0.1234 for key in ("nll", "brier", "ece") for at in ("before", "after")
    }
    text = shown(*uncertainty_tables({name: {"count": 9, **values}}, 0.9), width=73)
    heading, rows = re.fullmatch(r"(?s)(?:.*\n)?(.*labels.*?)\n(.*)", text).groups()
    found = [line[: heading.index("labels")].strip() for line in rows.splitlines()]
    assert found == lines


@pytest.mark.parametrize("split", ["random", "scaffold", None])
def test_leakage_and_coverage_are_told_beside_the_scores(split, tmp_path):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()[:41]
    parts = [line.rsplit(",", 1)[0] for line in lines[1:]]  # each molecule in all parts
    parts = [f"{line},{part}" for part in ("train", "val", "test") for line in parts]
    (tmp_path / "t.csv").write_text("\n".join([lines[0], *parts]) + "\n")
    data = {"split": split} if split else {"split_column": "split"}
    config = TrainConfig(
        str(tmp_path / "t.csv"),
        DataConfig(target_columns=("logS",), **data),
        NetworkConfig(width=8, heads=2, layers=1),
        SupervisedConfig(epochs=1, device="cpu"),
        gaussian_process=GaussianProcessConfig(predictor="network"),
        fine_tuning=FineTuningConfig(init_from="none"),
        report=ReportConfig(baselines=False, bootstrap=0),
    )
    run = train(config)
    text = " ".join(shown(score_table(score_run(run), run)).split())
    assert ("leakage: 40 of 40 test molecules" in text) == (split is None)
    assert ("coverage is not promised: the test rows are" in text) == (split != "random")


def test_a_mean_over_different_units_is_left_out():
    scores = {name: {"rmse": 1.0} for name in "ab"}
    metrics = {"test": scores, "test_mean": {"rmse": 1.0}}
    for units, rows in ((("", ""), 3), (("mg", "mg"), 3), (("mg", "mol"), 2)):
        tasks = [Task(name, unit=unit) for name, unit in zip("ab", units, strict=True)]
        (table,) = score_tables(tasks, metrics)
        assert len(table.rows) == rows
