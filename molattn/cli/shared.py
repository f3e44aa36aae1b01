"""Shared by the commands: groups of options, the folder of a run, the terminal."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Group, Parameter

from molattn.config.base import COMMON
from molattn.errors import InputError, MolattnError, os_error_line
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "STREAM",
    "ModelFolder",
    "RunOptions",
    "check_is_path",
    "group",
    "make_console",
    "report_same_name",
    "resume_told",
    "section",
    "standard_input",
    "standard_output",
]

STREAM = " -"
"""The word - of a command line, which cyclopts would take for an option."""

ModelFolder = Annotated[
    Path,
    Parameter(
        help="Folder of a run or of a saved model, or a packaged model: admet, base, base-large, "
        "base-small."
    ),
]
"""The argument of commands that use a model."""

_TITLES = (
    "Run",
    "Search",
    "Data",
    "Network",
    "Fine-tuning",
    "Gaussian process",
    "Training",
    "Report",
    "Prediction",
    "Embedding",
    "Explanation",
    "Server",
    "Output",
)
_GROUPS = {title: Group(title, sort_key=place) for place, title in enumerate(_TITLES)}


def group(title: str) -> Parameter:
    """Show an option in a group of ``--help``."""
    return Parameter(group=_GROUPS[title])


def section(title: str) -> Parameter:
    """Show each field of a dataclass as an option, in a group of ``--help``."""
    return Parameter(
        name="*",
        group=_GROUPS[title],
        negative_iterable=(),
        consume_multiple=1,
        show_default=_shown_default,
    )


@dataclass(frozen=True)
class RunOptions:
    """The folder of a run, and the file of its options.

    Args:
        output: Folder for the results; by default a new one in runs/.
        config: YAML file of options, such as config.yaml of a run.
        resume: Resume the interrupted run in this folder, with its options.
        overwrite: Replace a run in --output.
    """

    output: Path | None = field(default=None, metadata=COMMON)
    config: Path | None = field(default=None, metadata=COMMON)
    resume: Path | None = field(default=None, metadata=COMMON)
    overwrite: Annotated[bool, Parameter(negative=(), show_default=False)] = field(
        default=False, metadata=COMMON
    )

    def __post_init__(self) -> None:
        if self.resume is not None and (self.output is not None or self.overwrite):
            other = "--overwrite" if self.overwrite else "--output"
            raise InputError(f"--resume cannot be used with {other}")

    def is_finished(self) -> bool:
        """Return whether the run to resume is finished."""
        if self.resume is None:
            return False
        from molattn.training.run_folder import unfinished_run

        return unfinished_run(self.resume) is None

    def print_finished(self, console: "Console") -> None:
        """Report that the run to resume is finished."""
        print_line(
            console,
            f"{self.resume} is finished; there is nothing to resume. To train it further, start a "
            "run from it with --init-from",
        )

    @contextmanager
    def open_folder(self, command: str, name: str) -> Iterator[tuple[Path, Path]]:
        """Fill the folder of a run; if it is interrupted, report how to resume it.

        Yields:
            The final folder, by default of that name in ``runs/``, and the one to write to.
        """
        from molattn.training import run_folder as folders

        is_resumed = self.resume is not None
        path = self.resume or self.output or folders.free_folder(Path("runs") / name)
        path = folders.final_folder(path)
        try:
            with folders.run_folder(path, resume=is_resumed, overwrite=self.overwrite) as folder:
                yield path, folder
        except KeyboardInterrupt as interrupt:
            if folders.has_checkpoint(path):
                checkpoint = folders.latest_checkpoint(path)
                place = f"checkpoint {checkpoint}; " if checkpoint else ""
                hint = f"{place}to resume: molattn {command} --resume {path}"
            else:
                hint = "no checkpoint yet; nothing was saved"
            interrupt.args = (f"{interrupt or 'interrupted'}; {hint}",)
            raise
        except OSError as error:
            if error.errno is None or not folders.has_checkpoint(path):
                raise
            raise MolattnError(
                f"{os_error_line(error)}; to resume: molattn {command} --resume {path}"
            ) from error


def report_same_name(console: "Console", name: str | Path, *, option: str = "MODEL") -> None:
    """Report which model is used if a folder has the name of a packaged model.

    An argument takes the folder, as any path does; an option takes the packaged model.
    """
    if not Path(name).exists():
        return
    from molattn.model.artefact import is_packaged

    if is_packaged(str(name)):
        models = f"the folder {name}", f"the packaged model {name}"
        used, other = models if option == "MODEL" else models[::-1]
        hint = "" if option == "MODEL" else f"; {option} ./{name} uses the folder"
        print_line(console, f"{option}: using {used}, not {other}{hint}")


def make_console(*, stderr: bool = False) -> "Console":
    """Return a console on standard output, or on standard error."""
    from rich.console import Console

    return Console(stderr=stderr)


def check_is_path(output: Path) -> None:
    """Refuse ``--output -`` of a command that does not write to standard output.

    Raises:
        InputError: It is ``-``.
    """
    if str(output) == STREAM:
        raise InputError("--output: got -, expected a path; only predict writes to standard output")


def standard_input() -> IO[bytes]:
    """Return standard input.

    Raises:
        InputError: It is closed.
    """
    if sys.stdin is None:
        raise InputError("standard input is closed; expected a table")
    return sys.stdin.buffer


@contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Write data to standard output within the block.

    Once its reader has closed it, the program ends as others do: silently, with exit code 141.

    Raises:
        InputError: It is closed.
        OSError: It cannot be written, such as to a full disk.
    """
    if sys.stdout is None:
        raise InputError("standard output is closed; use --output")
    stream = _StandardOutput(sys.stdout)
    yield stream  # pyright: ignore[reportReturnType] (no more than this is used)
    stream.flush()


class _StandardOutput:
    """Standard output in bytes; errors of writing name it, or end the program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, data: bytes) -> int:
        with self._errors():
            return self._stream.buffer.write(data)

    def flush(self) -> None:
        with self._errors():
            self._stream.buffer.flush()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(128 + getattr(signal, "SIGPIPE", 13)) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from error


@contextmanager
def resume_told(
    output: Path | None, resume_hint: Callable[[Path, BaseException], str] | None = None
) -> Iterator[None]:
    """Let errors within the block say how to resume what is written, if it is kept.

    By default that is a table, see :func:`molattn.inference.parts.resume_hint`.
    """
    if resume_hint is None:
        from molattn.inference.parts import resume_hint

    try:
        yield
    except (KeyboardInterrupt, MolattnError, OSError) as error:
        hint = "" if output is None else resume_hint(output, error)
        if not hint:
            raise
        if isinstance(error, OSError):
            raise MolattnError(f"{os_error_line(error)}; {hint}") from error
        error.args = (f"{str(error) or 'interrupted'}; {hint}",)
        raise


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
