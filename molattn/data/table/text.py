"""Text files, plain or gzip, in UTF-8 or UTF-16."""

import codecs
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import MOST_CHARACTERS
from molattn.errors import InputError

__all__ = ["ENCODING_ERRORS", "file_start", "is_utf_16", "open_lines", "refuse_binary"]

# The same for reading and writing, so that bytes which are not UTF-8 are written as they were read.
ENCODING_ERRORS = "surrogateescape"

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_GZIP = b"\x1f\x8b"
_SAMPLE = 4096
_GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
_MOST_BLANK_LINES = 1_000_000
# A table is rarely compressed to less than a hundredth; gzip's limit is a thousandth.
_LARGEST_EXPANSION = 200
_ANY_EXPANSION = 2**22  # bytes


def file_start(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed if it is gzip.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with _open_bytes(path) as file:
            return file.read(_SAMPLE)
    except _GZIP_ERRORS as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def refuse_binary(path: Path) -> None:
    """Check that a file looks like text; a few zero bytes are left to the rows that hold them.

    Raises:
        InputError: More than a tenth of its start is zero bytes, and it is not UTF-16.
    """
    start = file_start(path)
    if 10 * start.count(0) > len(start) and not start.startswith(_UTF_16):
        raise InputError(f"{path}: got binary data, expected text in UTF-8")


def is_utf_16(path: Path) -> bool:
    """Return whether a file begins with the byte-order mark of UTF-16."""
    return file_start(path).startswith(_UTF_16)


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[str]]:
    """Open a text file, plain or gzip, as lines.

    Text is UTF-8, with or without a byte-order mark, or UTF-16 with one. Lines keep their ends: a
    line feed, a carriage return or both.

    Raises:
        InputError: The file cannot be read, its gzip data are incomplete or expand to more than 200
            times their size, a line is too long, or there are too many blank lines in a row.
    """
    wide = is_utf_16(path)
    try:
        with (
            _open_bytes(path) as data,
            io.TextIOWrapper(
                data,  # pyright: ignore[reportArgumentType]
                encoding="utf-16" if wide else "utf-8-sig",
                # Half a character of UTF-16 cannot be kept as a byte.
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
    number = blank = 0
    while line := text.readline(MOST_CHARACTERS + 1):
        number += 1
        blank = blank + 1 if line.isspace() else 0
        if blank > _MOST_BLANK_LINES:
            raise InputError(
                f"{path}, line {number}: got more than {_MOST_BLANK_LINES:,} blank lines in a row"
            )
        if len(line) > MOST_CHARACTERS:
            raise InputError(
                f"{path}, line {number}: got more than {MOST_CHARACTERS:,} characters, "
                "expected shorter lines"
            )
        yield line


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: the gzip file is damaged or incomplete: {error}")


def _open_bytes(path: Path) -> IO[bytes]:
    _check_is_file(path)
    with open(path, "rb") as file:
        is_gzip = file.read(2) == _GZIP
    opener: Any = _GzipFile if is_gzip else open
    return opener(path, "rb")


class _GzipFile(gzip.GzipFile):
    """A gzip file that does not expand without limit."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        size = path.stat().st_size
        self._path = path
        self._most = max(_ANY_EXPANSION, _LARGEST_EXPANSION * size)

    def read1(self, size: int = -1) -> bytes:
        """Read decompressed bytes.

        Raises:
            InputError: The limit is reached.
        """
        data = super().read1(size)
        if self.tell() > self._most:
            raise InputError(
                f"{self._path}: the gzip file expands to more than {_LARGEST_EXPANSION} times its "
                "size; decompress it if that is intended"
            )
        return data


def _check_is_file(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: got a folder, expected a file")
    if not stat.S_ISREG(mode):  # a pipe or a device could block a reader for ever
        raise InputError(f"{path}: got a pipe or a device, expected a file")
