from dataclasses import replace
from pathlib import Path

import pytest

from molattn.config import DataConfig
from molattn.evaluation.report.headline import make_headline
from molattn.evaluation.report.tables import proposed_folds
from molattn.evaluation.scores.metrics import TaskScores
from molattn.evaluation.scores.run_metrics import (
    CrossValidationMetrics,
    FinalMetrics,
    FoldMetrics,
    RunMetrics,
)
from molattn.task import Task

Y, CLASS = Task("y", unit="mg"), Task("toxic", "binary", ("no", "yes"))


def run_metrics(scores):
    return RunMetrics(scores={name: TaskScores(tasks, {}) for name, tasks in scores.items()})


def scores(value, low=None, high=None, count=30):
    intervals = low and {"rmse": [low, high]}
    return {"y": {"count": count, "rmse": value, "intervals": intervals}}


@pytest.mark.parametrize(
    "own, forest, words",
    [
        (scores(0.5, 0.4, 0.6), 0.7, "is better than the random forest (RMSE 0.700, outside"),
        (scores(0.5, 0.4, 0.6), 0.55, "but not clearly, as that is within"),
        (scores(0.5, 0.4, 0.6), 0.3, "is not better than the random forest"),
    ],
)
def test_the_conclusion_compares_with_the_forest_and_its_distance_with_the_interval(
    own, forest, words
):
    metrics = {"test": own, "random_forest": scores(forest), "baseline": scores(2.0)}
    headline = make_headline([Y], run_metrics(metrics), Path("runs/solubility"))
    assert words in headline.conclusion
    assert headline.scores == [("RMSE, y (mg)", "0.500 (95% CI 0.400 to 0.600)")]
    assert headline.command.startswith("molattn predict runs/solubility molecules.csv ")


def test_a_logarithm_has_its_scores_ratios_and_censored_labels_in_the_headline():
    def on_log10(error, permitted):
        names = ("rmse", "log10_rmse", "median_fold_error", "within_2_fold", "within_3_fold")
        values = dict(zip(names, (1000.0 / error, error, 2.17, 0.48, 0.7), strict=True))
        censored = {"censored_permitted": permitted, "log10_censored_rmse": 2 * error}
        intervals = {"log10_rmse": [0.4, 0.5]}
        return {"y": {"count": 49, **values, **censored, "intervals": intervals}}

    metrics = run_metrics({"test": on_log10(0.433, 0.75), "random_forest": on_log10(0.561, 0.0)})
    headline = make_headline([Y], metrics, Path("a"))
    assert headline.scores == [
        ("log10 RMSE, y (mg)", "0.433 (95% CI 0.400 to 0.500)"),
        ("median fold error", "2.17"),
        ("within 2-fold", "0.480"),
        ("within 3-fold", "0.700"),
    ]
    assert "is better than the random forest (log10 RMSE 0.561, outside" in headline.conclusion
    assert "random forest: 0.750 and 0.000 (log10 RMSE to the limit 0.866 and 1.12)" in (
        headline.conclusion
    )


def test_a_higher_auc_is_better_and_tasks_are_counted():
    toxic = {"count": 40, "roc_auc": 0.8, "intervals": {"roc_auc": [0.7, 0.9]}}
    own = {**scores(0.5, 0.4, 0.6), "toxic": toxic}
    constant = {**scores(0.55), "toxic": {"roc_auc": 0.5}}
    headline = make_headline(
        [Y, CLASS], run_metrics({"test": own, "baseline": constant}), Path("a.unfinished")
    )
    words = "Better than the constant baseline in 2 of 2 tasks, clearly in 1."
    assert headline.conclusion == words
    assert headline.command.split()[2] == "a"


def test_a_headline_of_few_labels_says_so():
    few = {**scores(0.5, count=4), "toxic": {"count": 29, "roc_auc": 0.8}}
    forest = {**scores(0.6), "toxic": {"roc_auc": 0.5}}
    metrics = run_metrics({"test": few, "random_forest": forest})
    conclusion = make_headline([Y, CLASS], metrics, Path("a")).conclusion
    words = "Scores of fewer than 30 labels depend much on chance: 4 of 'y', 29 of 'toxic'."
    assert conclusion.endswith(words)


def test_labels_of_all_folds_count():
    tested = [
        FoldMetrics(scores={"test": TaskScores(scores(0.5, count=20), {})}, repeat=repeat)
        for repeat in (1, 1, 2, 2)
    ]
    mean = {"y": {"rmse": {"mean": 0.5, "sd": 0.1, "rounds": 4}}}
    summary = CrossValidationMetrics(scores={"test": TaskScores(mean, {})}, folds=tested)
    assert "fewer than 30" not in make_headline([Y], summary, Path("cv")).conclusion
    summary = replace(summary, folds=tested[1:])
    assert "chance: 20 of 'y'." in make_headline([Y], summary, Path("cv")).conclusion


@pytest.mark.parametrize(
    "used, tested, options, proposed",
    [
        (299, 100, {}, "--folds 5 --validation-size 0 tests"),
        (990, 99, {}, "--folds 5 --validation-size 0 tests"),
        (299, 100, {"split": "time"}, "--folds 5 tests"),
        (299, 0, {"test_size": 0.0}, "test: 0"),
        (1000, 100, {}, ""),
        (1000, 0, {"test_size": 0.0}, ""),
        (50, 10, {"folds": 5}, ""),
        (50, 10, {"split_column": "set"}, ""),
    ],
)
def test_a_run_of_few_rows_proposes_folds(used, tested, options, proposed):
    run = RunMetrics(rows_used=used, rows_test=tested)
    line = proposed_folds(run, DataConfig(**options))
    assert proposed in line
    assert bool(line) == bool(proposed)


@pytest.mark.parametrize(
    "output, path",
    [
        ("runs/a", "runs/a"),
        ("../runs/a.unfinished", "../runs/a"),
        ("{root}/work/a", "a"),
        ("{root}/other runs/a", "'{root}/other runs/a'"),
    ],
)
def test_the_command_of_a_report_works_where_the_run_was_started(
    tmp_path, monkeypatch, output, path
):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    metrics = run_metrics({"test": scores(0.5)})
    command = make_headline([Y], metrics, Path(output.format(root=tmp_path))).command
    expected = (
        f"molattn predict {path.format(root=tmp_path)} molecules.csv --output predictions.csv"
    )
    assert command == expected


def test_without_a_final_model_a_cross_validation_has_no_command():
    mean = {"y": {"count": 30, "rmse": {"mean": 0.5, "sd": 0.1, "rounds": 3}}}
    other = {"y": {"rmse": {"mean": 0.6, "sd": 0.1, "rounds": 3}}}
    metrics = CrossValidationMetrics(
        scores={"test": TaskScores(mean, {}), "random_forest": TaskScores(other, {})}
    )
    headline = make_headline([Y], metrics, Path("cv"))
    assert headline.conclusion.startswith("On average over the folds, the model is better")
    assert headline.command == ""
    final = FinalMetrics(30, [], 0.9, {}, 1.0)
    assert make_headline([Y], replace(metrics, final=final), Path("cv")).command
    assert (
        "slightly too good"
        in make_headline([Y], run_metrics({"validation": mean}), Path("v")).conclusion
    )
