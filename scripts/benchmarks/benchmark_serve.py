"""Measure `molattn serve` with clients in another process.

Requests a second and their times, with requests of one molecule:

    python -m scripts.benchmarks.benchmark_serve runs/solubility

Good and hostile requests for some minutes, and the memory of the server meanwhile:

    python -m scripts.benchmarks.benchmark_serve runs/solubility --minutes 10
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from molattn.data.table import bundled_dataset, open_table

_JSON = "application/json"
_BOMB = "C1" * 60 + "C" * 60 + "1C" * 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--minutes", type=float, help="mixed requests for so long instead")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--load", help=argparse.SUPPRESS)  # the address; this is the other process
    options = parser.parse_args()
    if options.load:
        asyncio.run(_load(options))
        return
    with _server(options) as (address, pid):
        words = [sys.executable, __file__, options.model, "--load", address]
        if options.minutes:
            words += ["--minutes", str(options.minutes)]
            _soak(words, pid)
            return
        print(
            "| Clients | Requests a second | 50% (ms) | 99% (ms) |\n| ---: | ---: | ---: | ---: |"
        )
        for count in options.clients:
            own = ["--clients", str(count), "--seconds", str(options.seconds)]
            print(subprocess.run([*words, *own], check=True, text=True, stdout=-1).stdout, end="")


class _Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    pass


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    words = ["serve", options.model, "--port", "0", "--threads", str(options.threads)]
    process = subprocess.Popen(
        [sys.executable, "-m", "molattn", *words, "--max-seconds", "2"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        if (found := re.search(r"http://[^/]+/", line)) is None:
            sys.exit(line)
        yield found[0], process.pid
    finally:
        process.terminate()
        print(f"the server ended with code {process.wait()}; it logged: {process.stderr.read()!r}")


def _soak(words: list[str], pid: int) -> None:
    """Print the memory of the server and of its children, in MB, at each half minute."""
    start = time.monotonic()
    load = subprocess.Popen(words)
    while load.poll() is None:
        children = _children(pid)
        memory = _memory(pid), sum(map(_memory, children))
        print(
            f"{time.monotonic() - start:5.0f} s: {memory[0]:.0f} MB, "
            f"{len(children)} child processes {memory[1]:.0f} MB",
            flush=True,
        )
        for _ in range(30):
            if load.poll() is None:
                time.sleep(1.0)


def _memory(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else 0.0


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for task in tasks for one in task.read_text().split()]


async def _load(options: argparse.Namespace) -> None:
    table = open_table(bundled_dataset())
    column = table.column("smiles", "smiles")
    smiles = [row.cells[column] for row in table]
    if options.minutes:
        await _mixed(options.load, smiles, 60.0 * options.minutes)
        return
    (count,) = options.clients
    times: list[float] = []
    warm = time.monotonic() + 2.0
    end = warm + options.seconds

    async def client(number: int) -> None:
        rng = random.Random(number)
        async with _Connection(options.load) as connection:
            while (start := time.monotonic()) < end or not times:
                text = rng.choice(smiles)
                status, body = await connection.post("/predict", _JSON, _body([text]))
                assert status == 200, body
                (found,) = json.loads(body)["molecules"]
                assert found["smiles"] == text
                if start >= warm:
                    times.append(time.monotonic() - start)

    await asyncio.gather(*map(client, range(count)))
    half, most = np.quantile(times, [0.5, 0.99]) * 1000.0
    print(f"| {count} | {len(times) / options.seconds:.0f} | {half:.1f} | {most:.1f} |")


async def _mixed(address: str, smiles: list[str], seconds: float) -> None:
    """Send good and hostile requests from 16 clients, and check all answers."""
    end, statuses, wrong = time.monotonic() + seconds, Counter[str](), Counter[str]()

    async def one(rng: random.Random, connection: "_Connection") -> None:
        kind = rng.choice(
            ["single"] * 8 + ["many", "csv", "bad", "bomb", "garbage", "gone", "huge"]
        )
        some = rng.sample(smiles, 20)
        if kind in ("single", "many", "bad", "bomb"):
            asked = {
                "single": some[:1],
                "many": some,
                "bad": ["C(C", some[0], "", "x" * 1000, "[" * 300, "C" * 5000],
                "bomb": [some[0], _BOMB + str(rng.random())[2:5].replace("0", ""), some[1]],
            }[kind]
            status, body = await connection.post("/predict", _JSON, _body(asked))
            found = json.loads(body)
            statuses[f"{kind} {status}"] += 1
            if status == 200 and [each["smiles"] for each in found["molecules"]] != asked:
                wrong[kind] += 1
        elif kind == "csv":
            text = "smiles,id\n" + "".join(f"{each},{k}\n" for k, each in enumerate(some))
            status, body = await connection.post("/predict", "text/csv", text.encode())
            statuses[f"{kind} {status}"] += 1
            rows = body.decode().splitlines()[1:]
            if status == 200 and [row.split(",")[1] for row in rows] != [*map(str, range(20))]:
                wrong[kind] += 1
        elif kind == "garbage":
            bodies = [b"{", b"[" * 50_000, b'{"smiles": 1}', rng.randbytes(1000), b'{"smiles": []']
            status, _ = await connection.post("/predict", _JSON, rng.choice(bodies))
            statuses[f"{kind} {status}"] += 1
        else:  # a request that is given up half way: with its body sent, or in it
            body = _body(smiles * 5 if kind == "huge" else smiles[:200])
            async with _Connection(address) as other:
                await other.send(
                    "/predict", _JSON, body[: None if rng.random() < 0.5 else 500], len(body)
                )
                await asyncio.sleep(rng.random())
            statuses[f"{kind} given up"] += 1

    async def client(number: int) -> None:
        rng = random.Random(number)
        async with _Connection(address) as connection:
            while time.monotonic() < end:
                await one(rng, connection)

    await asyncio.gather(*map(client, range(16)))
    print("answers:", ", ".join(f"{name}: {count}" for name, count in sorted(statuses.items())))
    print("answers with wrong rows:", wrong.total())


class _Connection:
    """A connection that is kept for several requests, with little work of its own."""

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).hostname or ""
        self._port = urlsplit(address).port

    async def __aenter__(self) -> "_Connection":
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, limit=2**24
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def send(self, path: str, kind: str, body: bytes, length: int | None = None) -> None:
        self._writer.write(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body) if length is None else length}\r\n\r\n".encode()
            + body
        )
        await self._writer.drain()

    async def post(self, path: str, kind: str, body: bytes) -> tuple[int, bytes]:
        await self.send(path, kind, body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        if found := re.search(r"content-length: (\d+)", head):
            content = await self._reader.readexactly(int(found[1]))
        else:
            content = b""
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                content += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readuntil(b"\r\n")
        if "connection: close" in head:
            self._writer.close()
            await self.__aenter__()
        return status, content


def _body(smiles: list[str]) -> bytes:
    return json.dumps({"smiles": smiles}).encode()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
