"""The server as a process, under signals and with clients that go away."""

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from rich.console import Console

from molattn.config import ServeConfig
from molattn.errors import InputError
from molattn.serve import run
from molattn.serve.run import _listening

from ..conftest import rows_of, saved
from .conftest import run_apart

# Of PyG with torch 2.14, as in pyproject.toml.
QUIET = {"PYTHONWARNINGS": "ignore:`torch.jit.script` is deprecated"}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", **QUIET}


@contextmanager
def running(folder=None, *options, prefix=(), program=None, **environment):
    """Start a server on a free port; its process and a client."""
    words = ["-m", "molattn", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(
        [*prefix, sys.executable, *(words if program is None else ("-c", program))],
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    )
    try:
        line = process.stderr.readline()
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", line) or [line]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def ended(process):
    rest = process.communicate(timeout=60)[1]
    return process.returncode, rest


def test_an_address_is_taken_before_anything_is_loaded():
    with _listening(ServeConfig(port=0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match="expected an address of this machine that is free"):
            _listening(ServeConfig(port=port)).__enter__()
        socket.create_connection(("127.0.0.1", port), timeout=10).close()


def test_reference_rows_without_a_prediction_are_told(model_folders, tmp_path, monkeypatch):
    class Server:
        signum = None

        def __init__(self, *_):
            pass

        def run(self, sockets):
            pass

    monkeypatch.setattr(run, "_Server", Server)
    table, shown = tmp_path / "drugs.csv", io.StringIO()
    table.write_text("smiles\nCC\nC(\nnonsense\nCCC\n")
    config = ServeConfig(port=0, reference=table)
    run.run_server(model_folders[:1], config, Console(file=shown, width=1000))
    assert shown.getvalue() == f"{table}: left out 2 rows without a prediction of mixed\n"
    table.write_text("molecule\nCC\n")
    with pytest.raises(InputError, match=r"reference, model mixed: .*no column 'smiles'"):
        run.run_server(model_folders[:1], config, Console(quiet=True))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_the_moment_that_the_address_is_shown(model_folders, signum):
    program = f"""
import os
from rich.console import Console
from molattn.config import ServeConfig
from molattn.serve import run
run.print_line = lambda *_: os.kill(os.getpid(), {int(signum)})
run.run_server([{str(model_folders[0])!r}], ServeConfig(port=0), Console(quiet=True))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, timeout=60
    )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_accepted_work_is_finished_after_a_signal(model_folders, tmp_path, signum):
    count = 3000
    text = "smiles,id\n" + "".join(f"{'C' * (n % 30 + 1)},{n}\n" for n in range(count))
    headers = {"Content-Type": "text/csv"}
    with running(model_folders[0]) as (process, client):
        kept = httpx.Client(base_url=client.base_url)
        assert kept.get("/health").status_code == 200
        with client.stream("POST", "/predict", content=text, headers=headers) as response:
            parts = response.iter_bytes()
            first = next(parts)
            process.send_signal(signum)
            time.sleep(1)
            with pytest.raises(httpx.TransportError):  # new requests are refused
                kept.get("/health")
            rest = b"".join(parts)
        rows = rows_of(saved(tmp_path, (first + rest).decode()))
        assert [row["id"] for row in rows] == [str(n) for n in range(count)]
        assert not [row for row in rows if row["error"] or not row["logS_predicted"]]
        assert ended(process) == (0, "")


def test_a_body_that_does_not_end_keeps_no_server_alive(model_folders, monkeypatch):
    program = f"""
from rich.console import Console
from molattn.config import ServeConfig
from molattn.serve import run
run._DRAIN_SECONDS = 2
run.run_server([{str(model_folders[0])!r}], ServeConfig(port=0), Console(stderr=True, width=200))
"""
    head = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
        b"Content-Length: 1000\r\n\r\n"
    )
    with running(program=program) as (process, client):
        address = client.base_url.host, client.base_url.port
        with socket.create_connection(address, timeout=10) as one:
            one.sendall(head)
            time.sleep(0.5)
            start = time.monotonic()
            process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):
                while process.poll() is None and time.monotonic() < start + 20:
                    one.sendall(b"s")
                    time.sleep(0.2)
            assert ended(process) == (0, "")
            assert time.monotonic() < start + 10


def test_a_second_signal_ends_it_at_once(model_folders, tmp_path):
    text = "smiles\n" + "CCCCCC\n" * 200_000
    with running(model_folders[0], TMPDIR=str(tmp_path)) as (process, client):
        headers = {"Content-Type": "text/csv"}
        with client.stream("POST", "/predict", content=text, headers=headers) as response:
            parts = response.iter_bytes()
            next(parts)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert process.poll() is None
            assert [*tmp_path.glob("molattn-*")]
            process.send_signal(signal.SIGTERM)
            assert ended(process) == (128 + signal.SIGTERM, "")
            assert not [*tmp_path.glob("molattn-*")]


def test_a_client_that_goes_away_leaves_nothing_behind(model_folders):
    text = "smiles\n" + "CCCCCC\n" * 100_000
    waiting = re.compile(r"\nmolattn_waiting_molecules (\S+)")
    with running(model_folders[0]) as (process, client):
        port = client.base_url.port
        headers = {"Content-Type": "text/csv"}
        with client.stream("POST", "/predict", content=text, headers=headers) as response:
            next(response.iter_bytes())
        for request in (  # half a request; and a JSON one whose answer nobody waits for
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\n"
            b"Content-Length: 1000\r\n\r\nsmiles\n",
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b"
            % (len(body := json.dumps({"smiles": ["C" * 20] * 10_000}).encode()), body),
        ):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(request)
                time.sleep(0.3)
        deadline = time.monotonic() + 30
        while float(waiting.search(client.get("/metrics").text)[1]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert client.post("/predict", json={"smiles": ["CCO"]}).status_code == 200
        client.close()
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "")


def test_concurrent_clients_get_their_own_rows(model_folders):
    async def ask(client, number):
        smiles = ["C" * (number % 25 + 1), "O" * (number % 2 + 1) + "C" * number]
        response = await client.post("/predict", json={"smiles": smiles})
        assert [one["smiles"] for one in response.json()["molecules"]] == smiles
        return smiles[0], response.json()["molecules"][0]["predictions"]["logS"]["value"]

    async def main(url):
        limits = httpx.Limits(max_connections=32)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(200)))

    with running(model_folders[0]) as (_, client):
        found = run_apart(main(client.base_url))
        alone = client.post("/predict", json={"smiles": ["C" * n for n in range(1, 26)]}).json()
        count = re.search(r"\nmolattn_batch_molecules_count (\S+)", client.get("/metrics").text)
    expected = {one["smiles"]: one["predictions"]["logS"]["value"] for one in alone["molecules"]}
    for smiles, value in found:
        assert value == pytest.approx(expected[smiles], abs=1e-4)
    assert float(count[1]) < 200


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_connections_without_a_request_are_closed_and_others_answered(model_folders, sent):
    few_files = ("sh", "-c", 'ulimit -n 60; exec "$@"', "sh")
    with running(model_folders[0], prefix=few_files) as (process, client), ExitStack() as stack:
        address, start, idle = (client.base_url.host, client.base_url.port), time.monotonic(), []
        for _ in range(100):
            one = stack.enter_context(socket.create_connection(address, timeout=10))
            one.sendall(sent)
            idle.append(one)
        answer = {"smiles": ["CCO"]}
        while time.monotonic() < start + 3:
            asked = time.monotonic()
            assert httpx.post(client.base_url.join("/predict"), json=answer).status_code == 200
            assert time.monotonic() < asked + 2
        for one in idle:  # all are closed within seconds, also those that there was room for
            one.settimeout(max(0.1, start + 15 - time.monotonic()))
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        assert client.get("/health").status_code == 200
        client.close()
        process.send_signal(signal.SIGTERM)
        code, log = ended(process)
        assert code == 0
        assert "ulimit -n" in log
        assert log.count("\n") == 1


def test_a_connection_that_is_kept_must_go_on_with_a_head(model_folders):
    """Byte by byte, a head can be begun for ever; an answered connection can do it too."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    with running(model_folders[0]) as (_, client):
        address = client.base_url.host, client.base_url.port
        with socket.create_connection(address, timeout=10) as one:
            one.sendall(head + b"\r\n")
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
            start = time.monotonic()
            with pytest.raises(ConnectionError):  # noqa: PT012
                for place in range(60):
                    one.sendall((head + b"X: " + b"x" * 60)[place : place + 1])
                    time.sleep(0.25)
            assert time.monotonic() < start + 12


def test_nothing_of_a_request_is_logged(model_folders):
    secret = "CCCCCCCCCCCCCCCCCCCF"
    with running(model_folders[0]) as (process, client):
        client.post("/predict", json={"smiles": [secret, f"{secret}("]})
        client.post("/predict", json={"smiles": secret})
        client.get("/depict", params={"smiles": secret})
        client.get(f"/{secret}")
        client.post("/explain", json={"smiles": secret, "method": "attention"})
        client.close()
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "")


def test_the_token_of_the_environment(model_folders):
    with running(model_folders[0], MOLATTN_TOKEN="s3cret") as (_, client):
        assert client.get("/models").status_code == 401
        known = {"Authorization": "Bearer s3cret"}
        assert client.get("/models", headers=known).status_code == 200
