import copy
import csv
import io
import json
from dataclasses import replace
from datetime import datetime
from urllib.parse import unquote

import numpy as np
import openpyxl
import pytest

from molattn import MolAttn
from molattn.chem import fingerprint_index
from molattn.chem.fingerprint_index import read_fingerprints
from molattn.chem.physchem import physchem
from molattn.config import MoleculeLimits, PredictConfig
from molattn.data.table import bundled_dataset, open_table, write_table
from molattn.errors import reason_meaning
from molattn.explain import explain
from molattn.inference import predict_table
from molattn.model.training_set import TrainingMolecules, TrainingSet
from molattn.serve import batching
from molattn.serve.bodies import FILES
from molattn.serve.catalog import Catalog, ServedModel, add_reference

from ..conftest import rows_of
from .conftest import KNOWN, TASKS

SMILES = ["CCO", "c1ccccc1O", "C(C", "CC(=O)O", ""]
SDF = "chemical/x-mdl-sdfile"
CSV = {"Content-Type": "text/csv"}
REMARKS = "X-Molattn-Remarks"
ACCEPT_JSON = {"Accept": "application/json"}


def error(response, status):
    """Return the code of a refusal, whose message is one line."""
    assert response.status_code == status, response.text
    found = response.json()
    assert {*found} == {"error", "message"}
    assert found["message"].isprintable()
    return found["error"]


