"""One thread that predicts the molecules of all waiting requests together."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from molattn.chem.fingerprints import Fingerprint
from molattn.chem.limits import is_fast
from molattn.chem.reader import MoleculeReader
from molattn.config import ServeConfig
from molattn.data.table import Row
from molattn.errors import MolattnError, ReasonCode, SmilesError, reason_meaning
from molattn.inference.streaming import Cells, ReadRow, computed
from molattn.model.batching import batches
from molattn.record import MoleculeRecord
from molattn.serve.catalog import Catalog, ServedModel
from molattn.utils.reproducibility import threads, without_onednn

__all__ = ["Answer", "BusyError", "Query", "Worker", "text_of"]

Result = TypeVar("Result")

_AT_ONCE = 64  # molecules of a request that wait together, so that no request keeps out others
_PARTNERS_KEPT = 256


class BusyError(MolattnError):
    """More molecules are waiting than the server takes."""


class Query(NamedTuple):
    """A molecule to predict.

    Args:
        smiles: Its SMILES; None where it is missing.
        partner: That of the second molecule, if the model takes two.
        features: Its extra features, if the model has any; None where one is missing.
    """

    smiles: str | None
    partner: str | None = None
    features: tuple[float | None, ...] = ()


class Answer(NamedTuple):
    """The prediction of a molecule.

    Args:
        cells: The cells of its row, as a table of predictions has them; None without a prediction.
        code: The reason code of a molecule without a prediction; "" otherwise.
        message: The reason in words.
        standardized: The SMILES that is predicted in its place, if the model standardizes.
        fingerprint: Its Morgan counts; None without a prediction, or if the model is not
            calibrated.
    """

    cells: Cells | None
    code: ReasonCode
    message: str
    standardized: str | None
    fingerprint: Fingerprint | None

    @classmethod
    def of(cls, row: ReadRow, cells: Cells, code: ReasonCode, message: str) -> "Answer":
        """Return the answer to a row, given what :func:`computed` yields."""
        message = message or reason_meaning(code)
        standardized = (row.record and row.record.standardized) or None
        if code:
            return cls(None, code, message, standardized, None)
        fingerprint = row.record and row.record.fingerprint
        return cls(cells, code, message, standardized, fingerprint)


_Read = tuple[MoleculeRecord | SmilesError, ReasonCode]


@dataclass
class _Task:
    """Molecules of one request, of which those that are slow to read have been read."""

    served: ServedModel
    level: float
    queries: Sequence[Query]
    read: Sequence[MoleculeRecord | SmilesError | None]
    future: "Future[list[Answer]]" = field(default_factory=Future)


class Worker:
    """Reads and predicts molecules in threads of its own.

    One thread reads and predicts the molecules that wait, of all requests for the same model and
    level together. In turn with these it takes steps of longer work, such as a batch of a table.
    Molecules that may take seconds to read are read before, in other threads.

    Args:
        catalog: The models.
        config: The options.
        count_batch: Is called with the number of molecules of each batch.

    Attributes:
        reserved: Number of molecules of requests that are not answered.
        slow: Threads of what may take seconds and is not the work of a model.
        tables: Threads that read tables.
        drawing: The thread that draws structures.
    """

    def __init__(
        self, catalog: Catalog, config: ServeConfig, count_batch: Callable[[int], None]
    ) -> None:
        self._config = config
        self._count_batch = count_batch
        self._condition = threading.Condition()
        self._tasks: deque[_Task] = deque()
        self._steps: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_closed = self._was_task = False
        self.reserved = 0
        self.slow = ThreadPoolExecutor(2, thread_name_prefix="molattn-slow")
        self.tables = ThreadPoolExecutor(4, thread_name_prefix="molattn-tables")
        self.drawing = ThreadPoolExecutor(1, thread_name_prefix="molattn-drawing")
        self._readers = {
            name: [_reader(one, config, remember=0), _reader(one, config)]
            for name, one in catalog.models.items()
        }
        self._thread = threading.Thread(target=self._run, name="molattn-predict", daemon=True)
        self._thread.start()

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Take a place in the queue for some molecules, for the time of the block.

        Called by the event loop alone.

        Raises:
            BusyError: There is none.
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

    async def predict(
        self, served: ServedModel, level: float, queries: Sequence[Query]
    ) -> list[Answer]:
        """Predict molecules in the given order; they must have a place in the queue."""
        answers: list[Answer] = []
        for start in range(0, len(queries), _AT_ONCE):
            some = queries[start : start + _AT_ONCE]
            task = _Task(served, level, some, [await self._slow(served, one) for one in some])
            with self._condition:
                self._tasks.append(task)
                self._condition.notify()
            answers += await asyncio.wrap_future(task.future)
        return answers

    async def run(
        self, served: ServedModel, function: Callable[..., Result], batch: Sequence[Any]
    ) -> Result:
        """Call a function of a batch, which uses a model, in the thread of the models."""
        future: Future[Result] = Future()

        def step() -> Result:
            self._count_batch(len(batch))
            with _onednn_of(served):
                return function(batch)

        with self._condition:
            self._steps.append((step, future))
            self._condition.notify()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads; what still waits is not done."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        for pool in (self.slow, self.tables, self.drawing):
            pool.shutdown(wait=False, cancel_futures=True)
        self._thread.join()

    async def _slow(self, served: ServedModel, query: Query) -> MoleculeRecord | SmilesError | None:
        """Read a molecule if that may take seconds."""
        texts = [text for text in (query.smiles, query.partner) if text is not None]
        if not served.model.config.standardize and all(map(is_fast, texts)):
            return None
        reader = self._readers[served.name][0]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.slow, _read_one, reader, query)

    def _run(self) -> None:
        with threads(self._config.threads):
            while (work := self._next()) is not None:
                if isinstance(work, list):
                    self._answer(work)
                else:
                    function, future = work
                    _settle(future, function)

    def _next(self) -> list[_Task] | tuple[Callable[[], Any], "Future[Any]"] | None:
        """Wait for work; steps and molecules take turns."""
        with self._condition:
            self._condition.wait_for(lambda: self._tasks or self._steps or self._is_closed)
            if self._is_closed:
                return None
            if self._steps and (self._was_task or not self._tasks):
                self._was_task = False
                return self._steps.popleft()
            self._was_task = True
            first, count, taken, left = self._tasks[0], 0, [], deque()
            for task in self._tasks:
                is_alike = task.served is first.served and task.level == first.level
                if is_alike and count + len(task.queries) <= max(
                    self._config.batch_size, len(first.queries)
                ):
                    count += len(task.queries)
                    taken.append(task)
                else:
                    left.append(task)
            self._tasks = left
            return taken

    def _answer(self, tasks: Sequence[_Task]) -> None:
        """Predict molecules together; if that fails, each request by itself."""
        tasks = [task for task in tasks if task.future.set_running_or_notify_cancel()]
        if not tasks:
            return
        try:
            answers = iter(self._predicted(tasks))
            found = [[next(answers) for _ in task.queries] for task in tasks]
        except Exception as error:
            if len(tasks) == 1:
                tasks[0].future.set_exception(error)
                return
            for task in tasks:
                try:
                    task.future.set_result(self._predicted([task]))
                except Exception as reason:
                    task.future.set_exception(reason)
            return
        for task, answer in zip(tasks, found, strict=True):
            task.future.set_result(answer)

    def _predicted(self, tasks: Sequence[_Task]) -> list[Answer]:
        served, level = tasks[0].served, tasks[0].level
        queries = [query for task in tasks for query in task.queries]
        read = [one for task in tasks for one in task.read]
        reader = self._readers[served.name][1]
        fast = [query for query, one in zip(queries, read, strict=True) if one is None]
        partners = (
            [query.partner or "" for query in fast] if served.model.config.has_partner else None
        )
        new = iter(reader([text_of(query.smiles) for query in fast], partners))
        records = [next(new) if one is None else one for one in read]
        rows = [_row(query, record) for query, record in zip(queries, records, strict=True)]
        spec, answers = served.spec(level), []
        with _onednn_of(served):
            for batch in batches(rows, self._config.batch_size, lambda row: row.record):
                self._count_batch(len(batch))
                for row, cells, code in computed(spec, batch):
                    record = records[len(answers)]
                    message = record.reason if isinstance(record, SmilesError) else ""
                    answers.append(Answer.of(row, next(iter(cells)), code, message))
        return answers


def text_of(smiles: str | None) -> str:
    """Return a SMILES, in place of None a text that marks a missing value."""
    return "null" if smiles is None else smiles


def _onednn_of(served: ServedModel) -> Any:
    """Return the context in which a model predicts; see :func:`stream_table`."""
    return without_onednn() if served.model.config.network.update_edges else nullcontext()


def _settle(future: "Future[Any]", function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


def _reader(
    served: ServedModel, config: ServeConfig, remember: int = _PARTNERS_KEPT
) -> MoleculeReader:
    model = served.model.config
    return MoleculeReader(
        model.featurizer,
        model.calculator,
        counter=model.counter,
        fingerprints=served.model.uncertainty is not None,
        remember=remember,
        limits=config,
        standardize=model.standardize,
        radius=model.network.radius,
    )


def _read_one(reader: MoleculeReader, query: Query) -> MoleculeRecord | SmilesError:
    return next(reader([text_of(query.smiles)], None if query.partner is None else [query.partner]))


def _row(query: Query, record: MoleculeRecord | SmilesError) -> ReadRow:
    code: Any = record.code if isinstance(record, SmilesError) else ""
    if None in query.features:
        code = code or "missing_feature"
    features = [] if code else [value for value in query.features if value is not None]
    found = None if code or isinstance(record, SmilesError) else record
    return ReadRow(1, Row(1, []), text_of(query.smiles), found, features, code)
