"""Signals, full disks and the like: an exit code, one line, and nothing lost."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
import torch

from molattn import MolAttn
from molattn.cli import main
from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.model.artefact import WEIGHTS_FILE
from molattn.model.networks import Networks
from molattn.pretraining.batches import MaskedLoader
from molattn.training.batches import LabeledLoader
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint
from molattn.training.run import train as train_run

from ..conftest import HANGING, rows_of
from .conftest import NETWORK, OPTIONS, process, train

CHECKPOINT = Path("run.unfinished") / CHECKPOINT_FILE
SIGNALS = pytest.mark.parametrize(
    "one, code, words",
    [(signal.SIGTERM, 143, "terminated (SIGTERM)"), (signal.SIGINT, 130, "interrupted")],
)


@pytest.fixture(autouse=True)
def _working_folder(small_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(small_table, "in.csv")


def at_call(monkeypatch, owner, name, number, act):
    """Do something before one of the calls of a method."""
    calls = count(1)
    original = getattr(owner, name)

    def called(*args, **kwargs):
        if next(calls) == number:
            act()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)


def weights(run):
    return Path(run, "model", WEIGHTS_FILE).read_bytes()


def names():
    return sorted(path.name for path in Path().iterdir())


@SIGNALS
def test_a_signal_stops_training_after_its_step_and_the_run_resumes_bit_for_bit(
    fails, capsys, monkeypatch, whole, one, code, words
):
    with monkeypatch.context() as patch:
        at_call(patch, LabeledLoader, "batch", 8, lambda: signal.raise_signal(one))
        line = fails(code, *train())
    assert line == f"error: {words}; to resume: molattn train --resume run"
    assert names() == ["in.csv", "run.unfinished"]
    step = read_checkpoint(CHECKPOINT)["global_step"]
    assert 4 < step < 8
    if one == signal.SIGINT:
        for option, value, was in (("--epochs", 31, 3), ("--split", "scaffold", "None")):
            line = fails(2, "train", "--resume", "run", option, value)
            assert f"{option}: got" in line
            assert f"has {was}" in line
        assert "--resume: " in fails(2, "train", "--resume", "run", "--output", "x")
        Path("other.csv").write_bytes(Path("in.csv").read_bytes() + b"x,CC,1,train\n")
        line = fails(2, "train", "other.csv", "--resume", "run")
        assert "other.csv: the file has changed" in line
        Path("in.csv").rename("moved.csv")
        assert main(["train", "moved.csv", "--resume", "run"]) == 0
        assert str(Path("moved.csv").absolute()) in Path("run/config.yaml").read_text()
    else:
        assert main(["train", "--resume", "run"]) == 0
        assert f"step {step}" in capsys.readouterr().out
    assert weights("run") == weights(whole)
    assert "run.unfinished" not in names()
    assert main(["train", "--resume", "run"]) == 0
    assert "is finished" in capsys.readouterr().out


def test_a_second_interrupt_stops_at_once_with_the_last_checkpoint_whole(fails, monkeypatch):
    def interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_call(monkeypatch, LabeledLoader, "batch", 8, interrupt)
    assert "to resume: molattn train --resume run" in fails(130, *train())
    assert read_checkpoint(CHECKPOINT)["global_step"] == 4


@SIGNALS
@pytest.mark.parametrize("command", ["predict", "explain"])
def test_a_signal_leaves_no_partial_output(fails, monkeypatch, whole, command, one, code, words):
    at_call(monkeypatch, Networks, "collate", 2, lambda: signal.raise_signal(one))
    output = "out" if command == "explain" else "out.parquet"
    line = fails(code, command, whole, "in.csv", "--output", output, "--batch-size", "8")
    assert line == f"error: {words}"
    assert names() == ["in.csv"]


def test_a_signal_stops_pretraining_and_a_search_that_resume(fails, monkeypatch):
    def interrupt():
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        at_call(patch, MaskedLoader, "batch", 3, interrupt)
        words = ["pretrain", "in.csv", *NETWORK, "--epochs", "2", "--output", "run"]
        assert "to resume: molattn pretrain --resume run" in fails(143, *words)
    assert CHECKPOINT.exists()
    at_call(monkeypatch, LabeledLoader, "batch", 3, interrupt)
    words = ["tune", "in.csv", *NETWORK, *OPTIONS, "--output", "study", "--trials", "2"]
    line = fails(143, *words, "--epochs", "1")
    assert line.endswith("terminated (SIGTERM); to resume: molattn tune --resume study")


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_full_disk_leaves_no_partial_predictions(fails, monkeypatch, whole, name):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    line = fails(1, "predict", whole, "in.csv", "--output", name)
    assert name in line
    assert "No space left on device" in line
    assert not Path(name).exists()
    assert not [*Path().rglob("*.part")]


def test_a_read_only_folder_is_found_before_training(fails, monkeypatch):
    def read_only(path, *args, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    at_call(monkeypatch, LabeledLoader, "batch", 1, pytest.fail)
    monkeypatch.setattr(Path, "mkdir", read_only)
    assert "run: cannot be written: Read-only file system" in fails(2, *train())


def test_a_run_is_resumed_with_its_own_model_and_whole_checkpoint_only(monkeypatch, small_table):
    options = {"init_from": "none", "epochs": 2, "width": 8, "heads": 2, "layers": 1}
    config = TrainConfig.from_options(str(small_table), {"target_columns": "logS", **options})

    def custom(config):
        return MolAttn(config, head=torch.nn.Linear(16, 1))

    with monkeypatch.context() as patch:
        at_call(patch, LabeledLoader, "batch", 4, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            train_run(config, folder=Path())
    with pytest.raises(InputError, match="custom_parts"):
        train_run(config, folder=Path(), make_model=custom)
    content = bytearray(Path(CHECKPOINT_FILE).read_bytes())
    content[-9] ^= 4
    Path(CHECKPOINT_FILE).write_bytes(content)
    with pytest.raises(InputError, match=CHECKPOINT_FILE):
        train_run(config, folder=Path())


@pytest.mark.faults
@SIGNALS
def test_a_signal_from_outside_ends_a_training(one, code, words):
    line = [sys.executable, "-m", "molattn", *train(epochs=100_000)]
    with subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as other:
        while not CHECKPOINT.exists():
            assert other.poll() is None
            time.sleep(0.05)
        other.send_signal(one)
        _, errors = other.communicate(timeout=HANGING)
    assert other.returncode == code
    assert errors.count("\n") == 1
    assert words in errors


@pytest.mark.faults
def test_a_large_molecule_in_little_memory_costs_its_own_row_at_most(whole):
    Path("large.csv").write_text(f"smiles\nCCO\n{'C' * 5000}\nCCN\n")

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))

    done = process("predict", whole, "large.csv", "--output", "o.csv", preexec_fn=limit)
    assert (done.returncode, done.stdout) == (0, "")
    assert [row["error"] for row in rows_of(Path("o.csv"))] == ["", "too_large", ""]


@pytest.mark.faults
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "| head -c 1"])
def test_closed_streams_make_no_traceback(whole, closed):
    command = f"{sys.executable} -m molattn predict {whole} in.csv --output o.csv {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    assert Path("o.csv").exists()
