"""Lines on the terminal."""

import io
from collections import Counter
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
    """Return a number and a noun, such as ``1 row`` or ``2,000 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def aligned(table: str, width: int) -> str:
    """Return a CSV text with aligned columns; with rows as columns if its lines are too long."""
    import pandas as pd  # as late as the commands that print tables

    frame = pd.read_csv(io.StringIO(table), dtype=str, keep_default_na=False)
    text = frame.to_string(index=False)
    if max(map(len, text.splitlines())) > width:
        text = frame.T.to_string(header=False, line_width=width)
    return f"{text}\n"


def rate_text(rate: float) -> str:
    """Return a number of rows a second as a text."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
