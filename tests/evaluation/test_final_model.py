"""Folds without validation rows, and the model of all rows that follows them."""

import json
from pathlib import Path

import numpy as np
import pytest

from molattn import MolAttn
from molattn.cli import main
from molattn.data.table import bundled_dataset
from molattn.training.out_of_fold import OUT_OF_FOLD_FILE

from ..conftest import rows_of

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = "--epochs 3 --width 8 --heads 2 --layers 1 --init-from none --device cpu --bootstrap 0"
SMALL += " --no-baselines"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """300 molecules of the bundled data."""
    path = tmp_path_factory.mktemp("data") / "solubility.csv"
    header, *lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    chosen = np.random.default_rng(0).permutation(len(lines))[:300]
    path.write_text("\n".join([header, *(lines[row] for row in chosen)]) + "\n", encoding="utf-8")
    return path


def train(table, output, *options):
    words = f"train {table} --target-columns logS --folds 4 --output {output} {SMALL}"
    return main([*words.split(), *options])


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "cv"
    assert train(table, folder, "--validation-size", "0", "--final") == 0
    return folder


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_folds_without_validation_rows_have_intervals_that_hold(folder):
    metrics = metrics_of(folder)
    assert [one["rows_validation"] for one in metrics["folds"]] == [0] * 4
    assert [one["rows_train"] for one in metrics["folds"]] == [225] * 4
    assert "validation" not in metrics
    rows = rows_of(folder / "predictions.csv")
    assert len(rows) == 300
    inside = [
        float(row["logS_low"]) <= float(row["logS"]) <= float(row["logS_high"]) for row in rows
    ]
    # Each of 300 labels lies within its interval of level 0.9 with 0.017 standard deviations of the
    # mean; those of neighboring folds are somewhat correlated.
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)
    found = metrics["uncertainty"]["logS"]["coverage"]["mean"]
    assert found == pytest.approx(np.mean(inside))


def test_a_fold_is_calibrated_by_the_others_alone(folder):
    for fold in range(1, 5):
        model = MolAttn.from_pretrained(folder / f"fold_{fold}" / "model")
        (scores,) = model.uncertainty.calibration.parts
        assert scores.count == 225
        other = MolAttn.from_pretrained(folder / f"fold_{fold % 4 + 1}" / "model")
        assert scores != other.uncertainty.calibration.parts[0]


def test_intervals_of_the_final_model_hold_for_other_molecules(folder, table, tmp_path):
    known = {row["smiles"] for row in rows_of(table)}
    others = [row for row in rows_of(bundled_dataset()) if row["smiles"] not in known]
    model = MolAttn.from_pretrained(folder / "model")
    low, high = model.predict_interval([row["smiles"] for row in others], level=0.9)
    labels = np.array([[float(row["logS"])] for row in others])
    assert len(labels) > 700
    # 300 scores determine the bound: a standard deviation of the coverage of 0.02.
    assert np.mean((low <= labels) & (labels <= high)) == pytest.approx(0.9, abs=0.06)
    (scores,) = model.uncertainty.calibration.parts
    assert scores.count == 300
    assert metrics_of(folder)["final"]["uncertainty"]["logS"]["count"] == 300
    assert metrics_of(folder)["final"]["uncertainty"]["logS"]["coverage"] == pytest.approx(
        0.9, abs=0.05
    )
    assert main(["predict", str(folder), str(table), "--output", str(tmp_path / "out.csv")]) == 0
    again = np.array([float(row["logS_predicted"]) for row in rows_of(tmp_path / "out.csv")])
    expected = model.predict([row["smiles"] for row in rows_of(table)])[:, 0]
    np.testing.assert_allclose(again, expected, rtol=1e-5)


def test_the_report_says_which_score_is_of_which_model(folder):
    page = (folder / "report.html").read_text()
    assert "<code>model/</code> is trained on all 300 rows" in page
    assert "The scores above belong to the models of the folds" in page
    assert "not seen" in page
    mean = metrics_of(folder)["test"]["logS"]["rmse"]["mean"]
    card = (folder / "model" / "README.md").read_text()
    assert f"RMSE {mean:.3f} ± " in card
    assert "this model, of all rows, was not tested itself" in card
    fold = (folder / "fold_1" / "report.html").read_text()
    assert "calibrate one another; repeat all of it" in fold


def test_the_share_of_the_gaussian_process_is_of_out_of_fold_predictions(folder):
    model = MolAttn.from_pretrained(folder / "model")
    (share,) = model.gaussian_process.shares
    assert share != 0.5
    assert len(model.gaussian_process.rows) == 300
    own = {
        MolAttn.from_pretrained(folder / f"fold_{fold}" / "model").gaussian_process.shares[0]
        for fold in range(1, 5)
    }
    assert max(own) - min(own) < 0.4  # each is of three quarters of the same predictions


