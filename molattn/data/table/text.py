"""Text files, plain or compressed, in UTF-8 or UTF-16."""

import codecs
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from molattn.errors import InputError

__all__ = [
    "CopiedPath",
    "ENCODING_ERRORS",
    "check_expansion",
    "check_text",
    "compressed",
    "file_start",
    "is_utf_16",
    "open_text",
    "valid_text",
]

# The same for reading and writing, so that bytes which are not UTF-8 are written as they were read.
ENCODING_ERRORS = "surrogateescape"
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Suffixes of compressed text, and pyarrow's name of the compression."""
_SIGNATURES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ESCAPED = re.compile("[\udc80-\udcff]+")  # bytes that are not UTF-8
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAMPLE = 4096
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
        InputError: The file cannot be read.
    """
    with _open_bytes(path) as file:
        return file.read(_SAMPLE)


def check_text(path: Path) -> None:
    """Check that a file can be read as text; a compressed one is decompressed once.

    Raises:
        InputError: The file cannot be read, more than a tenth of its start is zero bytes and it is
            not UTF-16, or its compressed data are damaged or expand to more than 200 times their
            size.
    """
    start, size = file_start(path), 0
    if 10 * start.count(0) > len(start) and not start.startswith(_UTF_16):
        raise InputError(f"{path}: got binary data, expected text in UTF-8")
    with _open_bytes(path) as file:
        if isinstance(file, io.BufferedReader):
            return
        while chunk := file.read(2**20):
            size += len(chunk)
            check_expansion(path, size)


def check_expansion(path: Path, size: int) -> None:
    """Check that a compressed file does not expand without limit.

    Raises:
        InputError: ``size``, the number of bytes so far or in all, is more than 200 times that of
            the file, and more than 4 MB.
    """
    if size > max(_ANY_EXPANSION, _LARGEST_EXPANSION * path.stat().st_size):
        raise InputError(
            f"{path}: the compressed file expands to more than {_LARGEST_EXPANSION} times its "
            "size; decompress it if that is intended"
        )


def is_utf_16(path: Path) -> bool:
    """Return whether a file begins with the byte-order mark of UTF-16."""
    return file_start(path).startswith(_UTF_16)


def valid_text(text: str) -> str:
    """Return a text with bytes that are not UTF-8 read as Windows-1252."""
    return _ESCAPED.sub(
        lambda match: match[0].encode(errors=ENCODING_ERRORS).decode("cp1252", errors="replace"),
        text,
    )


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Open a text file, plain or compressed by gzip or Zstandard.

    Text is UTF-8, with or without a byte-order mark, or UTF-16 with one. Lines keep their ends: a
    line feed, a carriage return or both.

    Raises:
        InputError: The file cannot be read.
    """
    is_wide = is_utf_16(path)
    with (
        _open_bytes(path) as data,
        io.TextIOWrapper(
            data,
            encoding="utf-16" if is_wide else "utf-8-sig",
            # Half a character of UTF-16 cannot be kept as a byte.
            errors="replace" if is_wide else ENCODING_ERRORS,
            newline="",
        ) as text,
    ):
        yield text


@contextmanager
def _open_bytes(path: Path) -> Iterator[IO[bytes]]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe could block a reader for ever
            raise InputError(f"{path}: got a folder, a pipe or a device, expected a file")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a name with a NUL, or the error above
        raise InputError(f"{error}") from None
    try:
        with open(path, "rb") as file:
            start = file.read(4)
            kind = next((kind for one, kind in _SIGNATURES.items() if start.startswith(one)), None)
            file.seek(0)
            if kind is None:
                yield file
                return
        import pyarrow as pa  # slow to import

        with pa.input_stream(os.fspath(path), compression=kind) as file:
            yield file
    except OSError as error:
        reason = error.strerror or f"damaged or incomplete: {error}"
        raise InputError(f"{path}: {reason}") from error


@contextmanager
def compressed(file: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """Compress what is written to a file if the suffix of its name, ``path``, says so."""
    kind = COMPRESSIONS.get(path.suffix.lower())
    if kind is None:
        yield file
        return
    import pyarrow as pa

    # It closes what it writes to.
    with pa.CompressedOutputStream(open(os.dup(file.fileno()), "wb"), kind) as stream:
        yield stream
