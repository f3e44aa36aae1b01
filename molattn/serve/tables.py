"""Predictions of tables, row by row in constant memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from molattn.config import PredictConfig, ServeConfig
from molattn.data.table import FORMATS, Table
from molattn.data.table.text import CopiedPath
from molattn.inference.streaming import Cells, OutputRows, ReadRow, computed, molecule_batches
from molattn.serve.batching import Answer, Query, Worker
from molattn.serve.bodies import CSV, SDF
from molattn.serve.catalog import ServedModel
from molattn.serve.molecules import Molecule, dumps, molecule_json
from molattn.utils.time_limit import stopped_by

__all__ = ["Extend", "HeldResponse", "OpenTable", "ROWS_HEADER", "held_folder", "predicted_lines"]

ROWS_HEADER = "X-Molattn-Rows"
"""Header of a response with the number of its molecules, from which a client tells progress."""

_SUFFIXES = {CSV: "csv", SDF: "sdf"}
_AT_ONCE = 64

_Computed = list[tuple[ReadRow, Sequence[Cells], str]]


class _Body(CopiedPath):
    shown = "body"


def held_folder(stack: ExitStack) -> Path:
    """Return the path for the body of a request, which is deleted at the end of the stack."""
    folder = TemporaryDirectory(prefix="molattn-", ignore_cleanup_errors=True)
    return _Body(stack.enter_context(folder), "body")


class HeldResponse(StreamingResponse):
    """A streamed response that gives back what it holds when it ends, however it ends.

    Args:
        content: The parts.
        stack: What is held.
        media_type: Type of the content.
        headers: Further headers.
    """

    def __init__(
        self,
        content: AsyncIterator[bytes],
        stack: ExitStack,
        media_type: str,
        headers: dict[str, str],
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._stack:
            await super().__call__(scope, receive, send)


class Extend(NamedTuple):
    """Adds the nearest training molecules to molecules, a batch at a time."""

    worker: Worker
    served: ServedModel
    neighbors: int

    async def __call__(self, molecules: Sequence[Molecule], answers: Sequence[Answer]) -> None:
        """Add them to the molecules that have a prediction."""
        pairs = ((one, answer.fingerprint) for one, answer in zip(molecules, answers, strict=True))
        good = [(one, fingerprint) for one, fingerprint in pairs if fingerprint is not None]
        loop = asyncio.get_running_loop()
        for start in range(0, len(good) if self.neighbors else 0, _AT_ONCE):
            some = good[start : start + _AT_ONCE]
            fingerprints = [fingerprint for _, fingerprint in some]
            found = await loop.run_in_executor(
                self.worker.tables, self.served.nearest, fingerprints, self.neighbors
            )
            for (one, _), near in zip(some, found, strict=True):
                one["neighbors"] = near


class OpenTable:
    """A table of which each batch is read and predicted as ``molattn predict`` does it.

    Args:
        path: The file.
        kind: Its content type.
        served: The model.
        config: Options of the server.
        level: Level of the intervals.
        smiles_column: Column of SMILES.

    Attributes:
        count: Number of rows.

    Raises:
        InputError: It is not such a table, or lacks a column.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        served: ServedModel,
        config: ServeConfig,
        level: float,
        smiles_column: str,
    ) -> None:
        self._served = served
        self._columns = [*served.spec(level).columns]
        self._spec = served.spec(level)
        self._table: Table = FORMATS[_SUFFIXES[kind]].read(path)
        options = PredictConfig(
            smiles_column=smiles_column,
            interval=level,
            batch_size=config.batch_size,
            threads=config.threads,
            max_length=config.max_length,
            max_atoms=config.max_atoms,
            max_seconds=config.max_seconds,
        )
        self._buffer = BytesIO()
        self._rows = OutputRows(self._table, served.model, self._spec, options, self._buffer)
        self._stop = threading.Event()
        self._batches = molecule_batches(self._table, served.model, options, **self._spec.reads)
        self._is_named = kind == SDF
        self.count = self._table.count()  # a table that cannot be read is told before a row is

    async def csv(self, worker: Worker, count: Callable[[str], None]) -> AsyncIterator[bytes]:
        """Yield the predictions as CSV, as ``molattn predict`` writes it.

        Args:
            worker: Predicts.
            count: Is called with the reason code of each row.
        """
        writer = FORMATS["csv"].write(self._buffer, self._rows.header, None)  # pyright: ignore
        async for found in self._computed(worker):
            for molecule, cells, code in found:
                count(code)
                for row in self._rows(molecule, cells, code):
                    writer.write(row)
            yield self._taken()
        yield self._taken()  # the header, if there is no row

    async def lines(
        self, worker: Worker, count: Callable[[str], None], extend: Extend
    ) -> AsyncIterator[bytes]:
        """Yield the predictions as JSON lines; ``extend`` adds to those of a batch."""
        async for found in self._computed(worker):
            molecules, answers = [], []
            for molecule, cells, code in found:
                count(code)
                message = molecule.row.fault or ""
                answer = Answer.of(molecule, next(iter(cells)), code, message)
                one = molecule_json(self._served, self._columns, molecule.smiles, answer)
                if self._is_named:
                    one["name"] = molecule.row.cells[1]
                molecules.append(one)
                answers.append(answer)
            await extend(molecules, answers)
            yield b"".join(dumps(one) + b"\n" for one in molecules)

    async def _computed(self, worker: Worker) -> AsyncIterator[_Computed]:
        loop = asyncio.get_running_loop()
        try:
            while batch := await loop.run_in_executor(worker.tables, self._next):
                yield await worker.run(self._served, self._compute, batch)
        finally:
            self._stop.set()

    def _next(self) -> list[ReadRow]:
        with stopped_by(self._stop):
            return next(self._batches, [])

    def _compute(self, batch: Sequence[ReadRow]) -> _Computed:
        return [(molecule, [*rows], code) for molecule, rows, code in computed(self._spec, batch)]

    def _taken(self) -> bytes:
        data = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return data


async def predicted_lines(
    queries: Iterator[Query],
    served: ServedModel,
    level: float,
    worker: Worker,
    count: Callable[[str], None],
    extend: Extend,
) -> AsyncIterator[bytes]:
    """Yield the predictions of molecules as JSON lines, in order."""
    columns = [*served.spec(level).columns]
    while some := [*islice(queries, _AT_ONCE)]:
        answers = await worker.predict(served, level, some)
        molecules = []
        for query, answer in zip(some, answers, strict=True):
            count(answer.code)
            molecules.append(molecule_json(served, columns, query.smiles, answer))
        await extend(molecules, answers)
        yield b"".join(dumps(one) + b"\n" for one in molecules)