def molecules_of(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()["molecules"]


@pytest.fixture
def mixed(catalog) -> MolAttn:
    return catalog.models["mixed"].model


def test_the_models_are_described(client):
    mixed, pair = client.get("/models").json()["models"]
    assert (mixed["name"], pair["name"]) == ("mixed", "pair")
    assert (mixed["partner"], mixed["features"]) == (None, [])
    assert (pair["partner"], pair["features"]) == ("solvent", ["temperature"])
    assert [(task["name"], task["kind"], task["unit"]) for task in mixed["tasks"]] == [
        ("logS", "regression", "log mol/L"),
        ("toxic", "binary", ""),
        ("phase", "multiclass", ""),
    ]
    assert [task["has_interval"] for task in mixed["tasks"]] == [True, False, False]
    assert not pair["tasks"][0]["has_interval"]
    assert {client.head(path).status_code for path in ("/", "/docs", "/health")} == {200}
    assert mixed["tasks"][2]["classes"] == ["gas", "liquid", "solid"]


def test_predictions_are_those_of_the_model(client, mixed):
    found = client.post("/predict", json={"smiles": SMILES, "level": 0.8}).json()
    assert (found["model"], found["level"]) == ("mixed", 0.8)
    molecules = found["molecules"]
    assert [one["smiles"] for one in molecules] == SMILES
    assert [one["error"] for one in molecules] == [None, None, "parenthesis", None, "empty"]
    good = [one for one in molecules if not one["error"]]
    smiles = [one["smiles"] for one in good]
    ends = mixed.predict_interval(smiles, 0.8)
    numbers = mixed.predict(smiles), *ends, mixed.training_similarity(smiles)
    graded = mixed.predict_confidence(smiles)
    reasons = [
        [given["confidence_reason"] for given in one["predictions"].values()] for one in good
    ]
    assert reasons == mixed.explain_confidence(smiles)
    for one, values, low, high, similarity, grades, errors in zip(
        good, *numbers, *graded, strict=True
    ):
        assert one["training_similarity"] == pytest.approx(similarity)
        assert one["in_domain"] == (similarity >= 0.4)
        regression, binary, multiclass = (one["predictions"][task.name] for task in TASKS)
        shown = [regression, binary, multiclass]
        assert [given["confidence"] for given in shown] == [grade or None for grade in grades]
        assert [given["expected_error"] for given in shown] == [
            pytest.approx(error, rel=1e-5) if np.isfinite(error) else None for error in errors
        ]
        number = [regression[name] for name in ("value", "low", "high")]
        assert number == pytest.approx([values[0], low[0], high[0]], rel=1e-5)
        assert binary["probabilities"]["yes"] == pytest.approx(values[1], rel=1e-5)
        assert sum(binary["probabilities"].values()) == pytest.approx(1.0)
        probabilities = multiclass["probabilities"]
        assert [*probabilities.values()] == pytest.approx(values[2:], rel=1e-5)
        assert multiclass["class"] == max(probabilities, key=probabilities.get)
    bad = molecules[2]
    assert bad["predictions"] == {"logS": None, "toxic": None, "phase": None}
    assert bad["message"] == reason_meaning("parenthesis")
    assert bad["training_similarity"] is bad["in_domain"] is good[0]["message"] is None


def test_differences_are_those_of_the_model(client, mixed):
    smiles, others = ["CCO", "CCCCO", "CCN"], ["CCCO", "OCCCC", "C1CC"]
    answer = client.post("/predict", json={"smiles": smiles, "difference_from": others})
    first, same, wrong = molecules_of(answer)
    value, low, high = (x[0, 0] for x in mixed.predict_difference(smiles[:1], others[:1]))
    found = first["predictions"]["logS"]["difference"]
    assert found.pop("kind") == "difference"
    assert found == pytest.approx({"value": value, "low": low, "high": high}, rel=1e-5)
    expected = {"kind": "difference", "value": 0.0, "low": 0.0, "high": 0.0}
    assert same["predictions"]["logS"]["difference"] == expected
    assert "difference" not in first["predictions"]["toxic"]
    assert [row["difference_error"] for row in (first, wrong)] == [None, "ring_closure"]
    assert {"value", "difference"} & {*wrong["predictions"]["logS"]} == {"value"}


def test_a_model_of_two_molecules_and_a_feature(client, catalog):
    body = {
        "model": "pair",
        "smiles": ["CCO", "CC", "CC", "CC"],
        "partner": ["O", "CO", "C(", None],
        "features": {"temperature": [1.0, None, 2.0, 3.0]},
    }
    found = client.post("/predict", json=body).json()["molecules"]
    expected = catalog.models["pair"].model.predict(["CCO"], partners=["O"], features=[[1.0]])
    assert found[0]["predictions"]["y"]["value"] == pytest.approx(expected.item(), rel=1e-5)
    assert found[0]["in_domain"] is None
    codes = [None, "missing_feature", "partner_parenthesis", "partner_missing_value"]
    assert [one["error"] for one in found] == codes


def test_a_model_of_parents_is_asked_for_them_or_for_what_is_given(served, mixed):
    model = copy.copy(mixed)
    model.config = replace(mixed.config, standardize="parent")
    salt = "CCCC[NH3+].[Cl-]"
    with served(Catalog({"one": ServedModel("one", model)})) as client:
        assert client.get("/models").json()["models"][0]["predicts_parents"]
        for as_given, form in ((False, "CCCCN"), (True, salt)):
            body = {"smiles": [salt, "[Na+].[Cl-]"], "as_given": as_given}
            one, other = client.post("/predict", json=body).json()["molecules"]
            assert one.get("parent") == (None if as_given else form)
            assert other["error"] == (None if as_given else "no_parent")
            value = mixed.predict([form])[0, 0]
            assert one["predictions"]["logS"]["value"] == pytest.approx(value, rel=1e-5)
            assert one["training_similarity"] == pytest.approx(mixed.training_similarity([form])[0])
            path = f"/predict?as_given={str(as_given).lower()}"
            text = client.post(path, content=f"smiles\n{salt}\n", headers=CSV).text
            (row,) = csv.DictReader(io.StringIO(text))
            assert float(row["logS_predicted"]) == pytest.approx(value, rel=1e-5)
            assert ("parent" in row) != as_given
            body = {"smiles": salt, "method": "occlusion", "as_given": as_given}
            assert client.post("/explain", json=body).json()["smiles"] == form


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "smiles"),
        ({"smiles": [1]}, "smiles.0"),
        ({"smiles": ["C"], "smile": 1}, "smile"),
        ({"smiles": ["C"], "level": "0.9"}, "level"),
        ({"smiles": ["C"], "neighbors": 11}, "neighbors"),
        ({"smiles": ["C"], "neighbors": 3}, "neighbors"),
        ({"smiles": ["C"], "model": "mixd"}, "model"),
        ({"smiles": ["C"], "partner": ["C"]}, "partner"),
        ({"smiles": ["C"], "features": {"x": [1.0]}}, "features"),
        ({"smiles": ["C"], "model": "pair"}, "partner"),
        ({"smiles": ["C"], "model": "pair", "partner": ["C", "C"]}, "partner"),
        ({"smiles": ["C"], "model": "pair", "partner": ["C"]}, "features"),
    ],
)
def test_a_wrong_request_gets_a_line_that_names_the_field(client, body, field):
    response = client.post("/predict", json=body)
    assert error(response, 422) == "bad_request"
    assert response.json()["message"].startswith(f"{field}: ")


