"""The command as users start it, small tables, and the run and the server that tests share."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import molattn
from molattn.cli import main

from ..conftest import HANGING, rows_of

BUNDLED = Path(__file__).parents[2] / "datasets" / "solubility.csv"
NETWORK = "--width 8 --heads 2 --layers 1 --edge-width 4".split()
TINY = [*NETWORK, *"--batch-size 16 --device cpu --no-baselines".split()]
SETTINGS = {
    **{"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "init_from": "none"},
    **{"epochs": 2, "batch_size": 16, "device": "cpu", "baselines": False},
}  # the same in Python
# As tests do; what torch-geometric does with a newer torch is no message of molattn.
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore:`torch.jit.script` is deprecated",
}


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def command(*words: Any) -> Done:
    """Run a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(word) for word in words])
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # pyright: ignore
    return Done(code, *texts)


def process(*words: Any, stdin: bytes = b"") -> subprocess.CompletedProcess:
    """Run a command in a process of its own."""
    line = [sys.executable, "-m", "molattn", *map(str, words)]
    return subprocess.run(line, input=stdin, capture_output=True, env=ENVIRONMENT, check=False)


def succeed(*words: Any) -> Done:
    """Run a command that must end with 0."""
    done = command(*words)
    assert done.code == 0, done.err
    assert "Traceback" not in done.out + done.err
    return done


def refuse(named: str, *words: Any) -> str:
    """Run a command that must be refused: code 2, and one line with an option or a place in it."""
    done = command(*words)
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert "Traceback" not in done.out + done.err
    assert line.startswith("error: ")
    assert named in line, line
    return line


def table(path: Path, header: str, rows: Iterable[Iterable[Any]]) -> Path:
    """Write a CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def train(
    file: Path,
    folder: Path,
    *options: Any,
    target: str = "logS",
    epochs: int = 2,
    start: Any = None,
) -> Path:
    """Train a tiny network, from scratch or from a model, and return the folder of the run."""
    words = ["--target-columns", *target.split(), "--output", folder, "--epochs", epochs]
    words += ["--init-from", start or "none"]
    succeed("train", file, *words, *TINY, *options)
    return folder


def fitted(data: Any, folder: Path, target: str = "logS", **options: Any) -> Path:
    """Train a tiny model in Python, faster for want of a report, and return its folder."""
    result = molattn.train(data, target.split(), **SETTINGS | options)
    result.model.save_pretrained(folder)
    return folder


def predict(model: Any, *words: Any, output: Path) -> list[dict[str, str]]:
    """Predict, and return the rows of the CSV file."""
    succeed("predict", model, *words, "--output", output)
    return rows_of(output)


def scores(run: Path) -> dict[str, Any]:
    return json.loads((run / "metrics.json").read_text())


class Answer(NamedTuple):
    status: int
    kind: str
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(url: str, body: Any = None, kind: str = "application/json", **headers: str) -> Answer:
    """Send a request: a POST if there is a body, which is JSON unless it is a text."""
    data = None
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers["Content-Type"] = kind
    request = urllib.request.Request(url, data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=HANGING) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers["Content-Type"], error.read().decode())


@pytest.fixture(scope="session")
def molecules() -> list[tuple[str, float]]:
    """Every third molecule of the bundled data, with its log S."""
    return [(row["smiles"], float(row["logS"])) for row in rows_of(BUNDLED)[::3]]


@pytest.fixture(scope="session")
def small(molecules: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 120 molecules."""
    return table(tmp_path_factory.mktemp("tables") / "small.csv", "smiles,logS", molecules[:120])


@pytest.fixture(scope="session")
def model(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a network and a Gaussian process, trained on the small table."""
    return train(small, tmp_path_factory.mktemp("runs") / "small", "--keep-training-molecules")


@pytest.fixture(scope="session")
def address(model: Path) -> Iterator[str]:
    """The address of a server of that model and of the packaged one."""
    yield from serving(model, "admet")


def serving(*words: Any) -> Iterator[str]:
    """Serve models until the iterator is closed."""
    line = [sys.executable, "-m", "molattn", "serve", *map(str, words), "--port", "0"]
    server = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert server.stderr is not None
    try:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                break
        else:
            pytest.fail("".join(lines))
    finally:
        server.kill()
        server.communicate()
