"""Progress on the terminal, and a few plain lines where there is none."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from molattn.utils.console import print_line

__all__ = ["RowProgress", "TrainingProgress"]

_LINES_WITHOUT_TERMINAL = 10


class TrainingProgress:
    """One bar over all epochs; without a terminal, a line every few epochs.

    Args:
        console: Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._epochs = 0
        self._bar = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("training")

    def start(self, epochs: int, steps: int, done: int = 0) -> None:
        """Begin a training of so many epochs and steps in all, of which some may be done."""
        self._epochs = epochs
        self._bar.update(self._task, total=steps, completed=done)
        self._bar.start()

    def step(self) -> None:
        """Count one step."""
        self._bar.advance(self._task)

    def epoch(self, epoch: int, train_loss: float, validation_loss: float) -> None:
        """Show how an epoch, counted from 1, ended."""
        sentence = (
            f"epoch {epoch}/{self._epochs}  loss: training {train_loss:.4f}, "
            f"validation {validation_loss:.4f}"
        )
        if self._console.is_terminal:
            self._bar.update(self._task, description=sentence)
        elif epoch % max(1, self._epochs // _LINES_WITHOUT_TERMINAL) == 0:
            print_line(self._console, sentence)

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class RowProgress:
    """A count of rows on a terminal, nothing elsewhere; a context manager.

    Args:
        console: Where to draw.
        verb: What is done with them.
        total: How many there are, if that is known.
    """

    def __init__(self, console: Console, verb: str, total: int | None = None) -> None:
        self._bar = Progress(
            TextColumn(verb),
            BarColumn(),
            TextColumn("{task.completed:,} rows"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> "RowProgress":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def advance(self, rows: int) -> None:
        """Count so many rows more."""
        self._bar.advance(self._task, rows)