@pytest.mark.parametrize(
    "address, kind, text",
    [
        ("/predict?neighbours=3", "text/csv", "smiles\nC\n"),
        ("/predict?level=0.5", "application/json", '{"smiles": ["C"]}'),
        ("/explain?model=pair", "application/json", '{"smiles": "C"}'),
        ("/depict?smiles=C&size=3", None, None),
    ],
)
def test_a_parameter_without_effect_is_refused(client, address, kind, text):
    headers = {} if kind is None else {"Content-Type": kind}
    method = "GET" if text is None else "POST"
    response = client.request(method, address, content=text, headers=headers)
    assert error(response, 422) == "bad_request"


def test_bytes_that_are_no_text_do_not_spoil_the_answer(client):
    headers = {**CSV, **ACCEPT_JSON}
    response = client.post("/predict", content=b"smiles\nCC\xeb\nCO\n", headers=headers)
    bad, good = json.loads(response.content.decode("utf-8"))["molecules"]
    assert (bad["smiles"], bad["error"]) == ("CC\ufffd", "non_ascii")
    assert (good["smiles"], good["error"]) == ("CO", None)


@pytest.fixture
def knowing(mixed):
    """The model of three tasks with its training molecules."""
    model, prints = copy.copy(mixed), read_fingerprints(KNOWN)
    targets = np.array([[n / 5, n % 2, n % 3] for n in range(len(KNOWN))])
    rows = np.arange(len(KNOWN))
    kept = TrainingMolecules.of(rows, KNOWN, targets, prints, mixed.uncertainty.fingerprints)
    model.training_set = TrainingSet.of(TASKS, targets, kept)
    return model


def test_measured_labels_stand_beside_predictions_of_training_molecules(served, knowing, client):
    smiles = ["CCCCO", "CCCCCCCCCCCCCCO", "C("]
    table = "smiles\n" + "".join(f"{one}\n" for one in smiles)
    with served(Catalog({"mixed": ServedModel("mixed", knowing)})) as kept:
        answers = molecules_of(kept.post("/predict", json={"smiles": smiles, "level": 0.5}))
        rows = csv.DictReader(io.StringIO(kept.post("/predict", content=table, headers=CSV).text))
        assert [row["logS_measured"] for row in rows] == ["3", "", ""]
    measured = [knowing.measured([one])[0] for one in smiles[:2]]
    for answer, labels in zip(answers, measured, strict=False):
        assert {name: one["measured"] for name, one in answer["predictions"].items()} == labels
    logS, toxic, _ = answers[0]["predictions"].values()
    is_outside = not logS["low"] <= 3.0 <= logS["high"]
    assert is_outside == str(logS["measured_remark"]).startswith("measured 3.00, outside of ")
    assert (toxic["class"] != "yes") == (toxic["measured_remark"] is not None)
    (plain,) = molecules_of(client.post("/predict", json={"smiles": smiles[:1]}))
    assert "measured" not in plain["predictions"]["logS"]


def test_the_nearest_training_molecules_in_all_kinds_of_answers(served, knowing, monkeypatch):
    smiles = ["CCCCO", "C(", *("C" * n for n in range(1, 90)), "C" * 95]
    expected = knowing.nearest([one for one in smiles if one != "C("], 2)
    # The limits of the server count, not those of a library.
    monkeypatch.setattr(fingerprint_index, "MoleculeLimits", lambda: MoleculeLimits(max_atoms=50))
    with served(Catalog({"mixed": ServedModel("mixed", knowing)})) as client:
        given = {"smiles": smiles, "neighbors": 2}
        table = "id,smiles\n" + "".join(f"{k},{one}\n" for k, one in enumerate(smiles))
        address = "/predict?neighbors=2"
        for answers in (
            molecules_of(client.post("/predict", json=given)),
            molecules_of(client.post(address, content=table, headers={**CSV, **ACCEPT_JSON})),
        ):
            assert [one["smiles"] for one in answers] == smiles
            near = [one["neighbors"] for one in answers if one["error"] is None]
            assert near == [
                [
                    {"smiles": one.smiles, "similarity": one.similarity, "labels": one.labels}
                    for one in some
                ]
                for some in expected
            ]
            assert answers[1]["neighbors"] == []
        assert [one["row"] for one in answers[:2]] == [2, 3]  # the lines of the table
        refused = client.post(address, content=table, headers=CSV)
        assert error(refused, 422) == "bad_request"


