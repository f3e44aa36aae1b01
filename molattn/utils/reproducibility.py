"""Temporary settings of torch: seed, threads, oneDNN."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock

import torch
from threadpoolctl import ThreadpoolController

__all__ = ["exclusive", "seeded", "threads", "without_onednn"]

_TRAINING = RLock()


@contextmanager
def exclusive() -> Iterator[None]:
    """Let only one thread of the process be within such a block, which trains.

    Weights and dropout are drawn from torch's global generators, which are restored at the end.
    """
    with _TRAINING, torch.random.fork_rng():
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch within the block."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of CPU threads of torch, NumPy and SciPy within the block.

    The threads wait for each other actively: on a busy machine two can be 20 times slower than one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries(len(sys.modules)).limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Find the libraries again, which takes milliseconds, when more modules are loaded."""
    return ThreadpoolController()


@contextmanager
def without_onednn() -> Iterator[None]:
    """Disable oneDNN in torch within the block.

    oneDNN compiles code for each number of rows, and torch caches the code of the last 1,024 of
    them: hundreds of megabytes if most batches differ in size, even though
    :mod:`molattn.nn.linear` rounds their numbers of rows.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before
