import copy
import csv
import io
import json
import struct
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from rich.console import Console
from sklearn.metrics import r2_score, roc_auc_score

from molattn.cli import main
from molattn.config import (
    DataConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.config.yaml_file import read_config_file
from molattn.evaluation.run_files import run_metrics, write_run
from molattn.evaluation.scoring import score_run
from molattn.evaluation.tables import print_scores
from molattn.model.model import MolAttn
from molattn.model.uncertainty import Calibration, ProbabilityScaling, Uncertainty
from molattn.training.run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "two targets.csv"
    rows = "".join(f"m{n},{'C' * n},{n},{n * n if n % 3 else ''}\n" for n in range(1, 31))
    path.write_text(f"name,smiles,y,$z_1\n{rows}bad,nonsense,1,1\n")
    data = DataConfig(
        target_columns=("y", "$z_1"), target_units=("mg", ""), validation_size=0.2, test_size=0.2
    )
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    quick = SupervisedConfig(epochs=2, batch_size=8, device="cpu", seed=4)
    return train(TrainConfig(str(path), data, small, quick))


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(run, score_run(run), folder)
    return folder


@pytest.fixture(scope="module")
def classes_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "classes.csv"
    colors = ["red", "green", "blue", ""]
    rows = "".join(
        f"{'C' * (n % 40 + 1)}{'O' * (n % 2)},{n % 2},{colors[n % 4]}\n" for n in range(60)
    )
    path.write_text(f"smiles,b,c\n{rows}")
    data = DataConfig(
        target_columns=("b", "c"),
        task=("binary", "multiclass"),
        validation_size=0.2,
        test_size=0.3,
    )
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    quick = SupervisedConfig(epochs=2, batch_size=8, device="cpu", balance_classes=True)
    run = train(TrainConfig(str(path), data, small, quick, ReportConfig(bootstrap=200)))
    return run, score_run(run)


@pytest.fixture(scope="module")
def classes_folder(classes_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    write_run(*classes_run, folder)
    return folder


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def printed(scores, run):
    """What is printed of a run."""
    console = Console(file=io.StringIO(), width=100)
    print_scores(run_metrics(run, scores), run.config, console)
    return console.file.getvalue()


def test_the_model_card_names_properties_and_test_scores(folder, classes_folder):
    for run in (folder, classes_folder):
        test = json.loads((run / "metrics.json").read_text())["test"]
        card = (run / "model" / "README.md").read_text(encoding="utf-8")
        for name, scores in test.items():
            (line,) = (line for line in card.splitlines() if line.startswith(f"- `{name}`: "))
            main = "rmse" if "rmse" in scores else "roc_auc" if "roc_auc" in scores else "accuracy"
            assert f" {scores[main]:.3f}" in line
            assert line.endswith(f" on {scores['count']} test molecules")
    card = (folder / "model" / "README.md").read_text(encoding="utf-8")
    assert "- `y`: mg; regression; RMSE " in card
    card = (classes_folder / "model" / "README.md").read_text(encoding="utf-8")
    assert "- `c`: multiclass; blue, green, red; " in card


def test_the_model_left_behind_is_the_model_that_was_scored(run, folder):
    rows = table(folder / "predictions.csv")
    again = MolAttn.from_pretrained(folder / "model").predict([row["smiles"] for row in rows])
    written = [[float(row["y_predicted"]), float(row["$z_1_predicted"])] for row in rows]
    np.testing.assert_allclose(written, again, rtol=1e-5, atol=1e-5)


def test_scores_are_made_with_the_threads_of_the_run(run, monkeypatch):
    predict, seen = MolAttn.network_outputs, []

    def predicting(self, *rest, **options):
        seen.append(torch.get_num_threads())
        return predict(self, *rest, **options)

    monkeypatch.setattr(MolAttn, "network_outputs", predicting)
    two = replace(run.config.training, threads=2)
    report = replace(run.config.report, baselines=False, bootstrap=0)
    score_run(replace(run, config=replace(run.config, training=two, report=report)))
    assert seen == [2]
    train(replace(run.config, training=two))  # the validation rows
    assert seen == [2, 2]
    assert torch.get_num_threads() == 1


def test_predictions_are_those_of_the_test_rows(run, folder):
    rows = table(folder / "predictions.csv")
    assert [row["name"] for row in rows] == [f"m{n + 1}" for n in run.parts.test]
    assert {row["split"] for row in rows} == {"test"}
    assert list(rows[0])[:4] == ["name", "smiles", "y", "$z_1"]


def test_metrics_follow_from_the_predictions(run, folder):
    rows = table(folder / "predictions.csv")
    metrics = json.loads((folder / "metrics.json").read_text())
    truth = np.array([float(row["y"]) for row in rows])
    guess = np.array([float(row["y_predicted"]) for row in rows])
    test, baseline = metrics["test"]["y"], metrics["baseline"]["y"]
    assert test["rmse"] == pytest.approx(np.sqrt(np.mean((truth - guess) ** 2)), rel=1e-4)
    assert test["mae"] == pytest.approx(np.mean(np.abs(truth - guess)), rel=1e-4)
    assert test["r2"] == pytest.approx(r2_score(truth, guess), rel=1e-3)
    mean = run.table.targets[run.parts.train, 0].mean()
    assert baseline["mae"] == pytest.approx(np.mean(np.abs(truth - mean)))
    assert metrics["test"]["$z_1"]["count"] == sum(row["$z_1"] != "" for row in rows)
    assert metrics["test_mean"]["rmse"] == pytest.approx(
        (test["rmse"] + metrics["test"]["$z_1"]["rmse"]) / 2
    )


def test_metrics_count_rows_and_name_what_made_them(run, folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    counts = ("rows_in", "rows_used", "rows_skipped", "rows_train", "rows_validation", "rows_test")
    assert [metrics[count] for count in counts] == [31, 30, 1, 18, 6, 6]
    assert metrics["seed"] == 4
    assert metrics["leakage"]["shared_test"] == 0
    assert metrics["leakage"]["test_molecules"] == 6
    assert metrics["data_sha256"] == sha256(Path(run.config.file).read_bytes()).hexdigest()
    assert [(task["name"], task["unit"]) for task in metrics["tasks"]] == [
        ("y", "mg"),
        ("$z_1", ""),
    ]
    assert {"molattn", "torch", "rdkit", "python"} <= set(metrics["versions"])


def test_the_config_says_what_was_asked_for(run, folder):
    written = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    assert written == run.config.to_dict()
    assert TrainConfig.from_dict(read_config_file(folder / "config.yaml")) == run.config


def test_history_and_skipped_rows_are_tables(run, folder):
    history = table(folder / "history.csv")
    assert [float(row["validation_loss"]) for row in history] == [
        epoch.validation_loss for epoch in run.histories[0].epochs
    ]
    (skipped,) = table(folder / "skipped.csv")
    assert (skipped["line"], skipped["smiles"]) == ("32", "nonsense")
    assert skipped["code"]
    assert skipped["reason"]


def test_uncertainty_of_numbers_follows_from_the_predictions(run, folder):
    rows = table(folder / "predictions.csv")
    metrics = json.loads((folder / "metrics.json").read_text())
    found = metrics["uncertainty"]["y"]
    assert found["coverage"] is None  # 6 validation rows are too few for 0.9
    assert "no 0.9 interval: calibrated on 6 labels" in found["undefined"]
    assert {row["y_low"] for row in rows} == {""}
    assert list(found["coverage_at"]) == ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8"]
    low, high = run.model.predict_interval([row["smiles"] for row in rows], 0.8)
    truth = np.array([float(row["y"]) for row in rows])
    inside = (low[:, 0] <= truth) & (truth <= high[:, 0])
    assert found["coverage_at"]["0.8"] == pytest.approx(inside.mean())
    similarity = run.model.training_similarity([row["smiles"] for row in rows])
    written = [float(row["training_similarity"]) for row in rows]
    np.testing.assert_allclose(written, similarity, rtol=1e-6)


def test_the_level_of_the_intervals_is_an_option(run, tmp_path):
    config = replace(run.config, report=ReportConfig(False, bootstrap=0, interval=0.5))
    other = replace(run, config=config)
    scores = score_run(other)
    write_run(other, scores, tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["interval_level"] == 0.5
    found = metrics["uncertainty"]["y"]
    assert found["coverage"] == found["coverage_at"]["0.5"]
    rows = table(tmp_path / "predictions.csv")
    widths = [float(row["y_high"]) - float(row["y_low"]) for row in rows]
    assert found["mean_width"] == pytest.approx(np.mean(widths), rel=1e-4)
    shown = printed(scores, other)
    assert "50% PI coverage" in shown


def test_rows_without_a_finite_prediction_are_not_scored(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(
        f"{'C' * n},{n},{n % 2},{feature},{'test' if n < 9 else 'train'}\n"
        for n in range(1, 31)
        for feature in (1e30 if n in (3, 5) else n * 1e-10,)
    )
    path.write_text(f"smiles,y,c,f,part\n{rows}")
    data = DataConfig(target_columns=("y", "c"), feature_columns=("f",), split_column="part")
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    quick = SupervisedConfig(epochs=2, batch_size=8, device="cpu")
    config = TrainConfig(str(path), data, small, quick, ReportConfig(bootstrap=50))
    shown = io.StringIO()
    run = train(config)
    scores = score_run(run, Console(file=shown, width=200))
    assert "not scored, without a finite prediction: 2 test rows" in shown.getvalue()
    assert {scores.test.tasks[name]["count"] for name in ("y", "c")} == {6}
    assert scores.uncertainty["y"]["count"] == 6
    assert {one.tasks["y"]["count"] for one in scores.baselines.values()} == {6}
    write_run(run, scores, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["rows_test_not_finite"] == 2
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Test rows without a finite prediction, which are not scored: 2." in page
    written = table(tmp_path / "run" / "predictions.csv")
    assert [row["smiles"] for row in written if not row["y_predicted"]] == ["CCC", "CCCCC"]
    assert all(not row["c_predicted"] for row in written if not row["y_predicted"])


def test_formulas_of_a_spreadsheet_are_escaped_in_the_predictions(run, tmp_path):
    rows = [row._replace(cells=["=1+1|cmd", *row.cells[1:]]) for row in run.table.rows]
    config = replace(run.config, report=ReportConfig(False, bootstrap=0))
    header = ["@name", *run.table.header[1:]]
    other = replace(run, config=config, table=replace(run.table, header=header, rows=rows))
    write_run(other, score_run(other), tmp_path)
    written = table(tmp_path / "predictions.csv")
    assert {row["'@name"] for row in written} == {"'=1+1|cmd"}
    assert {row["smiles"] for row in written} <= {row.cells[1] for row in rows}


def test_uncertainty_of_classes_is_told_before_and_after(classes_run, classes_folder):
    metrics = json.loads((classes_folder / "metrics.json").read_text())
    for name in ("b", "c"):  # with too few labels
        assert "not calibrated" in metrics["uncertainty"][name]["undefined"]
    assert classes_run[0].model.uncertainty.calibration.shortfalls(0.9) == [
        f"'{name}': probabilities not calibrated: {count} labels, at least 30 needed"
        for name, count in (("b", 12), ("c", 9))
    ]
    page = (classes_folder / "report.html").read_text(encoding="utf-8")
    assert page.count("labels, at least 30 needed.</p>") == 2
    model, known = copy.deepcopy(classes_run[0].model), classes_run[0].model.uncertainty
    parts = tuple(
        ProbabilityScaling(0.5, (0.0,) * len(task.classes)) for task in model.config.tasks
    )
    calibration = Calibration(model.config.tasks, parts)
    model.uncertainty = Uncertainty(calibration, known.molecules)
    run = replace(classes_run[0], model=model)
    scores = score_run(run)
    for name in ("b", "c"):
        found = scores.uncertainty[name]
        for key in ("nll", "brier", "ece"):
            assert found[f"{key}_after"] == scores.test.tasks[name][key]
        assert found["nll_before"] == metrics["test"][name]["nll"] != found["nll_after"]
    rows = table(classes_folder / "predictions.csv")
    assert {"training_similarity", "b_probability"} <= set(rows[0])
    assert not {"b_low", "b_std"} & set(rows[0])
    assert calibration.shortfalls(0.9) == []
    assert "calibration: before → after" not in printed(classes_run[1], classes_run[0])
    assert "calibration: before → after" in printed(scores, run)


def test_plots_are_png_pictures_of_readable_size(folder, classes_folder):
    for path in (
        folder / "learning_curve.png",
        folder / "parity.png",
        folder / "coverage.png",
        folder / "similarity.png",
        classes_folder / "roc_pr.png",
        classes_folder / "calibration.png",
    ):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert min(width, height) >= 500
    assert not (folder / "roc_pr.png").exists()
    assert not (classes_folder / "parity.png").exists()


def test_scores_of_classes_follow_from_the_predictions(classes_run, classes_folder):
    run, scores = classes_run
    metrics = json.loads((classes_folder / "metrics.json").read_text())
    truth = run.table.targets[run.parts.test]
    assert metrics["test"]["b"]["roc_auc"] == pytest.approx(
        roc_auc_score(truth[:, 0], scores.prediction.prediction[:, 0])
    )
    assert metrics["test"]["c"]["count"] == np.sum(~np.isnan(truth[:, 1]))
    assert metrics["tasks"][1]["classes"] == ["blue", "green", "red"]
    share = np.nanmean(run.table.targets[run.parts.train, 0])
    assert metrics["baseline"]["b"]["brier"] == pytest.approx(np.mean((truth[:, 0] - share) ** 2))
    assert metrics["random_forest_seconds"] > 0.0
    low, high = metrics["test"]["b"]["intervals"]["brier"]
    assert low < metrics["test"]["b"]["brier"] < high


def test_an_ensemble_is_scored_beside_its_members(run, tmp_path):
    config = replace(
        run.config,
        training=replace(run.config.training, ensemble=2),
        report=ReportConfig(baselines=False, bootstrap=100),
    )
    both = train(config)
    scores = score_run(both)
    write_run(both, scores, tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    first, second = metrics["members"]
    assert (first["seed"], second["seed"]) == (4, 5)
    rows = table(tmp_path / "predictions.csv")
    truth = np.array([float(row["y"]) for row in rows])
    apart = MolAttn.from_pretrained(tmp_path).predict([row["smiles"] for row in rows], members=True)
    for one, guess in zip((first, second), apart[:, :, 0], strict=True):
        rmse = np.sqrt(np.mean((truth - guess) ** 2))
        assert one["test"]["y"]["rmse"] == pytest.approx(rmse, rel=1e-4)
    guess = apart[:, :, 0].mean(axis=0)
    rmse = np.sqrt(np.mean((truth - guess) ** 2))
    assert metrics["test"]["y"]["rmse"] == pytest.approx(rmse, rel=1e-4)
    mean = (first["test"]["y"]["rmse"] + second["test"]["y"]["rmse"]) / 2
    assert metrics["member"]["y"]["rmse"] == pytest.approx(mean)
    for n, history in enumerate(both.histories):
        written = table(tmp_path / f"member_{n + 1}" / "history.csv")
        assert [float(row["train_loss"]) for row in written] == [
            epoch.train_loss for epoch in history.epochs
        ]
    shown = printed(scores, both)
    lines = [line.split() for line in shown.splitlines()]
    assert ["single", "model", f"{mean:.3f}", "-"] in [line[:4] for line in lines]


def test_the_table_of_scores_has_every_model(run, classes_run):
    scores = score_run(run)
    for given, of, words in (
        (scores, run, ["RMSE", "95% CI", "mean baseline", "random forest", "y (mg)"]),
        (classes_run[1], classes_run[0], ["ROC-AUC", "ECE", "class prior", "mean over tasks"]),
    ):
        shown = printed(given, of)
        assert [word for word in words if word not in shown] == []
    test = classes_run[1].test.tasks["b"]
    assert f"{test['roc_auc']:.3f}" in shown


def test_baselines_and_intervals_are_left_out_on_demand(run, tmp_path):
    config = replace(run.config, report=ReportConfig(baselines=False, bootstrap=0))
    bare = replace(run, config=config)
    scores = score_run(bare)
    write_run(bare, scores, tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert not {"baseline", "random_forest"} & set(metrics)
    assert metrics["test"]["y"]["intervals"] == {}
    shown = printed(scores, bare)
    assert "95" not in shown.split("RMSE")[1].splitlines()[0]


def test_a_name_that_is_no_text_of_the_font_is_drawn_without_a_warning(run, tmp_path):
    odd = tuple(replace(task, unit="溶解度") for task in run.table.tasks)
    odd_run = replace(run, table=replace(run.table, tasks=odd))
    write_run(odd_run, score_run(run), tmp_path)
    assert (tmp_path / "parity.png").exists()


WITHOUT_TEST = (
    "--target-columns y b c --epochs 2 --batch-size 8 --width 8 --heads 2 --layers 1 --ensemble 2 "
    "--validation-size 0.3 --device cpu --init-from none"
).split()


@pytest.fixture
def without_test(tmp_path, monkeypatch):
    """A table of each kind of target, whose split column marks no test row."""
    monkeypatch.chdir(tmp_path)
    cells = ((n % 30 + 1, n, n % 2, "pqr"[n % 3], "val" if n % 4 else "train") for n in range(40))
    rows = (f"{'C' * size}{'ON'[n % 2]},{n},{b},{c},{part}\n" for size, n, b, c, part in cells)
    (tmp_path / "t.csv").write_text("smiles,y,b,c,part\n" + "".join(rows))
    return tmp_path


@pytest.mark.parametrize("options", [["--test-size", "0"], ["--split-column", "part"]])
def test_without_test_rows_a_run_is_scored_by_its_validation_rows(without_test, capsys, options):
    words = ["train", "t.csv", *WITHOUT_TEST, "--output", "run", *options]
    if "--split-column" in options:
        place = words.index("--validation-size")
        del words[place : place + 2]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "no test rows: the model gets no test score" in shown
    assert "validation scores" in shown
    assert "test scores" not in shown
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["rows_test"] == 0
    assert metrics["rows_train"] + metrics["rows_validation"] == 40
    assert {"test", "test_mean", "baseline", "random_forest"}.isdisjoint(metrics)
    assert metrics["leakage"]["median_similarity"] is None
    score = f"{metrics['validation']['y']['rmse']:.3f}"
    assert score in shown
    card = Path("run/model/README.md").read_text()
    count = metrics["rows_validation"]
    assert f"RMSE {score}" in card
    assert f"on {count} validation molecules (there was no test)" in card
    page = Path("run/report.html").read_text()
    assert f"Scores on the {count} validation rows" in page
    assert "There were no test rows, so the model has no test score" in page
    assert "There are no test rows on which it could be measured" in page
    assert table(Path("run/predictions.csv")) == []
    assert sorted(path.name for path in Path("run").glob("*.png")) == ["learning_curve.png"]
    assert main(["predict", "run", "t.csv", "--output", "out.csv"]) == 0
    assert all(row["y_low"] for row in table(Path("out.csv")))