@pytest.mark.parametrize("neighbor", ["id", "toxic"])
def test_csv_is_what_predict_writes(client, mixed, tmp_path, neighbor):
    rows = rows_of(bundled_dataset())[:149]
    text = f'{neighbor},smiles,"no, te"\n' + "".join(
        f'=1+{k},{row["smiles"]},"x ""y"" {k}"\n' for k, row in enumerate(rows)
    )
    text += "8,,\n9\n10,C(C,a,b\n"
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(text)
    predict_table(mixed, source, output, PredictConfig(interval=0.7))
    response = client.post("/predict?level=0.7", content=text, headers=CSV)
    assert response.headers["content-type"].startswith("text/csv")
    assert response.headers["x-molattn-rows"] == "152"
    assert response.content == output.read_bytes()


@pytest.mark.parametrize("kind", FILES)
def test_every_format_is_read_and_csv_excel_and_sdf_are_written(client, mixed, tmp_path, kind):
    source = tmp_path / f"in.{FILES[kind]}"
    with write_table(source, ["smiles", "name"]) as write:
        for row in (["CCO", "a"], ["CCC", "b"]):
            write(row)
    wanted = tmp_path / "out.csv"
    predict_table(mixed, source, wanted)
    headers = {"Content-Type": kind}
    response = client.post("/predict", content=source.read_bytes(), headers=headers)
    assert response.content == wanted.read_bytes()
    headers.update(ACCEPT_JSON)
    found = molecules_of(client.post("/predict", content=source.read_bytes(), headers=headers))
    assert [one["name"] for one in found] == ["a", "b"]
    response = client.post("/predict", json={"smiles": ["CCO", "C("]}, headers={"Accept": kind})
    if FILES[kind] not in ("csv", "xlsx", "sdf"):
        assert [one["error"] for one in molecules_of(response)] == [None, "parenthesis"]
        return
    assert response.headers["content-type"].partition(";")[0] == kind
    (written := tmp_path / f"back.{FILES[kind]}").write_bytes(response.content)
    assert [row.cells[0] for row in open_table(written)][:1] == ["CCO"]


def test_an_excel_file_is_read_by_the_columns_of_the_model(client, tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["smiles"])
    for sheet, header in (("Molecules", "T"), ("Data", "temperature")):
        rows = book.create_sheet(sheet)
        for row in (
            ["Title"],
            ["smiles", "solvent", header],
            ["CCO", "O", 0.25],
            ["CCC", "O", "25,0"],
        ):
            rows.append(row)
        rows["C3"].number_format = "0%"
        rows.append(["CCN", "O", "=1+1"])
    book.save(tmp_path / "t.xlsx")
    (kind,) = (kind for kind, name in FILES.items() if name == "xlsx")
    headers = {"Content-Type": kind, **ACCEPT_JSON}
    content = (tmp_path / "t.xlsx").read_bytes()
    response = client.post("/predict?model=pair", content=content, headers=headers)
    answers = molecules_of(response)
    assert [one["features"] for one in answers[:2]] == [{"temperature": 25.0}] * 2
    assert [one["error"] for one in answers] == [None, None, "uncalculated"]
    remarks = unquote(response.headers[REMARKS])
    for words in ("'Data'", "1 cell of column 'temperature' with a percentage", "decimal comma"):
        assert words in remarks
    for option in ("sheet=no", "header_row=9"):
        response = client.post(f"/predict?model=pair&{option}", content=content, headers=headers)
        assert error(response, 422) == "bad_request"


def test_remarks_are_cut_to_what_clients_take_in_a_header(client, monkeypatch):
    text = "é é é é é é é é é,id\nCCO,1\n".encode()
    whole = unquote(client.post("/predict", content=text, headers=CSV).headers[REMARKS])
    assert whole.endswith("'é é é é é é é é é'")
    for most in range(60, 70):
        monkeypatch.setattr("molattn.serve.app._MOST_REMARKS", most)
        remarks = client.post("/predict", content=text, headers=CSV).headers[REMARKS]
        assert len(remarks) <= most + len(" ...") + 2
        assert whole.startswith(unquote(remarks, errors="strict").removesuffix(" ..."))


