"""A folder that is there whole or not at all."""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from molattn.errors import InputError, quoted

__all__ = ["check_folder", "whole_folder"]


def check_folder(path: Path, contents: Collection[str]) -> None:
    """Refuse an output that is something else than a new folder, or one to be replaced.

    Args:
        path: The folder to be.
        contents: What such a folder may hold.

    Raises:
        InputError: A file of that name, or a folder with something else in it.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path}: there is a file of that name, expected a folder to write")
        strange = (
            sorted({entry.name for entry in path.iterdir()} - {*contents}) if path.exists() else ()
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if strange:
        raise InputError(
            f"{path}: the folder holds {quoted(strange[0])}, which is no part of an explanation; "
            "expected a new or empty folder, or a former explanation to replace"
        )


@contextmanager
def whole_folder(path: str | Path, contents: Collection[str]) -> Iterator[Path]:
    """Fill a folder beside the one to be, which takes its name when the block ends well.

    Args:
        path: The folder to be; a former one of the same kind is replaced.
        contents: What such a folder may hold.

    Yields:
        The folder to fill.

    Raises:
        InputError: As :func:`check_folder`, or a place that cannot be written.
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
