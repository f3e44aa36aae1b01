"""A command in several processes, one for each device it trains on."""

import errno
import math
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context
from typing import TYPE_CHECKING, Any

from molattn.cli.shared import make_console
from molattn.errors import InputError, MolattnError
from molattn.utils.console import print_line
from molattn.utils.signals import (
    interrupts_blocked,
    interrupts_deferred,
    pending_interrupt,
    signals_handled,
)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from molattn.config import TrainingLoopConfig

__all__ = ["is_launched", "is_other_node", "process_group", "run_on_devices"]

_COMMANDS = ("train", "pretrain")
_GRACE = 10.0
"""Seconds in which processes end by themselves once one of them has failed."""
_POLLING = 0.5
_LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_QUIET = ("TORCH_CPP_LOG_LEVEL", "ERROR")  # no warnings of connections, nor of unused weights
_NODE = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


def is_launched(words: Sequence[str]) -> bool:
    """Return whether ``torchrun`` or ``srun`` started this process of a command beside others."""
    name = "WORLD_SIZE" if _is_torchrun() else "SLURM_STEP_NUM_TASKS"
    return bool(words) and words[0] in _COMMANDS and int(os.environ.get(name, 1)) > 1


def _is_torchrun() -> bool:
    return all(name in os.environ for name in _LAUNCHED)


@contextmanager
def process_group() -> Iterator[bool]:
    """Join the other processes.

    Yields:
        Whether this process is to run the command. All but the first process have joined its
        computations instead.
    """
    os.environ.setdefault(*_QUIET)  # before torch is imported
    if _is_torchrun():
        os.environ.setdefault("LOCAL_WORLD_SIZE", "1")
    else:
        from molattn.training.lightning.cluster import set_slurm_variables

        set_slurm_variables()
    from molattn.utils.process_group import ProcessLostError, joined_group

    try:
        with joined_group() as is_first:
            yield is_first
    except ProcessLostError:
        if os.environ["RANK"] == "0":
            raise
        sys.exit(1)  # the first process reports it, or whatever started them


def is_other_node(training: "TrainingLoopConfig") -> bool:
    """Return whether this is not the first of several machines that the user starts by hand."""
    return _starts_processes(training) and _node_rank(training) > 0


