"""Text files, plain or compressed, in UTF-8 or UTF-16."""

import codecs
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import MOST_CHARACTERS
from molattn.errors import InputError

__all__ = [
    "CopiedPath",
    "ENCODING_ERRORS",
    "check_expansion",
    "file_start",
    "is_utf_16",
    "open_lines",
    "refuse_binary",
    "valid_text",
]

# The same for reading and writing, so that bytes which are not UTF-8 are written as they were read.
ENCODING_ERRORS = "surrogateescape"
_ESCAPED = re.compile("[\udc80-\udcff]+")  # bytes that are not UTF-8

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_GZIP = b"\x1f\x8b"
_SAMPLE = 4096
_BUFFER = 2**16
_MOST_BLANK_LINES = 1_000_000
# A table is rarely compressed to less than a hundredth; the limit of gzip is a thousandth.
_LARGEST_EXPANSION = 200
_ANY_EXPANSION = 2**22  # bytes


class CopiedPath(type(Path())):  # pyright: ignore[reportUntypedBaseClass]
    """The path of a temporary copy; messages show ``shown`` in its place."""

    shown = ""

    def __fspath__(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return self.shown


def file_start(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed if it is gzip or Zstandard.

    Raises:
        InputError: The file cannot be read, or is gzip that expands without limit.
    """
    try:
        with _open_bytes(path) as file:
            start = file.read(_SAMPLE)
            if _gzip_size(path) > _most_bytes(path):
                while file.read(_BUFFER):  # not a row of it is parsed
                    pass
            return start
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def check_expansion(path: Path, kind: str, size: int) -> None:
    """Check that a file does not expand without limit.

    Args:
        path: The file.
        kind: Its compression, for the message.
        size: Number of bytes that it expands to, so far or in all.

    Raises:
        InputError: More than 200 times its size, and more than 4 MB.
    """
    if size > _most_bytes(path):
        raise InputError(
            f"{path}: the {kind} file expands to more than {_LARGEST_EXPANSION} times its size; "
            "decompress it if that is intended"
        )


def _most_bytes(path: Path) -> int:
    return max(_ANY_EXPANSION, _LARGEST_EXPANSION * path.stat().st_size)


def _gzip_size(path: Path) -> int:
    """Return the size of its content that a gzip file ends with; 0 for another file."""
    with open(path, "rb") as file:
        is_gzip = file.read(2) == _GZIP
        file.seek(-4 * is_gzip, os.SEEK_END)
        return int.from_bytes(file.read(), "little")


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


def valid_text(text: str) -> str:
    """Return a text with bytes that are not UTF-8 read as Windows-1252."""
    return _ESCAPED.sub(_windows_1252, text)


def _windows_1252(escaped: re.Match[str]) -> str:
    return escaped[0].encode(errors=ENCODING_ERRORS).decode("cp1252", errors="replace")


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[str]]:
    """Open a text file, plain or compressed by gzip or Zstandard, as lines.

    Text is UTF-8, with or without a byte-order mark, or UTF-16 with one. Lines keep their ends: a
    line feed, a carriage return or both.

    Raises:
        InputError: The file cannot be read, its compressed data are incomplete or expand to more
            than 200 times their size, a line is too long, or there are too many blank lines in a
            row.
    """
    wide = is_utf_16(path)
    try:
        with (
            _open_bytes(path) as data,
            io.TextIOWrapper(
                data,
                encoding="utf-16" if wide else "utf-8-sig",
                # Half a character of UTF-16 cannot be kept as a byte.
                errors="replace" if wide else ENCODING_ERRORS,
                newline="",
            ) as text,
        ):
            yield _bounded_lines(text, path)
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


def _open_bytes(path: Path) -> io.BufferedReader:
    _check_is_file(path)
    with open(path, "rb") as file:
        start = file.read(4)
    for signature, (name, opener) in _COMPRESSIONS.items():
        if start.startswith(signature):
            return io.BufferedReader(_Decompressed(path, name, opener(path)), _BUFFER)
    return open(path, "rb")


def _open_gzip(path: Path) -> Any:
    return gzip.GzipFile(path, "rb")


def _open_zstandard(path: Path) -> Any:
    import pyarrow as pa  # slow to import

    return pa.input_stream(str(os.fspath(path)), compression="zstd")


_COMPRESSIONS: dict[bytes, tuple[str, Callable[[Path], Any]]] = {
    _GZIP: ("gzip", _open_gzip),
    b"\x28\xb5\x2f\xfd": ("Zstandard", _open_zstandard),
    # Frames without content, with which some programs begin their files.
    **{bytes([0x50 + n]) + b"\x2a\x4d\x18": ("Zstandard", _open_zstandard) for n in range(16)},
}
"""By the first bytes of a file."""


class _Decompressed(io.RawIOBase):
    """The content of a compressed file, which does not expand without limit."""

    def __init__(self, path: Path, kind: str, stream: Any) -> None:
        self._path, self._kind, self._stream = path, kind, stream
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read decompressed bytes.

        Raises:
            InputError: The file is damaged, or the limit is reached.
        """
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, ValueError, OSError, zlib.error) as error:
            if getattr(error, "errno", None) is not None:  # of the file system
                raise
            raise InputError(
                f"{self._path}: the {self._kind} file is damaged or incomplete: {error}"
            ) from error
        self._size += len(data)
        check_expansion(self._path, self._kind, self._size)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _check_is_file(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        more = "; this command cannot read standard input" if str(path) == "-" else ""
        raise InputError(f"{path}: no such file{more}") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: got a folder, expected a file")
    if not stat.S_ISREG(mode):  # a pipe or a device could block a reader for ever
        raise InputError(f"{path}: got a pipe or a device, expected a file")
