"""A table to a folder of explanations: every row, the same numbers everywhere, all or nothing."""

import io
import json
import re
from collections import Counter

import numpy as np
import pytest
import torch
from rich.console import Console

from molattn.cli import main
from molattn.config import ExplainConfig, NetworkConfig
from molattn.errors import InputError
from molattn.explain import METHODS as KNOWN
from molattn.explain import Method, Scores, explain, measure_faithfulness
from molattn.explain.faithfulness.summary import summarize
from molattn.explain.page.files import CONTENTS
from molattn.explain.page.folder import explain_table, other_inputs
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task

from ...conftest import rows_of
from ..conftest import GOOD, METHODS, ROWS, TARGET, make, with_process


def test_the_folder_holds_what_it_promises(explained):
    assert sorted(entry.name for entry in explained.iterdir()) == sorted(CONTENTS)
    assert sorted(entry.name for entry in (explained / "molecules").iterdir()) == sorted(
        f"{row}_{method}.{kind}" for row in GOOD for method in METHODS for kind in ("png", "svg")
    )
    assert {entry.name for entry in explained.parent.iterdir()} == {"model", "out"}


def test_numbers_are_those_of_explain(explained, small_model):
    atoms, bonds = (rows_of(explained / name) for name in ("atoms.csv", "bonds.csv"))
    given = json.loads((explained / "explanations.json").read_text())
    weights = np.load(explained / "attention.npz", allow_pickle=False)
    for row, smiles in GOOD.items():
        for method in METHODS:
            own = explain(small_model, smiles, method)
            of_row = [one for one in atoms if one["row"] == str(row)]
            assert [one["symbol"] for one in of_row] == [*own.symbols]
            assert [float(one[method]) for one in of_row] == pytest.approx(
                own.atom_scores, rel=1e-5
            )
            of_row = [one for one in bonds if one["row"] == str(row)]
            pairs = [(int(one["atom_1"]), int(one["atom_2"])) for one in of_row]
            assert pairs == [*own.bonds]
            assert [float(one[method]) for one in of_row] == pytest.approx(
                own.bond_scores, rel=1e-4, abs=1e-6
            )
            entry = given["rows"][row - 1]["explanations"][METHODS.index(method)]
            assert entry["method"] == method
            assert entry["atom_scores"] == pytest.approx(own.atom_scores, rel=1e-5)
            assert entry["prediction"] == pytest.approx(own.prediction)
            assert (entry["low"], entry["high"]) == pytest.approx((own.low, own.high))
        assert weights[f"attention_{row}"] == pytest.approx(own.attention, abs=1e-6)
        assert weights[f"gates_{row}"] == pytest.approx(own.gates, abs=1e-6)
    assert len(weights.files) == 2 * len(GOOD)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_interval_is_that_of_the_model(explained, small_model, table, tmp_path, level):
    config = ExplainConfig(method=("attention",), interval=level)
    explain_table(explained.parent / "model", table, tmp_path / "out", config)
    given = json.loads((tmp_path / "out" / "explanations.json").read_text())["rows"]
    low, high = small_model.predict_interval([*GOOD.values()], level)
    for place, row in enumerate(GOOD):
        found = given[row - 1]["explanations"][0]
        expected = (low[place, 0], high[place, 0])
        assert (found["low"], found["high"]) == pytest.approx(expected, rel=1e-5)
    assert (
        f'"interval":"{100 * level:g}% prediction interval"'
        in (tmp_path / "out" / "index.html").read_text()
    )


def test_the_first_of_several_targets_is_explained_and_the_log_states_it(
    explained, table, tmp_path
):
    folder, log = explained.parent / "model", io.StringIO()
    for target in (None, "y"):
        config = ExplainConfig(method=("attention",), target=target, limit=1)
        explain_table(folder, table, tmp_path / "out", config, Console(file=log, width=200))
    assert log.getvalue().splitlines() == [
        f"explaining {TARGET}, the first of 2 targets; --target selects another"
    ]


