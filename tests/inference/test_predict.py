import copy
import io
import itertools
import os
import re
import signal
from dataclasses import replace
from datetime import date, datetime

import numpy as np
import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from rdkit import Chem
from rich.console import Console

from molattn.chem import Featurizer, parse_smiles
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.config import NetworkConfig, PredictConfig
from molattn.data.store.prepare import prepare_store
from molattn.data.table import SMILESList, open_table
from molattn.data.table.text import DelimitedTable
from molattn.errors import InputError, MolattnError
from molattn.inference import parts, streaming
from molattn.inference.parts import resume_hint
from molattn.inference.predict import predict_table, screen_table
from molattn.inference.streaming import RowCounts
from molattn.model import batching
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.prediction_columns import number_text
from molattn.model.predictor import Predictor
from molattn.task import Task

from ..conftest import rows_of, saved


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    model = MolAttn(MolAttnConfig(("y", "z"), small)).eval()
    model.set_target_scaling([1.0, 100.0], [2.0, 30.0])
    return model


def test_every_row_comes_out_in_order_with_its_columns(tmp_path, model, model_folder):
    source = saved(
        tmp_path,
        'id,smiles,note\n1,CCO,"a, b"\n2,nan,\n3,c1ccccc1,x\n4,C(C,\n5,CC\n6,CCO,y\n7,,\n',
    )
    output = tmp_path / "out.csv"
    assert predict_table(model_folder, source, output) == RowCounts(3, 4)
    rows = rows_of(output)
    assert list(rows[0]) == ["id", "smiles", "note", "y_predicted", "z_predicted", "error"]
    assert [row["id"] for row in rows] == list("1234567")
    assert [row["note"] for row in rows] == ["a, b", "", "x", "", "", "y", ""]
    assert [bool(row["error"]) for row in rows] == [False, True, False, True, True, False, True]
    assert rows[4]["error"] == "ragged"
    for row in rows:
        if row["error"]:
            assert row["error"].replace("_", "").isalnum()
            assert (row["y_predicted"], row["z_predicted"]) == ("", "")
    found = [[float(r["y_predicted"]), float(r["z_predicted"])] for r in rows if not r["error"]]
    np.testing.assert_allclose(found, model.predict(["CCO", "c1ccccc1", "CCO"]), rtol=1e-6)


def test_the_batch_size_and_bad_rows_change_no_prediction(tmp_path, model_folder):
    smiles = ["C" * n for n in range(1, 20)]
    source = saved(tmp_path, "smiles\n" + "\n".join(smiles) + "\n")
    outputs = []
    for size in (1, 7, 64):
        predict_table(model_folder, source, tmp_path / "out.csv", PredictConfig(batch_size=size))
        outputs.append(rows_of(tmp_path / "out.csv"))
    mixed = saved(tmp_path, "smiles\n" + "\nnonsense\n".join(smiles) + "\n")
    assert predict_table(model_folder, mixed, tmp_path / "out.csv") == (19, 18)
    outputs.append([row for row in rows_of(tmp_path / "out.csv") if not row["error"]])
    values = np.array([[float(row["y_predicted"]) for row in rows] for rows in outputs])
    np.testing.assert_allclose(values, np.tile(values[0], (4, 1)), rtol=1e-5, atol=1e-5)


_NUMBERS = (Task("y"), Task("z"))
_CLASSES = (Task("y", "multiclass", ("a", "b", "c")), Task("z", "binary", ("0", "1")))


