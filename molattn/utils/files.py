"""Files and folders that are written completely or not at all."""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from filelock import FileLock, Timeout

from molattn.errors import InputError, quoted

UNFINISHED = ".unfinished"
"""End of the name of a file or folder that is being written, and stays if that is interrupted."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file, which holds an object; raise an ``InputError`` that names it otherwise."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: got a JSON {type(content).__name__}, expected an object")
    return content


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces ``path`` when the block ends.

    The content goes to a temporary file in the same folder (``.*.part``), which is renamed once it
    is on disk, so that readers see the previous file or the new one. After an exception it is
    removed. Of a symbolic link the file behind it is replaced. The mode of a replaced file stays.

    Raises:
        OSError: Names ``path``, also if the disk is full.
    """
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    try:
        # Not by tempfile, whose files only their owner can read.
        with open(temporary, "xb") as file:
            _keep_mode(target, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_file(path: Path, content: bytes) -> None:
    """Write a file at once, as :func:`atomic_write` does."""
    with atomic_write(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Write JSON types as an indented file, as :func:`atomic_write` does; NaN is an error."""
    write_file(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Fill a temporary folder that replaces ``path`` when the block ends without an exception."""
    path = Path(os.path.abspath(path))
    temporary = _temporary(path)
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        yield temporary
        replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(folder: Path, path: Path) -> None:
    """Rename a folder to ``path`` and remove the one that had this name; its mode stays."""
    path = Path(os.path.abspath(path))
    if not path.exists():
        folder.rename(path)
        return
    _keep_mode(path, folder)
    backup = _temporary(path)
    path.rename(backup)
    try:
        folder.rename(path)
    except BaseException:
        backup.rename(path)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def check_output_folder(
    path: Path, kind: str, is_known: Callable[[str], bool], markers: Collection[str] = ()
) -> None:
    """Check that a folder may be written, and replaced if it exists.

    What it will hold is ``kind``, such as ``a run``: ``is_known`` says which names it may contain,
    and ``markers`` are names of which it contains one. An ``InputError`` if it is anything else.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path}: is a file or a link, expected a folder")
        names = sorted(os.listdir(path)) if path.exists() else []
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    foreign = [name for name in names if not is_known(name)]
    if markers and not {*names} & {*markers}:
        foreign = foreign or names
    if foreign:
        raise InputError(
            f"{path}: the folder contains {quoted(foreign[0])}, which is not part of {kind}; "
            f"expected a new or empty folder, or {kind} to replace"
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder within the block, or until this one ends.

    The lock is a file beside the folder, as Windows renames no folder in which a file is open.

    Raises:
        InputError: Another process has locked it, or the lock cannot be written.
    """
    folder = Path(os.path.abspath(folder))
    file = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(file, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"{folder}: another process is writing to this folder; wait for it to end"
        ) from None
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # on Windows the release removes it
            file.unlink()
        lock.release()


def _temporary(path: Path) -> Path:
    return path.with_name(f".molattn-{uuid4().hex[:12]}.part")


def _keep_mode(path: Path, temporary: Path) -> None:
    with suppress(OSError):  # there is no such file, or the file system has no modes
        shutil.copymode(path, temporary)