def test_every_row_comes_out_and_a_bad_one_says_why(explained):
    given = json.loads((explained / "explanations.json").read_text())
    assert given["target"] == TARGET
    assert [(one["row"], one["smiles"], one["error"]) for one in given["rows"]] == [
        (row, smiles, {2: "syntax", 5: "valence"}.get(row, ""))
        for row, smiles in enumerate(ROWS, start=1)
    ]
    atoms = rows_of(explained / "atoms.csv")
    assert [one["error"] for one in atoms if one["row"] in "25"] == ["syntax", "valence"]
    assert Counter(one["row"] for one in atoms) == {"1": 13, "2": 1, "3": 1, "4": 14, "5": 1}
    assert [one["row"] for one in atoms] == sorted((one["row"] for one in atoms), key=int)


def test_a_molecule_whose_scores_are_not_finite_is_a_row_with_an_error(
    explained, table, tmp_path, monkeypatch
):
    def compute(instance, options):
        scores = np.full(instance.num_atoms, np.nan if instance.smiles == GOOD[1] else 1.0)
        return Scores(scores, np.zeros(len(instance.bonds)))

    monkeypatch.setitem(KNOWN._items, "own", Method(compute, signed=False, summary="a number"))
    config = ExplainConfig(method=("own",))
    assert explain_table(explained.parent / "model", table, tmp_path / "out", config) == (2, 3)
    rows = json.loads((tmp_path / "out" / "explanations.json").read_text())["rows"]
    assert [row["error"] for row in rows] == ["not_finite", "syntax", "", "", "valence"]


def test_target_and_limit(explained, table, tmp_path):
    config = ExplainConfig(method=("attention",), target="y", limit=2)
    counts = explain_table(explained.parent / "model", table, tmp_path / "out", config)
    assert counts == (1, 1)
    given = json.loads((tmp_path / "out" / "explanations.json").read_text())
    assert [row["row"] for row in given["rows"]] == [1, 2]
    assert given["rows"][0]["explanations"][0]["target"] == "y"


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--method", "magic"], "error: --method: got 'magic', expected one of attention"),
        (["--target", "z"], "error: --target: got 'z', expected one of logS"),
        (["--limit", "0"], "limit: got "),
        (["--smiles-column", "smile"], "smile"),
        (["--partner-column", "smiles"], "takes one molecule"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    explained, table, tmp_path, capsys, options, expected
):
    out = tmp_path / "new" / "out"
    model = str(explained.parent / "model")
    assert main(["explain", model, str(table), "--output", str(out), *options]) == 2
    assert expected in capsys.readouterr().err
    assert [*tmp_path.rglob("*")] == []


def test_a_folder_of_something_else_stays(explained, table, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    model = str(explained.parent / "model")
    assert main(["explain", model, str(table), "--output", str(tmp_path)]) == 2
    assert "contains 'notes.txt'" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]
    assert main(["explain", model, str(table), "--output", str(tmp_path / "notes.txt")]) == 2


def test_a_failure_leaves_the_former_folder_as_it_was(explained, table, tmp_path, monkeypatch):
    model, out = explained.parent / "model", tmp_path / "out"
    quick = ExplainConfig(method=("attention",), limit=1)
    explain_table(model, table, out, quick)
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def fail(*arguments, **options):
        raise RuntimeError("broken")

    monkeypatch.setattr("molattn.explain.drawing.Drawing.save", fail)
    with pytest.raises(RuntimeError, match="broken"):
        explain_table(model, table, out, quick)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert before == {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.undo()
    explain_table(model, table, out, quick)  # replaces it
    assert before == {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_the_help_names_every_method():
    text = ExplainConfig.__doc__
    assert text is not None
    listed = re.search(r"one or more of: ([\w\s,]+?)\.", text)
    assert listed is not None
    assert re.split(r",\s+", listed[1]) == [*KNOWN]
    with pytest.raises(InputError, match="method: got"):
        ExplainConfig(method=())


def test_check_is_the_faithfulness_on_the_molecules_and_is_on_the_page(
    explained, table, small_model, tmp_path
):
    config = ExplainConfig(method=METHODS, check=True)
    printed = io.StringIO()
    console = Console(file=printed, width=80)
    explain_table(explained.parent / "model", table, tmp_path / "out", config, console)
    lines = printed.getvalue().splitlines()
    assert "errors: 1 syntax, 1 valence" in lines
    assert summarize(measure_faithfulness(small_model, [*GOOD.values()], METHODS)).sentence in lines
    given = json.loads((tmp_path / "out" / "explanations.json").read_text())["check"]
    own = measure_faithfulness(small_model, [*GOOD.values()], METHODS)
    assert given == json.loads(json.dumps(own.to_dict()))
    assert (given["molecules"], given["skipped"]) == (2, 1)
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for row in own.rows:
        assert f"{row.deletion_area.mean:.3f}".replace("-", "\N{MINUS SIGN}") in page
    assert "too few for a verdict" in page


def test_without_a_pair_of_atoms_there_is_nothing_to_check(explained, tmp_path, capsys):
    table = tmp_path / "methane.csv"
    table.write_text("smiles\nC\n")
    model, out = str(explained.parent / "model"), str(tmp_path / "out")
    assert main(["explain", model, str(table), "--output", out, "--check"]) == 0
    assert "--check: skipped, because no molecule has two or more atoms" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "explanations.json").read_text())["check"] is None


