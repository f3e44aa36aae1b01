"""A map over several processes, with the results in order."""

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from molattn.errors import MolattnError
from molattn.utils.registry import load_plugins
from molattn.utils.signals import interrupts_blocked

__all__ = ["end_with_parent", "parallel_map"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items that each worker has, so that it does not wait for the next one
_MOST_AHEAD = 4  # for each worker, behind an item that takes long
_SECONDS_TO_END = 5.0


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` for each item, in order.

    Args:
        function: The function. Each process has a copy of it, for which it is pickled, as are its
            results. A process imports no more than is needed to unpickle it.
        items: The items, consumed lazily; with worker processes a few ahead.
        num_workers: Number of worker processes; 0 computes in this process.

    Raises:
        MolattnError: A worker process was killed, or could not be started.
    """
    if not num_workers:
        for item in items:
            yield _called(function, item)
        return
    # Pickled here: multiprocessing would share the memory of tensors.
    target = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
    workers: list[_Worker] = []
    try:
        with interrupts_blocked():
            workers.extend(_Worker() for _ in range(num_workers))
        for worker in workers:
            worker.send(target)
        yield from _results(workers, items)
    finally:
        for worker in workers:
            worker.end()


def _results(workers: "list[_Worker]", items: Iterable[Any]) -> Iterator[Any]:
    left, is_left = iter(items), True
    done: dict[int, tuple[bool, Any]] = {}
    taken = given = 0  # numbers of items
    while True:
        while is_left and taken - given < _MOST_AHEAD * len(workers):
            worker = min(workers, key=lambda one: len(one.numbers))
            if len(worker.numbers) >= _AHEAD:
                break
            try:
                item = next(left)
            except StopIteration:
                is_left = False
            else:
                worker.send(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))
                worker.numbers.append(taken)
                taken += 1
        if given == taken:
            return
        if given not in done:
            ready = connection.wait([one.connection for one in workers if one.numbers])
            for worker in workers:
                if worker.connection in ready:
                    number, outcome = worker.receive()
                    done[number] = outcome
            continue
        is_result, value = done.pop(given)
        given += 1
        if not is_result:
            raise value
        yield value


class _Worker:
    """A process that applies a function, the first that it is sent, to items.

    Attributes:
        connection: The end of its pipe in this process.
        numbers: Numbers of the items that it has, in order.
    """

    def __init__(self) -> None:
        context = get_context("spawn")  # not a fork of a process that may hold locks
        self.connection, other = context.Pipe()
        # Given no more than its end of the pipe: writing to a process that dies while it starts
        # would not end.
        self._process = context.Process(target=_work, args=(other,), daemon=True)
        try:
            self._process.start()
        except OSError as error:
            raise MolattnError(
                f"a worker process cannot be started: {error.strerror or error}"
            ) from error
        other.close()
        self.numbers: deque[int] = deque()

    def send(self, data: bytes) -> None:
        """Give it the function or an item, pickled."""
        try:
            self.connection.send_bytes(data)
        except OSError:
            raise self._death() from None

    def receive(self) -> tuple[int, tuple[bool, Any]]:
        """Return the number of its first item, and the result or the error."""
        try:
            data = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise self._death() from None
        return self.numbers.popleft(), pickle.loads(data)

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        self.connection.close()
        self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _death(self) -> MolattnError:
        self._process.join(_SECONDS_TO_END)
        code, name = self._process.exitcode, f"a worker process (pid {self._process.pid})"
        if code is None or code >= 0:
            return MolattnError(f"{name} ended (exit code {code})")
        with suppress(ValueError):
            code = signal.Signals(-code).name
        return MolattnError(f"{name} was killed ({code}); is there enough memory?")


def _work(pipe: Connection) -> None:
    """Apply a function, which comes first, to the items that come through a pipe."""
    items: SimpleQueue[bytes] = SimpleQueue()

    def receive() -> None:  # at once, so that the other process never waits to send
        while True:
            try:
                items.put(pipe.recv_bytes())
            except (EOFError, OSError):  # the other process has ended
                os._exit(1)

    Thread(target=receive, daemon=True).start()
    function, apply = items.get(), None
    while True:
        try:
            if apply is None:
                load_plugins()  # which the function may name
                apply = pickle.loads(function)
            outcome = True, _called(apply, pickle.loads(items.get()))
            data = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            data = _pickled(error)
        try:
            pipe.send_bytes(data)
        except OSError:
            os._exit(1)


def _called(function: Callable[[Any], Any], item: Any) -> Any:
    try:
        return function(item)
    except StopIteration as error:  # it would end the generator
        raise RuntimeError(f"{function!r} raised StopIteration") from error


def _pickled(error: Exception) -> bytes:
    try:
        data = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)
    except Exception:  # it refers to something that cannot be pickled
        error = RuntimeError(f"{type(error).__name__}: {error}")
        data = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
    return data


def end_with_parent(_: int = 0) -> None:
    """End this process when its parent is killed, whatever this one waits for."""
    if (parent := parent_process()) is not None:

        def wait() -> None:
            connection.wait([parent.sentinel])
            os._exit(1)

        Thread(target=wait, daemon=True).start()
