"""A map over processes of this machine, with the results in order.

``concurrent.futures`` has the processes; joblib reads all items before it gives the first result.
"""

import ctypes
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeVar

from molattn.errors import MolattnError
from molattn.utils.registry import load_plugins

__all__ = ["end_with_parent", "in_order", "parallel_map", "reuse_memory"]

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 4  # items in hand for each worker, so that none waits behind an item that takes long

# Options of malloc.h: M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD, of which glibc takes 32 MB.
_MALLOC = {-1: 1 << 30, -2: 64 << 20, -3: 32 << 20}


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` for each item, in order, by worker processes; 0 = in this one.

    Raises:
        MolattnError: A worker process was killed, or could not be started.
    """
    if not num_workers:
        return (function(item) for item in items)
    return _by_processes(function, items, num_workers)


def in_order(
    submit: Callable[[Any], Any], result: Callable[[Any], Any], items: Iterable[Any], ahead: int
) -> Iterator[Any]:
    """Yield the results of items in order, with at most ``ahead`` items submitted before."""
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) >= ahead:
            yield result(waiting.popleft())
    yield from map(result, waiting)


def _by_processes(
    function: Callable[[Any], Any], items: Iterable[Any], num_workers: int
) -> Generator[Any, None, None]:
    with TemporaryDirectory(prefix="molattn-") as folder:
        # In a file: a large argument of a process that dies while it starts blocks this one. By
        # pickle: multiprocessing would share the memory of tensors.
        path = Path(folder, "function")
        path.write_bytes(pickle.dumps(function, pickle.HIGHEST_PROTOCOL))
        spawn = get_context("spawn")  # not a fork of a process that may hold locks
        pool = ProcessPoolExecutor(num_workers, spawn, _start)
        try:
            submit: Any = partial(pool.submit, _call, path)
            yield from in_order(submit, Future.result, items, AHEAD * num_workers)
        except BrokenProcessPool as error:
            raise MolattnError(
                "a worker process was killed or could not be started; is there enough memory? "
                "Fewer --num-workers need less, and so does a smaller --batch-size"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # left to the parent
    end_with_parent()


@lru_cache(maxsize=1)
def _loaded(path: Path) -> Callable[[Any], Any]:
    load_plugins()  # which the function may name
    return pickle.loads(path.read_bytes())


def _call(path: Path, item: Any) -> Any:
    return _loaded(path)(item)


def end_with_parent() -> None:
    """End this process when its parent is killed, whatever this one waits for."""
    if (parent := parent_process()) is not None:

        def wait() -> None:
            connection.wait([parent.sentinel])
            os._exit(1)

        Thread(target=wait, daemon=True).start()


def reuse_memory() -> bool:
    """Make glibc keep memory that is freed, instead of returning it to the system.

    Otherwise each batch gets its large arrays anew, page by page, which takes a tenth of the time
    of a prediction. It holds for the whole process, so that only commands call it.

    Returns:
        Whether the C library is glibc, or has the same function.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows
        return False
    return all(mallopt(name, value) == 1 for name, value in _MALLOC.items())
