"""Training in multiple processes, from the command line."""

import csv
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import molattn
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint

from ..conftest import HANGING

SMALL = "--width 8 --heads 2 --layers 1 --edge-width 4 --dropout 0 --head-dropout 0 --device cpu"
TRAIN = (
    f"train in.csv --target-columns logS --split random --init-from none --predictor network "
    f"--no-baselines --bootstrap 0 {SMALL} --batch-size 9 --output run"
)
PRETRAIN = f"pretrain in.csv --validation-molecules 8 {SMALL} --batch-size 9 --output run"
CHECKPOINT = Path("run.unfinished") / CHECKPOINT_FILE
PLUGIN = """
import os
import time
from itertools import count
from pathlib import Path

from molattn.training.module import TrainingModule
from molattn.utils.signals import pending_interrupt

step = TrainingModule.training_step
steps = count()


def training_step(self, batch, index):
    time.sleep(0.02)
    if next(steps) == 9 and Path("hold").exists():
        Path("held_" + os.environ["RANK"]).touch()
        while pending_interrupt() is None:
            time.sleep(0.02)
    return step(self, batch, index)


TrainingModule.training_step = training_step
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "in.csv").write_text("".join(lines[:81]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.fixture
def plugin(folder, monkeypatch):
    """Steps that take a while; if there is a file ``hold``, the tenth waits for a signal."""
    (folder / "slowed.py").write_text(PLUGIN)
    about = folder / "slowed-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slowed\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[molattn.plugins]\nslowed = slowed\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))


STARTED = []


@pytest.fixture(autouse=True)
def cleared():
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def started(words, *launcher):
    command = [sys.executable, "-m", *launcher, "molattn", *words.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore:`torch.jit"}
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True, env=environment)
    STARTED.append(process)
    return process


def ended(process, code):
    """Wait for a process, check that none of those it started remains, and return its errors."""
    _, errors = process.communicate(timeout=HANGING)
    assert process.returncode == code, errors
    deadline = time.monotonic() + HANGING
    while processes():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return errors


def processes():
    """Return the ids of the processes that a command started to train, in order."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_rank = b"run_rank" in (entry / "cmdline").read_bytes()
            if is_rank and (entry / "cwd").readlink() == Path.cwd():
                found.append(int(entry.name))
    return sorted(found)


def at_checkpoint(process):
    while not CHECKPOINT.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def losses(run):
    with open(Path(run) / "history.csv", newline="") as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


def weights(run):
    return load_file(Path(run) / "model" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("words", [TRAIN, PRETRAIN, f"{TRAIN} --folds 2 --final --ensemble 2"])
def test_two_processes_give_the_run_of_one(words):
    """Starting the processes takes most of the time."""
    outputs = []
    for options in ("", " --devices 2"):
        process = started(f"{words} --epochs 2{options}")
        out, errors = process.communicate(timeout=HANGING)
        assert (process.returncode, errors) == (0, "")
        outputs.append(out.splitlines())
        Path("run").rename(f"run{len(outputs)}")
    one, (first, *two) = outputs
    assert first == "training in 2 processes, one for each device"
    assert [line.split()[:1] for line in two] == [line.split()[:1] for line in one]
    files = [
        {str(path.relative_to(run)) for path in Path(run).rglob("*")} for run in ("run1", "run2")
    ]
    assert files[0] == files[1]
    for path in Path("run1").rglob("history.csv"):
        other = Path("run2", *path.parts[1:])
        np.testing.assert_allclose(losses(other.parent), losses(path.parent), rtol=1e-5)


@pytest.mark.faults
@pytest.mark.parametrize("first, second", [(2, 1), (2, 2)])
def test_a_run_is_resumed_with_another_number_of_processes(plugin, first, second):
    words = f"{TRAIN} --epochs 4 --checkpoint-steps 3"
    ended(started(f"{words} --devices {second}"), 0)
    Path("run").rename("whole")
    Path("hold").touch()
    run = started(f"{words} --devices {first}")
    at_checkpoint(run)
    run.send_signal(signal.SIGTERM)
    assert "to resume: molattn train --resume run" in ended(run, 143)
    assert 0 < read_checkpoint(CHECKPOINT)["global_step"] < 4 * 8
    Path("hold").unlink()
    ended(started(f"train --resume run --devices {second}"), 0)
    np.testing.assert_allclose(losses("run"), losses("whole"), rtol=1e-4)
    if first == second:
        whole, resumed = weights("whole"), weights("run")
        assert all(np.array_equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_run_with_one_line(plugin, rank):
    run = started(f"{TRAIN} --epochs 100_000 --devices 2")
    at_checkpoint(run)
    os.kill(processes()[rank], signal.SIGKILL)
    (line,) = ended(run, 1).splitlines()
    assert line.startswith("error: ")
    assert ("to resume: molattn train --resume run" in line) == (rank == 1)
    assert CHECKPOINT.exists()


@pytest.mark.faults
def test_a_killed_process_is_named_though_the_first_one_only_sees_a_signal(plugin, folder):
    (folder / "hold").touch()
    run = started(f"{TRAIN} --epochs 100_000 --devices 2")
    while not Path("held_0").exists():
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    os.kill(processes()[1], signal.SIGKILL)
    *_, line = ended(run, 1).splitlines()
    assert line == "error: process 1 was killed (SIGKILL)"


@pytest.mark.faults
@pytest.mark.parametrize("one, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_processes_with_a_checkpoint(plugin, one, code):
    run = started(f"{TRAIN} --epochs 100_000 --devices 2")
    at_checkpoint(run)
    if one == signal.SIGINT:  # as a terminal does
        os.killpg(run.pid, one)
    else:
        run.send_signal(one)
    (line,) = ended(run, code).splitlines()
    assert line.endswith("; to resume: molattn train --resume run")
    assert CHECKPOINT.exists()


@pytest.mark.faults
def test_processes_end_with_the_command_that_started_them(plugin):
    run = started(f"{TRAIN} --epochs 100_000 --devices 2")
    at_checkpoint(run)
    run.kill()
    ended(run, -signal.SIGKILL)


@pytest.mark.faults
def test_torchrun_starts_the_processes_too(plugin):
    launcher = "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"
    ended(started(f"{TRAIN} --epochs 2", *launcher), 0)
    Path("run").rename("whole")
    ended(started(f"{TRAIN} --epochs 2 --devices 2"), 0)
    assert losses("whole") == losses("run")


def test_python_starts_no_processes():
    with pytest.raises(InputError) as error:
        molattn.train("in.csv", "logS", devices=2, device="cpu")
    assert error.value.option == "devices"
