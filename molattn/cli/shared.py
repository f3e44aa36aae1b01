"""What the commands share: groups of options, and lines on the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "RUN",
    "SEARCH",
    "DATA",
    "TRAINING",
    "NETWORK",
    "FINE_TUNING",
    "REPORT",
    "PREDICTION",
    "EMBEDDING",
    "EXPLANATION",
    "OUTPUT",
    "make_console",
    "resumable",
    "section",
]

(
    RUN,
    SEARCH,
    DATA,
    TRAINING,
    NETWORK,
    FINE_TUNING,
    REPORT,
    PREDICTION,
    EMBEDDING,
    EXPLANATION,
    OUTPUT,
) = (
    Group(title, sort_key=place)
    for place, title in enumerate(
        (
            "Run",
            "Search",
            "Data",
            "Training",
            "Network",
            "Fine-tuning",
            "Report",
            "Prediction",
            "Embedding",
            "Explanation",
            "Output",
        )
    )
)


def section(group: Group) -> Parameter:
    """Show each field of a dataclass of options as an option, in a group of ``--help``."""
    return Parameter(
        name="*",
        group=group,
        negative_iterable=(),
        consume_multiple=True,
        show_default=_shown_default,
    )


def make_console() -> "Console":
    """The terminal, or whatever standard output is."""
    from rich.console import Console

    return Console()


@contextmanager
def resumable(output: Path, command: str) -> Iterator[None]:
    """Say how to go on with a run that is interrupted.

    Args:
        output: Its folder.
        command: What goes on with it.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        from molattn.training.run_folder import has_checkpoint

        if not has_checkpoint(output):
            raise
        raise KeyboardInterrupt(
            f"interrupted; molattn {command} --resume {output} goes on"
        ) from interrupt


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