@pytest.mark.parametrize("validation", ["0", "0.1"])
def test_interrupted_folds_and_final_models_go_on(table, tmp_path, monkeypatch, validation):
    lines = table.read_text(encoding="utf-8").splitlines()[:41]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = ("--validation-size", validation, "--final", "--batch-size", "16")
    assert train("t.csv", "whole", *options) == 0
    forward, steps = MolAttn.forward, 0
    per_model = 6  # 3 epochs of 2 batches
    stops = [2 * per_model + 3, 4 * per_model + 4]  # within the third fold, and the final model

    def interrupted(self, *rest):
        nonlocal steps
        steps += self.training
        if self.training and steps in stops:
            stops.remove(steps)
            raise KeyboardInterrupt
        return forward(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(MolAttn, "forward", interrupted)
        assert train("t.csv", "cv", *options) == 130
        assert not Path("cv").exists()
        while main(["train", "--resume", "cv"]) == 130:
            assert Path("cv.unfinished").exists()
    assert not stops
    for name in ("model", "fold_1/model", "fold_4/model"):
        for file in ("model.safetensors", "calibration.json", "gaussian_process.safetensors"):
            one, other = (Path(run, name, file).read_bytes() for run in ("whole", "cv"))
            assert one == other, (name, file)
    assert Path("cv/fold_1", OUT_OF_FOLD_FILE).exists()
    assert not [*Path("cv").glob("checkpoint*")]


@pytest.mark.parametrize(
    "options, words",
    [
        ("--validation-size 0", "with --folds it may be 0"),
        ("--folds 3 --validation-size 0 --checkpoint best", "checkpoint: cannot be used with"),
        ("--folds 3 --final --patience 3", "patience: cannot be used with --final"),
        ("--folds 3 --only-fold 1 --validation-size 0", "leave out --only-fold"),
        ("--folds 3 --only-fold 1 --final", "final: cannot be used with --only-fold"),
        ("--final", "final: needs --folds"),
    ],
)
def test_what_has_no_meaning_is_refused(table, tmp_path, capsys, options, words):
    output = tmp_path / "run"
    words_given = f"train {table} --target-columns logS --output {output} {options}".split()
    assert main(words_given) == 2
    assert words in capsys.readouterr().err
    assert not output.exists()


@pytest.fixture(scope="module")
def censored(tmp_path_factory):
    """Folds and a final model of labels of which a third is censored, and one of classes."""
    folder = tmp_path_factory.mktemp("censored")
    lines = ["smiles,logS,relation,kind"]
    for n in range(1, 49):
        relation = ("=", "", ">")[n % 3]
        lines.append(f"{'C' * (n % 12 + 1)}{'NOSF'[n // 12 % 4]},{n % 12},{relation},{'ab'[n % 2]}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    words = f"train {folder}/t.csv --target-columns logS --relation-columns relation --folds 2 "
    words += f"--validation-size 0 --final --output {folder}/cv {SMALL}"
    assert main(words.split()) == 0
    return folder / "cv"


def test_models_of_censored_labels_are_scored_and_calibrated_by_the_others(censored, capsys):
    metrics = metrics_of(censored)
    counts = [one["test"]["logS"]["count"] for one in metrics["folds"]]
    bounds = [one["censored"]["logS"]["count"] for one in metrics["folds"]]
    assert (sum(counts), sum(bounds)) == (32, 16)
    assert metrics["final"]["rows_train"] == 48
    assert metrics["final"]["uncertainty"]["logS"]["count"] == 32
    for number, count in enumerate(bounds, start=1):
        rows = rows_of(censored / f"fold_{number}" / "predictions.csv")
        kept = [
            float(r["logS_predicted"]) >= float(r["logS"]) for r in rows if r["relation"] == ">"
        ]
        page = (censored / f"fold_{number}" / "report.html").read_text(encoding="utf-8")
        assert len(kept) == count
        assert metrics["folds"][number - 1]["censored"]["logS"]["permitted"] == sum(kept)
        assert (
            f"logS: censored test labels, which are not scored: {count}; predictions on the "
            f"permitted side of the bound: {sum(kept)}."
        ) in page
        assert f"<td>{len(rows) - count}, {count} censored</td>" in page
    kept = sum(one["censored"]["logS"]["permitted"] for one in metrics["folds"])
    assert metrics["censored"] == {"logS": {"count": 16, "permitted": kept}}
    page = (censored / "report.html").read_text(encoding="utf-8")
    assert (
        "logS: censored test labels, which are not scored: 16; predictions on the permitted side "
        f"of the bound: {kept}."
    ) in page
    assert "The level is promised for molecules" in page
    # Read again by the command, from the options of the run.
    again = censored.with_name("again")
    config = censored / "config.yaml"
    assert "relation_columns:\n  - relation\n" in config.read_text()
    assert main(["train", "--config", str(config), "--output", str(again)]) == 0
    assert metrics_of(again)["final"]["uncertainty"] == metrics["final"]["uncertainty"]
    assert "16 censored labels (16 lower and 0 upper bounds)" in capsys.readouterr().out


def test_each_censored_label_is_counted_once(censored, tmp_path):
    words = f"train {censored.with_name('t.csv')} --target-columns logS --relation-columns relation"
    words += f" --folds 2 --repeats 2 --output {tmp_path}/cv {SMALL}"
    assert main(words.split()) == 0
    metrics = metrics_of(tmp_path / "cv")
    assert metrics["censored"]["logS"]["count"] == 16
    assert sum(one["censored"]["logS"]["count"] for one in metrics["folds"]) == 32
