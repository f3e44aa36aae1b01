"""Predictions of atoms and bonds over HTTP, and on the page."""

import csv
import io

import openpyxl
import pytest
import torch

from molattn.explain import draw_sites
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.sites import SiteCalibration, SiteScores
from molattn.serve.catalog import load_models
from molattn.task import Task

from ..conftest import assert_fits_and_can_be_read
from .conftest import SMALL
from .test_page import opened as opened  # a fixture
from .test_page import predict, serving

CSV = "text/csv"
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
SDF = "chemical/x-mdl-sdfile"
SMILES = "CC(=O)N[H]"
TASKS = {
    "atom_tasks": (Task("shift", unit="ppm"), Task("place", "multiclass", ("a", "b", "c"))),
    "bond_tasks": (Task("broken", "binary", ("0", "1")),),
}


def saved_model(folder, tasks=(), **options):
    """Save a model of atoms and bonds whose numbers have intervals, and return both."""
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(tasks, SMALL, **TASKS, **options)).eval()
    scores = SiteScores(18, (1.0, 2.0), (0.5, 1.0), 1.0)
    model.site_calibration = SiteCalibration({"shift": scores})
    model.save_pretrained(folder / "nmr")
    return model, folder / "nmr"


@pytest.fixture(scope="module")
def sites_alone(tmp_path_factory):
    """A model without a property of molecules, and its folder."""
    return saved_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def client(served, sites_alone):
    with served(load_models([sites_alone[1]])) as client:
        yield client


def test_atoms_and_bonds_are_lists_of_a_molecule(served, tmp_path):
    torch.manual_seed(0)
    tasks = {"atom_tasks": ("shift",), "bond_tasks": ("bde",)}
    model = MolAttn(MolAttnConfig(("logS",), SMALL, **tasks)).eval()
    model.save_pretrained(tmp_path / "nmr")
    with served(load_models([tmp_path / "nmr"])) as client:
        answer = client.post("/predict", json={"smiles": ["CCO", "C(C"]}).json()
    first, wrong = answer["molecules"]
    expected = model.predict_atoms(["CCO"]).outputs[:, 0].tolist()
    assert first["atoms"] == {"shift_predicted": pytest.approx(expected, rel=1e-6)}
    assert len(first["bonds"]["bde_predicted"]) == 2
    assert (wrong["atoms"], wrong["bonds"]) == (None, None)


def test_models_name_their_properties_of_atoms_and_bonds(client):
    (described,) = client.get("/models").json()["models"]
    assert described["tasks"] == []
    shift, place = described["atom_tasks"]
    assert shift == {
        **{"name": "shift", "kind": "regression", "unit": "ppm", "classes": []},
        "has_interval": True,
    }
    assert (place["classes"], place["has_interval"]) == (["a", "b", "c"], False)
    assert [task["name"] for task in described["bond_tasks"]] == ["broken"]


def test_model_of_atoms_alone_is_served(client, sites_alone):
    answer = client.post("/predict", json={"smiles": ["CCO", "C(C"]}).json()
    first, wrong = answer["molecules"]
    assert first["predictions"] == {}
    expected = sites_alone[0].predict_atoms(["CCO"]).outputs[:, 0].tolist()
    assert first["atoms"]["shift_predicted"] == pytest.approx(expected, rel=1e-6)
    assert (wrong["error"], wrong["bonds"]) == ("parenthesis", None)


def test_files_of_a_model_of_atoms_alone_have_lists(client):
    table = {"content": "smiles\nCCO\nC(C\n", "headers": {"Content-Type": CSV}}
    row, wrong = csv.DictReader(io.StringIO(client.post("/predict", **table).text))
    assert len(row["shift_predicted"].split(",")) == 3
    assert (wrong["shift_predicted"], wrong["error"]) == ("", "parenthesis")
    table["headers"]["Accept"] = "application/json"
    answer = client.post("/predict?cells=true", **table).json()
    body = io.StringIO()
    writer = csv.writer(body)
    writer.writerow([*answer["columns"], "block"])
    writer.writerows([*molecule["cells"], ""] for molecule in answer["molecules"])
    table = {"content": body.getvalue(), "headers": {"Content-Type": CSV, "Accept": EXCEL}}
    book = openpyxl.load_workbook(io.BytesIO(client.post("/table", **table).content))
    assert [cell.value for cell in book.worksheets[0][1]][:-1] == answer["columns"][:-1]
    table["headers"]["Accept"] = SDF
    assert "> <broken_probability>\n[" in client.post("/table", **table).text


