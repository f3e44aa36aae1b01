"""Training on labels of atoms and bonds, from lists in cells to predictions."""

import base64
import copy
import io
import json
import re
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rich.console import Console

import molattn
from molattn.chem import Featurizer
from molattn.config import DataConfig, NetworkConfig, PredictConfig, TrainConfig
from molattn.data.dataset import read_training_table
from molattn.data.site_labels import SiteLabels
from molattn.data.splitting import split_rows
from molattn.errors import InputError
from molattn.evaluation.compare.comparison import compare
from molattn.evaluation.scores.run_metrics import main_test_scores, read_metrics
from molattn.evaluation.scores.site_scores import score_intervals
from molattn.inference import predict_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.onnx_file import ExportedModel
from molattn.model.sites import (
    SiteCalibration,
    SitePrediction,
    SiteScores,
    site_kinds,
    site_outputs,
)
from molattn.task import Task
from molattn.training.resolve import load_pretrained, resolve
from molattn.training.run import read_rows

ELECTRONEGATIVITY = {"H": 2.2, "C": 2.55, "N": 3.04, "O": 3.44, "F": 3.98, "Cl": 3.16}
PARTS = ["C", "CC", "O", "N", "C(F)", "C(Cl)", "C(=O)", "C(C)"]
SMALL = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "init_from": "none"}
SMALL |= {"bootstrap": 10, "device": "cpu", "dropout": 0.0}


def molecules(count=40):
    rng = np.random.default_rng(0)
    return [f"C{''.join(rng.choice(PARTS, 3))}C" for _ in range(count)]


def atom_values(smiles):
    return [ELECTRONEGATIVITY[a.GetSymbol()] for a in Chem.MolFromSmiles(smiles).GetAtoms()]


def bond_values(smiles):
    values = atom_values(smiles)
    bonds = Chem.MolFromSmiles(smiles).GetBonds()
    return [abs(values[b.GetBeginAtomIdx()] - values[b.GetEndAtomIdx()]) for b in bonds]


@pytest.fixture(scope="module")
def frame():
    smiles = molecules()
    columns = {"en": [*map(atom_values, smiles)], "polarity": [*map(bond_values, smiles)]}
    return pd.DataFrame({"smiles": smiles, **columns, "logS": np.arange(40) / 10.0})


@pytest.fixture(scope="module")
def run(frame):
    columns = {"atom_target_columns": ["en"], "bond_target_columns": ["polarity"]}
    options = {"epochs": 15, "batch_size": 8, "learning_rate": 0.02, "validation_size": 0.3}
    return molattn.train(frame, [], **columns, **options, **SMALL)


def test_pretrained_weights_learn_as_a_new_head_of_numbers_of_atoms_does(frame, tmp_path):
    network = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    MolAttn(MolAttnConfig(("y",), network)).save_pretrained(tmp_path / "base")
    classes = [[int(value > 3.0) for value in values] for values in frame["en"]]
    frame = frame.assign(is_polar=classes)
    for targets, options, expected in (
        ([], {}, (1.0, 0)),
        ([], {"head_steps": 9}, (0.5, 9)),
        ([], {"atom_target_columns": ["is_polar"]}, (0.5, 500)),
        (["logS"], {}, (0.5, 500)),
    ):
        options = {"target_columns": targets, "atom_target_columns": ["en"], **options}
        options = TrainConfig.from_options("", options | {"init_from": str(tmp_path / "base")})
        config, base = load_pretrained(options)
        rows = read_rows(config, frame=frame)
        tuning = resolve(config, rows, split_rows(rows, config.data, 0), base).fine_tuning
        assert (tuning.backbone_lr_scale, tuning.head_steps) == expected


def test_small_model_learns_the_electronegativity(run):
    assert run.scores["en"]["rmse"] < 0.15
    assert run.scores["polarity"]["rmse"] < 0.25
    assert 0.0 < run.scores["en"]["molecule_mae"] < 0.1