@pytest.mark.parametrize(
    "tasks, options, members",
    [
        (_NUMBERS, {}, 3),
        (_NUMBERS, {"gate": True, "update_edges": True}, 1),
        (_NUMBERS, {"score": "additive", "combine": "max"}, 1),
        (_NUMBERS, {"layer": "mat", "pairs": "bonds"}, 1),
        (_CLASSES, {}, 1),
    ],
    ids=["ensemble", "gates and updated edges", "additive", "MAT, bonds", "classes"],
)
def test_bf16_changes_predictions_by_little(tmp_path, tasks, options, members):
    network = NetworkConfig(width=8, heads=2, layers=2, **options)
    model = MolAttn(MolAttnConfig(tasks, network, members=members)).eval()
    model.save_pretrained(tmp_path / "model")
    source = saved(tmp_path, "smiles\n" + "\n".join("C" * n + "O" for n in range(1, 30)) + "\n")
    found = {}
    for precision in ("fp32", "bf16"):
        settings = PredictConfig(precision=precision)
        predict_table(tmp_path / "model", source, tmp_path / "out.csv", settings)
        rows = rows_of(tmp_path / "out.csv")
        numbers = [name for name, cell in rows[0].items() if re.fullmatch(r"-?\d+\.\d+", cell)]
        assert len(numbers) >= 2
        assert not any(row["error"] for row in rows)
        found[precision] = np.array([[float(row[name]) for name in numbers] for row in rows])
    assert 1e-5 < np.abs(found["bf16"] - found["fp32"]).max() < 0.05
    with pytest.raises(InputError, match="precision: got 'fp16'"):
        PredictConfig(precision="fp16")


@pytest.mark.parametrize(
    "number, text", [(-0.0, "0"), (0.1, "0.1"), (-1234.5678901, "-1234.5678901"), (1e-30, "1e-30")]
)
def test_numbers_are_written_with_seven_digits_or_all(number, text):
    assert number_text(number) == text


def test_large_molecules_go_in_smaller_batches(tmp_path, model, model_folder, monkeypatch):
    sizes, network_outputs = [], MolAttn.network_outputs

    def predicting(self, records, *args, **options):
        sizes.append([record.num_atoms for record in records])
        return network_outputs(self, records, *args, **options)

    monkeypatch.setattr(batching, "MOST_PAIRS", 100)
    monkeypatch.setattr(MolAttn, "network_outputs", predicting)
    source = saved(tmp_path, "smiles\n" + "\n".join("C" * n for n in (2, 3, 20, 9, 5, 5, 5)))
    predict_table(model_folder, source, tmp_path / "out.csv", PredictConfig(batch_size=3))
    assert sizes == [[2, 3], [20], [9], [5, 5, 5]]


def test_a_table_is_read_as_it_is_predicted(tmp_path, model_folder, monkeypatch):
    """Rows are written before the last one is read: memory does not grow with the table."""
    events = []
    table_rows, predictions = DelimitedTable.__iter__, streaming.computed

    def read(table):
        for row in table_rows(table):
            events.append("read")
            yield row

    def predicted(spec, batch):
        events.append("predict")
        return predictions(spec, batch)

    monkeypatch.setattr(DelimitedTable, "__iter__", read)
    monkeypatch.setattr(streaming, "computed", predicted)
    monkeypatch.setattr(streaming, "_BLOCK", 4)
    source = saved(tmp_path, "smiles\n" + "CC\n" * 40)
    predict_table(model_folder, source, tmp_path / "out.csv", PredictConfig(batch_size=4))
    runs = [len(list(same)) for event, same in itertools.groupby(events) if event == "read"]
    assert sum(runs) == 40
    assert max(runs) <= 4


@pytest.mark.parametrize("updates", [False, True])
def test_no_code_is_kept_for_numbers_of_pairs(tmp_path, monkeypatch, updates):
    """With oneDNN, memory grows with the number of batches of different sizes."""
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4, update_edges=updates)
    MolAttn(MolAttnConfig(("y",), small)).save_pretrained(tmp_path / "model")
    seen, network_outputs = [], MolAttn.network_outputs

    def predicting(self, *args, **options):
        seen.append(torch.backends.mkldnn.enabled)
        return network_outputs(self, *args, **options)

    monkeypatch.setattr(MolAttn, "network_outputs", predicting)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    predict_table(tmp_path / "model", saved(tmp_path, "smiles\nCC\n"), tmp_path / "out.csv")
    assert seen == [not updates]
    assert torch.backends.mkldnn.enabled


@pytest.fixture(scope="module")
def rich_folder(tmp_path_factory):
    """A model of every kind of task, with features."""
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    tasks = (
        Task("y", unit="mM"),
        Task("toxic", "binary", ("no", "yes")),
        Task("phase", "multiclass", ("gas", "liquid", "solid")),
    )
    model = MolAttn(MolAttnConfig(tasks, small, features=("pH", "T"))).eval()
    model.set_feature_scaling([7.0, 300.0], [1.0, 10.0])
    folder = tmp_path_factory.mktemp("rich") / "model"
    model.save_pretrained(folder)
    return folder


