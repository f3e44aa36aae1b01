"""Processes that train together, one for each device.

Each of them runs the whole command. Their places are in the environment variables that ``torchrun``
sets: ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``, ``MASTER_ADDR``,
``MASTER_PORT``.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed

Value = TypeVar("Value")

# The others wait while the first one fits a Gaussian process or writes results, perhaps for hours.
# If a process ends, its connections break and nobody waits.
_WAITING = timedelta(days=365)


class ProcessLostError(ChildProcessError):
    """Another process of the group has ended."""


def num_processes() -> int:
    """Return the number of processes that train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def process_rank() -> int:
    """Return the number of this process among them, from 0; the first one writes and logs."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def summed(values: Tensor) -> Tensor:
    """Return the sum of a tensor over the processes, without gradients."""
    if num_processes() == 1:
        return values
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total


def broadcast(value: Value) -> Value:
    """Return the value that the first process has."""
    values = [value]
    if num_processes() > 1:
        with lost_named():
            distributed.broadcast_object_list(values)
    return values[0]


@contextmanager
def joined_group() -> Iterator[None]:
    """Join the processes that the environment describes, within the block."""
    has_gpus = torch.cuda.is_available() and distributed.is_nccl_available()
    with lost_named():
        backend = "cpu:gloo,cuda:nccl" if has_gpus else "gloo"
        distributed.init_process_group(backend, timeout=_WAITING)
    yield
    broadcast(None)  # all wait for the first one
    distributed.destroy_process_group()  # not after an error, when it might never end


@contextmanager
def lost_named() -> Iterator[None]:
    """Turn errors of connections within the block into a :class:`ProcessLostError`."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, distributed.DistError) or "gloo" in str(error)):
            raise
        reason = "another process of the training has ended or cannot be reached"
        raise ProcessLostError(errno.ECHILD, reason) from error
