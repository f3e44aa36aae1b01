"""Work for other processes, with what is done in order."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, parent_process, resource_tracker
from threading import Thread
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

__all__ = ["done_by_workers"]

Asked = TypeVar("Asked")
Done = TypeVar("Done")


def done_by_workers(
    work: Callable[[Asked], Done], asked: Iterable[Asked], num_workers: int
) -> Iterator[Done]:
    """Yield ``work(one)`` of each that is asked, in their order, whoever does it.

    Args:
        work: What each process gets a copy of; with processes it and what it returns are pickled.
        asked: Taken as it is needed, for other processes a few ahead.
        num_workers: Processes that work; 0 = this one.
    """
    loader: DataLoader[Any] = DataLoader(
        _Indexed(work),
        batch_size=None,
        sampler=asked,  # what a data set is indexed by need be no number
        collate_fn=_as_it_is,
        num_workers=num_workers,
        # No copies of this process, which may draw its progress and hold locks.
        multiprocessing_context="spawn" if num_workers else None,
        worker_init_fn=_end_with_parent,
        generator=torch.Generator(),  # so that no other random number is another one
    )
    with _interrupts_later():
        done = iter(loader)
    yield from done


class _Indexed(Dataset[Any]):
    """A function as torch's loaders want it."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._work(index)
        except StopIteration as error:  # which a loader takes for the end of all
            raise RuntimeError(f"{self._work!r} raised StopIteration") from error


def _as_it_is(done: Done) -> Done:
    return done


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold interrupts back; processes that are begun meanwhile leave them to this one for good."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which lets them through again when it begins
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _end_with_parent(_: int) -> None:
    """Let a process end when the one that started it is killed, whatever it waits for then."""
    if (parent := parent_process()) is not None:

        def wait() -> None:
            connection.wait([parent.sentinel])
            os._exit(1)

        Thread(target=wait, daemon=True).start()
