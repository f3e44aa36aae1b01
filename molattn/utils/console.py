"""A line for whoever looks on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_line"]


def print_line(console: "Console | None", line: str) -> None:
    """Print a line as it is, however long; without a console, do not.

    Brackets and colons of SMILES are no markup and no pictures: ``c1:o:c:c:c1`` stays.
    """
    if console is not None:
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)
