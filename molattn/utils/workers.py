"""A map over several processes, with the results in order."""

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, parent_process, resource_tracker
from threading import Thread
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from molattn.errors import MolattnError

__all__ = ["parallel_map"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` for each item, in order.

    Args:
        function: The function. Each process has a copy of it, for which it is pickled, as are its
            results.
        items: The items, consumed lazily; with worker processes a few ahead.
        num_workers: Number of worker processes; 0 computes in this process.

    Raises:
        MolattnError: A worker process was killed.
    """
    loader: DataLoader[Any] = DataLoader(
        _Indexed(function),
        batch_size=None,
        sampler=items,  # the indices of a dataset may be of any type
        collate_fn=_identity,
        num_workers=num_workers,
        # Not forked from this process, which may show progress and hold locks.
        multiprocessing_context="spawn" if num_workers else None,
        worker_init_fn=_end_with_parent,
        generator=torch.Generator(),  # leaves the global random state unchanged
    )
    try:
        with _interrupts_blocked():
            results = iter(loader)
        yield from results
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise MolattnError(
            f"a worker process was killed: {error}; is there enough memory?"
        ) from None


class _Indexed(Dataset[Any]):
    """A function as a dataset, for PyTorch's loader."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._function(index)
        except StopIteration as error:  # the loader would take it for the end of the items
            raise RuntimeError(f"{self._function!r} raised StopIteration") from error


def _identity(result: Result) -> Result:
    return result


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT; processes started meanwhile inherit this and leave interrupts to this one."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it would unblock SIGINT when it starts
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _end_with_parent(_: int) -> None:
    """End a worker when its parent is killed, whatever the worker waits for."""
    if (parent := parent_process()) is not None:

        def wait() -> None:
            connection.wait([parent.sentinel])
            os._exit(1)

        Thread(target=wait, daemon=True).start()
