"""Tasks that are predicted of molecules as written, where the others are of their parents."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from rich.console import Console

import molattn
from molattn import MolAttn, MolAttnConfig
from molattn.chem.reader import Fields
from molattn.config import NetworkConfig, PredictConfig
from molattn.explain import explain
from molattn.inference import predict_table
from molattn.task import Task

from ..conftest import rows_of, saved

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
CLASSES = ("a", "b", "c")
TASKS = (Task("phase", "multiclass", CLASSES), Task("y", unit="mg"), Task("z"))
SALT = "CCN(CC)CCO.Cl"
ION = "CC[NH+](CC)CCO.[Cl-]"
PARENT = "CCN(CC)CCO"
MOLECULES = ["CCO", SALT, PARENT, "C(", "CC(=O)[O-].[Na+]"]
READABLE = [MOLECULES[row] for row in (0, 1, 2, 4)]


@pytest.fixture(scope="module")
def model():
    """A calibrated model of parents, with two tasks of molecules as written."""
    torch.manual_seed(0)
    config = MolAttnConfig(TASKS, SMALL, standardize="parent", written_tasks=("phase", "z"))
    model = MolAttn(config).eval()
    smiles = ["C" * n for n in range(1, 31)]
    labels = [[n % 3, n / 30, n / 10] for n in range(30)]
    model.calibrate(smiles, labels, [*smiles, PARENT])
    return model


def of_parents(model):
    parents = MolAttn.from_files(model.to_files())
    parents.config = replace(model.config, written_tasks=())
    return parents


def test_each_task_is_predicted_of_its_form(model):
    written = np.array([True, True, True, False, True])  # outputs of phase, y, z
    outputs = model.predict(READABLE)
    parents = of_parents(model).predict(READABLE)
    as_given = model.as_given().predict(READABLE)
    np.testing.assert_allclose(outputs, np.where(written, as_given, parents), rtol=1e-5)
    assert (np.abs(parents - as_given)[[1, 3]] > 1e-6).all()
    np.testing.assert_array_equal(model.predict(READABLE, as_given=True), as_given)
    mols = [Chem.MolFromSmiles(text) for text in READABLE]
    np.testing.assert_allclose(model.predict(mols), outputs, rtol=1e-5)


def test_intervals_and_confidence_are_of_the_same_form(model):
    written = np.array([True, False, True])
    others = model.as_given(), of_parents(model)
    is_salt = np.array([False, True, False, True])
    for method in (MolAttn.predict_interval, MolAttn.predict_confidence):
        arrays = [method(m, READABLE) for m in (model, *others)]
        for own, given, parents in zip(*arrays, strict=True):
            expected = np.where(written, given, parents)
            np.testing.assert_array_equal(own[~is_salt], expected[~is_salt])
            np.testing.assert_array_equal(own[is_salt, 1], expected[is_salt, 1])
    reasons = np.array([m.explain_confidence(READABLE) for m in (model, *others)])
    assert reasons[0, 1, 1].startswith("nearest 1.00")
    assert not reasons[0, 1, 2].startswith("nearest 1.00")


def test_the_interval_of_a_salt_is_that_of_half_its_similarity(model):
    ((low, high), (low_of_given, high_of_given)) = (
        m.predict_interval([SALT]) for m in (model, model.as_given())
    )
    (similarity,) = model.as_given().training_similarity([SALT])
    near = model.uncertainty.calibration.parts[2].near
    widened = (high - low)[0, 2] / (high_of_given - low_of_given)[0, 2]
    assert widened == pytest.approx(near ** (-similarity / 2), rel=1e-6)
    assert "as the molecule is a salt" in model.explain_confidence([SALT])[0][2]


def test_a_salt_differs_from_its_parent_in_tasks_of_molecules_as_written(model):
    difference = model.predict_difference([SALT, PARENT], [PARENT, SALT])
    salt, parent = difference.difference
    np.testing.assert_allclose(salt, -parent, rtol=1e-5)
    assert salt[3] == 0.0
    assert salt[4] != 0.0
    assert difference.low[0, 1] == difference.high[0, 1] == 0.0
    assert difference.low[0, 2] < salt[4] < difference.high[0, 2]
    # Their errors count as independent.
    low, high = model.predict_interval([SALT, PARENT])
    width = np.hypot(*(high - low)[:, 2])
    assert difference.high[0, 2] - difference.low[0, 2] == pytest.approx(width, rel=1e-5)


def test_two_drawings_of_a_salt_as_written_have_one_prediction(model):
    salt, drawn_otherwise = model.predict([SALT, ION])
    np.testing.assert_array_equal(salt, drawn_otherwise)


def test_a_table_has_the_predictions_of_the_parent_beside_them(model, tmp_path):
    table = saved(tmp_path, "smiles\n" + "\n".join(MOLECULES) + "\n")
    log = io.StringIO()
    console = Console(file=log, width=200)
    predict_table(model, table, tmp_path / "out.csv", PredictConfig(), console)
    rows = rows_of(tmp_path / "out.csv")
    parents = of_parents(model).predict(READABLE)[:, 4]
    values = [rows[row]["z_predicted_of_parent"] for row in range(5)]
    assert values[0] == values[2] == values[3] == ""
    assert [float(values[1]), float(values[4])] == pytest.approx(parents[[1, 3]], rel=1e-5)
    assert float(rows[2]["z_predicted"]) == pytest.approx(float(values[1]), rel=1e-5)
    assert rows[1]["parent"] == PARENT
    assert "y_predicted_of_parent" not in rows[0]
    assert "predicted as parent, phase, z as written" in log.getvalue()


def test_an_explanation_is_of_the_form_that_is_predicted(model):
    assert explain(model, SALT, target="z").num_atoms == 9
    assert explain(model, SALT, target="y").num_atoms == 8
    assert explain(model, ION, target="z").smiles == Chem.CanonSmiles(SALT)
    assert explain(model, SALT, target="z").prediction == pytest.approx(
        model.predict([SALT])[0, 4], abs=1e-5
    )


def rows_of_neighbors(model):
    return {
        task: [[neighbor.row for neighbor in near] for near in molecules]
        for task, molecules in model.neighbors(READABLE, 3).items()
    }


def test_neighbors_are_of_the_form_that_is_predicted(tmp_path):
    smiles = ["C" * n + end for n in range(1, 11) for end in ("O", "N", "N.Cl")]
    frame = pd.DataFrame({"smiles": smiles, "y": range(30), "z": range(30)})
    model = molattn.train(
        frame, ["y", "z"], predictor="gaussian_process", descriptors="none", test_size=0.0
    ).model
    model.config = replace(model.config, standardize="parent", written_tasks=("z",))
    models = model, of_parents(model), model.as_given()
    mixed, parents, as_given = map(rows_of_neighbors, models)
    assert mixed["y"] == parents["y"]
    assert mixed["z"] == as_given["z"] != parents["z"]
    table = saved(tmp_path, "smiles\n" + "\n".join(READABLE) + "\n")
    predict_table(model, table, tmp_path / "out.csv", PredictConfig(neighbors=1))
    written = [int(row["z_neighbor_1_row"]) for row in rows_of(tmp_path / "out.csv")]
    assert written == [near[0] for near in as_given["z"]]


def test_a_worker_reads_both_forms_by_itself(model, monkeypatch):
    workers = []

    def map_here(function, blocks, count):
        workers.append(count)
        return map(function, blocks)

    monkeypatch.setattr("molattn.chem.reader.parallel_map", map_here)
    reader = replace(model.config.reader(Fields()), num_workers=2)
    records = [*reader([SALT, "CCO", "CC(=O)[O-].[Na+]", "[NH3+]CC(=O)[O-]"])]
    assert [record.written is None for record in records] == [False, True, False, True]
    assert workers == [1, 0]