def test_a_table_that_cannot_be_read_is_refused_before_a_row_is_sent(client):
    for text in ("a,b\n1,2\n", "", 'smiles,x\n"C', "\0\0\0\0"):
        response = client.post("/predict", content=text, headers=CSV)
        assert error(response, 422) == "bad_request"
        assert response.json()["message"].startswith("body")
    response = client.post("/predict?smiles_column=s", content="s\nCC\n", headers=CSV)
    assert response.text.splitlines()[1].startswith("CC,")


def test_a_table_is_answered_as_json_with_a_line_for_each_molecule(client):
    headers = {**CSV, **ACCEPT_JSON}
    response = client.post("/predict?level=0.8", content="smiles\nC\nCC\n", headers=headers)
    found = response.json()
    assert (found["model"], found["level"]) == ("mixed", 0.8)
    lines = response.text.splitlines()[1:-1]  # which the page reads as they come
    assert [json.loads(line.rstrip(",")) for line in lines] == found["molecules"]
    empty = client.post("/predict", content="smiles\n", headers=headers)
    assert molecules_of(empty) == []


def cells_of(content):
    """Return the cells of a workbook by sheet and row, numbers with five digits: CSV has seven."""

    def digits(value):
        return f"{value:.5g}" if isinstance(value, float) else value

    sheets = openpyxl.load_workbook(io.BytesIO(content))
    return [[[digits(cell.value) for cell in row] for row in sheet] for sheet in sheets]


@pytest.mark.parametrize("kind", ["csv", "sdf", "xlsx"])
def test_files_are_written_of_answers_without_predicting_again(client, monkeypatch, kind):
    body = 'smiles,name\nCCO,=1+1\nC(C,"b, ""c"""\nCC(=O)O,-2.5\n'
    if kind == "sdf":
        body = client.post("/predict", content=body, headers={**CSV, "Accept": SDF}).content
    if kind == "xlsx":
        (book := openpyxl.Workbook()).active.append(["smiles", "name"])
        for value in (datetime(2024, 5, 6), datetime(2024, 5, 6, 7, 8), True, "2024-05", 3.5):
            book.active.append(["CCO", value])
        book.save(stream := io.BytesIO())
        body = stream.getvalue()
    (content_type,) = (accept for accept, name in FILES.items() if name == kind)
    headers = {"Content-Type": content_type}
    accepts = [accept for accept, name in FILES.items() if name in ("xlsx", "sdf")]
    files = [
        client.post("/predict", content=body, headers={**headers, "Accept": accept}).content
        for accept in accepts
    ]
    found = client.post("/predict?cells=1", content=body, headers={**headers, **ACCEPT_JSON}).json()
    monkeypatch.setattr(batching, "compute_rows", None)  # nothing can be predicted any more
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n")
    write.writerow([*found["columns"], "block"])
    for one in found["molecules"]:
        write.writerow([*one["cells"], one.get("block", "")])
    for accept, expected in zip(accepts, files, strict=True):
        response = client.post("/table", content=text.getvalue(), headers={**CSV, "Accept": accept})
        assert response.headers["content-type"].partition(";")[0] == accept
        if FILES[accept] == "xlsx":
            assert cells_of(response.content) == cells_of(expected)
        else:
            assert response.content == expected
    wrong = text.getvalue().replace("toxic", "other")
    assert error(client.post("/table", content=wrong, headers=CSV), 422) == "bad_request"
    head, row = text.getvalue().split("\n")[:2]
    wrong = f"{head}\n{row.replace(found['molecules'][0]['cells'][2], 'high')}"
    assert error(client.post("/table", content=wrong, headers=CSV), 422) == "bad_request"


def test_sizes_are_limited(served):
    with served(max_molecules=2, max_request_size=1) as client:
        response = client.post("/predict", json={"smiles": ["C"] * 3})
        assert error(response, 413) == "too_large"
        assert error(client.post("/predict", content=b" " * 1_000_001, headers=CSV), 413)
        parts = (b"smiles\n" * 1000 for _ in range(200))  # without a length
        assert error(client.post("/predict", content=parts, headers=CSV), 413) == "too_large"
        assert client.post("/predict", json={"smiles": ["C"] * 2}).status_code == 200


