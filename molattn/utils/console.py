"""Lines on the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_line"]


def print_line(console: "Console | None", line: str) -> None:
    """Print a line unchanged and unwrapped; do nothing without a console.

    Without rich's markup and emoji, which would change SMILES such as ``c1:o:c:c:c1``.
    """
    if console is not None:
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)
