import io

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
from molattn.evaluation.run_files import run_metrics
from molattn.evaluation.scoring import score_run
from molattn.evaluation.tables import print_scores, score_tables
from molattn.task import Task
from molattn.training.run import train

COVERAGE = {
    "count": 20,
    "coverage": 0.8,
    "coverage_expected": 0.91,
    "coverage_sd": 0.1,
    "mean_width": 1.0,
}
NO_LEAKAGE = {"shared_test": 0, "pretrained_test": 0, "test_molecules": 9}


def shown(metrics, config, width=80):
    console = Console(file=io.StringIO(), width=width)
    print_scores(metrics, config, console)
    return console.file.getvalue()


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("split", ["random", "scaffold"])
def test_tables_fit_80_columns_and_say_what_is_promised(kind, split):
    task = Task("y") if kind == "regression" else Task("y", "binary", ("n", "y"))
    rng = np.random.default_rng(0)
    prediction, target = rng.random((20, 1)), rng.integers(0, 2, (20, 1)).astype(float)
    scores = score_tasks(prediction, target, [task], resamples=100).tasks
    calibrated = {
        f"{key}_{when}": scores["y"].get(key)
        for key in ("nll", "brier", "ece")
        for when in ("before", "after")
    }
    metrics = {
        **dict.fromkeys(("test", "random_forest", "baseline"), scores),
        "tasks": [task.to_dict()],
        "leakage": NO_LEAKAGE,
        "uncertainty": {"y": COVERAGE if kind == "regression" else {"count": 20, **calibrated}},
    }
    data = DataConfig(split=split)
    text = shown(metrics, TrainConfig("t.csv", data, NetworkConfig(), SupervisedConfig()))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    assert text.count("95% CI") == 1
    if kind == "regression":
        assert ("0.910 ± 0.200" in text) == (split == "random")
        assert ("not promised" in text) == (split == "scaffold")
        assert "0.800" in text
    else:
        assert "calibration: before → after" in text


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
    text = " ".join(shown(run_metrics(run, score_run(run)), config).split())
    assert ("leakage: 40 of 40 test molecules" in text) == (split is None)
    assert ("coverage is not promised: the test rows are" in text) == (split != "random")


def test_a_mean_over_different_units_is_left_out():
    scores = {name: {"rmse": 1.0} for name in "ab"}
    metrics = {"test": scores, "test_mean": {"rmse": 1.0}}
    for units, rows in ((("", ""), 3), (("mg", "mg"), 3), (("mg", "mol"), 2)):
        tasks = [Task(name, unit=unit) for name, unit in zip("ab", units, strict=True)]
        (table,) = score_tables(tasks, metrics)
        assert len(table.rows) == rows
