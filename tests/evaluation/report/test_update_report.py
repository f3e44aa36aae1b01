import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import molattn
from molattn import MolAttn
from molattn.chem.reader import Fields
from molattn.cli.program import main
from molattn.config import DataConfig
from molattn.errors import InputError
from molattn.model.confidence import expected_factor
from molattn.training.update import update_model

CHAINS = ["C" * n + end for n in range(1, 16) for end in ("O", "N", "C(=O)O", "c1ccccc1")]
NEW = ["C" * n + end for n in range(1, 12) for end in ("F", "Cl")]
OPTIONS = {
    "predictor": "gaussian_process",
    "test_size": 0.0,
    "validation_size": 0.3,
    "descriptors": "none",
    "baselines": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("update")
    frame = pd.DataFrame({"structure": CHAINS})
    sizes = frame["structure"].str.count("[Cc]")
    frame["length"] = sizes + 0.1 * np.sin(np.arange(len(sizes)))
    frame["half"] = np.exp(0.3 * sizes)
    frame["polar"] = frame["structure"].str.contains("O").map({True: "yes", False: "no"})
    frame["amount"] = 1.0
    frame = frame.sample(frac=1.0, random_state=0)
    targets = ["length", "half", "polar"]
    columns = {"smiles_column": "structure", "weight_column": "amount"}
    transforms = {"target_transform": ["none", "log", "none"], "keep_training_molecules": True}
    molattn.train(frame, target_columns=targets, **OPTIONS, **columns, **transforms).save(
        folder / "run"
    )
    return folder


def measured(folder, **columns):
    """Write a table of new measurements; return its path."""
    frame = pd.DataFrame({"structure": NEW, "amount": 1.0} | columns)
    path = folder / "measured.csv"
    frame.to_csv(path, index=False)
    return path


def update(folder, path, output="new", run="run"):
    shutil.rmtree(folder / output, ignore_errors=True)
    words = ["update", folder / run, path, "--output", folder / output]
    assert main([str(word) for word in words]) == 0
    return MolAttn.from_pretrained(folder / output)


LENGTHS = np.array([text.count("C") - text.count("Cl") for text in NEW])


def test_the_updated_model_knows_what_was_measured_and_the_old_one_stays(folder, capsys):
    files = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    old = MolAttn.from_pretrained(folder / "run")
    path = measured(folder, length=LENGTHS + 2.0)
    new = update(folder, path)
    errors = [np.abs(m.predict(NEW)[:, 0] - LENGTHS - 2.0).mean() for m in (old, new)]
    assert errors[1] < 0.5 * errors[0]
    assert {path: path.read_bytes() for path in files} == files
    assert (new.training_similarity(NEW) == 1.0).all()
    assert new.training_set.labels[0].count == old.training_set.labels[0].count + len(NEW)
    assert new.training_set.labels[1] == old.training_set.labels[1]
    np.testing.assert_allclose(new.predict(NEW)[:, 1:], old.predict(NEW)[:, 1:], atol=1e-9)
    assert {neighbor.smiles for (neighbor, *_) in new.nearest(NEW)} == {*NEW}
    assert [made.labels for made in new.updates] == [{"length": len(NEW)}]
    capsys.readouterr()
    assert main(["verify", str(folder / "new")]) == 0
    assert "with 22 rows of measured.csv" in capsys.readouterr().out
    card = (folder / "new/model/README.md").read_text()
    assert "## Updates" in card
    assert "with 22 rows of measured.csv" in card
    assert "| length | 22 |" in (folder / "new/update.md").read_text()


def test_a_second_update_goes_on_with_the_first(folder):
    path = measured(folder, length=LENGTHS + 2.0)
    update(folder, path)
    new = update(folder, path, "newer", "new")
    assert [made.rows for made in new.updates] == [22, 22]
    assert (folder / "newer/model/README.md").read_text().count("## Updates") == 1
    replicates = "22 rows of training molecules, which count as replicates"
    assert replicates in (folder / "newer/update.md").read_text()


def test_planned_molecules_are_not_planned_again_after_they_are_measured(folder):
    library = folder / "library.csv"
    pd.DataFrame({"structure": NEW}).to_csv(library, index=False)
    planned = folder / "planned.csv"
    options = ["--smiles-column", "structure", "--target", "length", "--count", "15"]
    for run, count in (("run", 15), ("new", 7)):
        words = ["plan", folder / run, library, "--output", planned, *options]
        assert main([str(word) for word in words]) == 0
        table = pd.read_csv(planned)
        assert len(table) == count
        measurements = table["structure"].map(dict(zip(NEW, LENGTHS, strict=True)))
        table.assign(length=measurements, amount=1.0).to_csv(planned, index=False)
        if run == "run":
            update(folder, planned)


def test_classes_logarithms_and_censored_labels_are_read_as_the_training_read_them(folder, capsys):
    old = MolAttn.from_pretrained(folder / "run")
    half = [">1000" if n % 2 else f"{np.exp(0.3 * size)}" for n, size in enumerate(LENGTHS)]
    path = measured(folder, half=half, polar=["YES"] * len(NEW))
    new = update(folder, path)
    report = (folder / "new" / "update.md").read_text()
    cells = next(line for line in report.splitlines() if line.startswith("| half")).split(" | ")
    expected, actual = (float(cells[index].removesuffix(" log10")) for index in (2, 3))
    values, errors = old.predict(NEW[::2])[:, 1], old.predict_confidence(NEW[::2])[1][:, 1]
    assert expected == pytest.approx(np.log10(expected_factor(errors, values)).mean(), rel=0.01)
    sizes = np.array(LENGTHS[::2])
    assert actual == pytest.approx(np.abs(0.3 * sizes / np.log(10) - np.log10(values)).mean(), 0.01)
    assert f"'half': mean error of 11 new labels on log10 before and after: {actual:.3g} (" in (
        capsys.readouterr().out
    )
    assert [made.labels for made in new.updates] == [{"half": 11, "polar": 22}]
    before, after = (model.predict(NEW) for model in (old, new))
    assert (after[1::2, 1] > before[1::2, 1]).all()  # above the bound, as the label says
    assert (after[:, 2] > before[:, 2]).all()
    assert new.training_set.labels[2].classes[1] == old.training_set.labels[2].classes[1] + 22
    assert new.training_set.labels[1].above == 1000.0


def test_labels_that_nothing_explains_are_called_a_misfit(folder, capsys):
    labels = 100.0 * np.random.default_rng(0).normal(size=len(NEW))
    new = update(folder, measured(folder, length=labels))
    printed = capsys.readouterr().out
    assert "'length': the model no longer fits the new rows" in printed
    assert "times as wide" in printed
    assert "no longer fits" in (folder / "new/update.md").read_text()
    old = MolAttn.from_pretrained(folder / "run")
    widths = [np.subtract(*m.predict_interval(CHAINS, 0.5))[:, 0].mean() for m in (old, new)]
    assert widths[1] < 3.0 * widths[0] < 0.0


def test_molecules_are_read_as_the_model_reads_them(folder):
    model = MolAttn.from_pretrained(folder / "run")
    frame = pd.DataFrame({"structure": ["CC[S+](C)[O-]", "CC[NH3+].[Cl-]"], "length": 2.0})
    plain = update_model(model, DataConfig(smiles_column="structure"), frame).table
    assert plain.records[0].numbers is None
    assert plain.redrawn == 1
    model.config = replace(model.config, unify_drawings=False, standardize="parent")
    table = update_model(model, DataConfig(smiles_column="structure"), frame).table
    expected = model.config.reader(Fields(smiles=True)).all(frame["structure"])
    assert table.canonical_smiles == [record.smiles for record in expected]
    assert table.redrawn == 0


def test_censored_labels_alone_are_learned_as_beyond_their_bounds(folder):
    rest = [""] * (len(NEW) - 9)
    old = MolAttn.from_pretrained(folder / "run").predict(NEW[:9])[:, 0]
    labels = [f"{value + 0.1:.2f}" for value in old]
    exact = update(folder, measured(folder, length=labels + rest)).predict(NEW[:9])[:, 0]
    new = update(folder, measured(folder, length=[f">{label}" for label in labels] + rest))
    assert (new.predict(NEW[:9])[:, 0] > exact + 0.01).all()
    assert "9 rows of measured.csv (censored labels only)" in str(new.updates[-1])
    assert "All new labels are censored" in (folder / "new/update.md").read_text()


def test_wide_intervals_of_labels_around_predictions_are_no_misfit(folder):
    model = MolAttn.from_pretrained(folder / "run")
    length = model.predict(NEW)[:, 0]
    frame = pd.DataFrame({"structure": NEW, "length": length})
    frame = frame.assign(low=length - 30.0, high=length + 30.0)
    data = DataConfig(smiles_column="structure", interval_columns=("low", "high"))
    updated = update_model(model, data, frame)
    assert updated.misfits == ()
    assert updated.before[0].inside == 0.0  # as no interval contains both limits
    errors = updated.model.uncertainty.fingerprints.errors
    assert np.nanmax(errors[-len(NEW) :, 0]) < 1.0


def test_more_rows_than_an_update_can_bear_are_refused(folder, monkeypatch):
    monkeypatch.setattr("molattn.training.update.MOST_ROWS", 21)
    model = MolAttn.from_pretrained(folder / "run")
    frame = pd.DataFrame({"structure": NEW, "length": LENGTHS})
    with pytest.raises(InputError, match="got 22 rows, expected at most 21; train again"):
        update_model(model, DataConfig(smiles_column="structure"), frame)


def test_weights_of_rows_are_relative_to_the_weights_of_the_training(folder):
    model = MolAttn.from_pretrained(folder / "run")
    data = DataConfig(smiles_column="structure", weight_column="amount")
    frame = pd.DataFrame({"structure": NEW, "length": LENGTHS + 2.0})[:9]
    old = model.predict(NEW[:9])[:, 0]
    changes = [
        np.abs(update_model(model, data, frame.assign(amount=x)).model.predict(NEW[:9])[:, 0] - old)
        for x in (1.0, 1e-4)
    ]
    assert (changes[1] < 0.9 * changes[0]).all()


def test_few_labels_recalibrate_nothing(folder):
    length = [f"{value:.1f}" if index < 9 else "" for index, value in enumerate(LENGTHS + 50.0)]
    new = update(folder, measured(folder, length=length))
    assert new.updates[0].recalibrated == ()
    old = MolAttn.from_pretrained(folder / "run")
    assert new.uncertainty.calibration == old.uncertainty.calibration


def test_a_model_without_intervals_has_no_share_of_labels_in_them(folder):
    frame = pd.DataFrame({"smiles": CHAINS[:20], "size": np.arange(20.0)})
    run = molattn.train(frame, target_columns=["size"], **OPTIONS | {"validation_size": 0.2})
    new = pd.DataFrame({"smiles": NEW[:5], "size": 1.0})
    updated = update_model(run.model, DataConfig(target_columns=("size",)), new)
    assert np.isnan([one.inside for one in (*updated.before, *updated.after)]).all()


def test_models_and_tables_that_cannot_be_used_are_refused(folder, capsys):
    path = measured(folder, length=LENGTHS)
    bare = folder / "bare"
    shutil.copytree(folder / "run/model", bare / "model", dirs_exist_ok=True)
    network = folder / "network"
    shutil.copytree(folder / "run", network, dirs_exist_ok=True)
    model = MolAttn.from_pretrained(network)
    model.gaussian_process = None
    shutil.rmtree(network / "model")
    model.save_pretrained(network / "model")
    other = folder / "other.csv"
    other.write_text("structure,amount,mass\nCCF,1,3\n")
    cases = {
        ("admet", path): "a packaged model cannot be updated",
        (bare, path): "has no config.yaml",
        (network, path): "it has no Gaussian process to update",
        (folder / "run", other): "expected a column of a target",
    }
    for (run, table), message in cases.items():
        words = ["update", str(run), str(table), "--output", str(folder / "refused")]
        assert main(words) == 2
        assert message in capsys.readouterr().err
    assert main(["update", str(folder / "run"), str(path), "--output", str(folder / "run")]) == 2
    assert "expected a new folder" in capsys.readouterr().err
    assert not (folder / "refused").exists()


def test_an_update_is_saved_and_read_back(folder):
    new = update(folder, measured(folder, length=LENGTHS))
    saved = json.loads((folder / "new/model/updates.json").read_text())
    assert saved[0]["rows"] == len(NEW)
    new.save_pretrained(folder / "copy")
    assert MolAttn.from_pretrained(folder / "copy").updates == new.updates
