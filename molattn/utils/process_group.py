"""Several processes that compute together: the first of them leads, and the others join its calls.

The place of a process is in the environment variables that ``torchrun`` sets: ``RANK``,
``WORLD_SIZE``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``, ``GROUP_RANK``, ``MASTER_ADDR`` and
``MASTER_PORT``.
"""

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

__all__ = [
    "ProcessLostError",
    "call_everywhere",
    "group_size",
    "joined_group",
    "leave_together",
    "local_size",
    "num_processes",
    "process_rank",
    "summed",
]

Result = TypeVar("Result")

# The others wait while the first one reads tables or fits a Gaussian process, perhaps for hours. If
# a process ends, its connections break and nobody waits.
_WAITING = timedelta(days=365)
_LOST = "another process of the training has ended or cannot be reached"


class ProcessLostError(ChildProcessError):
    """Another process of the group has ended."""

    def __init__(self) -> None:
        super().__init__(errno.ECHILD, _LOST)

    def __reduce__(self) -> Any:
        return ProcessLostError, ()


class _Group:
    """The group of this process, if it is in one."""

    calls: Any = None  # torch's process group for calls; None = there is no group
    is_shared = False  # whether all processes are in the same call
    leaves_together = False  # whether all leave that call by the same exception


def group_size() -> int:
    """Return the number of processes that were started together with this one, and this one."""
    return 1 if _Group.calls is None else distributed.get_world_size()


def num_processes() -> int:
    """Return the number of processes in the present call, 1 outside of one."""
    return distributed.get_world_size() if _Group.is_shared else 1


def process_rank() -> int:
    """Return the number of this process among those in the present call, from 0."""
    return distributed.get_rank() if _Group.is_shared else 0


def local_size() -> int:
    """Return the number of processes of the group on this machine."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if _Group.is_shared else 1


def summed(values: Tensor) -> Tensor:
    """Return the sum of a tensor over the processes of the present call, without gradients."""
    if num_processes() == 1:
        return values
    total = values.detach().clone()
    distributed.all_reduce(total)
    return total


def leave_together() -> None:
    """Declare that all processes are about to leave the present call by the same exception.

    The group can then be used further; by any other exception its processes are lost.
    """
    _Group.leaves_together = True


def call_everywhere(
    function: Callable[..., Result], *args: Any, own: Mapping[str, Any] | None = None
) -> Result:
    """Call a function in all processes of the group at once, and return this process's result.

    Args:
        function: The function, of a module.
        args: Its arguments; the other processes get copies.
        own: Further arguments of this process alone.

    Raises:
        ProcessLostError: Another process has ended.
    """
    if group_size() == 1:
        return function(*args, **(own or {}))
    with _lost_named():
        _broadcast((function, args))
        return _call(function, args, own or {})


@contextmanager
def joined_group() -> Iterator[bool]:
    """Join the group that the environment describes; of the first process, lead it in the block.

    Yields:
        Whether this is the first process. If not, it has joined the calls of the first one until
        that left its block, and there is nothing left to do.

    Raises:
        ProcessLostError: Another process has ended.
    """
    has_gpus = torch.cuda.is_available() and distributed.is_nccl_available()
    with _lost_named():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if has_gpus else "gloo")
        _Group.calls = distributed.new_group(backend="gloo", timeout=_WAITING)
    is_first = distributed.get_rank() == 0
    is_intact = False
    try:
        if not is_first:
            with _lost_named():
                _join_calls()
        yield is_first
        is_intact = True
    except BaseException:
        is_intact = not _Group.is_shared
        raise
    finally:
        if is_intact:
            if is_first:
                with _lost_named():
                    _broadcast(None)
            distributed.destroy_process_group()
        _Group.calls, _Group.is_shared = None, False


def _join_calls() -> None:
    """Join the calls of the first process, to which signals are left."""
    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
    while (call := _broadcast(None)) is not None:
        try:
            _call(call[0], call[1], {})
        except BaseException:
            if _Group.is_shared:
                raise
        del call  # not kept while this process waits


def _call(function: Callable[..., Result], args: Any, own: Mapping[str, Any]) -> Result:
    _Group.is_shared, _Group.leaves_together = True, False
    try:
        result = function(*args, **own)
    except BaseException:
        _Group.is_shared = not _Group.leaves_together
        raise
    _Group.is_shared = False
    return result


def _broadcast(thing: Any) -> Any:
    things = [thing]
    distributed.broadcast_object_list(things, group=_Group.calls)
    return things[0]


@contextmanager
def _lost_named() -> Iterator[None]:
    """Turn errors of connections within the block into a :class:`ProcessLostError`."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, distributed.DistError) or "gloo" in str(error)):
            raise
        raise ProcessLostError from error
