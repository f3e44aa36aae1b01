import json
from pathlib import Path

import numpy as np
import pytest

from molattn.cli import main
from molattn.config import (
    ArchitectureConfig,
    DataConfig,
    OptimisationConfig,
    ReportConfig,
    TrainConfig,
)
from molattn.cross_validation import cross_validate, rounds, summary_table
from molattn.errors import InputError
from molattn.predict import predict_table
from molattn.table import open_table
from molattn.training import train

SMALL = ArchitectureConfig(width=8, heads=2, layers=1, edge_width=4)
QUICK = OptimisationConfig(epochs=1, batch_size=16, device="cpu", seed=7)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "t.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * n}O,{n}.5\n" for n in range(1, 31)))
    data = DataConfig(target_columns=("y",), folds=3)
    return TrainConfig(str(path), data, SMALL, QUICK, ReportConfig(bootstrap=0))


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    cross_validate(config, folder)
    return folder


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_each_repetition_has_the_next_seed(config):
    twice = TrainConfig(config.file, DataConfig(folds=2, repeats=2), SMALL, QUICK)
    found = [
        (one.name, one.config.data.fold, one.config.data.repeats, one.config.optimisation.seed)
        for one in rounds(twice)
    ]
    assert found == [
        ("repeat_1_fold_1", 1, 1, 7),
        ("repeat_1_fold_2", 2, 1, 7),
        ("repeat_2_fold_1", 1, 1, 8),
        ("repeat_2_fold_2", 2, 1, 8),
    ]


def test_every_row_is_tested_once_by_the_model_of_its_round(folder, tmp_path):
    table = open_table(folder / "predictions.csv")
    assert table.header == ["smiles", "y", "y_predicted", "split", "round"]
    rows = list(table)
    assert sorted(float(row.cells[1]) for row in rows) == [n + 0.5 for n in range(1, 31)]
    mine = [row.cells for row in rows if row.cells[4] == "fold_2"]
    source = tmp_path / "in.csv"
    source.write_text("smiles\n" + "".join(f"{cells[0]}\n" for cells in mine))
    predict_table(folder / "fold_2", source, tmp_path / "out.csv")
    again = [float(row.cells[1]) for row in open_table(tmp_path / "out.csv")]
    np.testing.assert_allclose(again, [float(cells[2]) for cells in mine], rtol=1e-5)


def test_scores_are_means_and_standard_deviations_of_the_rounds(folder):
    metrics = metrics_of(folder)
    assert [one["folder"] for one in metrics["folds"]] == ["fold_1", "fold_2", "fold_3"]
    own = [metrics_of(folder / name) for name in ("fold_1", "fold_2", "fold_3")]
    assert [one["test"] for one in metrics["folds"]] == [one["test"] for one in own]
    for judged in ("test", "baseline", "random_forest"):
        values = [one[judged]["y"]["rmse"] for one in own]
        found = metrics[judged]["y"]["rmse"]
        assert found["mean"] == pytest.approx(np.mean(values))
        assert found["sd"] == pytest.approx(np.std(values, ddof=1))
        assert found["rounds"] == 3
    shown = summary_table(metrics)
    assert next(iter(shown.columns[3].cells)) == f"{metrics['test']['y']['rmse']['mean']:.3f}"


def test_a_round_alone_is_the_same_run(folder):
    options = folder / "fold_2" / "config.yaml"
    assert main(["train", "--config", str(options), "--output", "alone"]) == 0
    one, alone = (metrics_of(place)["test"]["y"] for place in (folder / "fold_2", Path("alone")))
    assert one == alone
    assert one != metrics_of(folder / "fold_1")["test"]["y"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_command_goes_on_where_it_was_interrupted(config, tmp_path, monkeypatch, capsys):
    words = f"{config.file} --target-columns y --folds 2 --repeats 2 --output cv --epochs 1"
    words += " --width 8 --heads 2 --layers 1 --no-baselines --bootstrap 0"
    trained = []

    def interrupted(config, *rest):
        trained.append(config.data.fold)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return train(config, *rest)

    monkeypatch.setattr("molattn.cross_validation.train", interrupted)
    assert main(["train", *words.split()]) == 130
    assert "--resume cv" in capsys.readouterr().err
    assert not (tmp_path / "cv").exists()
    assert main(["train", "--resume", "cv"]) == 0
    assert trained == [1, 2, 2, 1, 2]
    assert sorted(path.name for path in (tmp_path / "cv").iterdir()) == [
        "config.yaml",
        "metrics.json",
        "predictions.csv",
        *(f"repeat_{repeat}_fold_{fold}" for repeat in (1, 2) for fold in (1, 2)),
    ]
    assert [one["seed"] for one in metrics_of(tmp_path / "cv")["folds"]] == [0, 0, 1, 1]
    shown = capsys.readouterr().out
    assert "repeat_2_fold_2 (4 of 4)" in shown
    assert "rmse" in shown
    with pytest.raises(InputError, match=r"cross-validation of 4 models.*repeat_1_fold_1"):
        predict_table("cv", config.file, "out.csv")
    assert main(["train", *words.split()]) == 0  # a former one is replaced


def test_a_table_that_cannot_be_used_leaves_nothing(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("smiles,y\nC,1\nCC,x\n")
    assert main("train t.csv --target-columns y --folds 2 --output cv".split()) == 2
    assert "line 3" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
