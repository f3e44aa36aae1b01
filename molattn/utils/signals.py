"""SIGINT and SIGTERM of a command: stop where nothing is lost, and exit with 128 + the signal."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated (SIGTERM)"}


class Interrupted(KeyboardInterrupt):
    """A command was stopped by the signal ``signum``."""

    def __init__(self, signum: int) -> None:
        super().__init__(_WORDS[signal.Signals(signum)])
        self.signum = signum


class _State:
    signum: int | None = None  # the first signal
    is_deferred = False


@contextmanager
def signals_handled() -> Iterator[None]:
    """Raise :class:`Interrupted` at SIGINT and SIGTERM within the block of a command.

    Does nothing outside the main thread, where Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {signum: signal.signal(signum, _handle) for signum in _WORDS}
    try:
        yield
    finally:
        _State.signum = None
        for signum, handler in former.items():
            signal.signal(signum, handler)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Only note the first signal within the block, for :func:`pending_interrupt`; the next raises.

    It is raised when the block ends. Has an effect within :func:`signals_handled` only.
    """
    before = _State.is_deferred
    _State.is_deferred = True
    try:
        yield
    except Exception as error:
        if (interrupt := pending_interrupt()) is not None:
            raise interrupt from error
        raise
    finally:
        _State.is_deferred = before
    if (interrupt := pending_interrupt()) is not None:
        raise interrupt


def pending_interrupt() -> Interrupted | None:
    """Return the signal that was noted, if any."""
    return None if _State.signum is None else Interrupted(_State.signum)


def _handle(signum: int, frame: Any) -> None:
    is_first = _State.signum is None
    if is_first:
        _State.signum = signum
    if not (is_first and _State.is_deferred):
        raise Interrupted(signum)
