"""Predictions of all requests, batched together in one thread."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from molattn.chem.limits import is_fast
from molattn.config import PredictConfig, ServeConfig
from molattn.data.table import Row, Table
from molattn.errors import MolattnError
from molattn.inference.streaming import Cells, ReadRow, computed, molecule_batches
from molattn.model.inputs import batches
from molattn.serve.catalog import ServedModel
from molattn.serve.metrics import Metrics
from molattn.utils.reproducibility import threads, without_onednn
from molattn.utils.time_limit import stopped_by

__all__ = ["BusyError", "Predicted", "Work", "Worker"]

Predicted = list[tuple[ReadRow, Cells, str]]
"""Rows, the cells of their predictions, and the reason codes of those without one."""

_QUICK = 64  # molecules, at most, of a request that is read beside others


class BusyError(MolattnError):
    """More molecules are waiting than the server accepts."""


class Work(NamedTuple):
    """What a request asks to predict.

    Args:
        served: The model.
        table: The molecules.
        level: Level of the intervals.
        smiles_column: Column of the SMILES.
        smiles: The SMILES, if they are in memory.
    """

    served: ServedModel
    table: Table
    level: float
    smiles_column: str = "smiles"
    smiles: Sequence[str | None] | None = None

    @property
    def is_quick(self) -> bool:
        """Whether reading the molecules takes no more than milliseconds."""
        if self.smiles is None or self.served.model.config.standardize:
            return False
        return len(self.smiles) <= _QUICK and all(is_fast(one or "") for one in self.smiles)


@dataclass
class _Task:
    """Rows that wait, read or not."""

    work: Work
    count: int
    rows: list[ReadRow] | None
    future: "asyncio.Future[Predicted]"

    def batches_with(self, other: "_Task") -> bool:
        mine, its = self.work, other.work
        return mine.served is its.served and mine.level == its.level


class _Joined(Table):
    """The rows of tables with the same columns."""

    path = Path("body")

    def __init__(self, tables: Sequence[Table]) -> None:
        self.header, self._tables = tables[0].header, tables

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self._tables)


class Worker:
    """Predicts molecules in one thread; tables and large molecules are read in others before.

    The rows that wait, of all requests for the same model and level, are read and predicted
    together, in the order in which they came; a request has one batch in the queue at a time.

    Args:
        config: The options.
        metrics: Counts molecules and batches.

    Attributes:
        reserved: Number of molecules of requests that are not answered.
        quick: The thread of what takes milliseconds.
        slow: Threads of what may take seconds: tables, large molecules.
        explaining: The thread of explanations.
    """

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._queue: asyncio.Queue[_Task] = asyncio.Queue()
        self.reserved = 0
        self._models = ThreadPoolExecutor(1, "molattn-predict")
        self.quick = ThreadPoolExecutor(1, "molattn-quick")
        self.slow = ThreadPoolExecutor(4, "molattn-slow")
        self.explaining = ThreadPoolExecutor(1, "molattn-explain")

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Count molecules as waiting within the block.

        Raises:
            BusyError: Too many are waiting.
        """
        if self.reserved + count > self._config.max_queue:
            raise BusyError(
                f"got {count} molecules while {self.reserved} are waiting, expected at most "
                f"{self._config.max_queue} in all (--max-queue); repeat the request later"
            )
        self.reserved += count
        try:
            yield
        finally:
            self.reserved -= count

    def options(self, work: Work) -> PredictConfig:
        """Return how a table is read."""
        config = self._config
        return PredictConfig(
            smiles_column=work.smiles_column,
            interval=work.level,
            batch_size=config.batch_size,
            max_length=config.max_length,
            max_atoms=config.max_atoms,
            max_seconds=config.max_seconds,
        )

    def predict(self, work: Work, stop: threading.Event) -> AsyncIterator[Predicted]:
        """Return an iterator of the predictions in the order of the rows, a batch at a time.

        Args:
            work: What to predict.
            stop: Set once nobody waits for the answer.

        Raises:
            InputError: A column that the model needs is missing.
        """
        spec, model = work.served.spec(work.level), work.served.model
        rows = molecule_batches(work.table, model, self.options(work), spec.reads)

        def read() -> list[ReadRow]:
            with stopped_by(stop):
                return next(rows, [])

        return self._predicted(work, read)

    async def _predicted(
        self, work: Work, read: Callable[[], list[ReadRow]]
    ) -> AsyncIterator[Predicted]:
        loop = asyncio.get_running_loop()
        if work.smiles and work.is_quick:
            yield await self._wait(work, len(work.smiles))
            return
        while batch := await loop.run_in_executor(self.slow, read):
            yield await self._wait(work, len(batch), batch)

    async def _wait(self, work: Work, count: int, rows: list[ReadRow] | None = None) -> Predicted:
        task = _Task(work, count, rows, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(task)
        return await task.future

    async def run(self) -> None:
        """Predict what is in the queue, for ever."""
        waiting: deque[_Task] = deque()
        while True:
            if not waiting:
                waiting.append(await self._queue.get())
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            tasks, rest, count = list[_Task](), deque[_Task](), 0
            for task in waiting:
                fits = not tasks or (
                    task.batches_with(tasks[0]) and count + task.count <= self._config.batch_size
                )
                if fits and not task.future.cancelled():
                    tasks.append(task)
                    count += task.count
                elif not fits:
                    rest.append(task)
            waiting = rest
            await self._answer(tasks)

    async def _answer(self, tasks: Sequence[_Task]) -> None:
        """Predict the rows of tasks together; if that fails, of each by itself."""
        if not tasks:
            return
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._models, self._compute, tasks)
        except Exception as error:
            if len(tasks) > 1:
                for task in tasks:
                    await self._answer([task])
            elif not tasks[0].future.cancelled():
                tasks[0].future.set_exception(error)
            return
        for task in tasks:
            own, found = found[: task.count], found[task.count :]
            if not task.future.done():
                task.future.set_result(own)

    def _compute(self, tasks: Sequence[_Task]) -> Predicted:
        work, found = tasks[0].work, Predicted()
        spec, model = work.served.spec(work.level), work.served.model
        # As in molattn predict, where oneDNN costs memory and saves no time.
        updates_pairs = model.config.network.update_edges
        with threads(self._config.threads), without_onednn() if updates_pairs else nullcontext():
            if unread := [task for task in tasks if task.rows is None]:
                table = _Joined([task.work.table for task in unread])
                read = molecule_batches(table, model, self.options(unread[0].work), spec.reads)
                new = chain.from_iterable(read)
                for task in unread:
                    task.rows = [*islice(new, task.count)]
            rows = [row for task in tasks for row in task.rows or ()]
            for batch in batches(rows, self._config.batch_size, lambda row: row.record):
                self._metrics.batch(len(batch))
                for row, cells, code in computed(spec, batch):
                    self._metrics.molecule(work.served.name, code)
                    found.append((row, next(iter(cells)), code))
        return found

    def close(self) -> None:
        """End the threads; what still waits is not done."""
        for pool in (self._models, self.quick, self.slow, self.explaining):
            pool.shutdown(wait=False, cancel_futures=True)
