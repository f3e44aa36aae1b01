"""Rounds with validation rows, and folds without them and the final model that follows."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from molattn import MolAttn
from molattn.cli import main
from molattn.config import TrainConfig
from molattn.data.splitting import split_rows
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.evaluation.cross_validation import cross_validate, rounds
from molattn.evaluation.report.tables import format_score, score_cell
from molattn.inference import predict_table
from molattn.training.out_of_fold import OUT_OF_FOLD_FILE
from molattn.training.run import read_rows

from ..conftest import rows_of

pytestmark = pytest.mark.usefixtures("without_figures")

OPTIONS = {
    **{"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "init_from": "none"},
    **{"epochs": 1, "batch_size": 16, "device": "cpu", "bootstrap": 0, "predictor": "network"},
}


def words_of(**options):
    """Return the options of a small training as words of a command."""
    words = ["--no-baselines"]
    for name, value in {**OPTIONS, **options}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Labels of z are complete in one of three folds alone."""
    path = tmp_path_factory.mktemp("data") / "t.csv"
    lines = [f"{'C' * n}O,{n}.5,{n % 7}" for n in range(1, 31)]
    lines[4] = lines[4][:-1]
    path.write_text("smiles,y,z\nC1CC,0,0\n" + "\n".join(lines) + "\n")
    options = {"target_columns": ("y", "z"), "folds": 3, "interval": 0.5, "seed": 7, **OPTIONS}
    return TrainConfig.from_options(str(path), options)


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    cross_validate(config, folder)
    return folder


def metrics_of(folder):
    return json.loads((Path(folder) / "metrics.json").read_text())


def test_every_row_is_tested_once_by_the_model_of_its_round(folder, tmp_path):
    joint = pd.read_csv(folder / "predictions.csv", dtype=str)
    assert sorted(joint["y"].astype(float)) == [n + 0.5 for n in range(1, 31)]
    assert [*joint][-2:] == ["split", "round"]
    widths = set()
    for number in (1, 2, 3):
        own = pd.read_csv(folder / f"fold_{number}" / "predictions.csv", dtype=str)
        found = joint[joint["round"] == f"fold_{number}"].reset_index(drop=True)
        pd.testing.assert_frame_equal(found[[*own]], own, check_dtype=False)
        assert found[[name for name in joint if name not in {*own, "round"}]].isna().all(axis=None)
        widths.add(len([*own]))
    assert len(widths) == 2
    own[["smiles"]].to_csv("in.csv", index=False)
    predict_table(folder / "fold_3", "in.csv", tmp_path / "out.csv")
    again = pd.read_csv("out.csv")["y_predicted"]
    np.testing.assert_allclose(again, own["y_predicted"].astype(float), rtol=1e-5)


def test_scores_are_means_and_standard_deviations_of_the_rounds(folder):
    metrics = metrics_of(folder)
    own = [metrics_of(folder / name) for name in ("fold_1", "fold_2", "fold_3")]
    assert [one["folder"] for one in metrics["folds"]] == ["fold_1", "fold_2", "fold_3"]
    assert [one["test"] for one in metrics["folds"]] == [one["test"] for one in own]
    for name in ("test", "baseline", "random_forest"):
        values = [one[name]["y"]["rmse"] for one in own]
        found = metrics[name]["y"]["rmse"]
        assert found["mean"] == pytest.approx(np.mean(values))
        assert found["sd"] == pytest.approx(np.std(values, ddof=1))
        assert found["rounds"] == 3
    covered = [one["uncertainty"]["y"]["coverage"] for one in own]
    assert metrics["uncertainty"]["y"]["coverage"]["mean"] == pytest.approx(np.mean(covered))
    page = (folder / "report.html").read_text()
    assert score_cell(metrics["test"]["y"], "rmse") in page
    assert 'href="fold_3/report.html"' in page
    joint = pd.read_csv(folder / "predictions.csv")
    worst = (joint["y_predicted"] - joint["y"]).abs().idxmax()
    (cards,) = re.findall(r"<summary>y</summary>(.*?)</details>", page, re.DOTALL)
    assert joint["smiles"][worst] in cards.split("</li>")[0]
    assert f"<dd>{format_score(joint['y'][worst])}</dd>" in cards.split("</li>")[0]
    assert "31 rows read, 30 used, 1 skipped" in page
    assert [row["code"] for row in rows_of(folder / "skipped.csv")] == ["ring_closure"]


def test_a_round_alone_is_the_same_run(folder):
    options = folder / "fold_2" / "config.yaml"
    assert main(["train", "--config", str(options), "--output", "alone"]) == 0
    assert metrics_of(folder / "fold_2")["test"] == metrics_of("alone")["test"]