def test_gaussian_processes_learn_beside_the_network(frame, run):
    processes = run.model.site_calibration.processes
    assert {*processes} == {"atom", "bond"}
    assert all(0.0 < process.head.shares[0] < 1.0 for process in processes.values())
    columns = {"atom_target_columns": ["en"], "bond_target_columns": ["polarity"]}
    validation = run.run_scores.metrics.scores["validation"].tasks["en"]["mae"]
    assert validation == pytest.approx(run.model.site_calibration.scores["en"].mean)
    alone = molattn.train(frame, [], **columns, **SMALL, epochs=1, predictor="network")
    assert not alone.model.site_calibration.processes
    options = {"predictor": "gaussian_process", "kernels": ["morgan"], "init_from": "none"}
    alone = molattn.train(frame, [], **columns, **options, bootstrap=0)
    processes = alone.model.site_calibration.processes
    assert [process.head.shares.tolist() for process in processes.values()] == [[1.0], [1.0]]


def test_weight_follows_from_held_out_molecules_with_a_prior_of_20_molecules(frame):
    split = ["val" if row % 4 == 3 else "train" for row in range(40)]
    lists = [None if row % 8 == 7 else values for row, values in enumerate(frame["en"])]
    columns = {"atom_target_columns": ["en"], "bond_target_columns": ["polarity"]}
    table = frame.assign(en=lists, split=split)
    options = {**columns, **SMALL, "split_column": "split", "epochs": 1}
    trained = molattn.train(table, [], **options)
    rows = range(3, 40, 4)
    calibration = trained.model.site_calibration
    (share,) = calibration.processes["atom"].head.shares
    assert 0.0 < share < 1.0
    records = trained.model.networks.reader(None).all([frame["smiles"][row] for row in rows])
    network = site_outputs(trained.model.networks, None, records)["atom"][:, 0]
    difference = (trained.run.validation_sites["atom"][:, 0] - network) / share
    gaps = [lists[row] or [np.nan] * len(frame["en"][row]) for row in rows]
    labels = np.concatenate(gaps)
    is_labeled = ~np.isnan(labels)
    difference, residual = difference[is_labeled], (labels - network)[is_labeled]
    molecules = sum(lists[row] is not None for row in rows)
    prior = 20.0 * len(residual) / molecules * np.mean(difference**2)
    expected = (difference @ residual + prior / 2.0) / (difference @ difference + prior)
    assert share == pytest.approx(expected, abs=0.011)


def test_rare_labels_are_among_those_that_the_process_learns(frame, monkeypatch):
    monkeypatch.setattr("molattn.training.site_process._MOST_SITES", 60)
    rare = [values if row % 13 == 0 else None for row, values in enumerate(frame["en"])]
    table = frame.assign(rare=rare, split=["val" if row % 5 == 4 else "train" for row in range(40)])
    columns = {"atom_target_columns": ["en", "rare"], "split_column": "split"}
    run = molattn.train(table, [], **columns, **SMALL, epochs=1)
    head = run.model.site_calibration.processes["atom"].head
    assert head.labeled.sum(axis=0).min() > 10
    assert len(head.labeled) <= 120


def test_charges_are_predicted_by_the_network_alone(frame):
    charges = [np.round(np.array(x) - np.mean(x), 6).tolist() for x in frame["en"]]
    columns = {"atom_target_columns": ["q", "en"], "charge_columns": ["q"]}
    run = molattn.train(frame.assign(q=charges), [], **columns, **SMALL, epochs=1)
    process = run.model.site_calibration.processes["atom"]
    assert [task.name for task in process.head.tasks] == ["en"]
    prediction = run.model.predict_atoms(["CCO", "CC(F)N"])
    sums = np.add.reduceat(prediction.outputs[:, 0], prediction.starts[:-1])
    np.testing.assert_allclose(sums, 0.0, atol=1e-5)


def test_predictions_are_lists_in_the_order_of_the_atoms(run, tmp_path):
    path = tmp_path / "predicted.csv"
    (tmp_path / "new.csv").write_text("smiles,en\nCC(F)OC,\n[H]OC,\nwrong,\n")
    console = Console(file=io.StringIO(), width=200)
    predict_table(run.model, tmp_path / "new.csv", path, console=console)
    assert "'en': no scores, as labels of atoms" in console.file.getvalue()
    predicted = pd.read_csv(path)
    values = json.loads(predicted["en_predicted"][0])
    np.testing.assert_allclose(values, [2.55, 2.55, 3.98, 3.44, 2.55], atol=0.4)
    assert json.loads(predicted["en_predicted"][1])[0] is None
    assert len(json.loads(predicted["polarity_low"][0])) == 4
    assert predicted["error"][2] == "name"


