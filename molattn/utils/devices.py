"""The devices that torch computes on, and its seed, threads and oneDNN within a block."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import Any

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from molattn.errors import InputError

_TRAINING = RLock()


def check_device(device: str, count: int = 1) -> None:
    """Raise an ``InputError`` if there are fewer devices, ``auto``, ``cpu`` or ``gpu``.

    ``count`` processes use one each; CPUs can be used by any number.
    """
    kind = torch_device(device)
    if device == "gpu" and kind == "cpu":
        raise InputError(
            "got gpu, but PyTorch found no GPU; use --device cpu or auto, or install a GPU driver "
            "and a build of PyTorch for it",
            option="device",
        )
    gpus = {"cpu": count, "cuda": torch.cuda.device_count()}.get(kind, 1)
    if count > gpus:
        raise InputError(
            f"got {count}, expected at most the number of GPUs, {gpus}; --device cpu "
            "trains on any number of CPU processes",
            option="devices",
        )


def torch_device(device: str) -> str:
    """Return what torch calls such a device; ``auto`` is a GPU if there is one."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    return "mps" if device != "cpu" and torch.backends.mps.is_available() else "cpu"


def to_device(data: Any, device: torch.device) -> Any:
    """Return a copy of a tensor or a batch on a device; that to a GPU is not waited for."""
    if device.type == "cuda":
        data = data.pin_memory()  # from other memory the copy would be waited for
    return data.to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU; its values from a GPU are valid after :func:`finish`."""
    # torch waits for other devices than a GPU by itself only in a blocking copy.
    return tensor.to("cpu", non_blocking=tensor.is_cuda)


def finish(device: torch.device) -> None:
    """Wait for all computations and copies on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
    :mod:`molattn.nn.dense.linear` rounds their numbers of rows.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before