def test_folds_have_one_scale_though_some_learn_no_logarithm(capsys):
    values = 10.0 ** np.random.default_rng(3).normal(2.0, 1.0, 60)
    values[7] = 0.0  # the model that learns from it has no logarithm
    rows = [f"{'C' * (n % 30 + 1)}{'ON'[n // 30]},{value}" for n, value in enumerate(values)]
    Path("t.csv").write_text("\n".join(["smiles,y", *rows]) + "\n")
    words = ["train", "t.csv", "--target-columns", "y", *words_of(folds=2, output="cv")]
    assert main([*words, "--no-final"]) == 0
    metrics = metrics_of("cv")
    learned = {one["target_transforms"]["y"].split()[0] for one in metrics["folds"]}
    assert learned == {"log", "yeo_johnson"}
    assert metrics["test"]["y"]["log10_rmse"]["rounds"] == 2
    joint = pd.read_csv("cv/predictions.csv")
    for number, one in enumerate(metrics["folds"], start=1):
        found = joint[joint["round"] == f"fold_{number}"]
        pairs = found[["y", "y_predicted"]].to_numpy()
        floor = pairs[:, 0][pairs[:, 0] > 0].min() / 2
        first, second = np.log10(np.where(pairs > 0, pairs, floor)).T
        expected = np.sqrt(np.mean((first - second) ** 2))
        assert one["test"]["y"]["log10_rmse"] == pytest.approx(expected, rel=1e-4)
    assert "log10 RMSE" in Path("cv/report.html").read_text()
    assert main(["runs", "."]) == 0
    assert "log10 RMSE" in capsys.readouterr().out


def test_each_repeat_has_a_seed_and_folders_of_its_own(config, capsys):
    twice = replace(config, data=replace(config.data, folds=2, repeats=2))
    seeds = [(one.name, one.config.training.seed) for one in rounds(twice)]
    names = ["repeat_1_fold_1", "repeat_1_fold_2", "repeat_2_fold_1", "repeat_2_fold_2"]
    assert seeds == [*zip(names, [7, 7, 8, 8], strict=True)]
    words = ["train", config.file, "--target-columns", "y", "--folds", "2", "--repeats", "2"]
    assert main([*words, *words_of(), "--no-final", "--output", "cv"]) == 0
    files = ["config.yaml", "metrics.json", "predictions.csv", *names, "report.html", "skipped.csv"]
    assert sorted(path.name for path in Path("cv").iterdir()) == files
    assert [one["seed"] for one in metrics_of("cv")["folds"]] == [0, 0, 1, 1]
    shown = capsys.readouterr().out
    assert "repeat_2_fold_2 (4 of 4)" in shown
    assert "RMSE" in shown
    with pytest.raises(InputError, match="repeat_1_fold_1"):
        predict_table("cv", config.file, "out.csv")


def test_what_has_changed_since_a_round_was_finished_is_refused(config, folder, tmp_path):
    with pytest.raises(InputError) as error:
        cross_validate(replace(config, training=replace(config.training, epochs=2)), folder)
    assert error.value.option == "epochs"
    table = tmp_path / "own.csv"
    table.write_text(Path(config.file).read_text().replace("12.5", "12.25"))
    with pytest.raises(InputError, match=r"own\.csv: the file has changed"):
        cross_validate(replace(config, file=str(table)), folder)


def test_a_round_that_cannot_be_is_found_before_the_first(config, tmp_path, monkeypatch):
    rows = split_rows(read_rows(config), replace(config.data, only_fold=3), config.training.seed)
    _, *lines = Path(config.file).read_text().splitlines()
    labeled = int(rows.test[0]) + 1  # the one label of z, which nothing of round 3 can learn
    cells = [
        f"{line.rpartition(',')[0]},{'1' if row == labeled else ''}"
        for row, line in enumerate(lines)
    ]
    Path("own.csv").write_text("\n".join(["smiles,y,z", *cells]) + "\n")
    monkeypatch.setattr("molattn.evaluation.cross_validation.train_on_split", None)
    own = replace(config, file="own.csv", data=replace(config.data, task=("regression",)))
    with pytest.raises(InputError, match="'z': no training row has a label"):
        cross_validate(own, tmp_path)
    Path("other").mkdir()
    with pytest.raises(InputError, match="folds: got 100000000"):
        cross_validate(replace(config, data=replace(config.data, folds=10**8)), Path("other"))


