"""Lines on the terminal."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["aligned", "counted", "print_errors", "print_groups", "print_line", "rate_text"]


def print_line(console: "Console | None", line: str) -> None:
    """Print a line unchanged and unwrapped; do nothing without a console.

    Without rich's markup and emoji, which would change SMILES such as ``c1:o:c:c:c1``.
    """
    if console is not None:
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_errors(errors: Counter[str], console: "Console | None") -> None:
    """Print the reason codes, the most common first, if there are any."""
    if errors:
        counts = (f"{count} {code}" for code, count in errors.most_common())
        print_line(console, f"errors: {', '.join(counts)}")


def print_groups(count: int, console: "Console | None") -> None:
    """Print how many molecules have stereo groups, if any have."""
    if count:
        what = f"{counted(count, 'molecule')} with stereo groups (& or o)"
        print_line(console, f"{what}: read with unspecified centers")


def counted(count: int, noun: str) -> str:
    """Return a number of things in words, such as ``1 row`` or ``2,000 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def aligned(table: str, width: int) -> str:
    """Return a CSV text as lines in which each column begins at the same place.

    If a line would have more than ``width`` characters, the columns are lines and the rows columns,
    in blocks of as many rows as fit.
    Characters that end a line or cannot be printed are escaped.
    """
    rows = [
        ["".join(c if c.isprintable() else ascii(c)[1:-1] for c in cell) for cell in row]
        for row in csv.reader(io.StringIO(table, newline=""))
    ]
    lines = _in_columns(rows)
    if max(map(len, lines)) > width:
        header, *others = rows
        lines = []
        while others:
            count = 1
            while count < len(others) and (
                max(map(len, _transposed(header, others[: count + 1]))) <= width
            ):
                count += 1
            lines += [""] * bool(lines) + _transposed(header, others[:count])
            others = others[count:]
    return "\n".join([*lines, ""])


def _transposed(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return _in_columns([*zip(header, *rows, strict=True)])


def _in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def rate_text(rate: float) -> str:
    """Return a number of rows a second as a text."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
