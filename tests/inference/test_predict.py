import copy
import io
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

from molattn.config import NetworkConfig, PredictConfig
from molattn.data.table import open_table
from molattn.errors import InputError
from molattn.inference import predict_table, streaming
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.predictor import Predictor
from molattn.task import Task

from ..conftest import rows_of, saved

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
PHASES = ("gas", "liquid", "solid")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(("y", "z"), SMALL)).eval()
    model.set_target_scaling([1.0, 100.0], [2.0, 30.0])
    return model


@pytest.fixture(scope="module")
def rich():
    """A model of every kind of task, with features."""
    torch.manual_seed(0)
    tasks = Task("y"), Task("toxic", "binary", ("no", "yes")), Task("phase", "multiclass", PHASES)
    model = MolAttn(MolAttnConfig(tasks, SMALL, features=("pH", "T"))).eval()
    model.set_feature_scaling([7.0, 300.0], [1.0, 10.0])
    return model


def predicted(model, folder, text, **options):
    """Predict the text of a CSV file, and return the rows of the output."""
    source, output = saved(folder, text), folder / "out.csv"
    predict_table(model, source, output, PredictConfig(**options))
    return rows_of(output)


def shown():
    return Console(file=io.StringIO(), width=200)


def test_a_ragged_row_has_a_reason_and_a_table_may_be_empty(tmp_path, model):
    rows = predicted(model, tmp_path, 'smiles,note\nCCO,"a, b"\nCC\nC,x\n')
    found = [(row["note"], row["error"]) for row in rows]
    assert found == [("a, b", ""), ("", "ragged"), ("x", "")]
    assert predicted(model, tmp_path, "smiles\n") == []


@pytest.mark.parametrize(
    "options, members",
    [({}, 3), ({"gate": True, "update_edges": True}, 1)],
    ids=["ensemble", "gates and updated edges"],
)
def test_bf16_changes_predictions_by_little(tmp_path, options, members):
    network = NetworkConfig(width=8, heads=2, layers=2, **options)
    tasks = Task("y"), Task("c", "multiclass", ("a", "b", "c"))
    model = MolAttn(MolAttnConfig(tasks, network, members=members)).eval()
    text = "smiles\n" + "".join("C" * n + "O\n" for n in range(1, 30))
    found = []
    for precision in ("fp32", "bf16"):
        rows = predicted(model, tmp_path, text, precision=precision)
        names = ["y_predicted", "c_probability_a"]
        found.append([[float(row[name]) for name in names] for row in rows])
    assert 1e-5 < np.abs(np.subtract(*found)).max() < 0.05


@pytest.mark.parametrize("updates", [False, True])
def test_no_code_is_kept_for_numbers_of_pairs(tmp_path, monkeypatch, updates):
    """With oneDNN, memory grows with the number of batches of different sizes."""
    model = MolAttn(MolAttnConfig(("y",), replace(SMALL, update_edges=updates)))
    seen, combined = [], Predictor.with_gaussian_process

    def computed(self, *args):
        seen.append(torch.backends.mkldnn.enabled)
        return combined(self, *args)

    monkeypatch.setattr(Predictor, "with_gaussian_process", computed)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    predicted(model, tmp_path, "smiles\nCC\n")
    assert seen == [not updates]
    assert torch.backends.mkldnn.enabled


