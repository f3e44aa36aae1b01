"""The process of the server: signals, clients that go away, slow connections."""

import errno
import json
import os
import re
import resource
import runpy
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from rich.console import Console

from molattn.config import ServeConfig
from molattn.errors import InputError
from molattn.serve import run

from ..conftest import HANGING, rows_of, saved
from ..contract.conftest import ENVIRONMENT

TOKEN = {"Authorization": "Bearer s3cret"}
CSV = {"Content-Type": "text/csv"}
SECRET = "CCCCCCCCCCCCCCCCCCCF"
# A server that waits 200 s for requests after a signal; SIGUSR1 moves its clock on by 250 s.
# It counts the molecules that wait and those that were predicted.
PROGRAM = """
import asyncio, signal, sys, time
from rich.console import Console
from molattn.config import ServeConfig
from molattn.serve import batching, run
make_app = run.make_app
compute_rows = batching.compute_rows
passed = predicted = 0
def counted_rows(spec, batch):
    global predicted
    predicted += len(batch)
    return compute_rows(spec, batch)
def counted_app(*arguments):
    app = make_app(*arguments)
    @app.get("/counts")
    async def counts() -> dict[str, int]:
        return {"waiting": app.state.worker.reserved, "predicted": predicted}
    return app
batching.compute_rows = counted_rows
run.make_app = counted_app
def pass_time(*_):
    global passed
    passed = 250
signal.signal(signal.SIGUSR1, pass_time)
asyncio.BaseEventLoop.time = lambda _: time.monotonic() + passed
run._DRAIN_SECONDS = 200
run.run_server(sys.argv[1:], ServeConfig(port=0), Console(stderr=True, width=200))
"""


