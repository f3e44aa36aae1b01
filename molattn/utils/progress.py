"""The progress of a table's rows, on a terminal and in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from molattn.utils.console import print_line, rate_text

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
    count = _Count(total, done)
    if console is None or console.quiet:
        yield count.add
    elif console.is_terminal:
        columns = TextColumn(verb), BarColumn(), TextColumn("{task.fields[count]}")
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total, completed=done, count=count)

            def advance(rows: int, errors: int = 0) -> None:
                count.add(rows, errors)
                bar.advance(task, rows)

            yield advance
    else:
        with _lines(console, lambda: f"{verb}: {count}"):
            yield count.add


@contextmanager
def step_progress(console: Console | None, verb: str) -> Iterator[None]:
    """Print every ten seconds that a step which has no parts to count is still under way.

    Args:
        console: The terminal or log; None = silent.
        verb: The step, such as ``writing the report``.
    """
    if console is None or console.quiet:
        yield
        return
    start = time.monotonic()
    with _lines(console, lambda: f"{verb}: {time.monotonic() - start:.0f} s so far"):
        yield


@contextmanager
def _lines(console: Console, line: Callable[[], str]) -> Iterator[None]:
    is_done = Event()

    def tell() -> None:
        while not is_done.wait(_SECONDS_PER_LINE):
            print_line(console, line())

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


class _Count:
    """The rows so far, as a text."""

    def __init__(self, total: int | None, done: int = 0) -> None:
        self._total = total
        self._done = self._rows = done
        self._errors = 0
        self._start = time.monotonic()

    def add(self, rows: int, errors: int = 0) -> None:
        self._rows += rows
        self._errors += errors

    def __str__(self) -> str:
        new = self._rows - self._done
        rate = new / max(time.monotonic() - self._start, 1e-9)
        parts = [f"{self._rows:,}" + ("" if self._total is None else f" of {self._total:,}")]
        parts[0] += " row" if (self._total or self._rows) == 1 else " rows"
        if new:
            parts.append(f"{rate_text(rate)} a second")
        if self._errors:
            parts.append(f"{self._errors:,} with an error")
        if self._total is not None and new:
            left = max(0, self._total - self._rows) / rate
            parts.append(f"{timedelta(seconds=round(left))} left")
        return ", ".join(parts)
