"""Progress bars on a terminal, and a few plain lines in a log."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from molattn.utils.console import print_line

__all__ = ["RowProgress", "TrainingProgress"]

_LINES_IN_LOG = 10


class TrainingProgress:
    """One bar over all epochs; without a terminal, a line every few epochs.

    Args:
        console: The terminal or log.
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
        """Show the bar of a training, of whose steps some are done if it is resumed."""
        self._epochs = epochs
        self._bar.update(self._task, total=steps, completed=done)
        self._bar.start()

    def step(self) -> None:
        """Count one step."""
        self._bar.advance(self._task)

    def epoch(self, epoch: int, train_loss: float, validation_loss: float) -> None:
        """Show the losses of an epoch, counted from 1."""
        line = (
            f"epoch {epoch}/{self._epochs}  train loss {train_loss:.4f}  "
            f"val loss {validation_loss:.4f}"
        )
        if self._console.is_terminal:
            self._bar.update(self._task, description=line)
        elif epoch % max(1, self._epochs // _LINES_IN_LOG) == 0:
            print_line(self._console, line)

    def stop(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class RowProgress:
    """A count of processed rows on a terminal, nothing in a log; a context manager.

    Args:
        console: The terminal or log.
        verb: What is done to the rows, such as ``reading``.
        total: Number of rows, if known.
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
        """Count further rows."""
        self._bar.advance(self._task, rows)
