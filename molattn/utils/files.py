"""Files and folders that are written completely or not at all."""

import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from molattn.errors import InputError, quoted

__all__ = [
    "atomic_folder",
    "atomic_write",
    "check_output_folder",
    "parse_json",
    "read_json",
    "replace_folder",
    "write_file",
    "write_json",
]

_MOST_DIGITS = 20  # of a JSON integer: more than in 64 bits


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
    removed and the previous file is unchanged; only a killed process leaves it behind, under a name
    that ends in ``.part``.
    """
    part = _temporary(path)
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
    """
    path = Path(os.path.abspath(path))
    part = _temporary(path)
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        yield part
        replace_folder(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def replace_folder(folder: Path, path: Path) -> None:
    """Rename a folder to ``path`` and remove the folder that had this name, if any."""
    previous = path.with_name(f".{path.name}.former")
    shutil.rmtree(previous, ignore_errors=True)
    if path.exists():
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


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
