"""Each command: its exit codes, and the files and columns that it promises."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml

from molattn import MolAttn, __version__

from ..conftest import rows_of
from .conftest import ENVIRONMENT, NETWORK, TINY, predict, process, refuse, succeed, train

COMMANDS = "train predict explain fingerprint tune prepare pretrain serve verify".split()


def header_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def test_help_and_version_name_what_there_is():
    shown = succeed("--help").out
    assert all(f"{command} " in shown for command in COMMANDS)
    assert succeed("--version").out.strip() == __version__
    done = process("--version")
    assert (done.returncode, done.stdout.decode().strip()) == (0, __version__)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command):
    shown = succeed(command, "--help").out
    assert f"molattn {command}" in shown
    assert max(map(len, shown.splitlines())) <= 100
    options, all_options = (
        set(re.findall(r"^  (--\S+)", text, re.MULTILINE))
        for text in (shown, succeed(command, "--help-all").out)
    )
    assert options <= all_options


@pytest.mark.parametrize(
    "named, words",
    [
        ("trian", "trian"),
        ("--epoch", "train --epoch 3"),
        ("--epochs", "train --epochs many"),
        ("--epochs", "train --epochs 0"),
        ("--split", "train --split sorted"),
        ("--heads", "train --heads 7"),
        ("--learning-rate", "train --learning-rate nan"),
        ("--validation-size", "train --validation-size 1.5"),
        ("--target-columns", "train {table} --target-columns absent"),
        ("--smiles-column", "predict {model} {table} --smiles-column absent"),
        ("--interval", "predict {model} {table} --interval 2"),
        ("--neighbors", "predict base CCO --neighbors 1"),
        ("--partner-column", "predict {model} {table} --partner-column smiles"),
        ("absent.csv", "train absent.csv --target-columns y"),
        ("absent", "predict absent CCO"),
        ("absent", "verify absent"),
        ("MODEL", "predict"),
        ("--method", "explain {model} CCO --method guess --output {out}"),
        ("--target", "explain {model} CCO --target absent --output {out}"),
        ("--output", "fingerprint {model} CCO"),
        ("--trials", "tune {table} --target-columns logS --trials 0 --output {out}"),
        ("--max-atoms", "prepare {table} --max-atoms 0 --output {out}"),
        ("--batch-size", "pretrain {table} --batch-size 0 --output {out}"),
        ("--token", "serve {model} --host 0.0.0.0"),
        ("--port", "serve {model} --port 100000"),
    ],
)
def test_a_wrong_option_is_one_line_with_its_name(
    named, words, small, model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOLATTN_TOKEN", raising=False)
    refuse(named, *words.format(table=small, model=model, out=tmp_path / "out").split())
    assert list(tmp_path.iterdir()) == []


def test_a_process_ends_with_the_code_and_the_line():
    done = process("train", "--epoch", 3)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: ")
    assert len(done.stderr.splitlines()) == 1


def test_files_and_columns_of_a_run(model, small):
    assert {path.name for path in model.iterdir()} >= {
        *("model", "config.yaml", "metrics.json", "predictions.csv", "skipped.csv"),
        *("history.csv", "report.html", "parity.png", "coverage.png"),
    }
    rows = rows_of(model / "predictions.csv")
    assert list(rows[0])[:2] == ["smiles", "logS"]
    assert {"logS_predicted", "logS_low", "logS_high", "training_similarity"} <= set(rows[0])
    given = {row["smiles"]: row["logS"] for row in rows_of(small)}
    assert {given[row["smiles"]] == row["logS"] for row in rows} == {True}
    assert header_of(model / "skipped.csv") == ["line", "smiles", "code", "reason"]
    history = rows_of(model / "history.csv")
    assert [row["epoch"] for row in history] == ["1", "2"]
    assert {"train_loss", "validation_loss", "learning_rate"} <= set(history[0])
    metrics = json.loads((model / "metrics.json").read_text())
    assert metrics["test"]["logS"]["count"] == len(rows)
    assert metrics["test"]["logS"]["rmse"] > 0
    assert {"uncertainty", "leakage", "validation"} <= set(metrics)
    page = (model / "report.html").read_text(encoding="utf-8")
    assert "<script src" not in page
    assert "logS" in page


def test_a_run_is_repeated_from_its_options_and_never_replaced_unasked(model, tmp_path):
    options = yaml.safe_load((model / "config.yaml").read_text())
    assert options["data"]["target_columns"] == ["logS"]
    again = tmp_path / "again"
    succeed("train", "--config", model / "config.yaml", "--output", again)
    assert (again / "predictions.csv").read_text() == (model / "predictions.csv").read_text()
    words = ["train", "--config", model / "config.yaml", "--output", again]
    refuse(str(again), *words)
    assert (again / "predictions.csv").read_text() == (model / "predictions.csv").read_text()
    succeed(*words, "--overwrite", "--seed", 1)
    assert (again / "predictions.csv").read_text() != (model / "predictions.csv").read_text()


def test_columns_of_predictions(model, small, tmp_path):
    rows = predict(model, small, output=tmp_path / "out.csv")
    columns = "smiles,logS,logS_predicted,logS_low,logS_high,logS_measured,logS_confidence,"
    columns += "logS_expected_error,training_similarity,measured_remark,error"
    assert list(rows[0]) == columns.split(",")
    for row in rows:
        low, value, high = (float(row[f"logS_{name}"]) for name in ("low", "predicted", "high"))
        assert low <= value <= high
        assert 0 <= float(row["training_similarity"]) <= 1
    wide = predict(model, small, "--interval", 0.5, "--neighbors", 2, output=tmp_path / "n.csv")
    for number in (1, 2):
        for name in ("row", "similarity", "contribution", "smiles"):
            assert f"logS_neighbor_{number}_{name}" in wide[0]
    width = [
        np.mean([float(r["logS_high"]) - float(r["logS_low"]) for r in t]) for t in (rows, wide)
    ]
    assert width[1] < width[0]


def test_predictions_of_an_input_with_columns_of_the_same_names(model, tmp_path):
    given = tmp_path / "in.csv"
    given.write_text("smiles,error,logS_predicted\nCCO,mine,7\n")
    (row,) = predict(model, given, output=tmp_path / "out.csv")
    assert (row["error"], row["logS_predicted"], row["error_"]) == ("mine", "7", "")
    assert float(row["logS_predicted_"]) < 5


def test_labels_of_the_input_are_scored(model, small, tmp_path):
    done = succeed("predict", model, small, "--output", tmp_path / "out.csv")
    assert done.out == ""
    assert "RMSE" in done.err
    assert "120" in done.err


def test_a_worker_process_writes_the_same_bytes_and_leaves_no_file(
    model, small, tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(temporary / "torch"))  # as torch does
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))  # of this process
    for workers in (0, 1):
        words = [model, small, "--num-workers", workers, "--batch-size", 16]
        succeed("predict", *words, "--output", tmp_path / f"{workers}.csv")
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()
    assert [*temporary.iterdir()] == []


@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion"])
def test_files_of_an_explanation(model, method, tmp_path):
    out = tmp_path / "explained"
    succeed("explain", model, "CC(=O)N", "C(C", "CCO", "--method", method, "--output", out)
    names = "index.html atoms.csv bonds.csv other_inputs.csv explanations.json attention.npz"
    assert {path.name for path in out.iterdir()} >= {*names.split(), "molecules"}
    for row in (1, 3):
        for kind in ("svg", "png"):
            assert (out / "molecules" / f"{row}_{method}.{kind}").stat().st_size > 100
    atoms, bonds = rows_of(out / "atoms.csv"), rows_of(out / "bonds.csv")
    assert {"row", "atom", "symbol", method, "error"} <= set(atoms[0])
    assert {"row", "atom_1", "atom_2", method, "error"} <= set(bonds[0])
    assert [row["symbol"] for row in atoms] == ["C", "C", "O", "N", "", "C", "C", "O"]
    assert [(row["row"], row["error"]) for row in atoms if row["error"]] == [("2", "parenthesis")]
    assert [row["row"] for row in bonds] == ["1"] * 3 + ["2"] + ["3"] * 2
    for entry in json.loads((out / "explanations.json").read_text())["rows"]:
        for one in entry["explanations"]:
            parts = sum(one["atom_scores"]) + sum(one["other_scores"].values()) + one["residual"]
            assert parts == pytest.approx(one["prediction"] - one["baseline"], abs=1e-5)
            assert abs(one["residual"]) <= one["tolerance"]
    with np.load(out / "attention.npz") as weights:
        layers, heads, receivers, senders = weights["attention_1"].shape
        assert (layers, heads, receivers, senders) == (1, 2, 4, 4)
        assert np.abs(weights["attention_1"].sum(-1) - 1).max() < 1e-5
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<script src" not in page


def test_explanations_are_checked_by_deletion_and_insertion(model, small, tmp_path):
    out = tmp_path / "explained"
    words = ["--limit", 5, "--check", "--method", "attention", "--output", out]
    succeed("explain", model, small, *words)
    assert json.loads((out / "explanations.json").read_text())["check"]
    assert len({row["row"] for row in rows_of(out / "atoms.csv")}) == 5


def test_columns_of_embeddings(model, tmp_path):
    out = tmp_path / "out.csv"
    succeed("fingerprint", model, "CCO", "nonsense", "CCC", "--output", out)
    rows = rows_of(out)
    names = [f"embedding_{k}" for k in range(16)]  # of two readouts, each as wide as the network
    assert list(rows[0]) == ["smiles", *names, "error"]
    assert [row["error"] for row in rows] == ["", "name", ""]
    assert [rows[1][name] for name in names] == [""] * 16
    wanted = MolAttn.from_pretrained(model).embed(["CCO", "CCC"])
    got = [[float(row[name]) for name in names] for row in rows if not row["error"]]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    succeed("fingerprint", model, "CCO", "nonsense", "CN", "--atoms", "--output", out)
    rows = rows_of(out)
    assert [row["row"] for row in rows] == ["1", "1", "1", "2", "3", "3"]
    assert [row["symbol"] for row in rows] == ["C", "C", "O", "", "C", "N"]
    assert [row["error"] for row in rows] == ["", "", "", "name", "", ""]


def test_a_store_is_taken_in_place_of_its_table(model, small, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(small.read_text() + "C(C,1\n")
    store = tmp_path / "store"
    succeed("prepare", table, "--target-columns", "logS", "--output", store)
    (rejected,) = rows_of(store / "rejected.csv")
    assert set(rejected) == {"file", "line", "smiles", "code", "reason"}
    assert (rejected["smiles"], rejected["code"], rejected["line"]) == ("C(C", "parenthesis", "122")
    rows = predict(model, table, output=tmp_path / "table.csv")
    assert predict(model, store, output=tmp_path / "store.csv") == rows
    assert len(rows) == 121
    runs = [train(data, tmp_path / f"run_{data.stem}") for data in (table, store)]
    first, second = ((run / "predictions.csv").read_text() for run in runs)
    assert first == second


def test_pretraining_makes_a_model_to_start_from(small, tmp_path):
    out = tmp_path / "pretrained"
    words = [*NETWORK, "--epochs", 1, "--targets", "descriptors", "atoms", "--device", "cpu"]
    succeed("pretrain", small, "--output", out, *words)
    assert {path.name for path in out.iterdir()} >= {
        *("model", "config.yaml", "metrics.json", "history.csv")
    }
    assert [row["epoch"] for row in rows_of(out / "history.csv")] == ["1"]
    assert MolAttn.from_pretrained(out).embed(["CCO"]).shape == (1, 16)
    run = train(small, tmp_path / "run", start=out)
    assert MolAttn.from_pretrained(run).predict(["CCO"]).shape == (1, 1)


def test_a_search_writes_its_best_options(small, tmp_path):
    out, space = tmp_path / "search", tmp_path / "space.yaml"
    space.write_text("dropout: [0.0, 0.4]\n")
    words = ["--target-columns", "logS", "--trials", 2, "--space", space]
    succeed(
        "tune", small, *words, "--output", out, *TINY[:-1], "--epochs", 2, "--init-from", "none"
    )
    assert {path.name for path in out.iterdir()} >= {"best.yaml", "trials.csv", "config.yaml"}
    trials = rows_of(out / "trials.csv")
    assert [row["trial"] for row in trials] == ["1", "2"]
    assert {row["state"] for row in trials} == {"complete"}
    assert {row["dropout"] for row in trials} <= {"0.0", "0.4"}
    best = min(trials, key=lambda row: float(row["validation_loss"]))
    options = yaml.safe_load((out / "best.yaml").read_text())
    assert str(options["network"]["dropout"]) == best["dropout"]
    words = ["--config", out / "best.yaml", "--output", tmp_path / "run", "--no-baselines"]
    succeed("train", *words)


def test_verify_notices_a_changed_and_a_missing_file(model, tmp_path):
    shown = succeed("verify", model).out
    files = [path for path in (model / "model").iterdir() if path.name in shown]
    assert len(files) >= 4
    copy = shutil.copytree(model, tmp_path / "copy")
    for file in files:
        kept = (copy / "model" / file.name).read_bytes()
        (copy / "model" / file.name).write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        refuse(file.name, "verify", copy)
        (copy / "model" / file.name).unlink()
        refuse(file.name, "verify", copy)
        (copy / "model" / file.name).write_bytes(kept)
    succeed("verify", copy)
    succeed("verify", "admet")


def test_a_closed_pipe_ends_prediction_silently(model, small):
    reader = subprocess.Popen(
        [sys.executable, "-m", "molattn", "predict", str(model), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert reader.stdout is not None
    reader.stdout.close()
    errors = reader.communicate(small.read_bytes())[1]
    assert reader.returncode == 141
    assert b"Traceback" not in errors


# A command whose training is killed after a step.
KILLED = """
import os, signal, sys
from itertools import count
from torch.optim.optimizer import register_optimizer_step_post_hook
from molattn.cli import main
steps = count(1)
kill = lambda *_: next(steps) == 20 and os.kill(os.getpid(), signal.SIGKILL)
register_optimizer_step_post_hook(kill)
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_training_ends_with_the_same_weights(small, tmp_path):
    words = ["train", small, "--target-columns", "logS", *TINY, "--epochs", 5]
    words += ["--init-from", "none", "--predictor", "network"]
    out = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, *map(str, [*words, "--output", out])]
    killed = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert not out.exists()
    refuse("--resume", *words, "--output", out)
    refuse("--width", "train", "--resume", out, "--width", 16)
    succeed("train", "--resume", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed"]
    succeed(*words, "--output", tmp_path / "whole")
    resumed, whole = (MolAttn.from_pretrained(tmp_path / name) for name in ("killed", "whole"))
    weights = whole.state_dict()
    assert resumed.state_dict().keys() == weights.keys()
    assert all((value == weights[name]).all() for name, value in resumed.state_dict().items())
    first, second = (tmp_path / name / "predictions.csv" for name in ("killed", "whole"))
    assert first.read_text() == second.read_text()


def test_an_interrupted_prediction_goes_on(model, small, tmp_path):
    out = tmp_path / "out.csv"
    succeed("predict", model, small, "--resume", "--output", out)  # nothing yet: from the start
    whole = out.read_bytes()
    refuse("out.csv", "predict", model, small, "--resume", "--output", out)
    assert out.read_bytes() == whole
    refuse("--resume", "predict", model, small, "--resume", "--output", tmp_path / "out.parquet")
