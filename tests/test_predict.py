import csv
import itertools

import numpy as np
import pytest
import torch

from molattn import predict
from molattn.config import ArchitectureConfig, PredictConfig
from molattn.errors import InputError
from molattn.model import MolAttn, MolAttnConfig
from molattn.predict import PredictionCounts, predict_table


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    small = ArchitectureConfig(width=8, heads=2, layers=1, edge_width=4)
    model = MolAttn(MolAttnConfig(("y", "z"), small)).eval()
    model.set_target_scaling([1.0, 100.0], [2.0, 30.0])
    return model


@pytest.fixture(scope="module")
def model_folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "model"
    model.save_pretrained(folder)
    return folder


def saved(tmp_path, text):
    path = tmp_path / "in.csv"
    path.write_text(text)
    return path


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_row_comes_out_in_order_with_its_columns(tmp_path, model, model_folder):
    source = saved(
        tmp_path,
        'id,smiles,note\n1,CCO,"a, b"\n2,nan,\n3,c1ccccc1,x\n4,C(C,\n5,CC\n6,CCO,y\n7,,\n',
    )
    output = tmp_path / "out.csv"
    assert predict_table(model_folder, source, output) == PredictionCounts(3, 4)
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


def test_large_molecules_go_in_smaller_batches(tmp_path, model, model_folder, monkeypatch):
    sizes = []

    def predict_records(self, records, batch_size):
        sizes.append([record.num_atoms for record in records])
        return np.zeros((len(records), 2))

    monkeypatch.setattr(predict, "_PAIRS_IN_BATCH", 100)
    monkeypatch.setattr(MolAttn, "predict_records", predict_records)
    source = saved(tmp_path, "smiles\n" + "\n".join("C" * n for n in (2, 3, 20, 9, 5, 5, 5)))
    predict_table(model_folder, source, tmp_path / "out.csv", PredictConfig(batch_size=3))
    assert sizes == [[2, 3], [20], [9], [5, 5, 5]]


def test_a_table_is_read_as_it_is_predicted(tmp_path, model_folder, monkeypatch):
    """Rows are written before the last one is read: memory does not grow with the table."""
    events = []
    table_rows, batches = predict.Table.__iter__, predict._predicted_rows

    def read(table):
        for row in table_rows(table):
            events.append("read")
            yield row

    def predicted(model, batch):
        events.append("predict")
        return batches(model, batch)

    monkeypatch.setattr(predict.Table, "__iter__", read)
    monkeypatch.setattr(predict, "_predicted_rows", predicted)
    source = saved(tmp_path, "smiles\n" + "CC\n" * 20)
    predict_table(model_folder, source, tmp_path / "out.csv", PredictConfig(batch_size=4))
    runs = [len(list(same)) for event, same in itertools.groupby(events) if event == "read"]
    assert max(runs) <= 5


def test_a_prediction_that_is_no_number_becomes_a_reason(tmp_path, model, model_folder):
    broken = tmp_path / "broken"
    model_copy = MolAttn.from_pretrained(model_folder)
    with torch.no_grad():
        next(model_copy.head.parameters()).fill_(torch.inf)
    model_copy.save_pretrained(broken)
    source = saved(tmp_path, "smiles\nCCO\n")
    assert predict_table(broken, source, tmp_path / "out.csv") == (0, 1)
    assert rows_of(tmp_path / "out.csv") == [
        {"smiles": "CCO", "y_predicted": "", "z_predicted": "", "error": "not_finite"}
    ]


def test_a_run_folder_or_a_file_of_the_model_serves_as_the_model(tmp_path, model_folder):
    source = saved(tmp_path, "smiles\nCCO\n")
    for path in (model_folder.parent, model_folder, model_folder / "model.safetensors"):
        assert predict_table(path, source, tmp_path / "out.csv") == (1, 0)


def test_a_table_without_rows_gives_a_table_without_rows(tmp_path, model_folder):
    source = saved(tmp_path, "smiles\n")
    assert predict_table(model_folder, source, tmp_path / "out.csv") == (0, 0)
    assert (tmp_path / "out.csv").read_text() == "smiles,y_predicted,z_predicted,error\n"


@pytest.mark.parametrize(
    "text, words",
    [
        ("smiles,error\nC,1\n", ["in.csv", "'error'", "overwrite"]),
        ("smiles,z_predicted\nC,1\n", ["in.csv", "'z_predicted'", "overwrite"]),
        ("smile\nC\n", ["in.csv", "'smiles'", "did you mean 'smile'"]),
        ('smiles\n"C\n', ["in.csv", "line 2"]),
    ],
)
def test_a_refused_table_leaves_the_old_output(tmp_path, model_folder, text, words):
    output = tmp_path / "out.csv"
    output.write_text("old")
    with pytest.raises(InputError) as error:
        predict_table(model_folder, saved(tmp_path, text), output)
    for word in words:
        assert word in str(error.value)
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_the_input_itself_is_no_output(tmp_path, model_folder):
    source = saved(tmp_path, "smiles\nC\n")
    (tmp_path / "link.csv").symlink_to(source)
    for output in (source, tmp_path / "link.csv"):
        with pytest.raises(InputError, match="the input itself"):
            predict_table(model_folder, source, output)
    assert source.read_text() == "smiles\nC\n"


def test_a_folder_that_is_not_there_is_not_looked_for_elsewhere(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        predict_table("runs/absent", saved(tmp_path, "smiles\nC\n"), tmp_path / "out.csv")
