"""Signals, full disks and the like: an exit code, one line, and nothing lost."""

import errno
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from molattn import MolAttn
from molattn.cli import main
from molattn.config import TrainConfig
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.inference import parts, streaming
from molattn.model.artefact import WEIGHTS_FILE
from molattn.pretraining.batches import MaskedLoader
from molattn.training.batches import LabeledLoader
from molattn.training.checkpoint import CHECKPOINT_FILE, read_checkpoint, write_checkpoint
from molattn.training.run import train as train_run

from ..conftest import rows_of
from ..faulty_files import ERRORS, FaultyFiles

TINY = (
    "--width 8 --heads 2 --layers 1 --edge-width 4 --batch-size 8 --device cpu "
    "--no-baselines --bootstrap 0 --init-from none --target-columns logS "
    "--split-column split"
).split()


def train(output="run", epochs=3, table="in.csv"):
    return ["train", str(table), *TINY, "--epochs", str(epochs), "--output", str(output)]


CHECKPOINT = Path("run.unfinished") / CHECKPOINT_FILE
EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
WORDS = {signal.SIGTERM: "terminated (SIGTERM)", signal.SIGINT: "interrupted"}


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("faults") / "in.csv"
    path.write_text("\n".join([*lines[:31], *lines[-10:]]) + "\n")
    return path


