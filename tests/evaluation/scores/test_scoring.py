"""Runs that learn concentrations as logarithms, beside their baselines."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from sklearn.ensemble import RandomForestRegressor

from molattn.config import TrainConfig
from molattn.evaluation.report.headline import make_headline
from molattn.evaluation.report.tables import confidence_remarks, print_scores
from molattn.evaluation.scores.run_metrics import RunMetrics
from molattn.evaluation.scores.scoring import score_run
from molattn.training.run import train

ENDS = ("O", "N", "c1ccccc1", "C1CCCC1", "Cl", "C#N")
OPTIONS = {
    **{
        "target_columns": ("ic50",),
        "target_units": ("µM",),
        "test_size": 0.3,
        "validation_size": 0.2,
    },
    **{"predictor": "gaussian_process", "kernels": ("atom_pairs",), "init_from": "none"},
    **{"device": "cpu", "seed": 1, "bootstrap": 50},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An additive log10 IC50, with labels above 1000 µM censored."""
    noise = np.random.default_rng(0).normal(0.0, 0.1, 120)
    lines = ["smiles,ic50"]
    for n in range(120):
        value = 10.0 ** (4.0 - 0.3 * (n // 6) + 0.4 * (n % 2) + noise[n])
        lines.append(f"{'C' * (n // 6 + 1)}{ENDS[n % 6]},{'>1000' if value > 1000 else value}")
    path = tmp_path_factory.mktemp("data") / "ic50.csv"
    path.write_text("\n".join(lines) + "\n")
    return train(TrainConfig.from_options(str(path), OPTIONS))


@pytest.fixture(scope="module")
def metrics(run):
    return score_run(run).metrics


def test_a_model_of_concentrations_is_better_than_the_forest_on_log10_and_says_so(run, metrics):
    assert metrics.target_transforms == {"ic50": "log transform"}
    own, forest = (metrics.scores[name].tasks["ic50"] for name in ("test", "random_forest"))
    assert own["log10_rmse"] < forest["log10_rmse"]
    headline = make_headline(run.table.tasks, metrics, Path("run"))
    assert headline.scores[0][0] == "log10 RMSE, ic50 (µM)"
    assert headline.conclusion.startswith(
        f"The model is better than the random forest (log10 RMSE {forest['log10_rmse']:.3f}"
    )
    assert "Predictions of censored labels on the right side" in headline.conclusion


def test_baselines_learn_logarithms(run, metrics):
    train_rows, test_rows = run.split.train, run.split.test
    targets = run.table.targets[:, 0]
    labeled = train_rows[~np.isnan(targets[train_rows])]
    measured = test_rows[~np.isnan(targets[test_rows])]
    errors = np.log10(targets[measured]) - np.log10(targets[labeled]).mean()
    constant = metrics.scores["baseline"].tasks["ic50"]
    assert constant["log10_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    forest = RandomForestRegressor(200, max_features=0.3, random_state=1)
    features = run.table.baseline_numbers
    forest.fit(features[labeled], np.log(targets[labeled]))
    errors = np.log10(targets[measured] / np.exp(forest.predict(features[measured])))
    found = metrics.scores["random_forest"].tasks["ic50"]
    assert found["log10_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)


def test_censored_labels_count_for_every_model(run, metrics):
    low, _ = run.table.bounds[:, run.split.test, 0]
    is_censored = ~np.isnan(low)
    smiles = [run.table.smiles[row] for row in run.split.test]
    predicted = run.model.predict(smiles)[is_censored, 0]
    below = np.log10(1000.0 / np.minimum(predicted, 1000.0))
    own = metrics.scores["test"].tasks["ic50"]
    assert own["censored_permitted"] == pytest.approx(np.mean(predicted >= 1000.0))
    error = np.sqrt(np.mean(below**2))
    assert own["log10_censored_rmse"] == pytest.approx(error, rel=1e-4)
    for name in ("baseline", "random_forest"):
        assert metrics.scores[name].tasks["ic50"]["censored_permitted"] == 0.0
    count = int(is_censored.sum())
    permitted = int((predicted >= 1000.0).sum())
    assert metrics.censored == {"ic50": {"count": count, "permitted": permitted}}


def test_errors_of_each_confidence_and_widths_are_on_log10(run, metrics):
    smiles = [run.table.smiles[row] for row in run.split.test]
    targets = run.table.targets[run.split.test, 0]
    errors = np.abs(np.log10(run.model.predict(smiles)[:, 0] / targets))
    grades = metrics.confidence["ic50"].values()
    total = sum(grade["count"] * grade["log10_error"] for grade in grades)
    assert total == pytest.approx(np.nansum(errors), rel=1e-4)
    low, high = run.model.predict_interval(smiles, level=0.9)
    widths = np.log10(high / low)[~np.isnan(targets), 0]
    assert metrics.uncertainty["ic50"]["log10_mean_width"] == pytest.approx(widths.mean(), rel=1e-4)


@pytest.mark.parametrize(
    "errors, line",
    [
        ({"high": 1.0, "medium": 2.0, "low": 3.0}, None),
        ({"low": 3.0}, "'ic50': all 20 test rows have the confidence low, so it says little"),
        (
            {"high": 2.0, "medium": 1.0},
            "'ic50': errors do not rise from high to medium, so the confidence says little",
        ),
    ],
)
def test_a_report_says_if_its_grades_do_not_tell_rows_apart(metrics, errors, line):
    grades = {name: {"count": 20, "error": error} for name, error in errors.items()}
    found = confidence_remarks(replace(metrics, confidence={"ic50": grades}))
    assert [*found] == ([line] if line else [])
    few = {name: {**scores, "count": 19} for name, scores in grades.items()}
    assert not [*confidence_remarks(replace(metrics, confidence={"ic50": few}))]


def test_tables_have_one_scale_and_fit_80_columns(run, metrics):
    console = Console(file=io.StringIO(), width=80)
    print_scores(metrics, run.config, console)
    shown = console.file.getvalue()
    titles = ["test log10 scores", "test fold errors", "test scores of censored labels"]
    assert [title for title in titles if title not in shown] == []
    assert "test scores " not in shown.replace("test scores of", "")
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown


def test_metrics_of_runs_before_log10_can_be_read(metrics):
    content = json.loads(json.dumps(metrics.to_dict()))
    scores = {key: value for key, value in content["test"]["ic50"].items() if "log10" not in key}
    old = RunMetrics.from_dict({**content, "test": {"ic50": scores}, "uncertainty": {}})
    assert old.logarithms == ["ic50"]
    assert "log10_rmse" not in old.scores["test"].tasks["ic50"]
