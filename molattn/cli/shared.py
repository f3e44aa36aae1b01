"""Shared by the commands: groups of options, the folder of a run, the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from molattn.errors import InputError, MolattnError
from molattn.utils.console import print_line

if TYPE_CHECKING:
    from rich.console import Console

STREAM = " -"
"""The word - of a command line, which cyclopts would take for an option."""

ModelFolder = Annotated[
    Path,
    Parameter(
        help="Folder of a run or of a saved model, or a packaged model: admet, base, base-large, "
        "base-small."
    ),
]
Inputs = Annotated[
    list[str],
    Parameter(
        name="INPUT",
        help="CSV, TSV, Parquet, Excel, SDF or SMILES file, or a store of molattn prepare; - for "
        "standard input; or one or more SMILES.",
    ),
]

_TITLES = (
    *("Run", "Search", "Data", "Network", "Fine-tuning", "Gaussian process", "Training", "Report"),
    *("Prediction", "Embedding", "Explanation", "Server", "Output"),
)
_GROUPS = {title: Group(title, sort_key=index) for index, title in enumerate(_TITLES)}


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


def _shown_default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


@dataclass(frozen=True)
class RunOptions:
    """The folder of a run, and the file of its options.

    Args:
        output: Folder for the results; by default a new one in runs/.
        config: YAML file of options, such as config.yaml of a run.
        resume: Resume the interrupted run in this folder, with its options.
        overwrite: Replace a run in --output.
    """

    output: Path | None = None
    config: Path | None = None
    resume: Path | None = None
    overwrite: Annotated[bool, Parameter(negative=(), show_default=False)] = False

    def __post_init__(self) -> None:
        if self.resume is not None and (self.output is not None or self.overwrite):
            raise InputError("cannot be used with --output or --overwrite", option="resume")

    @contextmanager
    def open_folder(self, command: str, name: str) -> Iterator[tuple[Path, Path]]:
        """Fill the folder of a run, by default one of a name in ``runs/``.

        Of processes that train together, the first one does so.

        Yields:
            The final folder, and the one to write to.
        """
        from molattn.training import run_folder as folders
        from molattn.utils.process_group import process_rank

        if process_rank():
            yield Path(), Path()
            return
        path = self.resume or self.output or folders.free_folder(Path("runs") / name)
        path = folders.final_folder(path)
        is_resumed = self.resume is not None
        try:
            with folders.run_folder(path, resume=is_resumed, overwrite=self.overwrite) as folder:
                yield path, folder
        except (KeyboardInterrupt, OSError) as error:
            if folders.has_checkpoint(path):
                error.add_note(f"to resume: molattn {command} --resume {path}")
            raise


@contextmanager
def resumable(output: Path, hint: Callable[[Path, BaseException], str]) -> Iterator[None]:
    """Add to errors within the block how to resume what is written, if it is kept."""
    try:
        yield
    except (KeyboardInterrupt, MolattnError, OSError) as error:
        if note := hint(output, error):
            error.add_note(note)
        raise


def warn_if_ambiguous(console: "Console", name: str | Path) -> None:
    """Log which model is used if a folder has the name of a packaged model."""
    if Path(name).exists():
        from molattn.model.artefact import is_packaged

        if is_packaged(name):
            print_line(
                console,
                f"{name} is a folder and a packaged model: MODEL is the folder, --init-from {name} "
                f"the packaged model and --init-from ./{name} the folder",
            )


def make_console(*, stderr: bool = False) -> "Console":
    """Return a console on standard output, or on standard error."""
    from rich.console import Console

    return Console(stderr=stderr)


def check_is_path(output: Path) -> None:
    """Raise an ``InputError`` for ``--output -`` of a command that does not write to a pipe."""
    if str(output) == STREAM:
        raise InputError("got -, expected a path; only predict writes to a pipe", option="output")
