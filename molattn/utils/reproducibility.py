"""Seeds and threads of torch for a while, without a trace afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["without_onednn", "random_state", "seeded", "set_random_state", "threads"]


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of torch's random numbers on the CPU, and on the device if it is a GPU."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["gpu"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Go on from what :func:`random_state` gave."""
    torch.set_rng_state(state["cpu"])
    if "gpu" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["gpu"], device)


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


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let torch do without oneDNN for a while.

    oneDNN compiles code for every number of rows that it meets, and torch keeps the code of the
    last 1,024 of them: hundreds of megabytes where hardly two batches have as many rows, though
    :mod:`molattn.nn.linear` rounds their numbers.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before
