"""Commands of molattn and of other tools as processes of their own, on one thread each."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ROOT = Path(__file__).resolve().parents[2]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_CHEMPROP = "from chemprop.cli.main import main; main()"
_CHEMPROP_TASK = {"regression": "regression", "binary": "classification"}
_PREDICTED = ("y_probability", "y_predicted", "y")  # the last is Chemprop's


class Cost(NamedTuple):
    """What a command took: seconds on the clock and of the processor, and MB of memory at most."""

    wall: float
    cpu: float
    memory: float


class CommandError(Exception):
    """A command that failed: its words, and the end of what it wrote."""


class StoppedError(CommandError):
    """A command that was stopped from here, or was not started any more."""


class Commands:
    """Runs commands, from several threads if need be, and stops them all at once.

    They end with the ``with`` block that has them, which SIGTERM leaves as Ctrl-C does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[int] = set()
        self._stopped = False

    def __enter__(self) -> "Commands":
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        signal.signal(signal.SIGTERM, self._before)

    def run(self, words: Sequence[str], log: Path) -> Cost:
        """Run a command on one thread and return what it took, its children included.

        Args:
            words: The command.
            log: What it writes is added to this file.

        Raises:
            CommandError: It failed.
            StoppedError: :meth:`stop` was called.
        """
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        environment = os.environ | _ONE_THREAD | {"PYTHONPATH": path}
        begin = time.perf_counter()
        with self._lock, log.open("ab") as file:
            if self._stopped:
                raise StoppedError("not started")
            # A session of its own, so that Ctrl-C reaches this process alone, which stops them.
            process = subprocess.Popen(
                words, stdout=file, stderr=file, env=environment, start_new_session=True
            )
            self._live.add(process.pid)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # Ctrl-C, with its number still among those to stop
            self.stop()
            raise
        finally:
            self._live.discard(process.pid)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            if self._stopped:
                raise StoppedError("stopped")
            end = "\n".join(log.read_text(errors="replace").splitlines()[-3:])
            raise CommandError(f"failed ({process.returncode}): {' '.join(words)}\n{end}")
        return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)

    def stop(self) -> None:
        """End what runs, and start nothing any more."""
        with self._lock:
            self._stopped = True
            for pid in self._live:
                os.killpg(pid, signal.SIGKILL)


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Return options by name as words of a command line, ``--no-NAME`` where false."""
    return [word for name, value in options.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> Iterator[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        yield f"--{flag}" if value else f"--no-{flag}"
    elif value is not None:
        yield f"--{flag}"
        yield from map(str, value if isinstance(value, list | tuple) else [value])


def molattn_train(
    table: Path, folder: Path, options: Mapping[str, Any], python: str = sys.executable
) -> list[str]:
    """Train this package on the columns ``smiles``, ``y`` and ``split``, without baselines."""
    return [
        *(python, str(_ROOT / "scripts" / "train.py"), str(table)),
        *"--target-columns y --split-column split --no-baselines --bootstrap 0".split(),
        *("--device", "cpu", "--threads", "1", "--output", str(folder)),
        *option_words(options),
    ]


def molattn_predict(
    folder: Path, table: Path, output: Path, python: str = sys.executable
) -> list[str]:
    """Predict the molecules of a table by what :func:`molattn_train` left."""
    command = [python, str(_ROOT / "scripts" / "predict.py"), str(folder), str(table)]
    return [*command, "--output", str(output)]


def chemprop_train(
    python: str, table: Path, folder: Path, kind: str, options: Mapping[str, Any]
) -> list[str]:
    """Train Chemprop, by the Python of its environment, on the same three columns."""
    return [
        *(python, "-c", _CHEMPROP, "train", "--data-path", str(table)),
        *"--smiles-columns smiles --target-columns y --splits-column split".split(),
        *f"--task-type {_CHEMPROP_TASK[kind]} --accelerator cpu --num-workers 0".split(),
        *("--output-dir", str(folder)),
        *option_words(options),
    ]


def chemprop_predict(python: str, folder: Path, table: Path, output: Path) -> list[str]:
    """Predict the molecules of a table by what :func:`chemprop_train` left."""
    models = map(str, sorted(folder.glob("model_*/best.pt")))
    return [
        *(python, "-c", _CHEMPROP, "predict", "--test-path", str(table), "--smiles-columns"),
        *("smiles", "--output", str(output), "--accelerator", "cpu", "--num-workers", "0"),
        *("--model-paths", *models),
    ]


def write_smiles(path: Path, smiles: Sequence[str]) -> Path:
    """Write a table of the column ``smiles`` alone."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["smiles"], *([text] for text in smiles)])
    return path


def read_predictions(output: Path) -> NDArray[np.float64]:
    """Read what any of the tools predicted of ``y``, NaN where it has nothing, ``[n]``."""
    with output.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    column = header.index(next(name for name in _PREDICTED if name in header))
    return np.array([float(line[column] or "nan") for line in lines])
