"""A table to a folder of explanations: every row, the same numbers everywhere, all or nothing."""

import io
import json
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from molattn.config import ExplainConfig
from molattn.errors import InputError
from molattn.explain import METHODS as KNOWN
from molattn.explain import Method, Scores, explain, explain_table, measure_faithfulness
from molattn.explain.folder import CONTENTS, other_inputs
from molattn.model.target_transform import LogTransform
from molattn.task import Task

from ..conftest import rows_of
from .conftest import GOOD, METHODS, ROWS, TARGET, make, with_process


@pytest.fixture(scope="module")
def folder(explained):
    """The folder of the model that explained the table."""
    return explained.parent / "model"


def read(folder):
    return json.loads((folder / "explanations.json").read_text())


def test_numbers_are_those_of_explain_in_every_file(explained, small_model):
    assert sorted(entry.name for entry in explained.iterdir()) == sorted(CONTENTS)
    pictures = {
        f"{row}_{name}.{kind}" for row in GOOD for name in METHODS for kind in ("png", "svg")
    }
    assert {entry.name for entry in (explained / "molecules").iterdir()} == pictures
    atoms, bonds = (rows_of(explained / name) for name in ("atoms.csv", "bonds.csv"))
    weights = np.load(explained / "attention.npz", allow_pickle=False)
    rows = read(explained)["rows"]
    for row, smiles in GOOD.items():
        for k, method in enumerate(METHODS):
            expected = explain(small_model, smiles, method)
            values = [line for line in atoms if line["row"] == str(row)]
            assert [line["symbol"] for line in values] == [*expected.symbols]
            scores = [float(line[method]) for line in values]
            assert scores == pytest.approx(expected.atom_scores, rel=1e-5)
            values = [line for line in bonds if line["row"] == str(row)]
            pairs = [(int(line["atom_1"]), int(line["atom_2"])) for line in values]
            assert pairs == [*expected.bonds]
            scores = [float(line[method]) for line in values]
            assert scores == pytest.approx(expected.bond_scores, rel=1e-4, abs=1e-6)
            entry = rows[row - 2]["explanations"][k]
            assert entry["method"] == method
            assert entry["prediction"] == pytest.approx(expected.prediction)
            assert (entry["low"], entry["high"]) == pytest.approx((expected.low, expected.high))
            assert entry["confidence"] == expected.confidence
            assert entry["expected_error"] == pytest.approx(expected.expected_error)
        assert weights[f"attention_{row}"] == pytest.approx(expected.attention, abs=1e-6)
        assert weights[f"gates_{row}"] == pytest.approx(expected.gates, abs=1e-6)
    assert len(weights.files) == 2 * len(GOOD)
    # Every row comes out, and an invalid one says why.
    codes = {3: "syntax", 6: "valence"}
    assert [(line["row"], line["smiles"], line["error"]) for line in rows] == [
        (row, smiles, codes.get(row, "")) for row, smiles in enumerate(ROWS, start=2)
    ]
    assert [line["error"] for line in atoms if line["row"] in "36"] == ["syntax", "valence"]
    assert Counter(line["row"] for line in atoms) == {"2": 13, "3": 1, "4": 1, "5": 14, "6": 1}


def test_the_first_target_is_explained_up_to_the_limit_with_the_interval(
    folder, small_model, table, tmp_path
):
    log = io.StringIO()
    console = Console(file=log, width=200)
    config = ExplainConfig(method=("attention",), limit=2, interval=0.5)
    assert explain_table(folder, table, tmp_path / "out", config, console) == (1, 1)
    low, high = small_model.predict_interval([GOOD[2]], 0.5)
    (entry,) = read(tmp_path / "out")["rows"][0]["explanations"]
    assert (entry["low"], entry["high"]) == pytest.approx((low[0, 0], high[0, 0]), rel=1e-5)
    assert '"interval":"50% prediction interval"' in (tmp_path / "out" / "index.html").read_text()
    assert f"explaining {TARGET}, the first of 2 targets" in log.getvalue()
    config = ExplainConfig(method=("attention",), target="y", limit=1)
    log.truncate(0)
    explain_table(folder, table, tmp_path / "out", config, console)  # replaces it
    assert "explaining" not in log.getvalue()
    (row,) = read(tmp_path / "out")["rows"]
    assert row["explanations"][0]["target"] == "y"


