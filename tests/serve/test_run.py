"""The process of the server: signals, clients that go away, slow connections."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import httpx
import pytest
from rich.console import Console

from molattn.config import ServeConfig
from molattn.errors import InputError
from molattn.serve import run

from ..conftest import rows_of, saved
from ..contract.conftest import ENVIRONMENT

TOKEN = {"Authorization": "Bearer s3cret"}
CSV = {"Content-Type": "text/csv"}
SECRET = "CCCCCCCCCCCCCCCCCCCF"
# A server that waits 3 s for requests after a signal.
PROGRAM = """
import sys
from rich.console import Console
from molattn.config import ServeConfig
from molattn.serve import run
run._DRAIN_SECONDS = 3
run.run_server(sys.argv[1:], ServeConfig(port=0), Console(stderr=True, width=200))
"""


@contextmanager
def running(folder, **environment):
    """Start a server on a free port; its process and a client."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "MOLATTN_TOKEN": "s3cret", **environment},
    )
    try:
        line = process.stderr.readline()
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", line) or [line]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=60, headers=TOKEN) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def ended(process):
    rest = process.communicate(timeout=60)[1]
    return process.returncode, rest


def head(kind, length):
    lines = f"Host: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
    return f"POST /predict HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n{lines}\r\n".encode()


@pytest.fixture(scope="module")
def shared(model_folders, tmp_path_factory):
    """A server of many tests, of which the last one ends it, and its folder of temporary files."""
    folder = tmp_path_factory.mktemp("server")
    with running(model_folders[0], TMPDIR=str(folder)) as (process, client):
        yield process, client, folder


@pytest.fixture
def server(shared):
    """A client of that server."""
    return shared[1]


def test_a_reference_that_cannot_be_read_names_its_option(model_folders, tmp_path):
    (tmp_path / "drugs.csv").write_text("molecule\nCC\n")
    config = ServeConfig(port=0, reference=tmp_path / "drugs.csv")
    with pytest.raises(InputError) as error:
        run.run_server(model_folders[:1], config, Console(quiet=True))
    assert error.value.option == "reference"


def test_a_client_that_goes_away_leaves_no_work_behind(server):
    def number(name):
        return float(re.search(rf"\n{name} (\S+)", server.get("/metrics").text)[1])

    table = b"smiles\n" + b"CCCCCC\n" * 300_000  # 30 s and more
    body = json.dumps({"smiles": ["C" * 20] * 10_000}).encode()
    before = number("process_cpu_seconds_total")
    with server.stream("POST", "/predict", content=table, headers=CSV) as response:
        next(response.iter_bytes())
    address = server.base_url.host, server.base_url.port
    for request in (
        head("text/csv", 1000) + b"smiles\n",  # half a request
        head("text/csv", len(table)) + table,
        head("application/json", len(body)) + body,
    ):
        with socket.create_connection(address) as connection:
            connection.sendall(request)
            time.sleep(0.3)
    deadline = time.monotonic() + 30
    while number("molattn_waiting_molecules"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.5)
    spent = number("process_cpu_seconds_total")
    time.sleep(1)
    assert number("process_cpu_seconds_total") < spent + 0.3
    assert spent < before + 10


def test_nothing_of_a_request_is_logged(server):
    server.post("/predict", json={"smiles": [SECRET, f"{SECRET}("]})
    server.post("/predict", json={"smiles": SECRET})
    server.get("/depict", params={"smiles": SECRET})
    server.get(f"/{SECRET}")
    server.post("/explain", json={"smiles": SECRET, "method": "attention"})
    assert server.get("/models", headers={"Authorization": ""}).status_code == 401
    assert server.get("/health").status_code == 200  # its log is read when it ends, below


def test_accepted_work_is_finished_after_a_signal_and_no_body_keeps_it_alive(
    model_folders, tmp_path
):
    text = "smiles,id\n" + "".join(f"{'C' * (n % 30 + 1)},{n}\n" for n in range(500))
    with running(model_folders[0]) as (process, client):
        address = client.base_url.host, client.base_url.port
        kept = httpx.Client(base_url=client.base_url)
        assert kept.get("/health").status_code == 200
        with socket.create_connection(address, timeout=10) as slow:
            slow.sendall(head("text/csv", 1000))
            with client.stream("POST", "/predict", content=text, headers=CSV) as response:
                chunks = response.iter_bytes()
                first = next(chunks)
                start = time.monotonic()
                process.send_signal(signal.SIGINT)
                time.sleep(0.5)
                with pytest.raises(httpx.TransportError):  # new requests are refused
                    kept.get("/health")
                rest = b"".join(chunks)
            with suppress(ConnectionError):
                while process.poll() is None and time.monotonic() < start + 60:
                    slow.sendall(b"s")
                    time.sleep(0.2)
            assert ended(process) == (0, "")
            assert time.monotonic() < start + 60  # a body has five minutes
    rows = rows_of(saved(tmp_path, (first + rest).decode()))
    assert [row["id"] for row in rows] == [str(n) for n in range(500)]
    assert not [row for row in rows if row["error"] or not row["logS_predicted"]]


def test_a_second_signal_ends_it_at_once(shared):
    process, client, folder = shared
    text = "smiles\n" + "CCCCCC\n" * 100_000
    with client.stream("POST", "/predict", content=text, headers=CSV) as response:
        chunks = response.iter_bytes()  # which is closed without a name
        next(chunks)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        assert [*folder.glob("molattn-*")]
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (128 + signal.SIGTERM, "")
        assert not [*folder.glob("molattn-*")]
