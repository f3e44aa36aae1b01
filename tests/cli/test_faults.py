"""Signals, full disks and the like: an exit code, one line, and nothing lost."""

import errno
import os
import random
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
from molattn.inference import parts, streaming
from molattn.model.artefact import WEIGHTS_FILE
from molattn.pretraining.batches import MaskedLoader
from molattn.training.batches import LabeledLoader
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint, write_checkpoint
from molattn.training.run import train as train_run

from ..conftest import rows_of
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
    at_call(monkeypatch, MolAttn, "collate", 2, lambda: signal.raise_signal(one))
    output = "out" if command == "explain" else "out.parquet"
    line = fails(code, command, whole, "in.csv", "--output", output, "--batch-size", "8")
    assert line == f"error: {words}"
    assert names() == ["in.csv"]


def test_a_signal_leaves_rows_to_resume(fails, capsys, monkeypatch, whole):
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", 16)
    monkeypatch.setattr(parts, "_MOST_ROWS", 16)
    words = ["predict", str(whole), "in.csv", "--output", "out.csv", "--batch-size", "8"]
    assert main(words) == 0
    expected = Path("out.csv").read_bytes()
    Path("out.csv").unlink()
    with monkeypatch.context() as patch:
        at_call(patch, MolAttn, "collate", 4, lambda: signal.raise_signal(signal.SIGTERM))
        line = fails(143, *words)
    assert "16 rows kept in out.csv.unfinished; to resume: the same command with --resume" in line
    assert names() == ["in.csv", "out.csv.unfinished"]
    assert main([*words, "--resume"]) == 0
    assert "resuming: 16 rows" in "".join(capsys.readouterr())
    assert Path("out.csv").read_bytes() == expected
    assert names() == ["in.csv", "out.csv"]


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


def test_a_file_size_limit_names_the_file_and_keeps_the_checkpoint(fails, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))

    at_call(monkeypatch, LabeledLoader, "batch", 8, limit)
    try:
        line = fails(1, *train())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert line.endswith(f"{CHECKPOINT}: File too large; to resume: molattn train --resume run")
    assert read_checkpoint(CHECKPOINT)["global_step"] == 4
    assert not [*Path().rglob("*.part")]


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


def test_a_folder_that_is_removed_during_the_run_is_named(fails, monkeypatch):
    at_call(monkeypatch, LabeledLoader, "batch", 8, lambda: shutil.rmtree("run.unfinished"))
    assert f"{CHECKPOINT}: No such file or directory" in fails(1, *train())


def test_a_weight_that_becomes_nan_stops_the_training(fails, monkeypatch):
    calls = count(1)
    original = LabeledLoader.batch

    def batch(self, *args):
        if next(calls) == 8:
            with torch.no_grad():
                next(self._model.parameters()).fill_(float("nan"))
        return original(self, *args)

    monkeypatch.setattr(LabeledLoader, "batch", batch)
    assert "the loss became nan in epoch 2" in fails(1, *train())
    assert names() == ["in.csv"]


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


def test_a_finished_run_is_kept_unless_it_is_to_be_overwritten(fails, whole):
    shutil.copytree(whole, "run")
    before = weights("run")
    assert "--overwrite" in fails(2, *train(), "--seed", "1")
    assert weights("run") == before
    assert main([*train(), "--seed", "1", "--overwrite"]) == 0
    assert weights("run") != before


@pytest.mark.faults  # each process takes seconds to begin
def test_a_training_that_is_killed_again_and_again_gives_the_same_bytes():
    assert main(train("whole", epochs=200)) == 0
    words, rng, written, kills = train(epochs=200), random.Random(0), 0, 0
    while kills < 6 and not Path("run").exists():
        line = [sys.executable, "-m", "molattn", *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, env=environment) as other:
            while other.poll() is None:  # until it has gone on
                time.sleep(0.01)
                if CHECKPOINT.exists() and CHECKPOINT.stat().st_mtime_ns != written:
                    break
            time.sleep(rng.uniform(0.0, 1.0))
            other.kill()
        if CHECKPOINT.exists():
            written = CHECKPOINT.stat().st_mtime_ns
            words, kills = ["train", "--resume", "run"], kills + 1
            assert len([*CHECKPOINT.parent.glob(".*.part")]) <= 1
    assert main(words) == 0
    assert kills > 1
    for name in ("predictions.csv", f"model/{WEIGHTS_FILE}"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


@pytest.mark.faults
@pytest.mark.parametrize("moment", [0.0, 0.003, 0.01, 0.02, 0.05, 0.1])
def test_a_checkpoint_is_whole_whenever_its_process_is_killed(tmp_path, moment):
    program = (
        "import sys, pathlib, torch\n"
        "from molattn.training.checkpoint import write_checkpoint\n"
        "print('ready', flush=True)\n"
        "while True: write_checkpoint(pathlib.Path(sys.argv[1]), {'a': torch.ones(10**6)})\n"
    )
    path = tmp_path / CHECKPOINT_FILE
    write_checkpoint(path, {"a": torch.ones(10)})
    line = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        time.sleep(moment)
        other.kill()
    assert bool((read_checkpoint(path)["a"] == 1).all())
    assert len([*tmp_path.glob(".*.part")]) <= 1


@pytest.mark.faults
def test_fresh_processes_with_one_seed_give_the_same_bytes(whole):
    for name in ("one", "two"):
        assert process(*train(name)).returncode == 0
        for file in ("predictions.csv", f"model/{WEIGHTS_FILE}"):
            assert Path(name, file).read_bytes() == Path(whole, file).read_bytes()


@pytest.mark.faults
@SIGNALS
def test_a_signal_from_outside_ends_a_training_within_seconds(one, code, words):
    line = [sys.executable, "-m", "molattn", *train(epochs=100_000)]
    with subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as other:
        while not CHECKPOINT.exists():
            assert other.poll() is None
            time.sleep(0.05)
        other.send_signal(one)
        _, errors = other.communicate(timeout=60)
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
@pytest.mark.parametrize(
    "variables",
    [
        {"TERM": "dumb", "COLUMNS": "1", "PYTHONIOENCODING": "ascii"},
        {"HOME": "/dev/null", "TMPDIR": "/dev/null", "XDG_CACHE_HOME": "/dev/null"},
    ],
)
def test_surroundings_of_all_kinds_do_no_harm(whole, variables):
    for words in (["predict", whole, "in.csv", "--output", "o.csv"], train(epochs=1)):
        done = process(*words, env={**os.environ, **variables})
        assert done.returncode == 0
        assert "Traceback" not in done.stderr  # matplotlib warns of folders that it cannot write to


@pytest.mark.faults
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "| head -c 1"])
def test_closed_streams_make_no_traceback(whole, closed):
    command = f"{sys.executable} -m molattn predict {whole} in.csv --output o.csv {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    assert Path("o.csv").exists()
