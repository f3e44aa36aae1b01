import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from molattn.cli import main
from molattn.config import (
    DataConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.config.yaml_file import read_config_file
from molattn.data.splitting import split_rows
from molattn.data.table import open_table
from molattn.errors import InputError
from molattn.evaluation import cross_validation
from molattn.evaluation.cross_validation import cross_validate, rounds
from molattn.evaluation.metrics import format_mean
from molattn.evaluation.tables import print_scores, score_tables
from molattn.inference.predict import predict_table
from molattn.task import Task
from molattn.training.run import read_rows, train_split

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
QUICK = SupervisedConfig(epochs=1, batch_size=16, device="cpu", seed=7)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "t.csv"
    path.write_text("smiles,y\n" + "".join(f"{'C' * n}O,{n}.5\n" for n in range(1, 31)))
    data = DataConfig(target_columns=("y",), folds=3)
    return TrainConfig(str(path), data, SMALL, QUICK, ReportConfig(bootstrap=0, interval=0.5))


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
        (one.name, one.config.data.only_fold, one.config.data.repeats, one.config.training.seed)
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
    assert table.header == [
        *("smiles", "y", "y_predicted", "y_low", "y_high", "training_similarity"),
        *("split", "round"),
    ]
    rows = list(table)
    assert sorted(float(row.cells[1]) for row in rows) == [n + 0.5 for n in range(1, 31)]
    mine = [row.cells for row in rows if row.cells[-1] == "fold_2"]
    source = tmp_path / "in.csv"
    source.write_text("smiles\n" + "".join(f"{cells[0]}\n" for cells in mine))
    predict_table(folder / "fold_2", source, tmp_path / "out.csv")
    again = [float(row.cells[1]) for row in open_table(tmp_path / "out.csv")]
    np.testing.assert_allclose(again, [float(cells[2]) for cells in mine], rtol=1e-5)


def test_rounds_with_and_without_missing_labels_are_one_table(tmp_path):
    lines = [f"{'C' * n}O,{n}.5,{n}" for n in range(1, 13)]
    lines[4] = lines[4].removesuffix("5")  # of which two of three rounds learn
    path = tmp_path / "t.csv"
    path.write_text("smiles,y,z\n" + "\n".join(lines) + "\n")
    data = DataConfig(target_columns=("y", "z"), folds=3)
    report = ReportConfig(bootstrap=0, interval=0.5, baselines=False)
    (tmp_path / "run").mkdir()
    cross_validate(TrainConfig(str(path), data, SMALL, QUICK, report), tmp_path / "run")
    headers = {
        len(open_table(f"{tmp_path}/run/fold_{n}/predictions.csv").header) for n in (1, 2, 3)
    }
    assert len(headers) == 2
    joint = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert len(joint) == 12
    for number in (1, 2, 3):
        own = pd.read_csv(tmp_path / "run" / f"fold_{number}" / "predictions.csv")
        found = joint[joint["round"] == f"fold_{number}"].reset_index(drop=True)
        pd.testing.assert_frame_equal(found[own.columns], own, check_dtype=False)
        assert found[[name for name in joint if name not in {*own, "round"}]].isna().all(axis=None)


def test_a_score_of_one_round_has_no_standard_deviation():
    found = cross_validation._means([{"r2": 0.5}, {"r2": None}, {"r2": None}])
    assert found == {"r2": {"mean": 0.5, "sd": None, "rounds": 1}}
    summary = {"test": {"y": found}, "folds": [{}] * 3}
    (table,) = score_tables([Task("y")], summary)
    (row,) = table.rows
    assert ("0.500", "1 of 3 folds") in row.cells
    assert format_mean(found["r2"]) == "0.500"
    assert format_mean({"mean": 0.5, "sd": 0.25}) == "0.500 ± 0.250"


def test_scores_of_some_rounds_do_not_depend_on_their_order():
    calibrated = {"count": 5, "nll_before": 0.5, "nll_after": 0.4}
    several = [{"count": 5, "undefined": "not calibrated"}, calibrated, calibrated]
    found = cross_validation._means(several)
    assert found == cross_validation._means(several[::-1])
    assert found["nll_before"]["rounds"] == 2


def test_skipped_rows_are_listed_beside_the_folds(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("smiles,y\nC1CC,0\n" + "".join(f"{'C' * n},{n}\n" for n in range(1, 13)))
    data = DataConfig(target_columns=("y",), folds=2)
    report = ReportConfig(baselines=False, bootstrap=0)
    (tmp_path / "run").mkdir()
    cross_validate(TrainConfig(str(path), data, SMALL, QUICK, report), tmp_path / "run")
    (row,) = pd.read_csv(tmp_path / "run" / "skipped.csv").itertuples()
    assert (row.line, row.smiles, row.code) == (2, "C1CC", "ring_closure")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "13 rows read, 12 used, 1 skipped" in page
    assert "<code>ring_closure</code>" in page


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
    covered = [one["uncertainty"]["y"]["coverage"] for one in own]
    assert metrics["uncertainty"]["y"]["coverage"]["mean"] == pytest.approx(np.mean(covered))
    console = Console(file=io.StringIO(), width=120)
    print_scores(metrics, TrainConfig.from_dict(read_config_file(folder / "config.yaml")), console)
    shown = console.file.getvalue()
    rmse = metrics["test"]["y"]["rmse"]
    assert f"{rmse['mean']:.3f} ± {rmse['sd']:.3f}" in shown
    assert "50% PI coverage" in shown


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

    def interrupted(job):
        trained.append(job.config.data.only_fold)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return train_split(job)

    monkeypatch.setattr("molattn.evaluation.cross_validation.train_split", interrupted)
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
        "report.html",
        "skipped.csv",
    ]
    page = (tmp_path / "cv" / "report.html").read_text()
    assert "30 rows read, 30 used, 0 skipped" in page
    assert [one["seed"] for one in metrics_of(tmp_path / "cv")["folds"]] == [0, 0, 1, 1]
    shown = capsys.readouterr().out
    assert "repeat_2_fold_2 (4 of 4)" in shown
    assert "RMSE" in shown
    with pytest.raises(InputError, match=r"a cross-validation.*repeat_1_fold_1"):
        predict_table("cv", config.file, "out.csv")
    assert main(["train", *words.split(), "--overwrite"]) == 0


def test_the_table_is_read_once_and_may_not_change_between_rounds(config, tmp_path, monkeypatch):
    read = []

    def reading(config, *rest):
        read.append(config.file)
        return read_rows(config, *rest)

    def failing(job):
        if job.config.data.only_fold == 2:
            raise KeyboardInterrupt
        return train_split(job)

    table = tmp_path / "own.csv"
    table.write_text(Path(config.file).read_text())
    monkeypatch.setattr("molattn.evaluation.cross_validation.read_rows", reading)
    monkeypatch.setattr("molattn.evaluation.cross_validation.train_split", failing)
    own = replace(config, file=str(table))
    with pytest.raises(KeyboardInterrupt):
        cross_validate(own, tmp_path)
    assert read == [str(table)]
    table.write_text(table.read_text().replace("12.5", "12.25"))
    with pytest.raises(
        InputError, match=r"own\.csv: the file has changed since the run in .*fold_1"
    ):
        cross_validate(own, tmp_path)


def test_finished_rounds_are_of_the_same_options(config, folder, tmp_path):
    other = replace(config, training=replace(QUICK, epochs=2))
    with pytest.raises(InputError, match=f"epochs: got 2, but the run in {folder} has 1"):
        cross_validate(other, folder)
    copied = shutil.copytree(folder, tmp_path / "copied")
    (copied / "config.yaml").unlink()
    with pytest.raises(InputError, match=r"epochs: got 2, but the run in .*fold_1 has 1"):
        cross_validate(other, copied)


def test_a_round_that_cannot_be_is_found_before_the_first(config, tmp_path, monkeypatch):
    rows = split_rows(read_rows(config), replace(config.data, only_fold=3), QUICK.seed)
    lines = Path(config.file).read_text().splitlines()
    own = tmp_path / "own.csv"
    labeled = int(rows.test[0])  # the one label of z, which nothing of round 3 can learn
    cells = [f"{line},{'1' if row == labeled else ''}" for row, line in enumerate(lines[1:])]
    own.write_text("\n".join([f"{lines[0]},z", *cells]) + "\n")
    monkeypatch.setattr("molattn.evaluation.cross_validation.train_split", None)
    data = replace(config.data, target_columns=("y", "z"), task=("regression",))
    with pytest.raises(InputError, match="'z': no training row has a label"):
        cross_validate(replace(config, file=str(own), data=data), tmp_path)


def test_leakage_of_the_folds_is_told_beside_their_scores(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("smiles,y\n" + "".join(f"{'C' * n}N,{n}\n" for n in range(1, 21)))
    words = "train t.csv --target-columns y --epochs 1 --no-baselines --bootstrap 0 --device cpu"
    words += " --predictor network --width 8 --heads 2 --layers 1 --split random"
    sizes = "--test-size 0 --validation-size 0.1"
    assert main([*words.split(), *sizes.split(), "--init-from", "none", "--output", "first"]) == 0
    capsys.readouterr()
    assert main([*words.split(), "--folds", "2", "--init-from", "first", "--output", "cv"]) == 0
    folds = [metrics_of(Path(f"cv/fold_{n}"))["leakage"]["pretrained_test"] for n in (1, 2)]
    assert 0 < sum(folds) <= 20
    told = f"eakage: {sum(folds)} of 20 test molecules have the same fingerprint as a molecule that"
    assert f"l{told}" in " ".join(capsys.readouterr().out.split())
    assert f"L{told}" in Path("cv/report.html").read_text()


def test_a_table_that_cannot_be_used_leaves_nothing(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("smiles,y\nC,1\nCC,x\n")
    assert main("train t.csv --target-columns y --folds 2 --output cv".split()) == 2
    assert "line 3" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_more_folds_than_rows_are_refused_before_they_are_dealt(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("smiles,y\n" + "".join(f"{'C' * n},{n}\n" for n in range(1, 11)))
    options = {"target_columns": ("y",), "folds": 10**8, "init_from": "none", "device": "cpu"}
    with pytest.raises(InputError, match="folds: got 100000000, expected 2 to 10"):
        cross_validate(TrainConfig.from_options(str(table), options), tmp_path)
