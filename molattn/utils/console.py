"""Lines on the terminal, and the progress of a table's rows."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_SECONDS_PER_LINE = 10.0


def print_line(console: "Console | None", line: str) -> None:
    """Print a line unchanged and unwrapped; do nothing without a console.

    Without rich's markup and emoji, which would change SMILES such as ``c1:o:c:c:c1``.
    """
    if console is not None:
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_remarks(
    console: "Console | None",
    errors: Counter[str],
    groups: int = 0,
    parents: int = 0,
    redrawn: int = 0,
    written_tasks: Sequence[str] = (),
) -> None:
    """Print the reason codes, and how many molecules are read otherwise than they are written.

    These have stereo groups, are predicted as their parents except for some tasks, or are redrawn.
    """
    if errors:
        counts = (f"{count} {code}" for code, count in errors.most_common())
        print_line(console, f"errors: {', '.join(counts)}")
    if groups:
        what = f"{counted(groups, 'molecule')} with stereo groups (& or o)"
        print_line(console, f"{what}: read with unspecified centers")
    if parents:
        removed = f"removed counterions or charges from {counted(parents, 'molecule')}"
        others = f", {', '.join(written_tasks)} as written" if written_tasks else ""
        print_line(console, f"{removed}, predicted as parent{others} (--as-given: as written)")
    if redrawn:
        what = "[S+][O-] or [P+][O-], hydrogen isotopes, or bonds to alkali metals"
        print_line(console, f"{counted(redrawn, 'molecule')} with {what}: redrawn in the usual way")


def counted(count: int, noun: str) -> str:
    """Return a number and a noun, such as ``1 row`` or ``2,000 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def decimals(value: float) -> int:
    """Return how many decimals show three significant digits; none from 100 on."""
    if value == 0.0 or not math.isfinite(value):
        return 0
    return min(9, max(0, 2 - math.floor(math.log10(abs(value)))))


def three_digits(value: float) -> str:
    """Return a number with three significant digits, whole from 100 on: ``1,234``, ``0.0457``."""
    return f"{value:,.{decimals(value)}f}"


@contextmanager
def row_progress(
    console: "Console | None", verb: str, total: int | None = None, *, done: int = 0
) -> Iterator[Callable[..., None]]:
    """Show how many rows are processed: on a terminal a bar, in a log a line every ten seconds.

    Yields a function that counts further rows, and how many of them have an error. Rows that were
    ``done`` before do not count for the rate.
    """
    from rich import progress

    bar = progress.Progress(
        progress.TextColumn(verb),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=console is None or console.quiet or not console.is_terminal,
    )
    task = bar.add_task("", total=total, completed=done)
    start = last = time.monotonic()
    rows = done
    errors = 0

    def advance(count: int, failed: int = 0) -> None:
        nonlocal rows, errors, last
        rows = rows + count
        errors = errors + failed
        bar.update(task, completed=rows)
        if not bar.disable or time.monotonic() < last + _SECONDS_PER_LINE:
            return
        last = time.monotonic()
        rate = (rows - done) / (last - start)
        line = f"{verb}: {rows:,}{'' if total is None else f' of {total:,}'} rows"
        line += f", {three_digits(rate)} a second"
        if errors:
            line += f", {errors:,} with an error"
        if total is not None and rate:
            line += f", {timedelta(seconds=round(max(0, total - rows) / rate))} left"
        print_line(console, line)

    with bar:
        yield advance


def step_progress(console: "Console | None", verb: str) -> AbstractContextManager[object]:
    """Show a step that has no rows to count, such as ``scoring``, within the block.

    On a terminal it is a spinner, in a log a line.
    """
    if console is not None and console.is_terminal:
        return console.status(verb)
    print_line(console, verb)
    return nullcontext()
