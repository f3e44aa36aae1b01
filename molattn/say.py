"""A line for whoever looks on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["say"]


def say(console: "Console | None", line: str) -> None:
    """Print a line as it is, whatever it holds and however long; without a console, do not."""
    if console is not None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