def test_intervals_are_scored_by_molecule(run):
    scores = run.run_scores.metrics.uncertainty["en"]
    assert scores["coverage_expected"] == 0.9
    assert 0.5 <= scores["coverage"] <= 1.0
    prediction = run.model.predict_atoms(["CCO", "CC"], level=0.9)
    widths = (prediction.high - prediction.low)[:, 0]
    assert widths[3] == widths[4]
    assert 0.2 < widths[0] / scores["mean_width"] < 5.0
    np.testing.assert_allclose(
        widths / prediction.expected_error[:, 0], widths[0] / prediction.expected_error[0, 0]
    )


@pytest.mark.parametrize("atoms", [False, True])
def test_a_model_without_intervals_says_why_and_what_to_do(run, tmp_path, atoms):
    (tmp_path / "new.csv").write_text("smiles\nCCO\n")
    lines = io.StringIO()
    options = PredictConfig(interval=0.95, atoms=atoms)
    console = Console(file=lines, width=500)
    predict_table(run.model, tmp_path / "new.csv", tmp_path / "out.csv", options, console)
    few = "no 0.95 interval: calibrated on 12 molecules, at least 19 needed: train with a larger"
    assert f"'en': {few} --validation-size" in lines.getvalue()
    joined = molattn.MolAttn.ensemble([run.model])
    predict_table(joined, tmp_path / "new.csv", tmp_path / "out.csv", options, console)
    assert "atoms and bonds are not calibrated" in lines.getvalue()


def test_molecules_without_bonds_or_labels_are_not_scored(frame):
    smiles = ["C", "O", *frame["smiles"]]  # the first have no bond
    splits = ["test", "val", *["train"] * 30, *["val"] * 5, *["test"] * 5]
    labels = [
        [] if split == "test" else atom_values(x) for x, split in zip(smiles, splits, strict=True)
    ]
    table = pd.DataFrame({"smiles": smiles, "en": labels, "split": splits})
    table["polarity"] = [*map(bond_values, smiles)]
    columns = {"atom_target_columns": ["en"], "bond_target_columns": ["polarity"]}
    run = molattn.train(table, [], **columns, split_column="split", epochs=1, **SMALL)
    assert run.run_scores.metrics.uncertainty["en"]["coverage_sd"] is None
    assert run.scores["polarity"]["count"] > 0


def test_coverage_that_does_not_vary_has_no_standard_deviation():
    labels = SiteLabels("atom", (Task("en"),), np.zeros((4, 1)), None, np.array([0, 2, 4]))
    calibration = SiteCalibration({"en": SiteScores(20, (1.0,), (1.0,))})
    for errors, sd in (([0.5, 0.5, 0.5, 0.5], None), ([0.5, 2.0, 0.5, 0.5], 0.25)):
        outputs = np.array(errors)[:, None]
        ends = outputs - 1.0, outputs + 1.0, np.full((4, 1), np.nan)
        prediction = SitePrediction(outputs, *ends, labels.starts)
        scores = score_intervals(labels, prediction, calibration, 0.9)["en"]
        expected = None if sd is None else pytest.approx(sd * np.sqrt(1 / 2 + 1 / 20))
        assert scores["coverage_sd"] == expected


def test_export_says_what_it_leaves_out_of_atoms_and_bonds(run):
    exported = ExportedModel(run.model)
    weights = run.run_scores.metrics.gaussian_process_weights
    processes = run.model.site_calibration.processes
    assert weights == {
        "en": processes["atom"].head.shares[0],
        "polarity": processes["bond"].head.shares[0],
    }
    assert exported.left_out() == [
        f"the Gaussian process of atoms ({weights['en']:.0%} of en)",
        f"the Gaussian process of bonds ({weights['polarity']:.0%} of polarity)",
        "prediction intervals of atoms and bonds",
    ]
    in_file = exported.metadata()["network_weights"]
    assert in_file == pytest.approx({name: 1.0 - weight for name, weight in weights.items()})


