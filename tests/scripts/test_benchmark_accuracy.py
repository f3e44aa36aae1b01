import csv
import sys
from pathlib import Path

import pytest

# Stands for a model: predicts the number of carbon atoms.
FAKE = """
import csv, sys
table, output = sys.argv[1:]
with open(table) as file, open(output, "w") as out:
    rows = [row["smiles"].count("C") for row in csv.DictReader(file)]
    csv.writer(out).writerows([["y_predicted"], *([row] for row in rows)])
"""


@pytest.fixture
def compare(benchmark_accuracy, accuracy, tmp_path, monkeypatch):
    """Compare a fake model with nothing."""

    def steps(job):
        yield [sys.executable, "-c", FAKE, str(job.table), str(job.output)]

    kind = accuracy("kinds").Kind(steps, ("numpy",), frozenset({"seed"}), predicts_table=True)
    monkeypatch.setitem(accuracy("kinds").KINDS, "fake", kind)
    monkeypatch.chdir(tmp_path)
    with open("carbon.csv", "w", newline="") as file:
        rows = [("C" * n + end, n) for n in range(1, 9) for end in "ON"]
        csv.writer(file).writerows([("smiles", "target"), *rows])

    def run(*words):
        Path("models.yaml").write_text("model: {kind: fake}")
        words = [*"--data carbon.csv --models models.yaml --splits random".split(), *words]
        assert benchmark_accuracy.main([*words, "--results", "results.csv"]) == 0

    return run


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def kept(run):
    """Return the only folder that --keep has of a run."""
    (folder,) = Path("kept").glob(f"{run}_*")
    return folder


def test_validation_never_sees_a_test_row(compare):
    words = "--seeds 0 --keep kept".split()
    compare(*words)
    compare(*words, "--part", "validation")
    whole, searched = (
        {
            part: {row["smiles"] for row in rows if row["split"] == part}
            for part in ("train", "val", "test")
        }
        for rows in (
            read(kept(f"carbon_random_0_model_{part}") / "table.csv")
            for part in ("test", "validation")
        )
    )
    assert searched["test"] == whole["val"]
    assert searched["train"] | searched["val"] == whole["train"]
    assert len(searched["val"]) == round(len(whole["train"]) / 9)
    assert not whole["test"] & set().union(*searched.values())
    found = kept("carbon_random_0_model_validation")
    assert {row["smiles"] for row in read(found / "scored.csv")} == whole["val"]
    whole_texts = [path.read_text() for path in found.iterdir()]
    assert not [s for s in whole["test"] for text in whole_texts if f"\n{s}," in text]
    assert {row["part"] for row in read("results.csv")} == {"test", "validation"}
