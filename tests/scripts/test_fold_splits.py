import csv
import importlib
import json
from pathlib import Path

import pytest

from molattn.chem.groups import same_molecule, same_scaffold

RINGS = {
    "c1ccccc1": 12,
    "c1ccncc1": 8,
    "C1CCCCC1": 6,
    "c1ccoc1": 2,
    "c1ccsc1": 2,
    "C1CCNCC1": 2,
    "C1CCOC1": 1,
    "C1CCC1": 1,
    "C1CC1": 1,
    "c1ccc2ccccc2c1": 1,
}
SMILES = [ring + "C" * n for ring, count in RINGS.items() for n in range(count)]
SMILES += ["CC", "CCC", "CCCO", "OCCC"]  # the last is the one before
FOLDS = 3


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module("fold_splits")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("assay.csv", "w", newline="") as file:
        rows = [(text, f"{len(text) / 3:.3f}") for text in SMILES]
        csv.writer(file).writerows([("smiles", "y"), *rows, ("not a molecule", "1.0"), ("CO", "")])
    return "assay.csv"


def folds(script, table, *words):
    words = [*words, "--folds", str(FOLDS), "--repeats", "2", "--output", "made/f.json"]
    assert script.main(["--data", table, *words]) == 0
    return json.loads(Path("made/f.json").read_text())


def given(methods=("random", "scaffold")):
    """Write splits of two seeds, and return the rows that are for no test."""
    rows = list(range(len(SMILES)))
    several = [
        {"train": rows[12:], "val": rows[6:12], "test": rows[:6]},
        {"train": rows[16:], "val": rows[:8], "test": rows[8:16]},
    ]
    Path("splits.json").write_text(json.dumps(dict.fromkeys(methods, several)))
    return [6, 7, *rows[16:]]


@pytest.mark.parametrize("group, method", [(same_molecule, "random"), (same_scaffold, "scaffold")])
def test_rows_for_no_test_are_shared_out_in_whole_groups(script, table, group, method):
    rows = given()
    made = folds(script, table, "--splits-file", "splits.json", "--seeds", "0", "1")[method]
    groups = [{rows[place] for place in some} for some in group([SMILES[row] for row in rows])]
    shared = {row for some in groups if len(some) <= len(rows) / FOLDS / 2 for row in some}
    assert len(made) == 2 * FOLDS
    assert made[:FOLDS] != made[FOLDS:]
    for several in (made[:FOLDS], made[FOLDS:]):
        assert sorted(row for fold in several for row in fold["val"]) == sorted(shared)
    for fold in made:
        assert fold["test"] == [*range(6), *range(8, 16)]
        assert sorted(fold["train"] + fold["val"]) == rows
        assert all(some.isdisjoint(fold["val"]) or some <= {*fold["val"]} for some in groups)


def test_splits_of_one_kind_and_seed_set_aside_their_test_rows_alone(script, table):
    given(["random"])
    made = folds(script, table, "--splits-file", "splits.json", "--seeds", "0")
    assert [*made] == ["random"]
    assert made["random"][0]["test"] == [*range(6)]


def test_without_splits_those_of_the_comparison_are_made(script, table, accuracy):
    made = folds(script, table, "--seeds", "3")
    data = accuracy("cases").load_dataset(table, "smiles", None, None)
    tests = {row for method in made for row in data.split(method, 3)["test"]}
    for fold in (fold for several in made.values() for fold in several):
        assert set(fold["test"]) == tests
        assert sorted(fold["train"] + fold["val"] + fold["test"]) == [*range(len(SMILES))]


def test_the_comparison_scores_the_folds_and_has_no_test_row(script, table, accuracy):
    given()
    made = folds(script, table, "--splits-file", "splits.json", "--seeds", "0", "1")["scaffold"]
    cases = accuracy("cases")
    data = cases.load_dataset(table, "smiles", None, Path("made/f.json"))
    for seed, fold in enumerate(made):
        case = cases.case_of(data, "scaffold", seed, "validation")
        assert case.scored() == fold["val"]
        assert sorted(case.rows["train"] + case.rows["val"]) == fold["train"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--folds", "1"], "folds: got 1, expected 2 to"),
        (["--folds", "20"], "assay, scaffold: folds: got 20, expected 2 to"),
        (["--repeats", "0"], "--repeats: got 0, expected at least 1"),
        (["--data", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["--output", "assay.csv/f.json"], "assay.csv"),
    ],
)
def test_what_cannot_be_done_is_one_line(script, table, capsys, words, message):
    given()
    begun = [*"--splits-file splits.json --seeds 0 --folds 3 --output f.json --data".split(), table]
    assert script.main([*begun, *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not Path("f.json").exists()