def test_report_and_card_are_of_atoms_and_bonds(run, frame, tmp_path):
    run.save(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "mean over tasks" not in page
    assert read_metrics(tmp_path / "run").scores["test"].mean == {}
    counts = {name: scores["count"] for name, scores in run.scores.items()}
    tested = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert f"{len(tested)} test molecules, {sum(counts.values())} labels" in page
    assert "Test bonds with the largest errors" in page
    assert "There were no test rows" not in page
    predicted = [json.loads(cell) for cell in tested["en_predicted"]]
    errors = [
        np.abs(np.subtract(values, atom_values(smiles)))
        for smiles, values in zip(tested["smiles"], predicted, strict=True)
    ]
    worst = int(np.argmax([row.max() for row in errors]))
    line = frame.index[frame["smiles"] == tested["smiles"][worst]][0] + 1
    _, _, cards = page.partition("Test atoms with the largest errors")
    where = re.search(r"in the table</dt><dd>row (\d+), atom (\d+)<", cards)
    assert where is not None
    assert [*map(int, where.groups())] == [line, int(np.argmax(errors[worst]))]
    picture = re.search(r"svg\+xml;base64,([^\"]*)", cards)
    assert picture is not None
    assert b"#F9CC5B" in base64.b64decode(picture[1])  # a mark at the atom
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "model.predict_atoms(" in card
    assert "model.predict_bonds(" in card
    assert "model.predict(" not in card
    assert f"on {counts['en']} labels of {len(tested)} test molecules" in card


def test_saved_run_reads_like_the_run(run, tmp_path):
    for name in ("run", "again"):
        run.save(tmp_path / name)
    metrics = read_metrics(tmp_path / "run")
    assert [task.name for task in metrics.tasks] == ["en", "polarity"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "RMSE, en" in page
    with pytest.raises(InputError, match="expected a run that predicts molecules"):
        compare([tmp_path / "run", tmp_path / "again"])
    row = pd.read_csv(tmp_path / "run" / "predictions.csv").iloc[0]
    predicted = run.model.predict_atoms([row["smiles"]]).outputs[:, 0]
    np.testing.assert_allclose(json.loads(row["en_predicted"]), predicted, rtol=1e-5)
    loaded = molattn.MolAttn.from_pretrained(tmp_path / "run")
    ours, theirs = (model.predict_bonds(["CCO"]) for model in (run.model, loaded))
    np.testing.assert_array_equal(ours.outputs, theirs.outputs)
    assert "`en`: regression" in (tmp_path / "run" / "model" / "README.md").read_text()


def test_atoms_are_learned_beside_molecules_and_with_gaps(frame):
    gaps = [[None, *values[1:]] for values in frame["en"]]
    table = frame.assign(en=gaps)
    table.loc[3, "en"] = ""
    run = molattn.train(table, ["logS"], atom_target_columns=["en"], epochs=1, **SMALL)
    assert {*run.scores} == {"logS", "en"}
    assert "mean over tasks" not in str(run)  # of models that predict other tasks
    assert run.model.predict(["CCO"]).shape == (1, 1)
    labels = sum(len(values) - 1 for row, values in enumerate(gaps) if row != 3)
    assert np.sum(~np.isnan(run.run.table.sites["atom"].targets)) == labels


def test_classes_and_bounds_of_atoms_are_learned(frame, tmp_path):
    metabolized = [[str(value > 3) for value in values] for values in frame["en"]]
    limited = [[f">{values[0]}", *values[1:]] for values in frame["en"]]
    table = frame.assign(som=metabolized, en=limited)
    columns = {"atom_target_columns": ["som", "en"]}
    run = molattn.train(table, [], **columns, epochs=1, **SMALL)
    assert run.scores["som"]["molecule_accuracy"] is not None
    run.run_scores.metrics.write(tmp_path)
    scores = main_test_scores(tmp_path)
    assert {*scores["network"]} == {"en"}  # which alone is averaged
    assert {*scores["test"]} == {"som", "en"}
    assert "censored_permitted" in run.scores["en"]
    assert run.model.predict_atoms(["CCO"]).outputs.shape == (3, 2)


def test_labels_of_hydrogens_make_them_atoms(frame):
    mols = [Chem.AddHs(Chem.MolFromSmiles(smiles)) for smiles in frame["smiles"]]
    values = [[ELECTRONEGATIVITY[a.GetSymbol()] for a in mol.GetAtoms()] for mol in mols]
    table = frame.assign(en=values)
    run = molattn.train(table, [], atom_target_columns=["en"], epochs=1, **SMALL)
    assert run.model.config.hydrogens
    assert len(run.model.predict_atoms(["CCO"]).outputs) == 9


def test_list_of_another_length_is_named_by_row(frame):
    table = frame.assign(en=[[*values, 1.0] for values in frame["en"]])
    with pytest.raises(
        InputError, match=r"row 1, column en: got '\d+ values', expected \d+, one for each atom"
    ):
        molattn.train(table, [], atom_target_columns=["en"], epochs=1, **SMALL)


def test_label_that_cannot_be_read_is_named_by_row_and_atom(frame):
    lists = [*frame["en"]]
    table = frame.assign(en=[lists[0], ["2.5", "x7", *lists[1][2:]], *lists[2:]])
    run = molattn.train(table, [], atom_target_columns=["en"], epochs=1, **SMALL)
    (unreadable,) = run.run.table.unreadable
    assert unreadable.line == 2
    assert "column 'en', atom 1: got 'x7', expected a number" in unreadable.reason


@pytest.mark.parametrize("option", [{"standardize": True}, {"partner_column": "logS"}])
def test_options_that_change_the_atoms_are_refused(frame, option):
    with pytest.raises(InputError, match="cannot be used with atom_target_columns"):
        molattn.train(frame, [], atom_target_columns=["en"], **option, **SMALL)


def test_features_of_molecules_need_a_target_of_molecules():
    with pytest.raises(InputError, match="needs target_columns"):
        DataConfig(target_columns=(), atom_target_columns=("en",), feature_columns=("pH",))


@pytest.mark.parametrize("shift, is_refused", [(0.0, False), (0.2, True)])
def test_labels_that_do_not_sum_to_the_charge_are_refused(shift, is_refused):
    labels = ["[0.5, -0.5]", f"[{1 + shift}]", f"[-1, {shift}, 0]", "[None, 4]"]
    table = pd.DataFrame({"smiles": ["CO", "[Na+]", "[O-]CC", "CN"], "q": labels})
    columns = {"atom_target_columns": ("q",), "charge_columns": ("q",)}
    config = DataConfig(target_columns=(), **columns)
    expected = pytest.raises(InputError, match="2 of 3 molecules") if is_refused else nullcontext()
    with expected:
        read_training_table(table, config, Featurizer.default())


def test_property_lists_of_an_sdf_file_are_read_and_written(tmp_path):
    path = tmp_path / "shifts.sdf"
    with Chem.SDWriter(str(path)) as writer:
        for smiles in molecules():
            mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
            mol = Chem.RenumberAtoms(mol, [*reversed(range(mol.GetNumAtoms()))])
            for atom in mol.GetAtoms():
                if atom.GetSymbol() != "H":
                    atom.SetDoubleProp("en", ELECTRONEGATIVITY[atom.GetSymbol()])
            Chem.CreateAtomDoublePropertyList(mol, "en")
            writer.write(mol)
    run = molattn.train(path, [], atom_target_columns=["en"], epochs=1, **SMALL)
    assert not run.model.config.hydrogens
    table = run.run.table
    assert table.all_tasks[0].name == "en"
    first = table.sites["atom"].molecules(np.array([0])).targets[:, 0]
    expected = atom_values(molecules()[0])[::-1]
    np.testing.assert_allclose(first[~np.isnan(first)], expected)
    predict_table(run.model, path, tmp_path / "predicted.sdf")
    mol = next(Chem.SDMolSupplier(str(tmp_path / "predicted.sdf"), removeHs=False))
    expected = run.model.predict_atoms([mol]).outputs[:, 0]
    values = [a.GetDoubleProp("en_predicted") for a in mol.GetAtoms() if a.GetSymbol() != "H"]
    is_hydrogen = np.array([a.GetSymbol() == "H" for a in mol.GetAtoms()])
    np.testing.assert_allclose(values, expected[~is_hydrogen], rtol=1e-6)
    assert np.isnan(expected[is_hydrogen]).all()


def test_names_of_classes_in_property_lists_have_no_spaces(tmp_path):
    task = Task("site", "binary", ("not a site", "a site"))
    network = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    model = molattn.MolAttn(molattn.MolAttnConfig((), network, atom_tasks=(task,))).eval()
    (tmp_path / "new.csv").write_text("smiles\nCCO\n")
    predict_table(model, tmp_path / "new.csv", tmp_path / "predicted.sdf")
    (mol,) = Chem.SDMolSupplier(str(tmp_path / "predicted.sdf"))
    classes = {atom.GetProp(task.columns[0]) for atom in mol.GetAtoms()}
    assert classes <= {"not_a_site", "a_site"}


@pytest.mark.parametrize(
    "cell", ["{(0, 1): 39}", "{0=5}", "{np.int64(0): 5}", "{0: 1,5}", "{7: 1}"]
)
def test_values_by_atom_that_are_not_understood_are_refused(frame, cell):
    smiles = ["[CH3:7][CH2:7][OH:5]" if "7" in cell else "CCO", *frame["smiles"][1:]]
    table = frame.assign(smiles=smiles, en=[cell, *frame["en"].astype(str)[1:]])
    config = DataConfig(target_columns=(), atom_target_columns=("en",))
    read = read_training_table(table, config, Featurizer.default())
    assert [row.line for row in read.unreadable] == [1]


@pytest.mark.parametrize("is_long", [False, True])
def test_labels_are_in_the_order_of_rdkit_molecules(is_long):
    mol = Chem.MolFromSmiles("CC(F)OCN")
    mols = [Chem.RenumberAtoms(mol, order) for order in ([5, 3, 1, 0, 2, 4], [0, 2, 1, 3, 4, 5])]
    lists = [[ELECTRONEGATIVITY[a.GetSymbol()] for a in mol.GetAtoms()] for mol in mols]
    table = pd.DataFrame({"name": ["a", "b"], "mol": mols, "en": lists})
    options = {"atom_target_columns": ("en",), "smiles_column": "mol"}
    if is_long:
        table = table.assign(atom=[range(6)] * 2).explode(["en", "atom"], ignore_index=True)
        options["atom_index_columns"] = ("atom",)
    config = DataConfig(target_columns=(), **options)
    read = read_training_table(table, config, Featurizer.default())
    np.testing.assert_array_equal(read.sites["atom"].targets[:, 0], np.concatenate(lists))
    kinds = site_kinds(read.records, "atom", Featurizer.default()).tolist()
    assert len({*zip(kinds, np.concatenate(lists).tolist(), strict=True)}) == 4  # C, F, N and O


def test_values_by_map_number_are_read_in_any_order(frame):
    smiles = ["[CH3:7][CH2:3][OH:5]", *frame["smiles"][1:]]
    lists = [str(values) for values in frame["en"][1:]]
    bonds = [str(values) for values in frame["polarity"][1:]]
    table = frame.assign(smiles=smiles, en=["{5: 3.44, 7: 2.5}", *lists])
    table = table.assign(polarity=['{"5-3": 0.9}', *bonds])
    columns = {"atom_target_columns": ["en"], "bond_target_columns": ["polarity"]}
    run = molattn.train(table, [], **columns, epochs=1, **SMALL)
    sites = run.run.table.sites
    first = np.array([0])
    atoms = sites["atom"].molecules(first).targets[:, 0]
    np.testing.assert_array_equal(atoms, [2.5, np.nan, 3.44])
    np.testing.assert_array_equal(sites["bond"].molecules(first).targets[:, 0], [np.nan, 0.9])


def test_atoms_are_predicted_a_row_each(run, tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nCO\nwrong\n[H]OC\n")
    config = PredictConfig(atoms=True)
    predict_table(run.model, tmp_path / "new.csv", tmp_path / "atoms.csv", config)
    rows = pd.read_csv(tmp_path / "atoms.csv")
    assert rows["row"].tolist() == [2, 2, 3, 4, 4, 4]
    assert rows["symbol"].fillna("-").tolist() == ["C", "O", "-", "H", "O", "C"]
    assert rows["en_predicted"].isna().tolist() == [False, False, True, True, False, False]
    model = molattn.MolAttn(molattn.MolAttnConfig(tasks=("logS",)))
    with pytest.raises(InputError, match="predicts no atoms"):
        model.predict_atoms(["CCO"])
    with pytest.raises(InputError, match="predicts no atoms"):
        predict_table(model, tmp_path / "new.csv", tmp_path / "atoms.csv", config)


def test_bonds_are_predicted_a_row_each(run, tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nC=CO\nwrong\nC\n[H]OC\n")
    config = PredictConfig(bonds=True)
    predict_table(run.model, tmp_path / "new.csv", tmp_path / "bonds.csv", config)
    rows = pd.read_csv(tmp_path / "bonds.csv")
    ends = rows[["row", "atom_1", "atom_2", "symbol_1", "symbol_2"]].dropna().to_numpy().tolist()
    bonds = [[2, 0, 1, "C", "C"], [2, 1, 2, "C", "O"], [5, 1, 2, "O", "C"]]
    assert ends == bonds
    assert rows["row"].tolist() == [2, 2, 3, 4, 5]  # each molecule, also one without bonds
    assert rows.loc[rows["error"].notna(), "row"].tolist() == [3]
    outputs = run.model.predict_bonds(["C=CO", "OC"]).outputs[:, 0]
    predicted = rows["polarity_predicted"].dropna()
    np.testing.assert_allclose(predicted, outputs, rtol=1e-5)


def test_atoms_of_elements_without_labels_have_no_prediction(frame, tmp_path):
    shifts = [[x if x == 2.55 else None for x in values] for values in frame["en"]]
    parts = [[str(value > 3) for value in values] for values in frame["en"]]
    energies = [[x if x > 0.2 else None for x in values] for values in frame["polarity"]]
    table = frame.assign(shift=shifts, som=parts, bde=energies)
    columns = {"atom_target_columns": ["shift", "som"], "bond_target_columns": ["bde"]}
    run = molattn.train(table, [], **columns, epochs=1, **SMALL)
    run.model.save_pretrained(tmp_path / "model")
    (tmp_path / "new.csv").write_text("smiles\nCCO\n[H]OC\nN\n")
    console = Console(file=io.StringIO(), width=500)
    predict_table(tmp_path / "model", tmp_path / "new.csv", tmp_path / "out.csv", None, console)
    predicted = pd.read_csv(tmp_path / "out.csv")
    shift, som, bde = (
        predicted[f"{name}_predicted"].map(json.loads) for name in ("shift", "som", "bde")
    )
    assert [[x is None for x in values] for values in shift] == [[0, 0, 1], [1, 1, 0], [1]]
    assert [[x is None for x in values] for values in som] == [[0, 0, 0], [1, 0, 0], [0]]
    assert [[x is None for x in values] for values in bde] == [[1, 0], [1, 0], []]
    for name in ("low", "high", "expected_error"):
        lists = predicted[f"shift_{name}"].map(json.loads)
        assert [values[0] is None for values in lists][1:] == [True, True]
    log = console.file.getvalue()
    assert "'shift', atoms: 3 not predicted, as no training label is of their elements" in log
    assert "'bde', bonds: 1 not predicted" in log
    assert "'som'" not in log
    console = Console(file=io.StringIO(), width=500)
    bonds = PredictConfig(bonds=True)
    predict_table(tmp_path / "model", tmp_path / "new.csv", tmp_path / "bonds.csv", bonds, console)
    log = console.file.getvalue()
    assert "'bde', bonds: 1 not predicted" in log
    assert "'shift', atoms" not in log


def test_models_without_a_list_of_labeled_elements_predict_all_atoms(run):
    model = copy.copy(run.model)
    assert np.isnan(model.predict_atoms(["CI"]).outputs[1]).all()
    model.site_calibration = SiteCalibration(run.model.site_calibration.scores)
    assert np.isfinite(model.predict_atoms(["CI"]).outputs).all()