def test_classes_come_with_probabilities_and_features_are_read(tmp_path, rich):
    text = "id,T,smiles,pH\n1,300,CCO,7\n2,290,CCC,2\n"
    rows = predicted(rich, tmp_path, text)
    probabilities = ["toxic_probability_yes", *(f"phase_probability_{phase}" for phase in PHASES)]
    names = ["y_predicted", "toxic_predicted", probabilities[0], "phase_predicted"]
    assert list(rows[0])[4:] == [*names, *probabilities[1:], "error"]
    expected = rich.predict(["CCO", "CCC"], features=[[7, 300], [2, 290]])
    for row, values in zip(rows, expected, strict=True):
        found = [float(row[name]) for name in ("y_predicted", *probabilities)]
        np.testing.assert_allclose(found, values, rtol=1e-5)
        assert row["toxic_predicted"] == ("yes" if values[1] > 0.5 else "no")
        assert row["phase_predicted"] == PHASES[int(np.argmax(values[2:]))]
    (tmp_path / "in.csv").write_text("smiles;pH;T\nCCO;7,0;300\n")
    console = shown()
    predict_table(rich, tmp_path / "in.csv", tmp_path / "out.csv", console=console)
    assert "expected a number in each column 'pH', 'T'" in console.file.getvalue()


@pytest.mark.parametrize("member, output, bad", [(0, 0, np.nan), (1, 1, -np.inf)])
def test_a_row_with_one_number_that_is_not_finite_has_no_prediction(
    tmp_path, model, monkeypatch, member, output, bad
):
    combined = Predictor.with_gaussian_process

    def damaged(self, *args):
        outputs = combined(self, *args)
        outputs[member, 1, output] = bad
        return outputs

    monkeypatch.setattr(Predictor, "with_gaussian_process", damaged)
    rows = predicted(MolAttn.ensemble([model, model]), tmp_path, "smiles\nCCO\nCC\nC\n")
    assert [row["error"] for row in rows] == ["", "not_finite", ""]
    for name in ("y_predicted", "z_std"):
        assert [row[name] != "" for row in rows] == [True, False, True]
    drawn = "smiles\nC[S+](C)[O-]\nCC[S+](C)[O-]\nC\n"
    found = screened(MolAttn.ensemble([model, model]), tmp_path, drawn)
    assert found.tally.redrawn == 1  # of the rows with a prediction


def test_an_output_that_would_overwrite_what_is_read_is_refused(tmp_path, model):
    source = saved(tmp_path, "smiles\nC\n")
    (tmp_path / "link.csv").symlink_to(source)
    with pytest.raises(InputError) as error:
        predict_table(model, source, tmp_path / "link.csv")
    assert error.value.option == "output"


def test_names_of_columns_are_no_formulas(tmp_path, model):
    for escapes, name in ((True, "'=1+1"), (False, "=1+1")):
        rows = predicted(model, tmp_path, "=1+1,smiles\nx,CCO\n", escape_formulas=escapes)
        assert [*rows[0]][:2] == [name, "smiles"]
    predict_table(model, tmp_path / "in.csv", tmp_path / "out.parquet")
    assert open_table(tmp_path / "out.parquet").header[:2] == ["=1+1", "smiles"]


def test_the_standardized_smiles_is_written_where_it_differs(tmp_path):
    config = MolAttnConfig("y", SMALL, partner_column="solvent", standardize=True)
    model = MolAttn(config).eval()
    given = ["CC(=O)[O-].[Na+]", "CC(=O)O", "OCC", "C(", "Oc1ccccn1"]
    seconds = ["O", "O", "[O-]C=O.[Na+]", "O", "C("]
    table = "".join(f"{one},{other}\n" for one, other in zip(given, seconds, strict=True))
    source, output = saved(tmp_path, f"smiles,solvent\n{table}"), tmp_path / "out.parquet"
    predict_table(model, source, output)
    rows = pq.read_table(output).to_pylist()
    columns = ["standardized_smiles", "standardized_partner"]
    assert [*rows[0]] == ["smiles", "solvent", "y_predicted", *columns, "error"]
    found = [[row[name] or "" for name in columns] for row in rows]
    assert found == [["CC(=O)O", ""], ["", ""], ["", "O=CO"], ["", ""], ["", ""]]
    assert [row["error"] for row in rows[3:]] == ["parenthesis", "partner_parenthesis"]
    values = [float(row["y_predicted"]) for row in rows[:3]]
    np.testing.assert_allclose(values, model.predict(given[:3], partners=seconds[:3])[:, 0], 1e-6)


