"""Calls with a limit of time and memory, in a child process that can be stopped within C++ code.

Neither ``concurrent.futures`` nor pebble will do: their child processes import the caller's script
again, and none can be started by a daemonic process.
"""

import atexit
import faulthandler
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

_MOST_BYTES = 2 * 2**30
# One thread, so that CPU time is the time that the call takes.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_idle: list[tuple[int, subprocess.Popen[bytes]]] = []  # each with the process that started it


def call_within(seconds: float, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``function(*arguments)``, calculated in a child process that serves later calls too.

    The function can be imported; its arguments and result are pickled. A ``TimeoutError`` if it
    takes more CPU time (on Windows, elapsed time), or more than 2 GB of memory.
    """
    request = pickle.dumps((seconds, function, arguments))
    child = _child()
    try:
        child.stdin.write(request)  # pyright: ignore[reportOptionalMemberAccess]
        child.stdin.flush()  # pyright: ignore[reportOptionalMemberAccess]
        error, result = pickle.load(child.stdout)  # pyright: ignore[reportArgumentType]
    except BaseException as error:  # an interrupt too, after which the pipe is out of step
        _end(child)
        if isinstance(error, (EOFError, OSError, pickle.UnpicklingError)):
            raise TimeoutError(f"{seconds:g} seconds") from error
        raise
    _idle.append((os.getpid(), child))
    if error is not None:
        raise error
    return result


def _child() -> "subprocess.Popen[bytes]":
    """Return an idle child process, or start one."""
    while _idle:
        parent, child = _idle.pop()
        if parent == os.getpid():  # not of before a fork
            if child.poll() is None:
                return child
            _end(child)
    # Folders of the user come last: a script may lie beside a `types.py` of its own.
    root = str(Path(__file__).parents[2])
    paths = f"sys.path.insert(0, {root!r}); sys.path += {sys.path!r}"
    program = f"import sys; {paths}; from {__name__} import _serve; _serve()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_ONE_THREAD},
        start_new_session=True,  # an interrupt from the terminal is for this process only
    )


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    with suppress(OSError):
        child.communicate()


@atexit.register
def _end_idle() -> None:
    for parent, child in _idle:
        if parent == os.getpid():
            _end(child)


def _serve() -> None:
    """Answer calls from standard input until it is closed."""
    calls = sys.stdin.buffer
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a call prints is no answer
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    while True:
        try:
            seconds, function, arguments = pickle.load(calls)
        except EOFError:
            return
        _limit(seconds)
        try:
            answer = pickle.dumps((None, function(*arguments)))
        except MemoryError:
            os._exit(1)
        except Exception as error:
            answer = pickle.dumps((error, None))
        _limit(0)
        answers.write(answer)
        answers.flush()


def _limit(seconds: float) -> None:
    """End this process after so many seconds, even within a C++ call; 0 = never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of CPU time; SIGPROF ends a process
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    else:
        faulthandler.cancel_dump_traceback_later()
