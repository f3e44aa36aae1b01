import csv
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Stands for a model: predicts the number of carbon atoms, or does what its options say.
FAKE = """
import csv, sys
table, output, trace, seed, deed = sys.argv[1:]
with open(trace, "a") as file:
    print(deed, seed, file=file)
if deed == "fail":
    sys.exit("no such luck")
with open(table) as file, open(output, "w") as out:
    rows = [row["smiles"].count("C") + float(deed) for row in csv.DictReader(file)]
    csv.writer(out).writerows([["y_predicted"], *([row] for row in rows)])
"""


@pytest.fixture
def compare(benchmark_accuracy, accuracy, tmp_path, monkeypatch):
    """Compare fake models by name and deed, and return the exit code and what each of them did."""
    trace = tmp_path / "trace.txt"

    def steps(job):
        trained = [sys.executable, "-c", FAKE, job.table, job.output, trace, job.seed]
        yield [*map(str, trained), str(job.options["deed"])]

    kind = accuracy("kinds").Kind(steps, ("numpy",), frozenset({"seed"}), predicts_table=True)
    monkeypatch.setitem(accuracy("kinds").KINDS, "fake", kind)
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "carbon.csv", [("C" * n + end, n) for n in range(1, 9) for end in "ON"])

    def run(models, *words):
        lines = [f"{n}: {{kind: fake, options: {{deed: {d}}}}}" for n, d in models.items()]
        Path("models.yaml").write_text("\n".join(lines))
        trace.write_text("")
        words = [*"--data carbon.csv --models models.yaml --splits random".split(), *words]
        code = benchmark_accuracy.main([*words, "--results", "results.csv"])
        return code, trace.read_text().splitlines()

    return run


def write_table(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("smiles", "target"), *rows])


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def kept(run):
    """Return the only folder that --keep has of a run."""
    (folder,) = Path("kept").glob(f"{run}_*")
    return folder


def test_what_has_rows_is_not_run_again(compare):
    models = {"exact": 0, "high": 1}
    assert compare(models, "--seeds", "0") == (0, ["0 0", "1 0"])
    rows = read("results.csv")
    scores = {(row["model"], row["metric"]): float(row["value"]) for row in rows}
    assert scores["exact", "rmse"] == 0.0
    assert scores["high", "rmse"] == scores["high", "mae"] == 1.0
    assert {(row["data"], row["split"], row["seed"], row["part"]) for row in rows} == {
        ("carbon", "random", "0", "test")
    }
    assert all(float(row["cpu_seconds"]) > 0 and row["train_rows"] == "12" for row in rows)
    assert rows[-1]["options"] == '{"deed": 1}'
    assert compare({**models, "new": 2}, "--seeds", "0", "1") == (
        0,
        ["2 0", "0 1", "1 1", "2 1"],
    )
    assert read("results.csv")[: len(rows)] == rows
    assert compare(models) == (0, ["0 2", "1 2"])  # seeds 0, 1 and 2 by default
    lines = Path("results.csv").read_text().splitlines(keepends=True)
    Path("results.csv").write_text("".join(line for line in lines if "0,new" not in line))
    assert compare({**models, "new": 2}, "--jobs", "2", "--seeds", "0", "1") == (0, ["2 0"])
    assert not list(Path().glob("*.part"))


def test_a_run_that_fails_stops_no_other_and_is_run_again(compare, capsys):
    models = {"luckless": "fail", "exact": 0}
    assert compare(models, "--seeds", "0") == (1, ["fail 0", "0 0"])
    assert "carbon random 0 luckless: failed (1): " in (out := capsys.readouterr().out)
    assert "no such luck; 1 left" in out
    assert {row["model"] for row in read("results.csv")} == {"exact"}
    assert compare(models, "--seeds", "0") == (1, ["fail 0"])


def test_validation_never_sees_a_test_row(compare):
    words = "--seeds 0 --keep kept".split()
    compare({"model": 0}, *words)
    compare({"model": 0}, *words, "--part", "validation")
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