def test_reference_molecules_give_percentiles(served, mixed, tmp_path):
    table = tmp_path / "drugs.csv"
    smiles = ["C" * n for n in range(1, 21)]
    table.write_text("smiles\nnonsense\n" + "".join(f"{one}\n" for one in smiles))
    one = ServedModel("mixed", mixed)
    with served(Catalog({"mixed": one})) as client:
        add_reference(one, table, replace(PredictConfig(), batch_size=8))
        described = client.get("/models").json()["models"][0]["tasks"]
        assert described[0]["reference"]["name"] == "drugs"
        assert described[2]["reference"] is None
        values = mixed.predict(smiles)
        expected = np.quantile(values[:, 0], np.linspace(0, 1, 101))
        np.testing.assert_allclose(described[0]["reference"]["quantiles"], expected, rtol=1e-4)
        found = client.post("/predict", json={"smiles": smiles}).json()["molecules"]
        for column, name in enumerate(("logS", "toxic")):
            order = np.argsort(values[:, column])
            shares = np.array([found[k]["predictions"][name]["percentile"] for k in order])
            np.testing.assert_allclose(shares, 100 * np.arange(20) / 19, atol=1.0)
        assert found[0]["predictions"]["phase"]["percentile"] is None


def test_a_structure_is_drawn(client):
    def drawn(**asked):
        return client.get("/depict", params=asked)

    plain = drawn(smiles="CCO", width=300, height=200).text
    assert "width='300px' height='200px'" in plain
    assert "ellipse" not in plain
    assert drawn(smiles="CCO", other="CCN").text.count("<ellipse") == 1
    assert error(drawn(smiles="CC(O"), 422) == "parenthesis"
    assert error(drawn(smiles="CC", other="x"), 422)
    assert error(drawn(smiles="CC", width="9" * 9), 422)
    assert error(drawn(), 422) == "bad_request"
    assert "Not drawn" in drawn(smiles="C" * 300).text


@pytest.mark.parametrize("task", ["logS", "phase"])
def test_an_explanation_is_that_of_explain(client, mixed, task):
    body = {"smiles": "CC(=O)Nc1ccccc1", "task": task, "method": "occlusion"}
    found = client.post("/explain", json=body).json()
    expected = explain(mixed, body["smiles"], "occlusion", target=task)
    np.testing.assert_allclose(found["atoms"], expected.atom_scores, atol=1e-5)
    assert (found["unit"], found["target"]) == (expected.unit, expected.target)
    assert found["svg"].startswith("<?xml")
    assert found["prediction"] - found["baseline"] == pytest.approx(
        sum(found["atoms"]) + found["residual"]
    )


@pytest.mark.parametrize(
    "body, code",
    [
        ({"smiles": "CC", "task": "logP"}, "bad_request"),
        ({"smiles": "C" * 201}, "too_large"),
        ({"smiles": "CC", "model": "pair"}, "bad_request"),
    ],
)
def test_what_cannot_be_explained_is_refused(client, body, code):
    assert error(client.post("/explain", json=body), 422) == code


def test_the_pages_come_from_this_server(client):
    assert client.get("/docs/assets/swagger-ui-bundle.js").status_code == 200
    assert "openapi.json" in client.get("/static/docs.js").text
    paths = client.get("/openapi.json").json()["paths"]
    expected = {"/models", "/predict", "/table", "/explain", "/sites", "/depict", "/physchem"}
    assert {*paths} == expected | {"/health"}
    assert error(client.get("/static/../app.py"), 404) == "not_found"
    assert error(client.put("/predict"), 405) == "method_not_allowed"