def test_a_model_of_parents_predicts_them_unless_as_given(tmp_path):
    model = MolAttn(MolAttnConfig("y", SMALL, standardize="parent")).eval()
    salt, acid = "CC(=O)[O-].[Na+]", "CC(=O)O"
    source = saved(tmp_path, f"smiles\n{salt}\n{acid}\n[Na+].[Cl-]\nC(\n")
    for as_given, parents in ((False, [acid, "", "", ""]), (True, None)):
        options, log = PredictConfig(as_given=as_given), Console(file=io.StringIO())
        predict_table(model, source, tmp_path / "out.csv", options, log)
        rows = rows_of(tmp_path / "out.csv")
        refused = "" if as_given else "no_parent"
        assert [row["error"] for row in rows] == ["", "", refused, "parenthesis"]
        assert parents == ([row["parent"] for row in rows] if "parent" in rows[0] else None)
        assert ("counterions or charges from 1 molecule," in log.file.getvalue()) != as_given
        expected = model.predict([salt, acid], as_given=as_given)[:, 0]
        np.testing.assert_allclose([float(row["y_predicted"]) for row in rows[:2]], expected, 1e-6)
        assert (expected[0] == pytest.approx(expected[1], rel=1e-6)) != as_given
    model.config = replace(model.config, standardize=True)
    with pytest.raises(InputError) as error:
        model.as_given()
    assert error.value.option == "as_given"


# Labels beside the predictions.


def screened(model, folder, text, **options):
    config = PredictConfig(**options)
    return predict_table(model, saved(folder, text), folder / "out.csv", config)


def test_predictions_are_compared_with_labels_of_the_same_names(tmp_path, model):
    text = "Y,smiles,z\n1.5,CCO,NA\nx,CC,2\n2,nonsense,3\n,C,\n-1,CCC,4\n"
    found = screened(model, tmp_path, text)
    np.testing.assert_array_equal(found.target, [[1.5, np.nan], [np.nan, 2.0], [-1.0, 4.0]])
    np.testing.assert_allclose(found.prediction, model.predict(["CCO", "CC", "CCC"]), rtol=1e-5)
    assert found.tally.unusable == {"y": 1, "z": 0}
    assert len(screened(model, tmp_path, "smiles,Y,y ,y\nC,1,1,1\n").target) == 1
    assert len(screened(model, tmp_path, "smiles,y,y\nC,1,1\n").target) == 0


def test_classes_are_compared_with_labels(tmp_path, rich):
    text = "pH,T,smiles,toxic,phase\n7,300,C,yes,solid\n7,300,CC,no,\n7,300,CCC,maybe,gas\n"
    found = screened(rich, tmp_path, text)
    expected = [[np.nan, 1.0, 2.0], [np.nan, 0.0, np.nan], [np.nan, np.nan, 0.0]]
    np.testing.assert_array_equal(found.target, expected)
    assert found.tally.unusable == {"toxic": 1, "phase": 0}


def test_censored_labels_are_counted_and_kept_as_bounds(tmp_path, model):
    nan, text = np.nan, "smiles,y,z,of_y,of_z\nCCO,>2,1,,\nCC,2,3,<,=\nCCC,3,4,=,?\nC,4,<5,<,\n"
    found = screened(model, tmp_path, text)
    np.testing.assert_array_equal(found.target, [[nan, 1], [2, 3], [3, 4], [4, nan]])
    assert found.tally.censored == {"y": 1, "z": 1}
    known = MolAttn(replace(model.config, relation_columns=("of_y", "of_z")))  # of the training
    found = screened(known, tmp_path, text)
    np.testing.assert_array_equal(found.target, [[nan, 1], [nan, 3], [3, nan], [nan, nan]])
    np.testing.assert_array_equal(found.bounds[0], [[2, nan], *[[nan, nan]] * 3])
    np.testing.assert_array_equal(found.bounds[1], [[nan, nan], [2, nan], [nan, nan], [4, 5]])
    assert found.tally.censored == {"y": 3, "z": 1}
    assert found.tally.unusable == {"y": 0, "z": 1}


