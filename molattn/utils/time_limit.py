"""Calls with a limit of time and memory, in a child process that can be stopped within C++ code."""

import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from molattn.errors import MolattnError

__all__ = ["StoppedError", "call_within", "stopped_by"]

Result = TypeVar("Result")

_MOST_BYTES = 2 * 2**30
_STARTED = b"started\n"
# One thread, so that CPU time is the time that the call takes.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def call_within(seconds: float, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``function(*arguments)``, calculated in a child process.

    The child is started by the first call and serves all later ones of the same thread. It shares
    no state with this process, and ends with it.

    Args:
        seconds: Limit of the CPU time (on Windows, of the elapsed time) of the call.
        function: A function that can be imported; its arguments and result are pickled.
        arguments: Its arguments.

    Raises:
        TimeoutError: The call took longer, or needed more than 2 GB of memory.
        MolattnError: The child process cannot be started.
        StoppedError: See :func:`stopped_by`.
    """
    if _of_thread.stop is not None and _of_thread.stop.is_set():
        raise StoppedError("stopped")
    return _of_thread.child.call(seconds, function, arguments)


class StoppedError(MolattnError):
    """Nobody waits for the result any more."""


@contextmanager
def stopped_by(stop: threading.Event) -> Iterator[None]:
    """Let no further call begin in this thread, within the block, once an event is set."""
    before, _of_thread.stop = _of_thread.stop, stop
    try:
        yield
    finally:
        _of_thread.stop = before


class _Child:
    """The child process of a thread, started when it is needed; it ends with the thread."""

    def __init__(self) -> None:
        self.reset()
        _children.add(self)

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], Any] = lambda: None

    def call(self, seconds: float, function: Callable[..., Any], arguments: Any) -> Any:
        with self._lock:
            try:
                process = self._process
                if process is None or process.poll() is not None:  # ended between two calls
                    self._end()
                    process = self._start()
                # Pickled in full before it is sent, so that an error leaves the pipe empty.
                process.stdin.write(pickle.dumps((seconds, function, arguments)))  # pyright: ignore
                process.stdin.flush()  # pyright: ignore
                error, result = pickle.load(process.stdout)  # pyright: ignore
            except BaseException as error:  # an interrupt too, after which the pipe is out of step
                self._end()
                self._process = None
                if isinstance(error, (EOFError, OSError, pickle.UnpicklingError)):
                    raise TimeoutError(f"{seconds:g} seconds") from error
                raise
        if error is not None:
            raise error
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        # Folders of the user come last: a script may lie beside a `types.py` of its own.
        root = str(Path(__file__).parents[2])
        paths = f"sys.path.insert(0, {root!r}); sys.path += {sys.path!r}"
        program = f"import sys; {paths}; from {__name__} import _serve; _serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # an interrupt from the terminal is for this process only
        )
        self._end = weakref.finalize(self, _end, self._process)
        if self._process.stdout.readline() != _STARTED:  # pyright: ignore
            raise MolattnError(
                f"{sys.executable} cannot be started for large molecules, which are read in a "
                "second process"
            )
        return self._process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
    process.wait()


def _serve() -> None:
    """Answer calls from standard input until it is closed."""
    calls = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    answers.write(_STARTED)
    answers.flush()
    os.dup2(2, 1)  # what C++ code prints is no answer
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
            answer = _pickled(error)
        _limit(0)
        answers.write(answer)
        answers.flush()


def _pickled(error: Exception) -> bytes:
    try:
        return pickle.dumps((error, None))
    except Exception:  # it refers to something that cannot be pickled
        return pickle.dumps((MolattnError(f"{type(error).__name__}: {error}"), None))


def _limit(seconds: float) -> None:
    """End this process after so many seconds, even within a C++ call; 0 = never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of CPU time; SIGPROF ends a process
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    else:
        faulthandler.cancel_dump_traceback_later()


class _OfThread(threading.local):
    """Each thread has a child of its own, so that none waits for the calls of another."""

    def __init__(self) -> None:
        self.child = _Child()
        self.stop: threading.Event | None = None


_children: weakref.WeakSet[_Child] = weakref.WeakSet()
_of_thread = _OfThread()


def _reset_all() -> None:
    for child in _children:
        child.reset()


if hasattr(os, "register_at_fork"):  # a forked process starts children of its own
    os.register_at_fork(after_in_child=_reset_all)