def test_leakage_of_the_folds_is_logged_beside_their_scores(capsys):
    rows = "".join(f"{'C' * n}N,{n},\xe9\n" for n in range(1, 21))
    Path("t.csv").write_text(f"smiles,y,note\n{rows}", encoding="latin-1")
    words = ["train", "t.csv", "--target-columns", "y"]
    first = words_of(test_size=0, validation_size=0.1, output="first")
    assert main([*words, *first]) == 0
    capsys.readouterr()
    assert main([*words, *words_of(init_from="first", folds=2, output="cv")]) == 0
    folds = [metrics_of(f"cv/fold_{n}")["leakage"]["pretrained_test"] for n in (1, 2)]
    assert 0 < sum(folds) <= 20
    logged = f"{sum(folds)} of 20 test molecules have the same fingerprint as a molecule that"
    assert logged in " ".join(capsys.readouterr().out.split())
    assert logged in Path("cv/report.html").read_text()


def test_folds_by_time_leave_the_oldest_rows_untested(capsys):
    lines = [f"{'C' * n}N,{n % 5},{n * 11 % 37}" for n in range(1, 37)]
    Path("t.csv").write_text("smiles,y,week\n" + "\n".join(lines) + "\n")
    more = words_of(split="time", time_column="week", folds=3, output="cv")
    words = ["train", "t.csv", "--target-columns", "y", *more]
    assert main([*words, "--validation-size", "0"]) == 2  # later folds are no calibration
    assert "--validation-size" in capsys.readouterr().err
    assert main(words) == 0
    joint = pd.read_csv("cv/predictions.csv")
    weeks = joint.groupby("round")["week"].agg(["min", "max"]).to_numpy().tolist()
    assert weeks == [[10, 18], [19, 27], [28, 36]]
    assert metrics_of("cv")["final"]["uncertainty"]["y"]["count"] == 18  # with folds before
    page = unescape(Path("cv/report.html").read_text())
    for n, (start, _) in enumerate(weeks, start=1):
        assert f"fold {n}: the test rows begin at {start}" in page
    (remark,) = metrics_of("cv/fold_1")["remarks"]
    assert remark.startswith("'week': numbers from 1 to 36")
    assert f"<li>{remark}</li>" in page


# Folds without validation rows, and the model of all rows that follows them.


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """300 molecules of the bundled data."""
    path = tmp_path_factory.mktemp("data") / "solubility.csv"
    header, *lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    chosen = np.random.default_rng(0).permutation(len(lines))[:300]
    path.write_text("\n".join([header, *(lines[row] for row in chosen)]) + "\n", encoding="utf-8")
    return path


def train_folds(table, output, folds=4):
    more = words_of(validation_size=0, predictor="both", epochs=3, folds=folds, output=output)
    return main(["train", str(table), "--target-columns", "logS", *more])


@pytest.fixture(scope="module")
def final(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "cv"
    assert train_folds(table, folder) == 0
    return folder


def test_folds_without_validation_rows_are_calibrated_by_the_others(final):
    metrics = metrics_of(final)
    counts = [(one["rows_train"], one["rows_validation"]) for one in metrics["folds"]]
    assert counts == [(225, 0)] * 4
    assert "validation" not in metrics
    rows = rows_of(final / "predictions.csv")
    inside = [
        float(row["logS_low"]) <= float(row["logS"]) <= float(row["logS_high"]) for row in rows
    ]
    # Each of 300 labels lies within its interval of level 0.9 with 0.017 standard deviations of the
    # mean; those of neighboring folds are somewhat correlated.
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)
    found = metrics["uncertainty"]["logS"]["coverage"]["mean"]
    assert found == pytest.approx(np.mean(inside))
    models = [MolAttn.from_pretrained(final / f"fold_{n}" / "model") for n in range(1, 5)]
    parts = [model.uncertainty.calibration.parts[0] for model in models]
    assert [part.count for part in parts] == [225] * 4
    assert len({part.scores for part in parts}) == 4
    fractions = [model.gaussian_process.shares[0] for model in models]
    assert max(fractions) - min(fractions) < 0.4  # each is of three quarters of the same rows


def test_intervals_of_the_final_model_hold_for_other_molecules(final, table):
    known = {row["smiles"] for row in rows_of(table)}
    others = [row for row in rows_of(bundled_dataset()) if row["smiles"] not in known]
    model = MolAttn.from_pretrained(final)
    low, high = model.predict_interval([row["smiles"] for row in others], level=0.9)
    labels = np.array([[float(row["logS"])] for row in others])
    # 300 scores determine the bound: a standard deviation of the coverage of 0.02.
    assert np.mean((low <= labels) & (labels <= high)) == pytest.approx(0.9, abs=0.06)
    assert model.uncertainty.calibration.parts[0].count == 300
    assert np.isfinite(model.uncertainty.fingerprints.errors).all()  # all rows are in a fold
    assert len(model.gaussian_process.rows) == 300
    found = metrics_of(final)["final"]["uncertainty"]["logS"]
    assert found == {"count": 300, "coverage": pytest.approx(0.9, abs=0.05)}
    page = (final / "report.html").read_text()
    assert "<code>model/</code> is trained on all 300 rows" in page
    rmse = score_cell(metrics_of(final)["test"]["logS"], "rmse")
    card = (final / "model" / "README.md").read_text()
    assert f"RMSE {rmse}, " in card
    assert "this model, of all rows, was not tested itself" in card