def test_the_former_folder_stays_after_a_failure(folder, table, tmp_path, monkeypatch):
    quick = ExplainConfig(method=("attention",), limit=1)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError):  # a folder of something else
        explain_table(folder, table, tmp_path, quick)
    (tmp_path / "notes.txt").unlink()

    def content():
        return {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    explain_table(folder, table, tmp_path / "out", quick)
    before = content()
    monkeypatch.setattr("molattn.explain.explainer.draw_svg", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        explain_table(folder, table, tmp_path / "out", quick)
    monkeypatch.undo()
    assert content() == before
    explain_table(folder, table, tmp_path / "out", quick)
    assert content() == before


def degree(instance, options):
    degrees = [float(atom.GetDegree()) for atom in instance.mol.GetAtoms()]
    return Scores(np.array(degrees), np.full(len(instance.bonds), 0.5))


def alone(instance, options):
    """The prediction for each atom by itself, from that without atoms; not finite for aspirin."""
    n = instance.num_atoms
    values = instance.predict_kept(np.eye(n + 1, n, dtype=bool))
    atoms = values[:-1] - values[-1] + (np.nan if instance.smiles == GOOD[2] else 0.0)
    return Scores(atoms, np.zeros(len(instance.bonds)), float(values[-1]))


def test_registered_methods_explain_a_table_and_are_tested(folder, table, tmp_path, monkeypatch):
    added = {
        "degree": Method(degree, signed=False, summary="number of neighbors"),
        "alone": Method(alone, signed=True, summary="an atom by itself (Nobody 1)"),
    }
    monkeypatch.setattr(KNOWN, "data", dict(KNOWN))
    for name, method in added.items():
        assert KNOWN.register(name)(method) is method
    with pytest.raises(ValueError, match="'degree'"):
        KNOWN.register("degree")(added["alone"])
    model = make(tasks=("logS",))
    found = explain(model, "CC(=O)N", "degree")
    assert found.atom_scores.tolist() == [1, 3, 1, 1]
    assert found.bond_scores.tolist() == [0.5] * 3
    single = explain(model, "C", "alone")
    assert single.adds_up is True  # with one atom there are no interactions
    tested = [row.method for row in measure_faithfulness(model, ["CCO"]).rows]
    assert tested == [*KNOWN, "uniform", "random"]
    config = ExplainConfig(method=("degree", "alone"), check=True)
    assert explain_table(folder, table, tmp_path / "out", config) == (2, 3)
    rows = read(tmp_path / "out")["rows"]
    assert [row["error"] for row in rows] == ["not_finite", "syntax", "", "", "valence"]
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<strong>degree</strong>: number of neighbors</li>" in page
    assert "<strong>alone</strong>: an atom by itself (Nobody 1)</li>" in page


def test_check_is_the_faithfulness_on_the_molecules_and_is_on_the_page(
    folder, table, small_model, tmp_path
):
    log = io.StringIO()
    config = ExplainConfig(method=METHODS, check=True)
    explain_table(folder, table, tmp_path / "out", config, Console(file=log, width=80))
    expected = measure_faithfulness(small_model, [*GOOD.values()], METHODS)
    assert "errors: 1 syntax, 1 valence" in log.getvalue()
    assert expected.sentence in log.getvalue()
    found = read(tmp_path / "out")["check"]
    assert (found["molecules"], found["skipped"]) == (2, 1)
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for row, entry in zip(expected.rows, found["rows"], strict=True):
        assert entry["deletion_area"]["mean"] == pytest.approx(row.deletion_area.mean, rel=1e-4)
        assert f"{row.deletion_area.mean:.3f}".replace("-", "\N{MINUS SIGN}") in page
    assert "too few for a verdict" in page
    (tmp_path / "methane.csv").write_text("smiles\nC\n")
    explain_table(folder, tmp_path / "methane.csv", tmp_path / "out", config)
    assert read(tmp_path / "out")["check"] is None  # no pair of atoms


def test_scores_of_other_inputs_are_in_each_file(tmp_path):
    sums = {"descriptors": ("MolWt", "NOCount", "NHOHCount")}
    assert other_inputs(make(**sums).config) == ""
    assert other_inputs(make(**sums, morgan_counts=8).config) == "8 Morgan counts"
    model = make(descriptors=("MolWt", "TPSA"), morgan_counts=8)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "table.csv").write_text("smiles\nCCO\nx\n")
    config, log = ExplainConfig(method=("attention", "occlusion")), io.StringIO()
    console = Console(file=log, width=200)
    explain_table(tmp_path / "model", tmp_path / "table.csv", tmp_path / "out", config, console)
    expected = explain(model, "CCO", "occlusion").other_scores
    *rows, invalid = rows_of(tmp_path / "out" / "other_inputs.csv")
    assert [row["input"] for row in rows] == ["descriptors", "Morgan counts"] == [*expected]
    for row in rows:
        assert row["attention"] == row["error"] == ""
        assert float(row["occlusion"]) == pytest.approx(expected[row["input"]], rel=1e-4)
    assert (invalid["row"], invalid["input"], invalid["error"]) == ("3", "", "syntax")
    entry = read(tmp_path / "out")["rows"][0]["explanations"][1]
    assert entry["other_scores"] == pytest.approx(expected, rel=1e-4)
    other = "2 descriptors and 8 Morgan counts"
    assert read(tmp_path / "out")["other_inputs"] == other
    assert f"the contribution of {other}, which the model also uses" in log.getvalue()
    assert f"also uses {other}." in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_network_without_a_weight_is_logged(table, tmp_path, weight):
    model, log = with_process(make(tasks=("y",), kernels=("morgan",)), weight), io.StringIO()
    config = ExplainConfig(method=("attention", "occlusion"), limit=1)
    explain_table(model, table, tmp_path / "out", config, Console(file=log, width=200))
    remark = "of the network, which has no weight in the predictions of"
    assert (remark in log.getvalue()) == (weight == 1.0)
    assert (remark in (tmp_path / "out" / "index.html").read_text()) == (weight == 1.0)
    assert (tmp_path / "out" / "attention_by_distance.png").exists()  # attention was asked for


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_attention_of_a_network_without_a_weight_is_not_shown(table, tmp_path, weight):
    model, log = with_process(make(tasks=("y",), kernels=("morgan",)), weight), io.StringIO()
    config = ExplainConfig(method=("occlusion",), limit=1)
    explain_table(model, table, tmp_path / "out", config, Console(file=log, width=200))
    assert (tmp_path / "out" / "attention_by_distance.png").exists() == (weight < 1.0)
    assert ("not shown: attention of the network" in log.getvalue()) == (weight == 1.0)
    page = (tmp_path / "out" / "index.html").read_text()
    assert ('<details id="network" hidden>' in page) == (weight == 1.0)


def test_contributions_to_a_logarithm_are_said_to_be_in_the_unit(table, tmp_path):
    model, log = make(tasks=(Task("ic50", unit="µM"),)), io.StringIO()
    model.set_target_scaling([0.5], [0.8], (LogTransform(),))
    config = ExplainConfig(method=("occlusion", "attention"), limit=1)
    explain_table(model, table, tmp_path / "out", config, Console(file=log, width=200))
    remark = "contributions to 'ic50' in µM, not to the logarithm that the model learned"
    assert remark in log.getvalue()
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count(remark.replace("'", "&#39;")) == 1  # of the signed method