RICH = """id,T,smiles,pH
1,300,CCO,7
2,,CC,7
3,300,CC,hot
4,310,nonsense,7
5,290,c1ccccc1,2
"""


def test_classes_come_with_probabilities_and_features_are_read(tmp_path, rich_folder):
    output = tmp_path / "out.csv"
    assert predict_table(rich_folder, saved(tmp_path, RICH), output) == (2, 3)
    rows = rows_of(output)
    phases = ["gas", "liquid", "solid"]
    assert list(rows[0])[4:] == [
        "y_predicted",
        "toxic_predicted",
        "toxic_probability_yes",
        "phase_predicted",
        *(f"phase_probability_{phase}" for phase in phases),
        "error",
    ]
    assert [row["error"] for row in rows][:3] == ["", "missing_feature", "bad_feature"]
    assert all(row["y_predicted"] == row["phase_predicted"] == "" for row in rows[1:4])
    expected = MolAttn.from_pretrained(rich_folder).predict(
        ["CCO", "c1ccccc1"], features=[[7, 300], [2, 290]]
    )
    for row, values in zip((rows[0], rows[4]), expected, strict=True):
        found = [row["y_predicted"], row["toxic_probability_yes"]]
        found += [row[f"phase_probability_{phase}"] for phase in phases]
        np.testing.assert_allclose([float(cell) for cell in found], values, rtol=1e-5)
        assert row["toxic_predicted"] == ("yes" if values[1] > 0.5 else "no")
        assert row["phase_predicted"] == phases[int(np.argmax(values[2:]))]


def test_what_no_row_has_is_told(tmp_path, rich_folder):
    (tmp_path / "in.csv").write_text("smiles;pH;T\nCCO;7,0;300\nCC;7,5;300\n")
    shown = io.StringIO()
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    predict_table(rich_folder, source, output, console=Console(file=shown, width=200))
    assert "every row has an error; expected a number in each column 'pH', 'T'" in shown.getvalue()
    with pytest.raises(InputError, match="'pH'"):
        predict_table(rich_folder, SMILESList(["CCO"]), output)


def test_a_feature_that_the_table_lacks_is_named(tmp_path, rich_folder):
    source = saved(tmp_path, "smiles,pHs,T\nC,7,300\n")
    with pytest.raises(InputError, match=r"'pH' \(a feature of the model\); did you mean 'pHs'"):
        predict_table(rich_folder, source, tmp_path / "out.csv")


@pytest.mark.parametrize("escapes, name", [(True, "'=1+1"), (False, "=1+1")])
def test_a_name_of_a_column_is_no_formula(tmp_path, model_folder, escapes, name):
    source, config = saved(tmp_path, "=1+1,smiles\nx,CCO\n"), PredictConfig(escape_formulas=escapes)
    predict_table(model_folder, source, tmp_path / "out.csv", config)
    predict_table(model_folder, source, tmp_path / "out.parquet", config)
    assert [*rows_of(tmp_path / "out.csv")[0]][:2] == [name, "smiles"]
    assert open_table(tmp_path / "out.parquet").header[:2] == ["=1+1", "smiles"]


