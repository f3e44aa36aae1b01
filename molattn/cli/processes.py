"""A command in a process for each device that it trains on.

``torchrun`` starts them, or :func:`launch` on this machine: torch's elastic agent waits
30 s after a signal, and Lightning's launcher starts them only when the tables have been read.
"""

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from subprocess import PIPE, Popen
from threading import Thread
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

from molattn.cli.options import make_console
from molattn.errors import MolattnError
from molattn.utils.console import print_line
from molattn.utils.signals import Interrupted, interrupts_deferred, pending_interrupt

if TYPE_CHECKING:
    from molattn.config import TrainingLoopConfig

_GRACE = 10.0  # seconds in which processes end by themselves once one of them has failed


def world_size() -> int:
    """Return how many processes were started together, this one among them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes in the block; the first one prints, and reports errors of all."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from molattn.utils.process_group import ProcessLostError, joined_group

    if os.environ["RANK"] == "0":
        with joined_group():
            yield
        return
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), joined_group():
            yield
    except (MolattnError, CycloptsError, ProcessLostError, KeyboardInterrupt) as error:
        raise SystemExit(1) from error


def needs_processes(training: "TrainingLoopConfig") -> bool:
    """Return whether a command is to be run by :func:`launch`, on one machine."""
    return training.devices > 1 and world_size() == 1


def launch(training: "TrainingLoopConfig", words: Sequence[str]) -> int:
    """Run a command in a process for each device of this machine; return the exit code.

    Raises:
        ChildProcessError: The first process was killed; the others have ended too.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    count = training.devices
    print_line(make_console(), f"training in {count} processes, one for each device")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    shared |= {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    program = f"import sys; sys.path[:] = {sys.path!r}; from molattn.cli import main, processes"
    line = [sys.executable, "-c", f"{program}; processes.run_rank(main)", *words]
    processes: list[Popen[bytes]] = []
    try:
        with interrupts_deferred():  # a second signal kills all at once
            for rank in range(count):
                variables = shared | {"RANK": rank, "LOCAL_RANK": rank}
                environment = os.environ | {name: str(value) for name, value in variables.items()}
                # In a session of its own: an interrupt from the terminal is for this process.
                process = Popen(line, stdin=PIPE, env=environment, start_new_session=True)
                processes.append(process)
            first, *others = _exit_codes(processes)
    except Interrupted as interrupt:  # which the first process has reported
        return 128 + interrupt.signum
    finally:
        for process in processes:
            with process:
                process.kill()
    if first is not None and first < 0:
        text = f"the first process was killed ({signal.Signals(-first).name})"
        raise ChildProcessError(errno.ECHILD, text)
    return first or int(any(others))


def _exit_codes(processes: Sequence[Popen[bytes]]) -> list[int | None]:
    """Return the exit codes, None of processes that do not end though another has failed."""
    is_forwarded = False
    deadline = float("inf")
    while None in [process.poll() for process in processes] and time.monotonic() < deadline:
        time.sleep(0.1)
        if not is_forwarded and pending_interrupt() is not None:
            is_forwarded = True
            for process in processes:
                process.terminate()
        if any(process.returncode for process in processes):
            deadline = min(deadline, time.monotonic() + _GRACE)
    return [process.returncode for process in processes]


def run_rank(main: Callable[[], int]) -> None:
    """Run a command as one of the processes of :func:`launch`, and end with that."""

    def wait() -> None:
        sys.stdin.read()  # ends with the process that has the other end of the pipe
        os._exit(1)

    Thread(target=wait, daemon=True).start()
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of a broken group may never end
