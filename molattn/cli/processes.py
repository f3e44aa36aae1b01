"""A command in a process for each device that it trains on.

``torchrun`` starts them, or :func:`launch` with torch's elastic agent, as ``torchrun`` does.
Lightning's launcher would start them only when the tables have been read.
"""

import errno
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from threading import Thread
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

from molattn.cli.options import make_console
from molattn.errors import MolattnError
from molattn.utils.console import print_line
from molattn.utils.signals import pending_interrupt

if TYPE_CHECKING:
    from molattn.config import TrainingLoopConfig

_GRACE = 10.0  # seconds in which the first process reports the error of all
_SECONDS_TO_SHUT_DOWN = "86400"  # of a process that ends its epoch and writes a checkpoint


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
        if pending_interrupt() is None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(_GRACE)  # with the first process that ends, torch's agent ends all
        raise SystemExit(1) from error


def needs_processes(training: "TrainingLoopConfig") -> bool:
    """Return whether a command is to be run by :func:`launch`, on one machine."""
    return training.devices > 1 and world_size() == 1


def launch(training: "TrainingLoopConfig", words: Sequence[str]) -> int:
    """Run a command in a process for each device of this machine; return the exit code.

    Raises:
        ChildProcessError: A process was killed; the others have ended too.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", _SECONDS_TO_SHUT_DOWN)
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    count = training.devices
    print_line(make_console(), f"training in {count} processes, one for each device")
    agent_logger = logging.getLogger("torch.distributed.elastic")
    agent_logger.addHandler(logging.NullHandler())
    agent_logger.propagate = False  # what it logs the processes report themselves
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id="molattn",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",  # the name of a machine may not be known to itself
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
        max_restarts=0,
    )
    program = f"import sys; sys.path[:] = {sys.path!r}; from molattn.cli import main, processes"
    arguments = ["-c", f"{program}; processes.run_rank(main)", *words]
    try:  # the agent substitutes what begins with $
        elastic_launch(config, sys.executable)(*(word.replace("$", "$$") for word in arguments))
    except SignalException as interrupt:  # which the first process has reported
        return 128 + interrupt.sigval
    except ChildFailedError as error:
        rank, first = next(iter(error.failures.items()))  # after which the agent ended the others
        code = error.failures[0].exitcode if 0 in error.failures else 1
        if code < 0 or (rank and code == 128 + signal.SIGTERM):
            code = first.exitcode
        if code >= 0:
            return code
        text = f"process {rank} was killed ({signal.Signals(-code).name})"
        raise ChildProcessError(errno.ECHILD, text) from error
    return 0


def run_rank(main: Callable[[], int]) -> None:
    """Run a command as one of the processes of :func:`launch`, and end with that."""
    parent = os.getppid()

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    Thread(target=wait, daemon=True).start()
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of a broken group may never end
