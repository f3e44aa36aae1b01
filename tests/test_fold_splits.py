import csv
import importlib
import json
from pathlib import Path

import pytest

from molattn.chem.groups import same_scaffold

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
SMILES += ["C" * n for n in range(1, 5)]
FOLDS, SEEDS = 3, (0, 1)


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "scripts")
        yield importlib.import_module("fold_splits")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("assay.csv", "w", newline="") as file:
        rows = [(text, f"{len(text) / 3:.3f}") for text in SMILES]
        csv.writer(file).writerows([("smiles", "y"), *rows, ("not a molecule", "1.0"), ("CO", "")])
    return "assay.csv"


def folds(script, table, *words):
    words = [*words, "--seeds", *map(str, SEEDS), "--folds", str(FOLDS), "--output", "made/f.json"]
    assert script.main(["--data", table, *words]) == 0
    return json.loads(Path("made/f.json").read_text())


def given(table):
    """Write a split for each method and seed, which leaves out as many rows as the seed."""
    rows = list(range(len(SMILES)))
    one = [{"train": rows[:20], "val": rows[20:30], "test": rows[30 + s :]} for s in SEEDS]
    Path("splits.json").write_text(json.dumps({"random": one, "scaffold": one}))
    return one


@pytest.mark.parametrize("method", ["random", "scaffold"])
def test_each_row_but_those_of_the_test_is_once_for_validation(script, table, method):
    splits = given(table)
    made = folds(script, table, "--splits-file", "splits.json")[method]
    assert len(made) == FOLDS * len(SEEDS)
    for seed, split in enumerate(splits):
        several = made[FOLDS * seed : FOLDS * (seed + 1)]
        chosen_by = [row for fold in several for row in fold["val"]]
        assert sorted(chosen_by) == list(range(30))
        for fold in several:
            assert fold["test"] == split["test"]
            assert sorted(fold["train"] + fold["val"]) == list(range(30))
            assert 8 <= len(fold["val"]) <= 12


def test_scaffolds_stay_together_and_rows_without_molecule_or_label_are_left_out(script, table):
    made = folds(script, table)
    for fold in made["scaffold"]:
        part_of = {row: part for part, rows in fold.items() for row in rows}
        assert sorted(part_of) == list(range(len(SMILES)))
        for group in same_scaffold(SMILES):
            assert len({part_of[row] for row in group}) == 1


def test_the_comparison_scores_the_folds_and_has_no_test_row(script, table, accuracy):
    given(table)
    made = folds(script, table, "--splits-file", "splits.json")["scaffold"]
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
        (["--data", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["--output", "assay.csv/f.json"], "assay.csv"),
    ],
)
def test_what_cannot_be_done_is_one_line(script, table, capsys, words, message):
    assert script.main(["--data", table, "--output", "f.json", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not Path("f.json").exists()
