"""Lines on the terminal."""

import csv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["aligned", "print_line"]


def print_line(console: "Console | None", line: str) -> None:
    """Print a line unchanged and unwrapped; do nothing without a console.

    Without rich's markup and emoji, which would change SMILES such as ``c1:o:c:c:c1``.
    """
    if console is not None:
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def aligned(table: str) -> str:
    """Return a CSV text as lines in which each column begins at the same place."""
    rows = list(csv.reader(table.splitlines()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join([*lines, ""])
