"""Predictions of all requests, batched together in one thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from molattn.config import PredictConfig, ServeConfig
from molattn.data.table import Row, Table
from molattn.inference.predict import Reference
from molattn.inference.streaming import (
    Cells,
    OutputSpec,
    ReadRow,
    compute_rows,
    inference_context,
    molecule_batches,
)
from molattn.model.networks import batches
from molattn.serve.catalog import ServedModel
from molattn.serve.guard import APIError

Predicted = list[tuple[ReadRow, Cells, str]]
"""Rows, the cells of their predictions, and the reason codes of those without one."""

Result = TypeVar("Result")


class Work(NamedTuple):
    """What a request asks to predict.

    ``quick`` is the number of molecules if they are read in milliseconds, then with those of other
    requests; 0 for others.
    """

    served: ServedModel
    table: Table
    level: float
    smiles_column: str = "smiles"
    quick: int = 0
    reference: Reference | None = None

    @property
    def spec(self) -> OutputSpec:
        """The output columns."""
        return self.served.spec(self.level, self.reference)


@dataclass
class _Task:
    """Rows of a request that wait, read or not."""

    work: Work
    count: int
    rows: list[ReadRow] | None
    future: "asyncio.Future[Predicted]"


class _Joined(Table):
    """The rows of tables with the same columns."""

    path = Path("body")

    def __init__(self, tables: Sequence[Table]) -> None:
        self.header = tables[0].header
        self._tables = tables

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self._tables)


def table_options(config: ServeConfig, smiles_column: str, level: float) -> PredictConfig:
    """Return how a table is read."""
    return PredictConfig(
        smiles_column=smiles_column,
        interval=level,
        batch_size=config.batch_size,
        threads=config.threads,
        max_length=config.max_length,
        max_atoms=config.max_atoms,
        max_seconds=config.max_seconds,
    )


async def in_thread(pool: Executor, function: Callable[..., Result], *arguments: object) -> Result:
    """Return what a function returns, called in a thread of a pool."""
    return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)


class Worker:
    """Predicts molecules in one thread; tables and large molecules are read in others before.

    The rows that wait, of all requests for the same model and level, are predicted together, in the
    order in which they came; a request has one batch in the queue at a time.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._queue: asyncio.Queue[_Task] = asyncio.Queue()
        self.reserved = 0
        self._predicting = ThreadPoolExecutor(1, "molattn-predict")
        self.quick = ThreadPoolExecutor(1, "molattn-quick")
        self.slow = ThreadPoolExecutor(2, "molattn-slow")
        self.explaining = ThreadPoolExecutor(1, "molattn-explain")

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Count molecules as waiting within the block; refuse them if they are too many."""
        if self.reserved + count > self._config.max_queue:
            message = (
                f"got {count} molecules while {self.reserved} are waiting, expected at most "
                f"{self._config.max_queue} in all (max_queue); repeat the request later"
            )
            raise APIError(429, "busy", message, {"Retry-After": "1"})
        self.reserved += count
        try:
            yield
        finally:
            self.reserved -= count

    def predict(self, work: Work, stop: threading.Event) -> AsyncIterator[Predicted]:
        """Return an iterator of the predictions of each batch of rows; reading ends at ``stop``."""
        reading = self._read(work, work.table)

        def read() -> list[ReadRow]:
            return [] if stop.is_set() else next(reading, [])

        return self._predicted(work, read)

    def _read(self, work: Work, table: Table) -> Iterator[list[ReadRow]]:
        options = table_options(self._config, work.smiles_column, work.level)
        fields = work.spec.fields
        return molecule_batches(table, work.served.model, options, fields)

    async def _predicted(
        self, work: Work, read: Callable[[], list[ReadRow]]
    ) -> AsyncIterator[Predicted]:
        if work.quick:
            yield await self._wait(work, work.quick, None)
            return
        while rows := await in_thread(self.slow, read):
            yield await self._wait(work, len(rows), rows)

    async def _wait(self, work: Work, count: int, rows: list[ReadRow] | None) -> Predicted:
        task = _Task(work, count, rows, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(task)
        return await task.future

    async def run(self) -> None:
        """Predict what is in the queue, for ever."""
        waiting = list[_Task]()
        while True:
            if not waiting:
                waiting.append(await self._queue.get())
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            tasks = list[_Task]()
            deferred = list[_Task]()
            count = 0
            first = waiting[0].work
            for task in waiting:
                fits = not tasks or count + task.count <= self._config.batch_size
                if fits and task.work.spec is first.spec:
                    tasks.append(task)
                    count += task.count
                else:
                    deferred.append(task)
            waiting = deferred
            if tasks := [task for task in tasks if not task.future.cancelled()]:
                await self._answer(tasks)

    async def _answer(self, tasks: Sequence[_Task]) -> None:
        """Predict the rows of tasks together; if that fails, of each by itself."""
        try:
            results = await in_thread(self._predicting, self._compute, tasks)
        except Exception as error:
            if len(tasks) > 1:
                for task in tasks:
                    await self._answer([task])
            elif not tasks[0].future.cancelled():
                tasks[0].future.set_exception(error)
            return
        for task in tasks:
            answer = results[: task.count]
            results = results[task.count :]
            if not task.future.cancelled():
                task.future.set_result(answer)

    def _compute(self, tasks: Sequence[_Task]) -> Predicted:
        results = Predicted()
        work = tasks[0].work
        if unread := [task for task in tasks if task.rows is None]:
            table = _Joined([task.work.table for task in unread])
            new = chain.from_iterable(self._read(unread[0].work, table))
            for task in unread:
                task.rows = list(islice(new, task.count))
        rows = [row for task in tasks for row in task.rows or ()]
        for batch in batches(rows, self._config.batch_size, lambda row: row.record):
            with inference_context(work.served.model, self._config.threads):
                predicted = compute_rows(work.spec, batch)
                results += [(row, cells[0], code) for row, cells, code in predicted]
        return results

    def close(self) -> None:
        """End the threads; what still waits is not done."""
        for pool in (self._predicting, self.quick, self.slow, self.explaining):
            pool.shutdown(wait=False, cancel_futures=True)