def test_an_error_of_the_server_tells_nothing(client, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("secret C1CCC1")

    monkeypatch.setattr(batching, "compute_rows", broken)
    assert error(client.post("/predict", json={"smiles": ["C1CCC1"]}), 500) == "internal"
    (record,) = (one for one in caplog.records if one.name == "molattn.serve")
    assert "/predict: RuntimeError at" in record.getMessage()
    assert "C1CCC1" not in caplog.text
    assert client.get("/health").status_code == 200


def test_the_document_names_what_needs_the_token_and_its_examples_are_answered(served):
    token = {"Authorization": "Bearer s3cret"}
    with served(token="s3cret") as client:
        document = client.get("/openapi.json", headers=token).json()
        for path, item in document["paths"].items():
            for method, operation in item.items():
                ask_example(client, path, method, operation, token)
                is_open = client.request(method, path).status_code != 401
                assert ("security" in operation) is not is_open
    with served() as free:
        assert "Bearer" not in free.get("/openapi.json").text


def ask_example(client, path, method, operation, headers):
    """Send what the page of the document sends."""
    parameters = {
        one["name"]: one["schema"].get("default", one["schema"].get("examples", [None])[0])
        for one in operation.get("parameters", ())
        if one["schema"].keys() & {"default", "examples"}
    }
    bodies = operation.get("requestBody", {}).get("content", {None: {"example": None}})
    for kind, body in bodies.items():
        if "example" in body:
            content = body["example"]
            content = json.dumps(content) if isinstance(content, dict) else content
            sent = {**headers, "Content-Type": kind} if kind else headers
            response = client.request(
                method, path, params=parameters, content=content, headers=sent
            )
            assert response.status_code == 200
            answers = operation["responses"]["200"]["content"]
            assert response.headers["content-type"].partition(";")[0] in answers


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:80", "LOCALHOST:1"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["example.org", "localhost.example.org:8000", "127.0.0.1.example.org", "", "[::2]", "8"]
)
def test_other_names_are_refused(client, host):
    for path in ("/", "/models"):
        assert error(client.get(path, headers={"Host": host}), 403) == "wrong_host"


def test_pages_of_other_origins_are_refused(client):
    def answer(method, origin):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        found = client.request(method, "/predict", json={"smiles": ["C"]}, headers=headers)
        assert not [name for name in found.headers if name.startswith("access-control")]
        return found

    for origin in ("http://example.org", "null", "http://localhost:81", "http://[", "localhost"):
        assert error(answer("POST", origin), 403) == "wrong_origin"
        assert error(answer("OPTIONS", origin), 403)
    own = answer("POST", "http://localhost")
    assert own.status_code == 200
    assert "frame-ancestors 'none'" in own.headers["content-security-policy"]


def test_a_token_is_needed_for_all_but_the_pages(served):
    with served(host="0.0.0.0", token="s3cret") as client:
        for path in ("/", "/docs", "/openapi.json", "/health"):
            assert client.get(path, headers={"Host": "a.example.org"}).status_code == 200
        for given in (None, "Bearer ", "Bearer s3cre", "Basic s3cret", "s3cret"):
            headers = {} if given is None else {"Authorization": given}
            response = client.get("/models", headers=headers)
            assert error(response, 401) == "token"
            assert response.headers["www-authenticate"] == "Bearer"
        known = {"Authorization": "Bearer s3cret", "Host": "a.example.org"}
        assert client.get("/models", headers=known).status_code == 200
        assert error(client.get("/models?token=s3cret"), 401) == "token"


def test_too_much_waiting_is_refused_until_later(served):
    with served(max_queue=256, max_molecules=256) as client:
        worker = client.worker
        with worker.reserve(255):
            for response in (
                client.post("/predict", json={"smiles": ["C", "C"]}),
                client.post("/predict", content="smiles\nC\n", headers=CSV),
                client.post("/explain", json={"smiles": "CC"}),
            ):
                assert error(response, 429) == "busy"
                assert int(response.headers["retry-after"]) >= 1
            assert client.post("/predict", json={"smiles": ["C"]}).status_code == 200
        assert client.post("/predict", content="smiles\nC\n", headers=CSV).status_code == 200
        assert worker.reserved == 0


def test_physicochemistry_is_of_what_is_predicted_and_alerts_can_be_drawn(client):
    found = client.get("/physchem", params={"smiles": "O=C1CSC(=S)N1", "model": "mixed"}).json()
    assert found == physchem("O=C1CSC(=S)N1")
    alert = found["alerts"][-1]
    asked = {"smiles": found["smiles"], "atoms": alert["atoms"]}
    plain = client.get("/depict", params={"smiles": found["smiles"]}).text
    marked = client.get("/depict", params=asked).text
    assert marked.count("<ellipse") == plain.count("<ellipse") + len(alert["atoms"])
    assert client.get("/depict", params={"smiles": "CCO", "atoms": [3]}).status_code == 422
    assert client.get("/physchem", params={"smiles": "C1CC"}).json()["error"] == "ring_closure"