@pytest.mark.parametrize("target", ["shift", "place", "broken"])
@pytest.mark.parametrize("hydrogens", [False, True])
def test_a_property_is_drawn_with_its_values(served, tmp_path, target, hydrogens):
    model, folder = saved_model(tmp_path, hydrogens=hydrogens)
    with served(load_models([folder])) as client:
        body = {"smiles": SMILES, "target": target, "level": 0.5}
        answer = client.post("/sites", json=body).json()
    assert (answer["model"], answer["target"]) == ("nmr", target)
    assert answer["svg"] == draw_sites(model, SMILES, target)
    assert answer["symbols"][:5] == ["C", "C", "O", "N", "H"]
    is_of_bonds = target == "broken"
    predict_sites = model.predict_bonds if is_of_bonds else model.predict_atoms
    prediction = predict_sites([SMILES], level=0.5)
    expected = [[0, 1], [1, 2], [1, 3], [3, 4]] if is_of_bonds else [[0], [1], [2], [3], [4]]
    if is_of_bonds and not hydrogens:
        expected[-1] = []
    assert answer["sites"][: len(expected)] == expected
    assert len(answer["sites"]) == len(prediction.outputs)
    lists = answer["predictions"]
    assert {len(values) for values in lists.values()} == {len(answer["sites"])}
    assert all(name.startswith(target) for name in lists)
    if target == "shift":
        assert lists["shift_low"][:4] == pytest.approx(prediction.low[:4, 0].tolist(), rel=1e-6)
        assert (lists["shift_predicted"][4] is None) == (not hydrogens)


def test_what_cannot_be_drawn_is_refused(client, catalog, served):
    def error(asked=client, **body):
        answer = asked.post("/sites", json={"smiles": "CCO", "target": "shift", **body})
        assert answer.status_code == 422
        assert answer.json().keys() == {"error", "message"}
        return answer.json()["error"], answer.json()["message"]

    code, message = error(target="logS")
    assert code == "bad_request"
    assert message == "target: got 'logS', expected one of shift, place, broken"
    assert error(smiles="C(C")[0] == "parenthesis"
    assert error(smiles="C" * 3000)[0] == "too_large"
    assert error(level=2)[1].startswith("level: got 2")
    assert error(model="other")[1].startswith("model: got 'other'")
    with served(catalog) as other:
        assert error(other)[1] == "model: got mixed, expected one that predicts atoms or bonds"
    large = client.post("/sites", json={"smiles": "C" * 300, "target": "shift"}).json()
    assert (large["svg"], len(large["predictions"]["shift_predicted"])) == (None, 300)


def test_what_needs_properties_of_molecules_is_refused(client):
    body = {"smiles": ["CCO"], "difference_from": ["CC"]}
    for answer in (
        client.post("/predict", json=body),
        client.post("/explain", json={"smiles": "CCO"}),
    ):
        assert answer.status_code == 422
        assert "predicts atoms and bonds alone" in answer.json()["message"]


@pytest.fixture(scope="module")
def address(sites_alone):
    yield from (f"{one}/" for one in serving(sites_alone[1]))


@pytest.mark.browser
@pytest.mark.parametrize("width, scheme", [(1280, "dark"), (400, "light")])
def test_the_page_shows_a_model_of_atoms_alone(opened, address, width, scheme):
    with opened(width=width, color_scheme=scheme) as page:
        page.locator("#empty .of-sites").wait_for()
        start = page.inner_text("#empty")
        assert "Atoms and bonds\nare colored by" in start
        assert "Why?" not in start
        predict(page, "CC(=O)N[H] amide")
        page.locator(".sites img[alt^='shift (ppm), predicted for each atom']").wait_for()
        page.locator(".tiles dt").first.wait_for()
        assert page.locator("text=What if I change it?").count() == 0
        assert "Blue is below the mean of the training labels" in page.inner_text(
            ".sites figcaption"
        )
        page.click(".sites summary")
        rows = page.locator(".sites tbody tr").all_inner_texts()
        assert [row.split("\t")[:2] for row in rows] == [
            *(["0", "C"], ["1", "C"], ["2", "O"], ["3", "N"], ["4", "H"])
        ]
        assert " to " in rows[0]
        assert rows[4].split("\t")[2:] == ["-", "-", "-"]
        assert_fits_and_can_be_read(page, width)
        assert "No 90% interval" not in page.inner_text(".sites figcaption")
        page.select_option(".sites select", label="broken (bonds)")
        page.locator(".sites img[alt^='broken, predicted for each bond']").wait_for()
        rows = page.locator(".sites tbody tr").all_inner_texts()
        assert [row.split("\t")[:2] for row in rows] == [
            *(["0-1", "C-C"], ["1-2", "C-O"], ["1-3", "C-N"])
        ]
        page.select_option(".sites select", label="shift (atoms)")
        page.select_option("#level", "0.95")
        page.locator(".sites figcaption:text('No 95% interval')").wait_for()
        page.select_option(".sites select", label="broken (bonds)")
        predict(page, "CCO ethanol\nC(C junk")
        assert page.locator("thead th").all_inner_texts() == ["Row", "Molecule", "Predicted"]
        first, wrong = page.locator("tbody tr").all_inner_texts()
        assert "3 atoms, 2 bonds" in first
        assert "No prediction: " in wrong
        assert "NaN" not in page.inner_text("main")
        assert page.locator(".score:visible, .plot:visible, .range:visible").count() == 0
        assert_fits_and_can_be_read(page, width)
        page.click("button.link:text('ethanol')")
        page.locator(".sites img[alt^='broken']").wait_for()
