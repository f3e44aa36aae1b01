"""The progress bar of a table's rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

__all__ = ["row_progress"]


@contextmanager
def row_progress(
    console: Console | None, verb: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Show a count of processed rows on a terminal, nothing in a log.

    Args:
        console: The terminal or log; None = silent.
        verb: What is done to the rows, such as ``reading``.
        total: Number of rows, if known.

    Yields:
        A function that counts further rows.
    """
    columns = TextColumn(verb), BarColumn(), TextColumn("{task.completed:,} rows")
    is_shown = console is not None and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        yield partial(bar.advance, bar.add_task("", total=total))
