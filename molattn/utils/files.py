"""Files and folders that are written completely or not at all."""

import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from molattn.errors import InputError, quoted

try:
    import fcntl
except ImportError:  # no such locks here: a file must not be written by two processes at once
    fcntl = None

__all__ = [
    "UNFINISHED",
    "atomic_folder",
    "atomic_write",
    "check_output_folder",
    "keep_mode",
    "lock_file",
    "naming_path",
    "parse_json",
    "read_json",
    "replace_folder",
    "write_file",
    "write_json",
]

UNFINISHED = ".unfinished"
"""End of the name of a file or folder that is being written, and stays if that is interrupted."""
_MOST_DIGITS = 20  # of a JSON integer: more than in 64 bits
_LONGEST_NAME = 200  # of the 255 bytes that most file systems allow


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object as :func:`parse_json` does."""
    try:
        return parse_json(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a JSON file, which holds an object.

    Raises:
        InputError: Anything else; a duplicate key; NaN, an infinite or a very long number; names
            the path.
    """
    try:
        parsed = json.loads(
            content.decode(),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise InputError(f"{path}: not a JSON file: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(parsed, dict):
        raise InputError(f"{path}: got a JSON {type(parsed).__name__}, expected an object")
    return parsed


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        repeated = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
        raise ValueError(f"duplicate key {quoted(repeated)}")
    return found


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"integer of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{quoted(text)} is not a finite number")
    return number


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces ``path`` when the block ends.

    The content goes to a temporary file in the same folder, which is renamed once it is on disk.
    Readers therefore see the previous file or the new one. After an exception the temporary file is
    removed and the previous file is unchanged. A killed process leaves its temporary file behind,
    under a name that ends in ``.part``; the next one that writes the same file removes it. Of a
    symbolic link the file that it points to is replaced. The mode of a file that is replaced stays.

    Raises:
        OSError: Names ``path``, also if the disk is full.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    with _temporary(path, lambda part: open(part, "xb").close()) as part:
        with open(part, "wb") as file:
            keep_mode(path, part)
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def write_file(path: Path, content: bytes) -> None:
    """Write a file at once, as :func:`atomic_write` does."""
    with atomic_write(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Write JSON types as an indented file, as :func:`atomic_write` does; NaN is an error."""
    write_file(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Fill a temporary folder that replaces ``path`` when the block ends.

    After an exception the temporary folder is removed and the previous one is unchanged.

    Raises:
        InputError: The folder cannot be created.
        OSError: Names ``path`` or a file in it, also if the disk is full.
    """
    path = Path(os.path.abspath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    with _temporary(path, Path.mkdir) as part:
        yield part
        replace_folder(part, path)


@contextmanager
def naming_path(path: Path, part: Path | None = None) -> Iterator[None]:
    """Let an ``OSError`` within the block name ``path`` in place of ``part`` or of no file.

    Errors of writing, such as a full disk, name no file.
    """
    try:
        yield
    except OSError as error:
        named = str(path) if error.filename is None else os.fsdecode(error.filename)
        if part is not None:
            named = named.replace(str(part), str(path), 1)
        if error.errno is None or named == error.filename:
            raise
        raise OSError(error.errno, error.strerror, named) from error


def lock_file(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed or the process ends.

    Returns:
        Whether it is locked now; None where the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def replace_folder(folder: Path, path: Path) -> None:
    """Rename a folder to ``path`` and remove the one that had this name; its mode stays."""
    previous = _restored(path)
    keep_mode(path, folder)
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)
        path.rename(previous)
    try:
        folder.rename(path)
    except BaseException:
        if previous.exists():
            previous.rename(path)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def check_output_folder(
    path: Path, kind: str, is_known: Callable[[str], bool], markers: Collection[str] = ()
) -> None:
    """Check that a folder may be written, and replaced if it exists.

    Args:
        path: The folder.
        kind: What it will hold: ``a run``.
        is_known: Whether a folder of this kind may contain an entry of a given name.
        markers: Names of which every folder of this kind contains one.

    Raises:
        InputError: If the path is a file or a link, or the folder holds anything else.
    """
    try:
        _restored(path)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path}: is a file or a link, expected a folder")
        names = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    foreign = [name for name in names if not is_known(name)]
    if markers and not foreign and not {*names} & {*markers}:
        foreign = names
    if foreign:
        raise InputError(
            f"{path}: the folder contains {quoted(foreign[0])}, which is not part of {kind}; "
            f"expected a new or empty folder, or {kind} to replace"
        )


def _restored(path: Path) -> Path:
    """Return the name of a folder that is being replaced; undo a replacement that was cut short."""
    path = Path(os.path.abspath(path))  # "." has no name
    previous = path.with_name(f".{path.name}.former")
    if previous.exists() and not path.exists():
        previous.rename(path)
    return previous


def keep_mode(path: Path, part: Path) -> None:
    """Give a file the mode of the one that it will replace, if there is one."""
    with suppress(OSError):  # there is no such file, or the file system has no modes
        shutil.copymode(path, part)


@contextmanager
def _temporary(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a temporary file or folder beside ``path``; the block renames it, or it is removed.

    It is locked within the block, so that other processes know that it is in use.
    """
    name = os.fsencode(path.name)[:_LONGEST_NAME].decode(errors="ignore")
    with naming_path(path):
        _remove_abandoned(path.parent, f".{name}.")
    part, lock = _make_locked(path, name, make)
    try:
        with naming_path(path, part):
            yield part
    finally:
        if lock is not None:
            os.close(lock)
        _remove(part)


def _make_locked(path: Path, name: str, make: Callable[[Path], None]) -> tuple[Path, int | None]:
    while True:
        part = path.with_name(f".{name}.{uuid4().hex[:8]}.part")
        with naming_path(path, part):
            make(part)
            if fcntl is None:
                return part, None
            try:
                lock = os.open(part, os.O_RDONLY)
            except FileNotFoundError:  # removed by another process, as below
                if path.parent.is_dir():
                    continue
                raise
            except OSError:
                _remove(part)
                raise
        if lock_file(lock) is not False and part.exists():
            return part, lock
        os.close(lock)  # another process took it for abandoned before it was locked


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove the temporary files and folders of processes that were killed."""
    if fcntl is None or not folder.is_dir():
        return
    names = []
    with suppress(PermissionError):  # a folder may be writable only
        names = os.listdir(folder)
    for name in names:
        if re.fullmatch(re.escape(prefix) + r"[0-9a-f]{8}\.part", name):
            with suppress(OSError):
                lock = os.open(folder / name, os.O_RDONLY)
                try:
                    if lock_file(lock):
                        _remove(folder / name)
                finally:
                    os.close(lock)


def _remove(part: Path) -> None:
    with suppress(OSError):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)
