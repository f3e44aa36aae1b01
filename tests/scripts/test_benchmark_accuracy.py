import csv
import gzip
import hashlib
import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from molattn.data.table import bundled_dataset
from molattn.errors import InputError

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Stands for a model: predicts the number of carbon atoms, or does what its options say.
FAKE = """
import csv, os, signal, sys, time
table, output, trace, seed, deed = sys.argv[1:]
with open(trace, "a") as file:
    print(deed, seed, file=file)
if deed == "fail":
    sys.exit("no such luck")
if deed == "interrupt":
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
    with open(trace, "a") as file:
        print("was not stopped", file=file)
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


def test_control_c_keeps_what_has_ended(compare, capsys):
    models = {"exact": 0, "interrupted": "interrupt", "later": 1}
    assert compare(models, "--seeds", "0") == (130, ["0 0", "interrupt 0"])
    assert capsys.readouterr().err.startswith("stopped; ")
    assert {row["model"] for row in read("results.csv")} == {"exact"}
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_other_options_under_the_same_name_are_refused(compare, capsys):
    compare({"model": 0}, "--seeds", "0")
    assert compare({"model": 1}) == (2, [])
    assert "carbon random 0 model has the options" in capsys.readouterr().err


@pytest.fixture
def tables(compare):
    """Write two targets of the same molecules, in two folders, and two files of splits."""
    rows = [("C" * n + end, n, n + 1) for n in range(1, 9) for end in "ON"]
    edited = [("CCCl", 1, 2), *rows[1:]]
    for folder, table in {".": rows, "edited": edited}.items():
        Path(folder).mkdir(exist_ok=True)
        with Path(folder, "assay.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("smiles", "a", "b"), *table])
    for name, order in {"up": range(16), "down": range(15, -1, -1)}.items():
        rows = list(order)
        split = {"train": rows[:12], "val": rows[12:14], "test": rows[14:]}
        Path(f"{name}.json").write_text(json.dumps({"random": [split]}))


@pytest.mark.parametrize("model", ["model", "new"])
@pytest.mark.parametrize(
    "words",
    [
        "--data assay.csv --target-column b --splits-file up.json",
        "--data assay.csv --target-column a --splits-file down.json",
        "--data assay.csv --target-column a",
        "--data edited/assay.csv --target-column a --splits-file up.json",
    ],
)
def test_other_data_of_the_same_name_are_refused(compare, tables, capsys, model, words):
    first = "--data assay.csv --target-column a --splits-file up.json --seeds 0 --keep kept".split()
    assert compare({"model": 0}, *first) == (0, ["0 0"])
    before = Path("results.csv").read_bytes()
    (digest,) = {row["digest"] for row in read("results.csv")}
    capsys.readouterr()
    assert compare({model: 0}, *words.split(), "--seeds", "0", "--keep", "kept") == (2, [])
    captured = capsys.readouterr()
    assert f"expected {digest} as its rows have" in captured.err
    assert "results.csv: got assay random 0 of the digest " in captured.err
    assert captured.err.count("\n") == 1
    assert "RMSE" not in captured.out
    assert Path("results.csv").read_bytes() == before
    Path("results.csv").rename("first.csv")  # another file takes them, and takes no folder
    assert compare({model: 0}, *words.split(), "--seeds", "0", "--keep", "kept") == (0, ["0 0"])
    assert len(list(Path("kept").glob("assay_random_0_*/table.csv"))) == 2
    Path("first.csv").rename("results.csv")
    assert compare({"model": 0}, *first) == (0, [])


def test_other_data_that_another_process_added_meanwhile_are_refused(compare, accuracy):
    compare({"model": 0}, "--seeds", "0")
    file = accuracy("results").Results(Path("results.csv"))
    rows = file.read()
    other = [row._replace(model="other", digest="0" * 12) for row in rows]
    with pytest.raises(InputError, match=r"got carbon random 0 of the digest 000000000000, exp"):
        file.add(other)
    assert file.read() == rows
    searched = [row._replace(part="validation") for row in other]
    file.add(searched)
    assert file.read() == rows + searched


def test_two_tables_of_one_name_are_refused(compare, tables, capsys):
    words = "--data assay.csv edited/assay.csv --target-column a --seeds 0".split()
    assert compare({"model": 0}, *words) == (2, [])
    assert "got assay.csv and edited/assay.csv, expected one of them" in capsys.readouterr().err
    assert not Path("results.csv").exists()


def test_digest_is_of_the_table_that_is_run(accuracy, tmp_path):
    cases, path = accuracy("cases"), tmp_path / "own.csv"

    def digest(rows, **split):
        write_table(path, rows)
        (tmp_path / "splits.json").write_text(json.dumps({"random": [split]}))
        data = cases.load_dataset(str(path), "smiles", None, tmp_path / "splits.json")
        return cases.case_of(data, "random", 0).digest()

    rows = [("C", 1.5), ("CC", -2), ("CO", 0), ("CN", 1)]
    text = "smiles,y,split\r\nC,1.5,train\r\nCC,-2.0,val\r\nCO,0.0,test\r\nCN,1.0,train\r\n"
    expected = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert digest(rows, train=[0, 3], val=[1], test=[2]) == expected
    assert digest(rows, train=[3, 0], val=[1], test=[2]) == expected
    assert digest([("C(", 1), *rows], train=[0, 1, 4], val=[2], test=[3]) == expected
    assert digest(rows, train=[0, 3], val=[2], test=[1]) != expected


@pytest.mark.parametrize("name", ["accuracy.csv", "ablations.csv", "folds.csv"])
def test_results_of_the_repository_are_of_the_shared_data(accuracy, shared_data, name, tmp_path):
    cases = accuracy("cases")

    def splits(key):
        if name != "folds.csv":
            return None
        path = tmp_path / f"{key}.json"
        fold_splits = importlib.import_module("fold_splits")
        assert fold_splits.main(["--data", key, "--output", str(path)]) == 0
        return path

    rows = accuracy("results").Results(SCRIPTS / "experiments" / name).read()
    names = {row.data for row in rows}
    data = {key: cases.load_dataset(key, "smiles", None, splits(key)) for key in names}
    digests = {row.case: row.digest for row in rows}
    for key, digest in digests.items():
        assert cases.case_of(data[key.data], *key[1:]).digest() == digest
    assert all(digests[row.case] == row.digest for row in rows)


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


def test_threads_and_processes_add_whole_runs(accuracy, tmp_path):
    results = accuracy("results")
    path = tmp_path / "new" / "results.csv"

    def add(model):
        for seed in range(5):
            key = ("data", "random", seed, model, "kind", "test")
            rest = (0.5, 9, 1.0, 1.0, "1", "{}", "0")
            rows = [results.Result(*key, metric, *rest) for metric in ("rmse", "mae")]
            results.Results(path).add(rows)  # a file of its own, as another process has

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = results.Results(path).read()
    assert len(rows) == 30
    assert all(first.run == second.run for first, second in zip(rows[::2], rows[1::2], strict=True))


def test_cliffs_are_scored_apart(compare):
    rows = [("C" * n, n + n % 3, n % 2) for n in range(1, 31)]
    with gzip.open("assay.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([("smiles", "y", "cliff"), *rows])
    code, _ = compare({"carbon": 0}, "--data", "assay.csv.gz", "--seeds", "0", "--keep", "kept")
    assert code == 0
    scores = {row["metric"]: float(row["value"]) for row in read("results.csv")}
    (folder,) = Path("kept").iterdir()
    scored = [len(row["smiles"]) for row in read(folder / "scored.csv")]
    errors = {n: float(n % 3) for n in scored}  # the fake model counts the carbons
    cliffs = [error for n, error in errors.items() if n % 2]
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(list(errors.values())))))
    assert scores["cliff_rmse"] == pytest.approx(np.sqrt(np.mean(np.square(cliffs))))
    assert scores["cliff_rmse"] != scores["rmse"]


def test_a_table_of_ones_own(accuracy, tmp_path):
    cases, path = accuracy("cases"), tmp_path / "own.csv"
    smiles = [f"{'C' * n}c1cc{end}cc1" for n in range(1, 7) for end in "cn"]
    rows = [(text, ("-1", "1")[row % 2]) for row, text in enumerate(smiles)]
    write_table(path, [("", "1"), ("CC", ""), ("C(", "1"), *rows])
    data = cases.load_dataset(str(path), "smiles", None, None)
    assert data.usable == [*range(3, 15)]
    case = cases.case_of(data, "random", 1)
    assert sorted(row for part in case.rows.values() for row in part) == data.usable
    assert case.rows == cases.case_of(data, "random", 1).rows
    assert case.rows != cases.case_of(data, "random", 2).rows
    labels = {row["smiles"]: row["y"] for row in read(case.write(tmp_path / "table.csv"))}
    assert labels == {text: ("0", "1")[row % 2] for row, text in enumerate(smiles)}
    given = {"scaffold": [{"train": [1, 4, 5], "val": [3], "test": [14]}]}
    (tmp_path / "splits.json").write_text(json.dumps(given))
    data = cases.load_dataset(str(path), "smiles", "target", tmp_path / "splits.json")
    assert data.split("scaffold", 0) == {"train": [4, 5], "val": [3], "test": [14]}
    with pytest.raises(InputError, match=r"split of seed 1, expected one of the 1"):
        data.split("scaffold", 1)
    given["scaffold"][0]["test"].append(4)
    (tmp_path / "splits.json").write_text(json.dumps(given))
    with pytest.raises(InputError, match=r"scaffold split 0 has a row twice"):
        cases.load_dataset(str(path), "smiles", "target", tmp_path / "splits.json")


@pytest.mark.parametrize(
    "words,models,message",
    [
        ("--only gone", "{m: {kind: molattn}}", "models.yaml has no 'gone', but m"),
        ("", "{m: {kind: gnn}}", "m: got the kind 'gnn', expected one of molattn, chemprop"),
        ("", "{m: {kind: molattn, options: {wdith: 3}}}", "did you mean 'width'?"),
        ("", "{m: {kind: chemprop, options: {pytorch_seed: 3}}}", "is set by the comparison"),
        ("", "{off: {kind: molattn}}", "got the model False, expected a name; quotes make it one"),
        ("", "[", "models.yaml: cannot be read: "),
        ("--python gnn=python", "{m: {kind: molattn}}", "got 'gnn=python', expected KIND=PATH"),
        ("--target-column z", "{m: {kind: molattn}}", "got 'z' as --target-column, expected one"),
        (
            "--smiles-column target --target-column target",
            "{m: {kind: molattn}}",
            "no row has both a molecule and a label",
        ),
        ("--data nowhere.csv", "{m: {kind: molattn}}", "nowhere.csv cannot be read"),
        ("--table", "{}", "runs/accuracy.csv is not there"),
        ("--table --results empty.csv", "{}", "no result with a main score"),
    ],
)
def test_wrong_input_is_one_line(
    benchmark_accuracy, tmp_path, monkeypatch, capsys, words, models, message
):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv", [("C", 1.0), ("CC", 2.0)])
    Path("models.yaml").write_text(models)
    with (SCRIPTS / "experiments" / "accuracy.csv").open() as recorded:
        Path("empty.csv").write_text(recorded.readline())
    words = [*"--data t.csv --models models.yaml".split(), *words.split()]
    assert benchmark_accuracy.main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("runs").exists()


def test_models_of_the_repository_are_read(accuracy):
    models = accuracy("models").read_models(SCRIPTS / "experiments" / "models.yaml")
    assert {model.kind for model in models} == set(accuracy("kinds").KINDS)
    models = [model for model in models if model.kind in ("attentivefp", "lightgbm")]
    ready, missing = accuracy("models").find_ready(models, {"lightgbm": "/no/python"})
    assert [one.model.kind for one in ready] == ["attentivefp"]
    assert [(one.kind, why) for one, why in missing] == [
        ("lightgbm", "/no/python lacks one of lightgbm, numpy, rdkit")
    ]


@pytest.mark.slow
def test_real_models(benchmark_accuracy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    rows = read(bundled_dataset())[:40]
    write_table(tmp_path / "few.csv", [(row["smiles"], row["logS"]) for row in rows])
    Path("models.yaml").write_text(
        "ours: {kind: molattn, options: {width: 16, heads: 2, epochs: 1}}\n"
        "attentivefp: {kind: attentivefp, options: {hidden: 16, epochs: 2}}\n"
        "lightgbm: {kind: lightgbm, options: {rounds: 5}}\n"
        "chemprop: {kind: chemprop, options: {epochs: 3}}\n"
        "svm: {kind: svm, options: {c: [1, 10], epsilon: [0.1]}}\n"
        "maplight: {kind: maplight, options: {iterations: 20}}\n"
        "minimol: {kind: minimol, options: {heads: 1}}\n"
    )
    words = "--data few.csv --models models.yaml --splits random --seeds 0 --keep kept".split()
    assert benchmark_accuracy.main(words) == 0
    found = read("runs/accuracy.csv")
    assert {"ours", "attentivefp", "svm"} <= {row["model"] for row in found}
    scored = read(kept("few_random_0_ours_test") / "scored.csv")
    truth = {row["smiles"]: float(row["logS"]) for row in rows}
    predicted = read(kept("few_random_0_ours_test") / "predictions.csv")
    pairs = zip(predicted, scored, strict=True)
    errors = [float(p["y_predicted"]) - truth[s["smiles"]] for p, s in pairs]
    (value,) = (r["value"] for r in found if (r["model"], r["metric"]) == ("ours", "rmse"))
    assert float(value) == pytest.approx(np.sqrt(np.mean(np.square(errors))))