@contextmanager
def running(folder, files=1024, **environment):
    """Start a server on a free port, with a limit of open files; its process and a client."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "MOLATTN_TOKEN": "s3cret", **environment},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    try:
        line = process.stderr.readline()
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", line) or [line]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=HANGING, headers=TOKEN) as client:
            yield process, client
    finally:
        process.kill()
        ended(process)


def ended(process):
    """Wait for a process, once or again; its exit code and what it logged."""
    rest = process.communicate(timeout=HANGING)[1]
    return process.returncode, rest


def until(is_so):
    """Wait for a condition."""
    end = time.monotonic() + HANGING
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_closed(address):
    """Return whether nothing listens at an address."""
    with socket.socket() as connection:
        return connection.connect_ex(address) == errno.ECONNREFUSED


def is_refused(client):
    """Return whether new connections are refused, as after a signal."""
    try:
        socket.create_connection((client.base_url.host, client.base_url.port), HANGING).close()
    except ConnectionError:
        return True
    return False


def head(kind, length):
    lines = f"Host: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
    return f"POST /predict HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n{lines}\r\n".encode()


@pytest.fixture(scope="module")
def start(model_folders, tmp_path_factory):
    """Start a server unless there is one that runs; it must log nothing after its address."""
    servers = []

    def start():
        if not servers or servers[-1][0].poll() is not None:
            folder = tmp_path_factory.mktemp("server")
            opened = stack.enter_context(running(model_folders[0], TMPDIR=str(folder)))
            servers.append((*opened, folder))
        return servers[-1]

    with ExitStack() as stack:
        yield start
        for process, *_ in servers:
            process.kill()
            assert ended(process)[1] == ""


@pytest.fixture
def shared(start):
    """A server of several tests, its client, and its folder of temporary files."""
    return start()


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
    def count(name):
        return server.get("/counts").json()[name]

    def leave(request):
        with socket.create_connection((server.base_url.host, server.base_url.port)) as connection:
            connection.sendall(request)
            until(lambda: count("waiting"))
        until(lambda: not count("waiting"))

    table = b"smiles\n" + b"CCCCCC\n" * 300_000
    body = json.dumps({"smiles": ["C" * 20] * 10_000}).encode()
    before = count("predicted")
    with server.stream("POST", "/predict", content=table, headers=CSV) as response:
        next(response.iter_bytes())
    until(lambda: not count("waiting"))
    leave(head("text/csv", 1000) + b"smiles\n")  # half a request
    leave(head("text/csv", len(table)) + table)
    leave(head("application/json", len(body)) + body)
    assert count("predicted") < before + 300_000
    for _ in range(2):  # nothing but these is predicted
        before = count("predicted")
        server.post("/predict", json={"smiles": ["CC"]})
    assert count("predicted") == before + 1


def test_nothing_of_a_request_is_logged(server):
    server.post("/predict", json={"smiles": [SECRET, f"{SECRET}("]})
    server.post("/predict", json={"smiles": SECRET})
    server.get("/depict", params={"smiles": SECRET})
    server.get(f"/{SECRET}")
    server.post("/explain", json={"smiles": SECRET, "method": "attention"})
    assert server.get("/models", headers={"Authorization": ""}).status_code == 401
    assert server.get("/health").status_code == 200  # its log is read when it ends


def test_accepted_work_is_finished_after_a_signal_and_no_body_keeps_it_alive(
    model_folders, tmp_path
):
    text = "smiles,id\n" + "".join(f"{'C' * (n % 30 + 1)},{n}\n" for n in range(500))
    with running(model_folders[0]) as (process, client):
        address = client.base_url.host, client.base_url.port
        assert not is_refused(client)
        with socket.create_connection(address, timeout=HANGING) as slow:
            slow.sendall(head("text/csv", 1000) + b"smiles")
            with client.stream("POST", "/predict", content=text, headers=CSV) as response:
                chunks = response.iter_bytes()
                first = next(chunks)
                process.send_signal(signal.SIGINT)
                until(lambda: is_refused(client))
                rest = b"".join(chunks)
            assert process.poll() is None
            process.send_signal(signal.SIGUSR1)  # a body has 300 s
            assert ended(process) == (0, "")
    rows = rows_of(saved(tmp_path, (first + rest).decode()))
    assert [row["id"] for row in rows] == [str(n) for n in range(500)]
    assert not [row for row in rows if row["error"] or not row["logS_predicted"]]


def test_idle_connections_make_room_and_a_table_that_takes_too_long_breaks_off(model_folders):
    with running(model_folders[0], files=60) as (process, client), ExitStack() as stack:
        address = client.base_url.host, client.base_url.port
        for _ in range(100):
            stack.enter_context(socket.create_connection(address, timeout=HANGING))
        assert client.get("/health").status_code == 200
        table = b"smiles\n" + b"CCCCCC\n" * 300_000
        connection = stack.enter_context(socket.create_connection(address, timeout=HANGING))
        # A proxy may speak HTTP 1.0, where a table ends as the connection does.
        connection.sendall(head("text/csv", len(table)).replace(b"HTTP/1.1", b"HTTP/1.0") + table)
        assert connection.recv(12) == b"HTTP/1.1 200"
        process.send_signal(signal.SIGTERM)
        until(lambda: is_closed(address))
        process.send_signal(signal.SIGUSR1)  # the time for requests is over
        with pytest.raises(ConnectionResetError):
            all(iter(lambda: connection.recv(2**16), b""))
        code, rest = ended(process)
        assert (code, len(rest.splitlines())) == (0, 1)
        assert "at most 60 open files" in rest


def test_a_second_signal_ends_it_at_once(shared):
    process, client, folder = shared
    text = "smiles\n" + "CCCCCC\n" * 300_000
    with client.stream("POST", "/predict", content=text, headers=CSV) as response:
        chunks = response.iter_bytes()  # which is closed without a name
        next(chunks)
        process.send_signal(signal.SIGTERM)
        until(lambda: is_refused(client))
        assert process.poll() is None
        assert [*folder.glob("molattn-*")]
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (128 + signal.SIGTERM, "")
        assert not [*folder.glob("molattn-*")]


def test_connections_are_accepted_where_open_files_have_no_limit(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda _: -1)
    limits = runpy.run_path(run.__file__)
    assert limits["_MOST_CONNECTIONS"] > limits["_MOST_ACCEPTED"] > 1