def run_on_devices(
    training: "TrainingLoopConfig", command: Callable[..., None], *args: Any
) -> None:
    """Run a command, in the first of several processes if there is more than one device.

    Args:
        training: The options, with the number of devices.
        command: A function of a module.
        args: Its arguments, which can be pickled.

    Raises:
        ChildProcessError: A process was killed; the others have ended too.
    """
    if not _starts_processes(training):
        command(*args)
        return
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    count, node = training.devices, _node_rank(training)
    address, port = "127.0.0.1", 0
    if training.num_nodes > 1:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = None
    if not node:  # here, so that it outlives each of the processes
        store = TCPStore(address, port, is_master=True, wait_for_workers=False)
        port = store.port
    places = [
        {
            "RANK": str(node * count + local),
            "LOCAL_RANK": str(local),
            "GROUP_RANK": str(node),
            "LOCAL_WORLD_SIZE": str(count),
            "WORLD_SIZE": str(training.num_nodes * count),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        for local in range(count)
    ]
    os.environ.setdefault(*_QUIET)
    if not node:
        number = training.num_nodes * count
        print_line(make_console(), f"training in {number} processes, one for each device")
    _Processes(places, command, args).run()


def _starts_processes(training: "TrainingLoopConfig") -> bool:
    if training.devices * training.num_nodes == 1:
        return False
    from molattn.utils.process_group import group_size

    return group_size() == 1


def _node_rank(training: "TrainingLoopConfig") -> int:
    if training.num_nodes == 1:
        return 0
    values = [os.environ.get(name, "") for name in _NODE]
    if not all(values) or not (values[0].isdigit() and values[2].isdigit()):
        raise InputError(
            f"--num-nodes {training.num_nodes}: start the command on each machine with torchrun or "
            "srun, or with the variables NODE_RANK (from 0), MASTER_ADDR and MASTER_PORT"
        )
    if (node := int(values[0])) >= training.num_nodes:
        raise InputError(f"NODE_RANK: got {node}, expected less than --num-nodes")
    return node


class _Processes:
    """Processes of one machine; the first of all runs the command, the others join it."""

    def __init__(
        self, places: Sequence[dict[str, str]], command: Callable[..., None], args: Any
    ) -> None:
        context = get_context("spawn")
        self._places = places
        self._processes: list[BaseProcess] = []
        self._receivers: list[connection.Connection] = []
        self._killed: set[int] = set()
        for place in places:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(place, sender, command, args))
            self._processes.append(process)
            self._receivers.append(receiver)

    def run(self) -> None:
        """Start the processes and wait for them; raise what ended them."""
        with interrupts_deferred():  # by a second signal, all are killed at once
            try:
                with interrupts_blocked():
                    for process in self._processes:
                        process.start()
                self._wait()
            finally:
                self._kill()
            if (error := self._failure()) is not None:
                raise pending_interrupt() or error

    def _wait(self) -> None:
        """Wait until all have ended, but not for long once one of them has failed."""
        is_told, deadline = False, math.inf
        while running := [one for one in self._processes if one.is_alive()]:
            connection.wait([one.sentinel for one in running], timeout=_POLLING)
            if pending_interrupt() is not None and not is_told:
                is_told = True
                self._terminate_first()
            failed = any(one.exitcode for one in self._processes)
            if failed and deadline == math.inf:
                deadline = time.monotonic() + _GRACE
            if time.monotonic() > deadline:
                return

    def _terminate_first(self) -> None:
        """Let the first process stop after its step, and with it all others."""
        process = self._processes[0]
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGTERM)

    def _kill(self) -> None:
        for place, process in enumerate(self._processes):
            if process.is_alive():
                self._killed.add(place)
                process.kill()
        for process in self._processes:
            if process.pid is not None:
                process.join()

    def _failure(self) -> BaseException | None:
        """Return what ended the first process that failed by itself, if one did."""
        from molattn.utils.process_group import ProcessLostError

        found: list[BaseException] = []
        for place, (process, receiver) in enumerate(
            zip(self._processes, self._receivers, strict=True)
        ):
            if not (code := process.exitcode) or place in self._killed:
                continue
            error = _received(receiver)
            if error is None:
                where = self._places[place]
                name = f"process {int(where['RANK']) + 1} of {where['WORLD_SIZE']}"
                how = f"ended with exit code {code}"
                if code < 0:
                    how = f"was killed ({signal.Signals(-code).name})"
                found.append(ChildProcessError(errno.ECHILD, f"{name} {how}"))
            else:
                found.append(error)
        # One that has lost another is not to blame, if there is a further failure.
        return min(found, key=lambda error: isinstance(error, ProcessLostError), default=None)


def _received(receiver: connection.Connection) -> BaseException | None:
    try:
        return receiver.recv() if receiver.poll() else None
    except (EOFError, OSError):
        return None


def _child(
    place: dict[str, str], sender: connection.Connection, command: Callable[..., None], args: Any
) -> None:
    """Run in a new process: the command if it is the first one, else join in."""
    os.environ.update(place)
    try:
        with signals_handled():
            from molattn.utils.process_group import joined_group
            from molattn.utils.registry import load_plugins
            from molattn.utils.workers import end_with_parent

            end_with_parent()
            load_plugins()
            with joined_group() as is_first:
                if is_first:
                    command(*args)
    except BaseException as error:
        sender.send(_portable(error))
        sys.stdout.flush()
        # Not by sys.exit: threads of a broken group may never end.
        os._exit(1)


def _portable(error: BaseException) -> BaseException:
    """Return an exception that can be pickled, with its traceback as a note."""
    # Shorter than what a pipe holds, so that this process does not wait for the other to read.
    error.add_note(traceback.format_exc()[-20_000:])
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return MolattnError(f"{type(error).__name__}: {error}")
    return error