def test_descriptors_that_are_sums_over_atoms_are_in_the_atom_scores():
    of_atoms = {"descriptors": ("MolWt", "NOCount", "NHOHCount")}
    assert other_inputs(make(**of_atoms).config) == ""
    assert other_inputs(make(**of_atoms, morgan_counts=8).config) == "8 Morgan counts"


def test_other_inputs_of_a_model_are_reported(tmp_path, capsys):
    make(descriptors=("MolWt", "TPSA"), morgan_counts=8).save_pretrained(tmp_path / "model")
    (tmp_path / "table.csv").write_text("smiles\nCCO\n")
    words = [
        str(tmp_path / "model"),
        str(tmp_path / "table.csv"),
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(["explain", *words]) == 0
    other = "2 descriptors and 8 Morgan counts"
    assert (
        f"not in the atom scores: the contribution of {other}, which the model also uses"
        in capsys.readouterr().out
    )
    given = json.loads((tmp_path / "out" / "explanations.json").read_text())
    assert given["other_inputs"] == other
    page = (tmp_path / "out" / "index.html").read_text()
    assert f"also uses {other}. A signed method gives the contribution of each" in page


def test_scores_of_other_inputs_are_in_each_file(tmp_path):
    model = make(descriptors=("MolWt", "TPSA"), morgan_counts=8)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "table.csv").write_text("smiles\nCCO\nx\n")
    methods = ("integrated_gradients", "attention", "occlusion")
    config = ExplainConfig(method=methods)
    explain_table(tmp_path / "model", tmp_path / "table.csv", tmp_path / "out", config)
    own = [explain(model, "CCO", method) for method in methods]
    *given, invalid = rows_of(tmp_path / "out" / "other_inputs.csv")
    assert (
        [one["input"] for one in given]
        == ["descriptors", "Morgan counts"]
        == [*own[0].other_scores]
    )
    for row in given:
        assert row["attention"] == row["error"] == ""
        for one in (own[0], own[2]):
            assert float(row[one.method]) == pytest.approx(one.other_scores[row["input"]], rel=1e-4)
    assert (invalid["row"], invalid["input"], invalid["error"]) == ("2", "", "syntax")
    rows = json.loads((tmp_path / "out" / "explanations.json").read_text())["rows"]
    for found, one in zip(rows[0]["explanations"], own, strict=True):
        assert found["other_scores"] == pytest.approx(one.other_scores, rel=1e-4)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_network_without_a_share_is_told(table, tmp_path, share):
    torch.manual_seed(0)
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    model = MolAttn(MolAttnConfig((Task("y"),), small, kernels=("morgan",)))
    model, log = with_process(model.eval(), share), io.StringIO()
    config = ExplainConfig(method=("attention", "occlusion"), limit=1)
    explain_table(model, table, tmp_path / "out", config, Console(file=log, width=200))
    told = "attention: of the network, which has no share in the predictions of 'y'\n"
    assert (log.getvalue() == told) == (share == 1.0)
    page = (tmp_path / "out" / "index.html").read_text()
    assert ("has no share in the predictions of" in page) == (share == 1.0)
