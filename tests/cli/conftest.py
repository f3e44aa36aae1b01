"""A small table, a run on it that nothing disturbed, and commands that fail."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from molattn.cli import main
from molattn.data.table import bundled_dataset

NETWORK = "--width 8 --heads 2 --layers 1 --edge-width 4 --batch-size 8 --device cpu".split()
OPTIONS = (
    "--no-baselines --bootstrap 0 --init-from none --target-columns logS --split-column split"
).split()


def train(output: Any = "run", epochs: int = 3, table: Any = "in.csv") -> list[str]:
    """A training of some steps: 4 batches of training rows and 1 or 2 of validation an epoch."""
    words = ["train", table, *NETWORK, *OPTIONS, "--epochs", epochs, "--output", output]
    return [str(word) for word in words]


def process(*words: Any, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own."""
    line = [sys.executable, "-m", "molattn", *map(str, words)]
    options = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "stdout": subprocess.PIPE} | options
    return subprocess.run(line, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.fixture(scope="session")
def small_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = bundled_dataset().read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("cli") / "in.csv"
    path.write_text("\n".join([*lines[:31], *lines[-10:]]) + "\n")
    return path


@pytest.fixture(scope="session")
def whole(small_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(train(folder, table=small_table)) == 0
    return folder


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail, and return the one line of its error."""

    def run(code: int, *words: Any) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        lines = capsys.readouterr().err.splitlines()
        assert sum("error:" in line for line in lines) == 1, lines
        assert lines[-1].startswith("error: ")
        assert "Traceback" not in "".join(lines)
        return lines[-1]

    return run
