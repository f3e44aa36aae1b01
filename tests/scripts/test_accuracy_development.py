"""Development sets by name, their folds and their scores."""

import csv
import gzip

import pytest

from molattn.chem.groups import same_molecule, same_scaffold
from molattn.chem.split import fold_split

RINGS = ("c1ccccc1", "C1CCC1", "c1ccoc1", "c1ccncc1", "C1CCCCC1", "c1ccsc1")
SMILES = [f"{'C' * n}{ring}" for n in range(1, 6) for ring in RINGS]
SMILES += ["OCC", "CCO", "CCCCCO", "NCCCCC"]


@pytest.fixture
def shared(accuracy, tmp_path, monkeypatch):
    """A folder of two development sets in place of the larger datasets."""
    cases = accuracy("cases")
    monkeypatch.setattr(cases, "SHARED", tmp_path)
    rows = [(text, len(text) / 3, len(text) % 2) for text in SMILES]
    header = ("smiles", "target", "cliff")
    for folder, name, width in (("potency", "CHEMBL1_Ki", 3), ("admet", "caco2_wang", 2)):
        (tmp_path / folder).mkdir()
        with gzip.open(tmp_path / folder / f"{name}.csv.gz", "wt", newline="") as file:
            csv.writer(file).writerows(row[:width] for row in [header, *rows, ("C(", 1.0, 0)])
    return cases


@pytest.mark.parametrize(
    "name, method, group",
    [("CHEMBL1_Ki", "random", same_molecule), ("caco2_wang", "scaffold", same_scaffold)],
)
def test_splits_are_folds(shared, name, method, group):
    data = shared.load_dataset(name, "smiles", None, None)
    assert data.name == name
    assert data.methods == (method,)
    for seed in range(5):
        expected = fold_split(group(SMILES), folds=5, fold=seed + 1, validation_size=0.1, seed=0)
        assert list(data.split(method, seed).values()) == [rows.tolist() for rows in expected]
    tests = [row for seed in range(5) for row in data.split(method, seed)["test"]]
    assert sorted(tests) == data.usable == list(range(len(SMILES)))


def test_classes_have_no_cliffs(accuracy, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("smiles,y,cliff\nC,0,1\nCC,1,0\n")
    assert accuracy("cases").load_dataset(str(path), "smiles", None, None).cliffs is None


@pytest.mark.parametrize(
    "data, kind, headings",
    [
        ("caco2_wang", "regression", ["MAE"]),
        ("half_life_obach", "regression", ["Spearman"]),
        ("cyp2c9_veith", "binary", ["PR-AUC"]),
        ("herg", "binary", ["ROC-AUC"]),
        ("CHEMBL1_Ki", "regression", ["RMSE, cliffs", "RMSE"]),
    ],
)
def test_tables_show_the_score_of_each_task(accuracy, data, kind, headings):
    scores = accuracy("development").SCORES
    rows = [
        accuracy("results").Result(
            *(data, "scaffold", 0, "m", "svm", "test", name, 0.5, 80, 1.0, 1.0, "1", "{}", "0")
        )
        for name, metric in scores.items()
        if kind in metric.kinds
    ]
    tables = accuracy("tables")
    assert [table.heading for table in tables.case_tables(rows)] == headings
    (chosen,) = tables.case_tables(rows, [rows[-1].metric])
    assert chosen.heading == (scores[rows[-1].metric].heading or rows[-1].metric)


def test_scores_are_of_tasks_that_are_there(accuracy, shared_data):
    development = accuracy("development")
    paths = shared_data.glob("*/*.csv.gz")
    names = [path.name.removesuffix(".csv.gz") for path in paths if path.parent.name != "splits"]
    assert len(names) == 32
    assert all(development.find_set(shared_data, name) for name in names)
    own = [name for name in names if len(development.main_scores(name)) == 1]
    assert len(own) == 14  # of the 22, eight have the ROC-AUC
