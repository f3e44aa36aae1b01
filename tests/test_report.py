import csv
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import yaml
from sklearn.metrics import r2_score

from molattn.config import ArchitectureConfig, DataConfig, OptimisationConfig, TrainConfig
from molattn.errors import InputError
from molattn.model import MolAttn
from molattn.optimise import Epoch, History
from molattn.report import learning_curve, parity_plot, run_folder, score_run, write_run
from molattn.training import train

nan = float("nan")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "two targets.csv"
    rows = "".join(f"m{n},{'C' * n},{n},{n * n if n % 3 else ''}\n" for n in range(1, 31))
    path.write_text(f"name,smiles,y,$z_1\n{rows}bad,nonsense,1,1\n")
    data = DataConfig(
        target_columns=("y", "$z_1"), target_units=("mg", ""), validation_size=0.2, test_size=0.2
    )
    small = ArchitectureConfig(width=8, heads=2, layers=1, edge_width=4)
    quick = OptimisationConfig(epochs=2, batch_size=8, device="cpu", seed=4)
    return train(TrainConfig(str(path), data, small, quick))


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(run, score_run(run), folder)
    return folder


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_model_left_behind_is_the_model_that_was_scored(run, folder):
    rows = table(folder / "predictions.csv")
    again = MolAttn.from_pretrained(folder / "model").predict([row["smiles"] for row in rows])
    written = [[float(row["y_predicted"]), float(row["$z_1_predicted"])] for row in rows]
    np.testing.assert_allclose(written, again, rtol=1e-5, atol=1e-5)


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


def test_metrics_count_rows_and_name_what_made_them(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    counts = ("rows_in", "rows_used", "rows_skipped", "rows_train", "rows_validation", "rows_test")
    assert [metrics[count] for count in counts] == [31, 30, 1, 18, 6, 6]
    assert metrics["seed"] == 4
    assert metrics["units"] == {"y": "mg", "$z_1": ""}
    assert {"molattn", "torch", "rdkit", "python"} <= set(metrics["versions"])


def test_the_config_says_what_was_asked_for(run, folder):
    written = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    assert written == run.config.to_dict()


def test_history_and_skipped_rows_are_tables(run, folder):
    history = table(folder / "history.csv")
    assert [float(row["validation_loss"]) for row in history] == [
        epoch.validation_loss for epoch in run.history.epochs
    ]
    (skipped,) = table(folder / "skipped.csv")
    assert (skipped["line"], skipped["smiles"]) == ("32", "nonsense")
    assert skipped["code"]
    assert skipped["reason"]


def test_plots_are_png_pictures_of_readable_size(folder):
    for name in ("learning_curve.png", "parity.png"):
        content = (folder / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert min(width, height) >= 500


def test_the_parity_plot_shows_labelled_rows_with_names_units_and_scores():
    prediction = np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]])
    target = np.array([[1.5, nan], [2.0, 5.0], [nan, nan]])
    scores = {
        "y": {"rmse": 0.25, "mae": 0.2, "r2": 0.9, "count": 2},
        "$z_1": {"rmse": 2.0, "mae": 2.0, "r2": None, "count": 1},
    }
    figure = parity_plot(prediction, target, ["y", "$z_1"], ["mg", ""], scores)
    first, second = figure.axes
    assert first.collections[0].get_offsets().tolist() == [[1.5, 1.0], [2.0, 2.0]]
    assert second.collections[0].get_offsets().tolist() == [[5.0, 3.0]]
    assert (first.get_xlabel(), first.get_ylabel()) == ("measured y (mg)", "predicted y (mg)")
    assert second.get_xlabel() == r"measured \$z_1"
    assert first.get_title() == "RMSE 0.250   MAE 0.200   R² 0.900   n = 2"
    assert "R² -" in second.get_title()
    assert first.get_xlim() == first.get_ylim()


def test_the_learning_curve_shows_both_losses():
    epochs = [Epoch(1, 0.9, 0.8, 1e-3, 1.0), Epoch(2, 0.5, 0.6, 1e-3, 1.0)]
    (axes,) = learning_curve(History(epochs, best=2)).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines[:2]}
    assert drawn == {"training": [0.9, 0.5], "validation": [0.8, 0.6]}
    assert axes.get_xlabel() == "epoch"


def test_a_name_that_is_no_text_of_the_font_is_drawn_without_a_warning(run, tmp_path):
    odd = replace(run.config.data, target_units=("溶解度", ""))
    odd_run = replace(run, config=replace(run.config, data=odd))
    write_run(odd_run, score_run(run), tmp_path)
    assert (tmp_path / "parity.png").exists()


def test_a_run_folder_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "run"
    with pytest.raises(ZeroDivisionError), run_folder(path) as folder:
        (folder / "config.yaml").write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == []
    with run_folder(path) as folder:
        (folder / "config.yaml").write_text("1")
        assert not path.exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["run"]


def test_a_former_run_is_replaced_only_by_a_whole_one(tmp_path):
    path = tmp_path / "run"
    with run_folder(path) as folder:
        (folder / "config.yaml").write_text("1")
        (folder / "parity.png").write_text("1")
    with pytest.raises(ZeroDivisionError), run_folder(path) as folder:
        (folder / "config.yaml").write_text(str(1 / 0))
    assert (path / "config.yaml").read_text() == "1"
    with run_folder(path) as folder:
        (folder / "config.yaml").write_text("2")
    assert [entry.name for entry in path.iterdir()] == ["config.yaml"]
    assert (path / "config.yaml").read_text() == "2"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("files", [["thesis.tex"], ["config.yaml", "notes.txt"], ["parity.png"]])
def test_a_folder_of_anything_else_is_left_alone(tmp_path, files):
    path = tmp_path / "run"
    path.mkdir()
    for name in files:
        (path / name).write_text("mine")
    with pytest.raises(InputError, match="expected a new or empty folder"), run_folder(path):
        pass
    assert sorted(entry.name for entry in path.iterdir()) == sorted(files)


def test_a_place_that_cannot_hold_a_folder_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (file, file / "run", tmp_path / "link"):
        with pytest.raises(InputError), run_folder(path):
            pass
    assert file.read_text() == "mine"