@pytest.fixture(scope="session")
def whole(table, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("faults") / "run"
    assert main(train(folder, table=table)) == 0
    return folder


@pytest.fixture(autouse=True)
def _working_folder(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(table, "in.csv")


def at_call(monkeypatch, owner, name, number, act):
    """Do something before one of the calls of a method."""
    calls = count(1)
    original = getattr(owner, name)

    def called(*args, **kwargs):
        if next(calls) == number:
            act()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)


def fails(capsys, words, code):
    """Run a command that fails, and return the one line of its error, the last."""
    assert main(words) == code
    lines = capsys.readouterr().err.splitlines()
    assert sum("error:" in line for line in lines) == 1, lines
    assert lines[-1].startswith("error: ")
    assert "Error:" not in lines[-1]
    assert "MOLATTN_TRACEBACK" not in lines[-1]
    return lines[-1]


def weights(run):
    return Path(run, "model", WEIGHTS_FILE).read_bytes()


def names():
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize("one", EXIT_CODES)
def test_a_signal_stops_training_after_its_step_and_the_run_resumes_bit_for_bit(
    capsys, monkeypatch, whole, one
):
    with monkeypatch.context() as patch:
        # 4 training batches and 1 or 2 of validation in each epoch.
        at_call(patch, LabeledLoader, "batch", 8, lambda: signal.raise_signal(one))
        line = fails(capsys, train(), EXIT_CODES[one])
    assert line == (
        f"error: {WORDS[one]}; checkpoint {CHECKPOINT}; to resume: molattn train --resume run"
    )
    assert names() == ["in.csv", "run.unfinished"]
    checkpoint = read_checkpoint(CHECKPOINT)
    step = checkpoint["global_step"]
    assert 4 < step < 8
    monkeypatch.setattr("molattn.training.resume.read_checkpoint", lambda path: checkpoint)
    sizes = []
    at_call(monkeypatch, LabeledLoader, "batch", 2, lambda: sizes.append(len(checkpoint)))
    assert main(["train", "--resume", "run"]) == 0
    assert f"step {step}" in capsys.readouterr().out
    assert sizes == [0]  # once loaded it takes no more memory
    assert weights("run") == weights(whole)
    assert names() == ["in.csv", "run"]


def test_a_second_interrupt_stops_at_once_with_the_last_checkpoint_whole(capsys, monkeypatch):
    def interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_call(monkeypatch, LabeledLoader, "batch", 8, interrupt)
    assert "to resume: molattn train --resume run" in fails(capsys, train(), 130)
    assert read_checkpoint(CHECKPOINT)["global_step"] == 4


@pytest.mark.parametrize("one", EXIT_CODES)
@pytest.mark.parametrize("command", ["predict", "fingerprint", "explain"])
def test_a_signal_leaves_no_partial_output(capsys, monkeypatch, whole, command, one):
    at_call(monkeypatch, MolAttn, "collate", 2, lambda: signal.raise_signal(one))
    output = "out" if command == "explain" else "out.parquet"
    words = [command, str(whole), "in.csv", "--output", output, "--batch-size", "8"]
    assert fails(capsys, words, EXIT_CODES[one]) == f"error: {WORDS[one]}"
    assert names() == ["in.csv"]


@pytest.mark.parametrize("one", EXIT_CODES)
@pytest.mark.parametrize("command", ["predict", "fingerprint"])
def test_a_signal_leaves_rows_to_resume(capsys, monkeypatch, whole, command, one):
    monkeypatch.setattr(streaming, "_BLOCK_ROWS", 16)
    monkeypatch.setattr(parts, "_MOST_ROWS", 16)
    words = [command, str(whole), "in.csv", "--output", "out.csv", "--batch-size", "8"]
    assert main(words) == 0
    expected = Path("out.csv").read_bytes()
    Path("out.csv").unlink()
    with monkeypatch.context() as patch:
        at_call(patch, MolAttn, "collate", 4, lambda: signal.raise_signal(one))
        assert fails(capsys, words, EXIT_CODES[one]) == (
            f"error: {WORDS[one]}; 16 rows kept in out.csv.unfinished; to resume: the same command "
            "with --resume"
        )
    assert names() == ["in.csv", "out.csv.unfinished"]
    assert main([*words, "--resume"]) == 0
    printed = "".join(capsys.readouterr())
    assert "resuming: 16 rows" in printed
    assert "40 rows" in printed
    assert Path("out.csv").read_bytes() == expected
    assert names() == ["in.csv", "out.csv"]


@pytest.mark.parametrize("one", EXIT_CODES)
def test_a_signal_stops_pretraining_with_a_checkpoint(capsys, monkeypatch, one):
    words = ["pretrain", "in.csv", *TINY[:10], "--epochs", "2", "--output", "run"]
    at_call(monkeypatch, MaskedLoader, "batch", 3, lambda: signal.raise_signal(one))
    line = fails(capsys, words, EXIT_CODES[one])
    assert "to resume: molattn pretrain --resume run" in line
    assert str(CHECKPOINT) in line


def test_a_signal_stops_a_search_that_resumes(capsys, monkeypatch):
    words = ["tune", "in.csv", *TINY, "--epochs", "1", "--output", "study", "--trials", "2"]
    at_call(monkeypatch, LabeledLoader, "batch", 3, lambda: signal.raise_signal(signal.SIGTERM))
    line = fails(capsys, words, 143)
    assert line.endswith("terminated (SIGTERM); to resume: molattn tune --resume study")


def test_a_file_size_limit_names_the_file_and_keeps_the_checkpoint(capsys, monkeypatch):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))

    at_call(monkeypatch, LabeledLoader, "batch", 8, limit)
    try:
        line = fails(capsys, train(), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert line.endswith(f"{CHECKPOINT}: File too large; to resume: molattn train --resume run")
    assert read_checkpoint(CHECKPOINT)["global_step"] == 4
    assert not [*Path().rglob("*.part")]


def test_a_full_disk_leaves_no_partial_predictions(capsys, tmp_path, whole):
    words = ["predict", str(whole), "in.csv", "--output", str(tmp_path / "out.csv")]
    for number in count():
        faulty = FaultyFiles(tmp_path, number, errno.ENOSPC, lasting=True)
        with faulty.active():
            code = main(words)
        line = capsys.readouterr().err
        if code == 0:  # all was written
            assert Path("out.csv").read_text().count("\n") == 41
            break
        assert "out.csv" in line
        assert "No space left on device" in line
        assert "MOLATTN_TRACEBACK" not in line
        assert not Path("out.csv").exists()
        shutil.rmtree("out.csv.unfinished", ignore_errors=True)
        for part in tmp_path.glob(".*.part"):  # an unlink that fails too
            part.unlink()
    assert number > 3


def test_a_read_only_folder_is_found_before_training(capsys, tmp_path, monkeypatch):
    at_call(monkeypatch, LabeledLoader, "batch", 1, pytest.fail)
    with FaultyFiles(tmp_path, 0, errno.EROFS, lasting=True).active():
        line = fails(capsys, train(tmp_path / "run"), 2)
    assert "run: cannot be written: Read-only file system" in line


def test_a_folder_that_is_removed_during_the_run_is_named(capsys, monkeypatch):
    at_call(monkeypatch, LabeledLoader, "batch", 8, lambda: shutil.rmtree("run.unfinished"))
    line = fails(capsys, train(), 1)
    assert line == f"error: {CHECKPOINT}: No such file or directory"


def test_a_weight_that_becomes_nan_stops_the_training_by_epoch_and_step(capsys, monkeypatch):
    loaders = []
    original = LabeledLoader.batch

    def batch(self, *args):
        loaders.append(self)
        if len(loaders) == 8:
            with torch.no_grad():
                next(self._model.parameters()).fill_(float("nan"))
        return original(self, *args)

    monkeypatch.setattr(LabeledLoader, "batch", batch)
    line = fails(capsys, train(), 1)
    assert "the loss became nan in epoch 2, step" in line
    assert names() == ["in.csv"]


def test_a_run_is_resumed_with_its_own_model_only(monkeypatch, table):
    options = {"init_from": "none", "epochs": 2, "width": 8, "heads": 2, "layers": 1}
    config = TrainConfig.from_options(str(table), {"target_columns": "logS", **options})

    def custom(config):
        return MolAttn(config, head=torch.nn.Linear(16, 1))

    with monkeypatch.context() as patch:
        at_call(patch, LabeledLoader, "batch", 4, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            train_run(config, folder=Path())
    assert Path(CHECKPOINT_FILE).exists()
    with pytest.raises(InputError, match="make_model or featurizer: the model has other custom p"):
        train_run(config, folder=Path(), make_model=custom)


@pytest.mark.faults
def test_a_clock_that_is_set_back_changes_nothing(monkeypatch, whole):
    now = count(int(time.time()), -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    os.utime("in.csv", (4e9, 4e9))
    assert main(train()) == 0
    assert weights("run") == weights(whole)


def test_nothing_is_fetched(monkeypatch, whole):
    def connect(*args):
        raise AssertionError(f"a connection to {args}")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    assert main(["predict", str(whole), "in.csv", "--output", "out.csv"]) == 0


def test_a_finished_run_is_kept_unless_it_is_to_be_overwritten(capsys, whole):
    shutil.copytree(whole, "run")
    before = weights("run")
    line = fails(capsys, [*train(), "--seed", "1"], 2)
    assert line.startswith("error: run: contains a finished run; use --overwrite to replace it")
    assert weights("run") == before
    assert main([*train(), "--seed", "1", "--overwrite"]) == 0
    assert weights("run") != before


def test_a_folder_with_the_name_of_a_packaged_model_is_told_apart(capsys, whole):
    shutil.copytree(whole, "base")
    assert main(["predict", "base", "in.csv", "--output", "out.csv"]) == 0
    assert "MODEL: using the folder base, not the packaged model base" in capsys.readouterr().err
    words = ["train", "in.csv", "--target-columns", "logS", "--init-from", "base", "--layer", "foo"]
    assert main(words) == 2
    line = "--init-from: using the packaged model base, not the folder base; --init-from ./base"
    assert line in capsys.readouterr().out


def test_options_out_of_all_bounds_are_refused(capsys):
    for option, value in (("--threads", "100000"), ("--layers", "1000000000")):
        assert f"{option}: got '{value}'" in fails(capsys, ["train", "in.csv", option, value], 2)
    assert "NUL" in fails(capsys, train("a\0b"), 2)
    assert "File name too long" in fails(capsys, train("a" * 300), 2)
    assert names() == ["in.csv"]


@pytest.mark.faults
def test_each_call_that_saves_a_run_may_fail(capsys, monkeypatch, tmp_path, whole):
    """Every call on a file from the first to the last, each with another error."""
    original = Figure.savefig

    def savefig(self, file, **options):  # the plots take most of the time
        if isinstance(file, Path):
            file.write_bytes(b"a plot")
        else:
            original(self, file, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    run = tmp_path / "place" / "run"
    words = [*train(run, epochs=1), "--overwrite"]
    for number in count():
        shutil.rmtree(run.parent, ignore_errors=True)
        shutil.copytree(whole, run)
        faulty = FaultyFiles(run.parent, number, ERRORS[number % len(ERRORS)])
        with faulty.active():
            code = main(words)
        line = capsys.readouterr().err
        if faulty.failed is None:
            break
        if code:
            assert line.startswith("error: "), (number, faulty.failed)
            assert line.count("\n") == 1
            assert str(run) in line, (number, faulty.failed, line)
            assert os.strerror(faulty.error) in line, (number, faulty.failed, line)
            assert "MOLATTN_TRACEBACK" not in line, (number, faulty.failed, line)
        else:
            assert line == ""
        MolAttn.from_pretrained(run)  # the former or the new one
    assert number > 100


def process(words, **options):
    return subprocess.run(
        [sys.executable, "-m", "molattn", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **{"env": {**os.environ, "OMP_NUM_THREADS": "1"}, **options},
    )


@pytest.mark.faults  # each process takes seconds to begin
def test_a_training_that_is_killed_again_and_again_gives_the_same_bytes(table, tmp_path):
    assert main(train("whole", epochs=200, table=table)) == 0
    words, rng, written, kills = train(epochs=200), random.Random(0), 0, 0
    while kills < 6 and not Path("run").exists():
        with subprocess.Popen(
            [sys.executable, "-m", "molattn", *words],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as other:
            while other.poll() is None:  # until it has gone on
                time.sleep(0.01)
                if CHECKPOINT.exists() and CHECKPOINT.stat().st_mtime_ns != written:
                    break
            time.sleep(rng.uniform(0.0, 1.0))
            other.kill()
        if CHECKPOINT.exists():
            written = CHECKPOINT.stat().st_mtime_ns
            words, kills = ["train", "--resume", "run"], kills + 1
    assert main(words) == 0
    assert kills > 1
    assert weights("run") == weights("whole")
    predictions = [Path(name, "predictions.csv").read_bytes() for name in ("run", "whole")]
    assert predictions[0] == predictions[1]


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
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        time.sleep(moment)
        other.kill()
    assert bool((read_checkpoint(path)["a"] == 1).all())
    assert len([*tmp_path.glob(".*.part")]) <= 1
    write_checkpoint(path, {"a": torch.ones(10)})
    assert names() == [CHECKPOINT_FILE, "in.csv"]


@pytest.mark.faults
def test_fresh_processes_with_one_seed_give_the_same_bytes(whole):
    for name in ("one", "two"):
        assert process(train(name)).returncode == 0
        assert weights(name) == weights(whole)
    predictions = [Path(name, "predictions.csv").read_bytes() for name in ("one", "two", whole)]
    assert predictions == predictions[:1] * 3


@pytest.mark.faults
@pytest.mark.parametrize("one", EXIT_CODES)
def test_a_signal_from_outside_ends_a_training_within_seconds(one):
    with subprocess.Popen(
        [sys.executable, "-m", "molattn", *train(epochs=100_000)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as other:
        while not CHECKPOINT.exists():
            assert other.poll() is None
            time.sleep(0.05)
        other.send_signal(one)
        _, errors = other.communicate(timeout=60)
    assert other.returncode == EXIT_CODES[one]
    assert errors.count("\n") == 1
    assert WORDS[one] in errors


@pytest.mark.faults
def test_a_large_molecule_in_little_memory_costs_its_own_row_at_most(whole):
    Path("large.csv").write_text(f"smiles\nCCO\n{'C' * 5000}\nCCN\n")

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))

    done = process(["predict", whole, "large.csv", "--output", "o.csv"], preexec_fn=limit)
    assert (done.returncode, done.stdout) == (0, "")
    assert [row["error"] for row in rows_of(Path("o.csv"))] == ["", "too_large", ""]


@pytest.mark.faults
@pytest.mark.parametrize(
    "variables",
    [
        {"TERM": "dumb", "COLUMNS": "1", "PYTHONIOENCODING": "ascii"},
        {"HOME": "/proc/none", "TMPDIR": "/proc/none"},
        {"HOME": "/dev/null", "TMPDIR": "/dev/null", "XDG_CACHE_HOME": "/dev/null"},
    ],
)
def test_surroundings_of_all_kinds_do_no_harm(whole, variables):
    done = process(
        ["predict", whole, "in.csv", "--output", "o.csv"], env={**os.environ, **variables}
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr  # matplotlib warns of folders that it cannot write to
    done = process(train(epochs=1), env={**os.environ, **variables})
    assert done.returncode == 0
    assert "Traceback" not in done.stderr  # matplotlib warns of folders that it cannot write to


@pytest.mark.faults
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "| head -c 1"])
def test_closed_streams_make_no_traceback(whole, closed):
    command = f"{sys.executable} -m molattn predict {whole} in.csv --output o.csv {closed}"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr + done.stdout
    assert Path("o.csv").exists()


@pytest.mark.faults
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_no_connection_is_made(whole):
    command = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", "calls", sys.executable, "-m"]
    words = ["molattn", "predict", str(whole), "in.csv", "--output", "o.csv"]
    if subprocess.run([*command, *words], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    assert "AF_INET" not in Path("calls").read_text()
