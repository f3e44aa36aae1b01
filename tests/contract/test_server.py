"""What the server answers."""

import csv
import urllib.parse

import pytest
from rdkit import Chem

from molattn import MolAttn

from .conftest import ask, serving

LARGE = "C" * 2_001


def test_health_and_models(address, model):
    assert ask(f"{address}/health").status == 200
    found = ask(f"{address}/models")
    assert found.status == 200
    assert model.name in found.text
    assert "admet" in found.text


def test_the_page_and_the_description_load_nothing_from_elsewhere(address):
    for path in ("/", "/docs"):
        page = ask(address + path)
        assert (page.status, page.kind.split(";")[0]) == (200, "text/html")
        assert 'src="http' not in page.text
        assert 'href="http' not in page.text.replace('href="https://github', "")
    described = ask(f"{address}/openapi.json").json
    assert described["openapi"].startswith("3.")
    assert {"/predict", "/explain", "/depict", "/models", "/health"} <= set(described["paths"])


def test_one_molecule(address, model):
    (one,) = ask(f"{address}/predict", {"smiles": ["CCO"]}).json["molecules"]
    assert (one["smiles"], one["error"]) == ("CCO", None)
    found = one["predictions"]["logS"]
    wanted = float(MolAttn.from_pretrained(model).predict(["CCO"])[0, 0])
    assert found["value"] == pytest.approx(wanted, rel=1e-4)
    assert found["low"] <= found["value"] <= found["high"]
    assert 0 <= one["training_similarity"] <= 1
    assert one["in_domain"] in (True, False)


def test_bad_rows_beside_good_ones(address):
    words = ["CCO", "C(C", "", "c1ccccc1", "aspirin", LARGE, "CCO"]
    rows = ask(f"{address}/predict", {"smiles": words, "level": 0.5}).json["molecules"]
    assert [row["smiles"] for row in rows] == words
    reasons = [None, "parenthesis", "empty", None, "name", "too_large", None]
    assert [row["error"] for row in rows] == reasons
    values = [value_of(row) for row in rows]
    assert [value is None for value in values] == [reason is not None for reason in reasons]
    assert values[0] == pytest.approx(values[-1], rel=1e-5)


def value_of(row):
    """The value of a molecule, None where there is none."""
    return ((row["predictions"] or {}).get("logS") or {}).get("value")


def test_a_narrower_level_and_neighbors(address):
    widths = []
    for level in (0.5, 0.9):
        body = {"smiles": ["CCCCO"], "level": level, "neighbors": 2}
        (one,) = ask(f"{address}/predict", body).json["molecules"]
        widths.append(one["predictions"]["logS"]["high"] - one["predictions"]["logS"]["low"])
        assert len(one["neighbors"]) == 2
    assert widths[0] < widths[1]


def test_a_request_chooses_its_model(address):
    (one,) = ask(f"{address}/predict", {"smiles": ["CCO"], "model": "admet"}).json["molecules"]
    assert len(one["predictions"]) == 22
    herg = one["predictions"]["herg"]
    assert sum(herg["probabilities"].values()) == pytest.approx(1)
    assert max(herg["probabilities"], key=herg["probabilities"].get) == herg["class"]


def test_tables_in_and_out(address):
    body = b"name,smiles\na,CCO\nb,C(C\nc,CCC\n"
    answer = ask(f"{address}/predict", body, "text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert [row["error"] for row in rows] == ["", "parenthesis", ""]
    assert [row["logS_predicted"] != "" for row in rows] == [True, False, True]
    answer = ask(f"{address}/predict", body, "text/csv", Accept="application/json")
    values = [value_of(molecule) for molecule in answer.json["molecules"]]
    assert [value is None for value in values] == [False, True, False]
    assert values[0] == pytest.approx(float(rows[0]["logS_predicted"]), rel=1e-4)
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")).encode() + b"$$$$\n"
    answer = ask(f"{address}/predict", block * 2, "chemical/x-mdl-sdfile")
    assert len(list(csv.DictReader(answer.text.splitlines()))) == 2


@pytest.mark.parametrize(
    "path, body, kind, statuses",
    [
        ("/predict", {"smiles": ["C"], "model": "absent"}, "application/json", {404, 422}),
        ("/predict?model=absent", b"smiles\nC\n", "text/csv", {404, 422}),
        ("/predict", b"{", "application/json", {400, 422}),
        ("/predict", b"\xff", "application/json", {400, 422}),
        ("/predict", b"[" * 100_000, "application/json", {400, 422}),
        ("/predict", {}, "application/json", {422}),
        ("/predict", {"smiles": "CCO"}, "application/json", {422}),
        ("/predict", {"smiles": ["C"], "level": 2}, "application/json", {422}),
        ("/predict", {"smiles": ["C"], "guess": 1}, "application/json", {422}),
        ("/predict", {"smiles": ["C"] * 10_001}, "application/json", {413}),
        ("/predict", b"molecule\nC\n", "text/csv", {422}),
        ("/predict", b"C", "application/x-guess", {415}),
        ("/explain", {"smiles": "C(C"}, "application/json", {422}),
        ("/explain", {"smiles": "C", "method": "guess"}, "application/json", {422}),
        ("/depict?smiles=C(C", None, "", {422}),
        ("/absent", None, "", {404}),
        ("/predict", None, "", {405}),
    ],
)
def test_a_wrong_request_is_told_in_json(address, path, body, kind, statuses):
    answer = ask(address + path, body, kind)
    assert answer.status in statuses
    assert set(answer.json) == {"error", "message"}
    assert "Traceback" not in answer.text
    assert len(answer.text) < 4000


def test_an_explanation(address):
    answer = ask(f"{address}/explain", {"smiles": "CC(=O)N", "method": "occlusion"})
    assert answer.status == 200
    assert "<svg" in answer.text
    assert "logS" in answer.text


def test_a_picture_of_a_structure(address):
    answer = ask(f"{address}/depict?" + urllib.parse.urlencode({"smiles": "c1ccccc1O"}))
    assert (answer.status, answer.kind.split(";")[0]) == (200, "image/svg+xml")
    assert "<svg" in answer.text
    other = ask(f"{address}/depict?" + urllib.parse.urlencode({"smiles": "CCO", "other": "CCN"}))
    assert other.status == 200


@pytest.mark.parametrize(
    "headers", [{"Host": "example.com"}, {"Origin": "http://example.com"}], ids=["host", "origin"]
)
def test_other_hosts_and_origins_are_refused(address, headers):
    answer = ask(f"{address}/predict", {"smiles": ["C"]}, **headers)
    assert answer.status == 403


def test_a_token_is_needed_where_one_is_set(model):
    server = serving(model, "--token", "secret-of-a-test")
    address = next(server)
    body = {"smiles": ["CCO"]}
    assert ask(f"{address}/health").status == 200
    assert ask(f"{address}/predict", body).status == 401
    assert ask(f"{address}/predict", body, Authorization="Bearer wrong").status == 401
    right = ask(f"{address}/predict", body, Authorization="Bearer secret-of-a-test")
    assert right.status == 200
    server.close()
