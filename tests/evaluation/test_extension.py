"""A metric added from outside of the package, as CONTRIBUTING.md shows."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from molattn.config import (
    DataConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.evaluation import METRICS, Metric, score_tasks
from molattn.evaluation.metrics import main_metric
from molattn.evaluation.run_files import write_run
from molattn.evaluation.scoring import score_run
from molattn.evaluation.tables import print_scores
from molattn.task import Task
from molattn.training.run import train


def mean_bias(target, prediction, weights):
    """Mean of prediction - target for each weighting of the rows."""
    return weights @ (prediction - target) / weights.sum(axis=1)


@pytest.fixture
def bias(monkeypatch):
    monkeypatch.setattr(METRICS, "_items", dict(METRICS))
    METRICS.register("bias")(Metric(mean_bias, kinds=("regression",), heading="Mean bias"))


def test_a_new_metric_is_in_all_results(bias, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * n},{n}\n" for n in range(1, 31)))
    data = DataConfig(target_columns=("y",), validation_size=0.2, test_size=0.2)
    network = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    options = SupervisedConfig(epochs=1, batch_size=8, device="cpu")
    run = train(TrainConfig(str(path), data, network, options, ReportConfig(bootstrap=100)))
    scores = score_run(run)
    written = write_run(run, scores, tmp_path)
    errors = scores.prediction.prediction[:, 0] - run.table.targets[run.parts.test, 0]

    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["test"]["y"]["bias"] == pytest.approx(np.mean(errors))
    low, high = metrics["test"]["y"]["intervals"]["bias"]
    assert low < metrics["test"]["y"]["bias"] < high
    assert "bias" in metrics["baseline"]["y"]
    assert "bias" in metrics["test_mean"]

    console = Console(file=io.StringIO(), width=100)
    print_scores(written, run.config, console)
    head, _, own, *_ = console.file.getvalue().splitlines()
    assert head.rstrip().endswith("Mean bias")
    assert own.split()[-1] == f"{np.mean(errors):.3f}"

    page = (tmp_path / "report.html").read_text()
    assert '<th scope="col" class="num">Mean bias</th>' in page
    assert f"{low:.3f} to {high:.3f}" in page
    assert "Lower is better: RMSE, MAE, Mean bias." in page


def test_a_new_metric_is_no_main_metric_and_other_kinds_do_not_have_it(bias):
    assert main_metric("regression")[0] == "rmse"
    scores = score_tasks(np.array([[0.2]]), np.array([[1.0]]), [Task("b", "binary", ("n", "y"))])
    assert "bias" not in scores.tasks["b"]