def test_limits_are_read_from_the_columns_of_the_training(tmp_path, model):
    nan, text = np.nan, "smiles,y,y_low,y_high\nCCO,,2,3\nCC,2,1,4\nCCC,3,,4\nC,4,5,6\n"
    known = MolAttn(replace(model.config, interval_columns=("y_low", "y_high", "z_l", "z_h")))
    found = screened(known, tmp_path, text)
    np.testing.assert_array_equal(found.target[:, 0], [2.5, 2, nan])
    np.testing.assert_array_equal(found.bounds[:, :, 0], [[2, 1, nan], [3, 4, 4]])
    assert found.tally.censored == {"y": 1}
    assert found.tally.unusable == {"y": 1}
    # Beside predictions they are predicted too.
    text = text.replace("\n", ",0\n").replace("y_high,0", "y_high,y_predicted")
    found = screened(known, tmp_path, text)
    np.testing.assert_array_equal(found.target[:, 0], [2, 3, 4])


def test_known_molecules_and_grades_of_confidence_are_counted(tmp_path, model):
    known = copy.deepcopy(model)
    training = ["CCCCO", "c1ccccc1"]
    known.calibrate(["CCO", "CCN"] * 15, np.zeros((30, 2)), training)
    text = "smiles,y\nc1ccccc1,1\nN#N,\nCCCCO,2\nCCCCO,\nnonsense,3\n"
    tally = screened(known, tmp_path, text).tally
    grades = known.predict_confidence(["c1ccccc1", "N#N", "CCCCO", "CCCCO"])[0]
    names, counts = np.unique(grades, return_counts=True)
    assert tally.confidence == dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert tally.trained == 2


# Workers.


def labeled_table(folder, count):
    """Rows with labels of y, of which some are missing, censored or none, and faulty rows."""
    smiles = ["CCO", "C1CC", "c1ccccc1O", "", "CC(=O)Nc1ccc(O)cc1", "C" * 30, "nan"]
    labels = ["1.5", "", ">10", "-2", "text", "0.25"]
    texts = [(smiles[n % len(smiles)], labels[n % len(labels)]) for n in range(count)]
    lines = [f'{n},{text},{label},"=1, {n}"' for n, (text, label) in enumerate(texts)]
    lines[7] += ",one more"
    return saved(folder, "id,smiles,y,note\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    "engine, name",
    [
        ("local", "out.csv"),
        pytest.param("ray", "out.csv.gz", marks=pytest.mark.ray),
        pytest.param("ray", "out.parquet", marks=pytest.mark.ray),
    ],
)
def test_workers_change_no_byte(tmp_path, model, monkeypatch, request, engine, name):
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", 32)
    source, config = labeled_table(tmp_path, 300), PredictConfig(batch_size=8)
    workers = replace(config, num_workers=1)
    if engine == "ray":
        address = request.getfixturevalue("ray_cluster").address
        workers = replace(config, engine="ray", ray_address=address)
    one, other = (
        predict_table(model, source, tmp_path / f"{number}-{name}", options)
        for number, options in enumerate((config, workers))
    )
    assert (tmp_path / f"0-{name}").read_bytes() == (tmp_path / f"1-{name}").read_bytes()
    assert repr(replace(one.tally, seconds=0)) == repr(replace(other.tally, seconds=0))
    assert one.tally.unusable["y"]
    assert one.tally.censored["y"]


def test_a_missing_ray_is_an_error(tmp_path, model, monkeypatch):
    monkeypatch.setattr("molattn.utils.workers.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "molattn\[ray\]"'):
        predicted(model, tmp_path, "smiles\nCCO\n", engine="ray")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
