"""Seeds and threads of torch for a while, without a trace afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["seeded", "threads"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch for a while."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for a while.

    Its threads wait for each other busily: on a shared machine two can be 20 times slower than one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
