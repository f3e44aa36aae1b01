"""Files as bytes and as text: which kind they are, and whether they may be read at all."""

import codecs
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from molattn.data.table.base import MOST_CHARACTERS
from molattn.errors import InputError

__all__ = ["ENCODING_ERRORS", "Kind", "is_utf_16", "kind_of", "kind_of_name", "open_lines"]

# One list for reading and writing, so that bytes which are no UTF-8 come out as they went in.
ENCODING_ERRORS = "surrogateescape"

Kind = str
"""``csv``, ``tsv``, ``parquet``, ``sdf`` or ``smi``."""

_KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".sdf": "sdf",
    ".sd": "sdf",
    ".mol": "sdf",
    ".smi": "smi",
    ".smiles": "smi",
    ".ism": "smi",
}
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"BZh": "bzip2-compressed data",
    b"\xfd7zXZ": "xz-compressed data",
    b"\x28\xb5\x2f\xfd": "Zstandard-compressed data",
    b"\xff\xfe\0\0": "UTF-32 text",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"ARROW1": "an Arrow or Feather file",
}
_EXPECTED = "expected a CSV, TSV, Parquet, SDF or SMILES file (text in UTF-8)"
_SAMPLE = 4096
_GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)


def kind_of(path: Path) -> Kind:
    """Return what kind of table a file is: by its content for Parquet, by its name otherwise.

    Gzip is looked through; a name that says nothing stands for CSV.

    Raises:
        InputError: If there is no such file, it may not be read or is known to be no table.
    """
    start = _start(path)
    if start.startswith(_PARQUET):
        return "parquet"
    kind = kind_of_name(path)
    if kind == "parquet":
        found = "an empty file" if not start else "something else"
        raise InputError(f"{path}: got {found}, expected a Parquet file")
    for signature, name in _SIGNATURES.items():
        if start.startswith(signature):
            raise InputError(f"{path}: got {name}, {_EXPECTED}")
    # One such byte in a row costs that row alone.
    is_binary = 10 * start.count(0) > len(start) and not start.startswith(_UTF_16)
    if kind in ("sdf", "smi") and is_binary:
        raise InputError(f"{path}: got binary data, {_EXPECTED}")
    return kind


def is_utf_16(path: Path) -> bool:
    """Return whether a file begins with the byte-order mark of UTF-16."""
    return _start(path).startswith(_UTF_16)


def kind_of_name(path: Path) -> Kind:
    """Return what kind of table a file's name promises, ``csv`` where it says nothing."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return _KINDS.get(suffixes[-1], "csv") if suffixes else "csv"


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[str]]:
    """Open a text file, plain or gzip, as lines.

    Text is UTF-8, with or without a byte-order mark, or UTF-16 with one. Lines end with a line
    feed, a carriage return or both, which they keep.

    Raises:
        InputError: If it cannot be read, also where gzip data end too soon or a line does not end.
    """
    wide = is_utf_16(path)
    try:
        with (
            _open_bytes(path) as data,
            io.TextIOWrapper(
                data,  # pyright: ignore[reportArgumentType]
                encoding="utf-16" if wide else "utf-8-sig",
                # Half a character of UTF-16 is no byte that could be kept.
                errors="replace" if wide else ENCODING_ERRORS,
                newline="",
            ) as text,
        ):
            yield _bounded_lines(text, path)
    except _GZIP_ERRORS as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _bounded_lines(text: IO[str], path: Path) -> Iterator[str]:
    number = 0
    while line := text.readline(MOST_CHARACTERS + 1):
        number += 1
        if len(line) > MOST_CHARACTERS:
            raise InputError(
                f"{path}, line {number}: got more than {MOST_CHARACTERS:,} characters, "
                "expected shorter lines"
            )
        yield line


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: the gzip data are damaged or cut short: {error}")


def _open_bytes(path: Path) -> IO[bytes]:
    _check_is_file(path)
    file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    is_gzip = file.read(2) == _GZIP
    file.seek(0)
    if not is_gzip:
        return file
    return _Gunzip(file)  # pyright: ignore[reportReturnType]


class _Gunzip(gzip.GzipFile):
    """Gzip data of a file that is closed with it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


def _start(path: Path) -> bytes:
    try:
        with _open_bytes(path) as file:
            return file.read(_SAMPLE)
    except _GZIP_ERRORS as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _check_is_file(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: a folder, not a file; {_EXPECTED}")
    if not stat.S_ISREG(mode):  # a pipe or a device might keep a reader waiting for ever
        raise InputError(f"{path}: a pipe or a device, not a file; {_EXPECTED}")