def test_interrupted_folds_and_final_models_go_on(table, monkeypatch, capsys):
    lines = table.read_text(encoding="utf-8").splitlines()[:41]
    Path("t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert train_folds("t.csv", "whole", 2) == 0
    forward, steps = MolAttn.forward, 0
    per_model = 6  # 3 epochs of 2 batches
    stops = [per_model + 3, 2 * per_model + 4]  # within the second fold, and the final model

    def interrupted(self, *rest):
        nonlocal steps
        steps += self.training
        if self.training and steps in stops:
            stops.remove(steps)
            raise KeyboardInterrupt
        return forward(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(MolAttn, "forward", interrupted)
        assert train_folds("t.csv", "cv", 2) == 130
        assert "--resume cv" in capsys.readouterr().err
        while main(["train", "--resume", "cv"]) == 130:
            assert Path("cv.unfinished").exists()
    assert not stops
    for name in ("model", "fold_1/model", "fold_2/model"):
        for file in ("model.safetensors", "calibration.json", "gaussian_process.safetensors"):
            one, other = (Path(run, name, file).read_bytes() for run in ("whole", "cv"))
            assert one == other, (name, file)
    assert Path("cv/fold_1", OUT_OF_FOLD_FILE).exists()
    assert not [*Path("cv").glob("checkpoint*")]


def test_each_censored_label_is_counted_once(capsys):
    lines = ["smiles,logS,relation"]
    for n in range(1, 49):
        relation = ("=", "", ">")[n % 3]
        lines.append(f"{'C' * (n % 12 + 1)}{'NOSF'[n // 12 % 4]},{n % 12},{relation}")
    Path("t.csv").write_text("\n".join(lines) + "\n")
    words = ["train", "t.csv", "--target-columns", "logS", "--relation-columns", "relation"]
    more = words_of(folds=2, repeats=2, validation_size=0, output="cv")
    assert main([*words, *more]) == 0
    metrics = metrics_of("cv")
    bounds = [one["censored"]["logS"] for one in metrics["folds"]]
    assert sum(one["count"] for one in bounds) == 32
    permitted = sum(one["permitted"] for one in bounds[:2])
    assert metrics["censored"] == {"logS": {"count": 16, "permitted": permitted}}
    assert metrics["final"]["uncertainty"]["logS"]["count"] == 32
    assert "16 censored test labels, which have scores of their own" in (
        Path("cv/report.html").read_text()
    )
    assert "16 lower and 0 upper bounds" in capsys.readouterr().out


def test_atoms_and_bonds_are_predicted_out_of_fold(tmp_path):
    rows = [
        {"smiles": f"{'C' * n}O", "shift": [1.5] * n + [3.5], "bde": [0.5] * n}
        for n in range(1, 13)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    sites = {"atom_target_columns": ("shift",), "bond_target_columns": ("bde",)}
    options = {"target_columns": (), **sites, "folds": 2, "validation_size": 0.0, **OPTIONS}
    options["predictor"] = "both"
    config = TrainConfig.from_options(str(tmp_path / "t.csv"), options)
    folder = tmp_path / "run"
    folder.mkdir()
    scores = cross_validate(config, folder).scores["test"].tasks
    (folder / "metrics.json").unlink()
    resumed = cross_validate(config, folder)  # reads the finished rounds
    assert resumed.scores["test"].tasks["shift"]["rmse"] == scores["shift"]["rmse"]
    assert [*scores] == ["shift", "bde"]
    assert scores["shift"]["molecule_mae"]["rounds"] == 2
    table = pd.read_csv(folder / "predictions.csv").set_index("smiles")
    assert len(table) == 12
    for name in ("fold_1", "fold_2"):
        model = MolAttn.from_pretrained(folder / name)
        assert model.site_calibration.scores["shift"].molecules == 6  # those of the other fold
        for smiles, predicted in table["shift_predicted"][table["round"] == name].items():
            expected = model.predict_atoms([smiles]).outputs[:, 0]
            np.testing.assert_allclose(json.loads(predicted), expected, rtol=1e-4)
    calibration = MolAttn.from_pretrained(folder).site_calibration
    assert calibration.scores["shift"].molecules == 12
    assert len(calibration.labeled["shift"]) == 2
    np.testing.assert_array_equal(calibration.processes["atom"].head.shares, [0.5])
    np.testing.assert_allclose(calibration.scores["shift"].by_radius, 1.0)
    assert "bde" in (folder / "report.html").read_text()