def test_a_prediction_that_is_no_number_becomes_a_reason(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr(MolAttn, "_transformed", lambda self, outputs: outputs + torch.inf)
    source = saved(tmp_path, "smiles\nCCO\n")
    assert predict_table(model_folder, source, tmp_path / "out.csv") == (0, 1)
    assert rows_of(tmp_path / "out.csv") == [
        {"smiles": "CCO", "y_predicted": "", "z_predicted": "", "error": "not_finite"}
    ]


@pytest.mark.parametrize("member, output, bad", [(0, 0, np.nan), (1, 1, np.inf), (0, 1, -np.inf)])
def test_a_row_with_one_number_that_is_not_finite_has_no_prediction(
    tmp_path, model, monkeypatch, member, output, bad
):
    combined = Predictor.combined

    def damaged(self, *args):
        outputs = combined(self, *args)
        outputs[member, 1, output] = bad
        return outputs

    monkeypatch.setattr(Predictor, "combined", damaged)
    source = saved(tmp_path, "smiles\nCCO\nCC\nC\n")
    predict_table(MolAttn.ensemble([model, model]), source, tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert [row["error"] for row in rows] == ["", "not_finite", ""]
    assert [row["y_predicted"] != "" for row in rows] == [True, False, True]
    assert [row["z_std"] != "" for row in rows] == [True, False, True]


def test_a_molecule_is_parsed_once_for_all_that_is_said_of_it(tmp_path, model, monkeypatch):
    known = copy.deepcopy(model)
    smiles = ["CCO", "c1ccccc1O", "CCCCN"]
    known.calibrate(smiles * 10, np.zeros((30, 2)), smiles[:2])
    known.save_pretrained(tmp_path / "model")
    parsed = []

    def parse(text, **limits):
        parsed.append(text)
        return parse_smiles(text, **limits)

    monkeypatch.setattr("molattn.chem.limits.parse_smiles", parse)
    source = saved(tmp_path, "smiles\n" + "\n".join([*smiles, "C(C", smiles[0]]) + "\n")
    assert predict_table(tmp_path / "model", source, tmp_path / "out.csv") == (4, 1)
    assert parsed == [*smiles, "C(C"]
    found = [row["training_similarity"] for row in rows_of(tmp_path / "out.csv")]
    expected = known.training_similarity(smiles)
    assert [float(text) for text in found if text] == pytest.approx([*expected, expected[0]])


def test_a_run_folder_or_a_file_of_the_model_serves_as_the_model(tmp_path, model_folder):
    source = saved(tmp_path, "smiles\nCCO\n")
    for path in (model_folder.parent, model_folder, model_folder / "model.safetensors"):
        assert predict_table(path, source, tmp_path / "out.csv") == (1, 0)


def test_a_table_without_rows_gives_a_table_without_rows(tmp_path, model_folder):
    source = saved(tmp_path, "smiles\n")
    assert predict_table(model_folder, source, tmp_path / "out.csv") == (0, 0)
    assert (tmp_path / "out.csv").read_text() == "smiles,y_predicted,z_predicted,error\n"


def test_the_input_itself_is_no_output(tmp_path, model_folder):
    source = saved(tmp_path, "smiles\nC\n")
    (tmp_path / "link.csv").symlink_to(source)
    for output in (source, tmp_path / "link.csv"):
        with pytest.raises(InputError, match="output is the input file"):
            predict_table(model_folder, source, output)
    assert source.read_text() == "smiles\nC\n"


def test_an_sd_file_keeps_its_structures_and_properties(tmp_path, model_folder):
    block = Chem.MolToMolBlock(Chem.AddHs(Chem.MolFromSmiles("CCO")))
    source = tmp_path / "in.sdf"
    source.write_text(f"{block}> <id>\n=1+1\n\n$$$$\nbroken\n$$$$\n")
    assert predict_table(model_folder, source, tmp_path / "out.sdf") == (1, 1)
    first, second, _ = (tmp_path / "out.sdf").read_text().split("$$$$\n")
    assert first.startswith(f"{block}> <id>\n=1+1\n\n> <y_predicted>\n")
    assert second.startswith("broken\n")
    assert second.endswith("> <error>\nmol_block\n\n")
    table = saved(tmp_path, "id,smiles\n7,c1ccccc1\n8,nonsense\n")
    assert predict_table(model_folder, table, tmp_path / "two.sdf.gz") == (1, 1)
    rows = [row.cells for row in open_table(tmp_path / "two.sdf.gz")]
    assert rows[0][:4] == ["c1ccccc1", "", "7", "c1ccccc1"]
    assert (rows[1][0], rows[1][3], rows[1][-1]) == ("", "nonsense", "name")


def test_a_data_frame_keeps_its_types(tmp_path, model_folder):
    frame = pd.DataFrame(
        {
            "smiles": ["CCO", "C"],
            "n": pd.array([7, None], "Int64"),
            "single": np.array([0.1, np.nan], np.float32),
            "yes": [True, False],
            "when": [pd.Timestamp(2024, 1, 5), pd.NaT],
        }
    )
    assert predict_table(model_folder, frame, tmp_path / "out.xlsx") == (2, 0)
    _, first, second = openpyxl.load_workbook(tmp_path / "out.xlsx").active.values
    assert first[:5] == ("CCO", 7, 0.1, True, datetime(2024, 1, 5))
    assert second[:5] == ("C", None, None, False, None)
    predict_table(model_folder, frame, tmp_path / "out.parquet")
    first, second = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [*first.values()][:5] == ["CCO", "7", "0.1", "True", "2024-01-05"]
    assert [*second.values()][:5] == ["C", None, None, "False", None]


def test_a_workbook_keeps_its_types(tmp_path, model_folder):
    book = openpyxl.Workbook()
    for row in (["smiles", "when", "n", "note"], ["CCO", date(2024, 1, 5), 7, "'=1"], ["=C"]):
        book.active.append(row)
    book.active["A3"].data_type = "s"
    book.save(tmp_path / "in.xlsx")
    assert predict_table(model_folder, tmp_path / "in.xlsx", tmp_path / "out.xlsx") == (1, 1)
    header, first, second = openpyxl.load_workbook(tmp_path / "out.xlsx").active.values
    assert header[:5] == ("smiles", "when", "n", "note", "y_predicted")
    assert first[:4] == ("CCO", datetime(2024, 1, 5), 7, "'=1")
    assert isinstance(first[4], float)
    assert (second[0], second[4]) == ("=C", None)
    predict_table(model_folder, tmp_path / "in.xlsx", tmp_path / "out.csv")
    assert rows_of(tmp_path / "out.csv")[0]["when"] == "2024-01-05"
    predict_table(model_folder, tmp_path / "in.xlsx", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["n"].to_pylist() == ["7", None]


def test_predictions_are_compared_with_labels_of_the_same_names(tmp_path, model_folder, model):
    text = "Y,smiles,z\n1.5,CCO,NA\nx,CC,2\n2,nonsense,3\n,C,\n-1,CCC,4\n"
    found = screen_table(model_folder, saved(tmp_path, text), tmp_path / "out.csv")
    assert found.counts == (4, 1)
    assert found.tally.seconds > 0.0
    np.testing.assert_array_equal(found.target, [[1.5, np.nan], [np.nan, 2.0], [-1.0, 4.0]])
    np.testing.assert_allclose(found.prediction, model.predict(["CCO", "CC", "CCC"]), rtol=1e-5)
    assert found.tally.counts["unusable"] == {"y": 1}
    assert list(rows_of(tmp_path / "out.csv")[0])[:4] == ["Y", "smiles", "z", "y_predicted"]


def test_censored_labels_are_counted_and_not_scored(tmp_path, model_folder):
    text = "smiles,y,z,of_y,of_z\nCCO,>2,1,,\nCC,2,3,<,=\nCCC,3,4,=,?\nC,4,<5,<,\n"
    source = saved(tmp_path, text)
    found = screen_table(model_folder, source, tmp_path / "out.csv")
    nan = np.nan
    np.testing.assert_array_equal(found.target, [[nan, 1.0], [2.0, 3.0], [3.0, 4.0], [4.0, nan]])
    assert found.tally.counts["censored"] == {"y": 1, "z": 1}
    assert found.tally.number("unusable") == 0
    config = PredictConfig(relation_columns=("OF_y", "of_z"))
    found = screen_table(model_folder, source, tmp_path / "out.csv", config)
    np.testing.assert_array_equal(found.target, [[nan, 1.0], [nan, 3.0], [3.0, nan]])
    assert found.tally.counts["censored"] == {"y": 3, "z": 1}
    assert found.tally.counts["unusable"] == {"z": 1}
    for columns, words in (
        (("of_y",), "relation_columns: got 1 values for the 2 targets of the model"),
        (("of_y", "of"), r"no column 'of' \(--relation-columns\)"),
    ):
        with pytest.raises(InputError, match=words):
            screen_table(
                model_folder, source, tmp_path / "new.csv", PredictConfig(relation_columns=columns)
            )
    assert not (tmp_path / "new.csv").exists()


def test_a_model_remembers_the_columns_of_relations(tmp_path, model):
    config = replace(model.config, relation_columns=("of_y", "of_z"))
    trained = MolAttn(config)
    trained.save_pretrained(tmp_path / "model")
    nan = np.nan
    for text, target, told in (
        ("smiles,y,z,of_y,of_z\nCCO,2,1,>,\nCC,2,3,,<\n", [[nan, 1.0], [2.0, nan]], ""),
        ("smiles,y,z,of_z\nCCO,2,1,<\nCC,2,3,\n", [[2.0, nan], [2.0, 3.0]], "y"),
        ("smiles,y,z,OF_y,Of_y\nCCO,2,1,>,>\nCC,2,3,,\n", [[2.0, 1.0], [2.0, 3.0]], "yz"),
        ("smiles,y\nCCO,2\n", [[2.0, nan]], "y"),
        ("smiles,of_z\nCCO,<\n", np.zeros((0, 2)), ""),
    ):
        console = Console(file=io.StringIO(), width=80)
        source = saved(tmp_path, text)
        found = screen_table(tmp_path / "model", source, tmp_path / "out.csv", console=console)
        np.testing.assert_array_equal(found.target, target)
        lines = console.file.getvalue()
        assert [name for name in "yz" if f"one column 'of_{name}' of relations" in lines] == [*told]


def test_classes_are_compared_with_labels(tmp_path, rich_folder):
    text = "pH,T,smiles,toxic,phase\n7,300,C,yes,solid\n7,300,CC,no,\n7,300,CCC,maybe,gas\n"
    found = screen_table(rich_folder, saved(tmp_path, text), tmp_path / "out.csv")
    expected = [[np.nan, 1.0, 2.0], [np.nan, 0.0, np.nan], [np.nan, np.nan, 0.0]]
    np.testing.assert_array_equal(found.target, expected)
    assert found.prediction.shape == (3, 5)
    assert found.tally.counts["unusable"] == {"toxic": 1}


def test_molecules_beyond_the_domain_are_counted(tmp_path, model):
    known = copy.deepcopy(model)
    known.calibrate(["CCO", "CCN"] * 15, np.zeros((30, 2)), ["CCCCO", "c1ccccc1"])
    source = saved(tmp_path, "smiles\nc1ccccc1\nN#N\nnonsense\nCCCCCO\nFC(F)(F)F\n")
    found = screen_table(known, source, tmp_path / "out.csv")
    rows = [row["training_similarity"] for row in rows_of(tmp_path / "out.csv")]
    assert found.tally.number("outside") == sum(float(text) < 0.4 for text in rows if text) == 2
    assert len(found.target) == 0
    assert not found.tally.number("outside_by_task")


def test_domain_and_known_molecules_are_those_of_each_target(tmp_path, model):
    known = copy.deepcopy(model)
    training = ["CCCCO", "c1ccccc1"]
    known.calibrate(["CCO", "CCN"] * 15, np.zeros((30, 2)), training)
    prints = read_fingerprints(training)
    labeled = np.array([[True, False], [False, True]])
    molecules = FingerprintIndex.from_fingerprints(prints, labeled=labeled)
    known.uncertainty = replace(known.uncertainty, molecules=molecules)
    source = saved(tmp_path, "smiles,y\nc1ccccc1,1\nCCCCO,2\nCCCCO,\nnonsense,3\n")
    found = screen_table(known, source, tmp_path / "out.csv")
    assert found.tally.number("outside") == 0
    assert found.tally.counts["outside_by_task"] == {"y": 1, "z": 2}
    assert (len(found.target), found.tally.number("trained")) == (2, 1)


def test_worker_processes_change_no_byte(tmp_path, rich_folder):
    lines = [f"{n},{300 + n},{'C' * (n % 20)}O,7,{n if n % 3 else ''}" for n in range(150)]
    lines[70], lines[71] = "70,,CC,7,1", "71,300,nonsense,7,1"
    source = saved(tmp_path, "id,T,smiles,pH,y\n" + "\n".join(lines) + "\n")
    found = [
        screen_table(
            rich_folder, source, tmp_path / f"{n}.csv", PredictConfig(num_workers=n, batch_size=30)
        )
        for n in (0, 2)
    ]
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
    assert found[0].counts == found[1].counts == (148, 2)
    assert len(found[0].target) == 98
    np.testing.assert_array_equal(found[0].prediction, found[1].prediction)
    np.testing.assert_array_equal(found[0].target, found[1].target)


def test_the_store_that_is_read_is_no_place_for_the_output(tmp_path, model_folder):
    store = tmp_path / "store"
    prepare_store([saved(tmp_path, "smiles\nCCO\n")], store)
    (tmp_path / "link").symlink_to(store)
    before = sorted(store.iterdir())
    for output in (store / "out.csv", tmp_path / "link" / "out.csv"):
        with pytest.raises(InputError, match=r"out\.csv: output is in the store that is read"):
            predict_table(model_folder, store, output)
    assert sorted(store.iterdir()) == before
    assert predict_table(model_folder, store, tmp_path / "out.csv") == (1, 0)


def test_a_store_of_another_featurizer_is_refused(tmp_path):
    prepare_store([saved(tmp_path, "smiles\nCCO\n")], tmp_path / "store")
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    featurizer = replace(Featurizer.default(), max_distance=3)
    model = MolAttn(MolAttnConfig(("y",), small, featurizer))
    with pytest.raises(InputError, match="store: contains molecules prepared with featurizer"):
        predict_table(model, tmp_path / "store", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


class KilledApplication(streaming._Application):
    def __call__(self, block):
        if block[0][0] > 64:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(block)


@pytest.mark.parametrize("output, kept", [("out.csv", 64), ("out.parquet", 0)])
def test_a_worker_that_is_killed_is_named_and_leaves_only_what_can_be_resumed(
    tmp_path, model_folder, monkeypatch, output, kept
):
    source = saved(tmp_path, "smiles\n" + "C\n" * 100)
    config = PredictConfig(num_workers=1, batch_size=64)
    monkeypatch.setattr(parts, "_MOST_ROWS", 64)
    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_Application", KilledApplication)
        said = r"a worker process \(pid \d+\) was killed \(SIGKILL\)"
        with pytest.raises(MolattnError, match=said):
            predict_table(model_folder, source, tmp_path / output, config)
    assert {*os.listdir(tmp_path)} - {"out.csv.unfinished"} == {"in.csv"}
    hint = resume_hint(tmp_path / output)
    assert hint.startswith("64 rows kept in ") if kept else hint == ""


@pytest.mark.parametrize(
    "header, listed",
    [("Log,Log", "'Log', 'Log'"), ("LOG,log", "'LOG', 'log'"), ("Log,log", ""), ("log,x", "")],
)
def test_a_target_with_several_columns_is_told_and_not_scored(tmp_path, model, header, listed):
    model = MolAttn(MolAttnConfig(("Log",), model.config.network))
    console = Console(file=io.StringIO(), width=80)
    source = saved(tmp_path, f"smiles,{header}\nCCO,1,2\n")
    found = screen_table(model, source, tmp_path / "out.csv", console=console)
    told = f"{source}: 2 columns could be the labels of 'Log' ({listed}), expected one; its"
    assert console.file.getvalue().count(told) == bool(listed)
    assert len(found.target) == (not listed)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_standardized_smiles_is_written_where_it_differs(tmp_path, kind, num_workers):
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    config = MolAttnConfig("y", small, partner_column="solvent", standardize=True)
    model = MolAttn(config).eval()
    given = ["CC(=O)[O-].[Na+]", "CC(=O)O", "OCC", "C(", "", "Oc1ccccn1"]
    seconds = ["O", "O", "[O-]C=O.[Na+]", "O", "O", "C("]
    table = "".join(f"{one},{other}\n" for one, other in zip(given, seconds, strict=True))
    source, output = saved(tmp_path, f"smiles,solvent\n{table}"), tmp_path / f"out.{kind}"
    options = PredictConfig(num_workers=num_workers)
    assert predict_table(model, source, output, options) == RowCounts(3, 3)
    rows = rows_of(output) if kind == "csv" else pq.read_table(output).to_pylist()
    columns = ["standardized_smiles", "standardized_partner"]
    assert [*rows[0]] == ["smiles", "solvent", "y_predicted", *columns, "error"]
    assert [row["smiles"] for row in rows] == given
    assert [[row[name] or "" for name in columns] for row in rows] == [
        ["CC(=O)O", ""],
        ["", ""],
        ["", "O=CO"],
        ["", ""],
        ["", ""],
        ["", ""],
    ]
    assert [row["error"] for row in rows[3:]] == ["parenthesis", "empty", "partner_parenthesis"]
    found = [float(row["y_predicted"]) for row in rows[:3]]
    np.testing.assert_allclose(found, model.predict(given[:3], partners=seconds[:3])[:, 0], 1e-6)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def labeled_table(folder, count=300):
    """Rows with labels of y, of which some are missing, censored or none, and faulty rows."""
    smiles = ["CCO", "C1CC", "c1ccccc1O", "", "CC(=O)Nc1ccc(O)cc1", "C" * 30, "nan"]
    labels = ["1.5", "", ">10", "-2", "text", "0.25"]
    texts = [(smiles[n % len(smiles)], labels[n % len(labels)]) for n in range(count)]
    lines = [f'{n},{text},{label},"=1, {n}"' for n, (text, label) in enumerate(texts)]
    lines[7] += ",one more"
    return saved(folder, "id,smiles,y,note\n" + "\n".join(lines) + "\n")


@pytest.mark.ray
@pytest.mark.parametrize("name", ["out.csv.gz", "out.parquet"])
def test_a_ray_cluster_writes_the_same_bytes(
    tmp_path, model_folder, monkeypatch, ray_cluster, name
):
    monkeypatch.setattr(streaming, "_BLOCK", 32)
    source, config = labeled_table(tmp_path), PredictConfig(batch_size=8)
    found = [
        screen_table(
            model_folder, source, tmp_path / f"{engine}-{name}", replace(config, **options)
        )
        for engine, options in [
            ("local", {}),
            ("ray", {"engine": "ray", "ray_address": ray_cluster.address}),
        ]
    ]
    local, ray = (tmp_path / f"{engine}-{name}" for engine in ("local", "ray"))
    assert ray.read_bytes() == local.read_bytes()
    np.testing.assert_equal(found[1].target, found[0].target)
    np.testing.assert_equal(found[1].prediction, found[0].prediction)
    assert found[1].tally.counts == found[0].tally.counts
    assert {"unusable", "censored", "done", "error"} <= found[0].tally.counts.keys()


@pytest.mark.ray
def test_a_worker_of_ray_that_is_killed_loses_and_doubles_no_row(
    tmp_path, model_folder, monkeypatch, ray_cluster
):
    monkeypatch.setattr(streaming, "_BLOCK", 32)
    monkeypatch.setattr(parts, "_MOST_ROWS", 32)
    source, config = labeled_table(tmp_path, 6000), PredictConfig(batch_size=8)
    predict_table(model_folder, source, tmp_path / "expected.csv", config)
    config = replace(config, engine="ray", ray_address=ray_cluster.address)
    commit, killed, done = parts._Parts.commit, [], []
    message = "a worker was killed, and what it computed is computed again"

    def commits(table, rows, tally):
        commit(table, rows, tally)
        if table.rows == 64:
            killed.extend(ray_cluster.workers())
            for process in killed:
                os.kill(process, signal.SIGKILL)
        if message in shown.file.getvalue():  # what was under way may come before
            done.append(table.rows)
            raise KeyboardInterrupt

    shown = Console(file=io.StringIO(), width=200)
    with monkeypatch.context() as patch:
        patch.setattr(parts._Parts, "commit", commits)
        with pytest.raises(KeyboardInterrupt):
            predict_table(model_folder, source, tmp_path / "out.csv", config, shown)
    assert killed
    predict_table(model_folder, source, tmp_path / "out.csv", replace(config, resume=True), shown)
    assert f"resuming: {done[0]:,} rows" in shown.file.getvalue()
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()


def test_a_missing_ray_is_an_error(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr("molattn.utils.ray_workers.find_spec", lambda name: None)
    source, config = saved(tmp_path, "smiles\nCCO\n"), PredictConfig(engine="ray")
    with pytest.raises(InputError, match=r'not installed: pip install "molattn\[ray\]"$'):
        predict_table(model_folder, source, tmp_path / "out.csv", config)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
