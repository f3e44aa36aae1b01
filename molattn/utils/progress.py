"""The progress of a table's rows, on a terminal and in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from molattn.utils.console import counted, print_line, rate_text

__all__ = ["row_progress", "step_progress"]

_SECONDS_PER_LINE = 10.0


@contextmanager
def row_progress(
    console: Console | None, verb: str, total: int | None = None, *, done: int = 0
) -> Iterator[Callable[..., None]]:
    """Show how many rows are processed, their rate, and the time that is left.

    On a terminal it is a bar, in a log a line every ten seconds.

    Args:
        console: The terminal or log; None = silent.
        verb: What is done to the rows, such as ``reading``.
        total: Number of rows, if known.
        done: Number of rows that were processed before; they do not count for the rate.

    Yields:
        A function that counts further rows, and how many of them have an error (by default none).
    """
    start, rows, errors = time.monotonic(), done, 0

    def text() -> str:
        rate = (rows - done) / max(time.monotonic() - start, 1e-9)
        parts = [counted(rows, "row") if total is None else f"{rows:,} of {counted(total, 'row')}"]
        if rate:
            parts.append(f"{rate_text(rate)} a second")
        if errors:
            parts.append(f"{errors:,} with an error")
        if total is not None and rate:
            parts.append(f"{timedelta(seconds=round(max(0, total - rows) / rate))} left")
        return ", ".join(parts)

    bar = Progress(
        *(TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=console is None or console.quiet or not console.is_terminal,
    )
    task = bar.add_task("", total=total, completed=done)

    def advance(count: int, failed: int = 0) -> None:
        nonlocal rows, errors
        rows, errors = rows + count, errors + failed
        bar.update(task, completed=rows)

    with bar, _lines(console if bar.disable else None, lambda: f"{verb}: {text()}"):
        yield advance


@contextmanager
def step_progress(console: Console | None, verb: str) -> Iterator[None]:
    """Print every ten seconds that a step which has no parts to count is still under way.

    Args:
        console: The terminal or log; None = silent.
        verb: The step, such as ``writing the report``.
    """
    start = time.monotonic()
    with _lines(console, lambda: f"{verb}: {time.monotonic() - start:.0f} s so far"):
        yield


@contextmanager
def _lines(console: Console | None, line: Callable[[], str]) -> Iterator[None]:
    """Print a line every ten seconds."""
    if console is None or console.quiet:
        yield
        return
    is_done = Event()

    def report() -> None:
        while not is_done.wait(_SECONDS_PER_LINE):
            print_line(console, line())

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
