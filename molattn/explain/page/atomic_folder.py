"""Writing a folder atomically: complete, or not at all."""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from molattn.errors import InputError, quoted

__all__ = ["atomic_folder", "check_folder"]


def check_folder(path: Path, contents: Collection[str]) -> None:
    """Refuse an output folder that exists and holds anything but a former explanation.

    Args:
        path: The folder.
        contents: Names that a former explanation may hold.

    Raises:
        InputError: A file of that name, or a folder with other contents.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path}: got a file, expected a folder")
        strange = (
            sorted({entry.name for entry in path.iterdir()} - {*contents}) if path.exists() else ()
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if strange:
        raise InputError(
            f"{path}: the folder holds {quoted(strange[0])}, which is not part of an explanation; "
            "expected a new or empty folder, or a former explanation to replace"
        )


@contextmanager
def atomic_folder(path: str | Path, contents: Collection[str]) -> Iterator[Path]:
    """Write to a temporary folder, which is renamed to ``path`` if the block succeeds.

    Args:
        path: The folder; a former explanation is replaced.
        contents: Names that a former explanation may hold.

    Yields:
        The temporary folder.

    Raises:
        InputError: As :func:`check_folder`, or a path that cannot be written.
    """
    path = Path(os.path.abspath(path))
    check_folder(path, contents)
    partial, former = (path.with_name(f".{path.name}.{os.getpid()}.{of}") for of in ("part", "old"))
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        yield partial
        if path.exists():
            path.rename(former)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        if former.exists() and not path.exists():
            former.rename(path)
        raise
    shutil.rmtree(former, ignore_errors=True)
