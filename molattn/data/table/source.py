"""Files of tables: plain or compressed, and text in UTF-8 or UTF-16."""

import codecs
import io
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from molattn.errors import InputError, quoted

MOST_CHARACTERS = 2**25
"""In a cell or a mol block; an unclosed quote or a binary file exceeds it."""
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


class Source:
    """The file of a table."""

    def __init__(self, file: str | Path | IO[bytes], name: str = "") -> None:
        if isinstance(file, str | Path):
            self.path = Path(file)
            self.name = Path(name) if name else self.path
            self._check_regular()
        else:
            descriptor, path = tempfile.mkstemp(prefix="molattn-")
            weakref.finalize(self, os.unlink, path)
            with open(descriptor, "wb") as copy:
                shutil.copyfileobj(file, copy)
            self.path, self.name = Path(path), Path(name or "file")
        with self.open() as content:
            self.start = content.read(_SAMPLE)
        self.is_utf_16 = self.start.startswith(_UTF_16)

    def _check_regular(self) -> None:
        try:
            is_regular = stat.S_ISREG(os.stat(self.path).st_mode)
        except FileNotFoundError:
            raise InputError(f"{self.name}: no such file") from None
        except OSError as error:
            raise InputError(f"{self.name}: {error.strerror or error}") from error
        except ValueError as error:  # a name with a NUL
            raise InputError(f"{quoted(str(self.name))}: {error}") from None
        if not is_regular:  # a pipe could block a reader for ever
            raise InputError(f"{self.name}: got a folder, a pipe or a device, expected a file")

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file, decompressed if it is gzip or Zstandard."""
        try:
            with open(self.path, "rb") as file:
                start = file.read(4)
                file.seek(0)
                kind = next((k for one, k in _SIGNATURES.items() if start.startswith(one)), None)
                if kind is None:
                    yield file
                    return
                import pyarrow as pa  # slow to import

                with pa.CompressedInputStream(file, kind) as content:
                    yield content
        except OSError as error:
            reason = error.strerror or f"damaged or incomplete: {error}"
            raise InputError(f"{self.name}: {reason}") from error

    @contextmanager
    def open_text(self) -> Iterator[IO[str]]:
        """Open the file as text: UTF-8, or UTF-16 with a byte-order mark.

        Lines keep their ends: a line feed, a carriage return or both.
        """
        encoding, errors = "utf-8-sig", ENCODING_ERRORS
        if self.is_utf_16:  # of which half a character cannot be kept as a byte
            encoding, errors = "utf-16", "replace"
        with (
            self.open() as data,
            io.TextIOWrapper(data, encoding=encoding, errors=errors, newline="") as text,
        ):
            yield text

    def check_text(self) -> None:
        """Check that the file can be read as text; a compressed one is decompressed once."""
        if 10 * self.start.count(0) > len(self.start) and not self.is_utf_16:
            raise InputError(f"{self.name}: got binary data, expected text in UTF-8")
        size = 0
        with self.open() as file:
            while not isinstance(file, io.BufferedReader) and (chunk := file.read(2**20)):
                size += len(chunk)
                self.check_expansion(size)

    def check_expansion(self, size: int) -> None:
        """Check that a compressed file does not expand without limit."""
        if size > max(_ANY_EXPANSION, _LARGEST_EXPANSION * self.path.stat().st_size):
            raise InputError(
                f"{self.name}: the compressed file expands to more than {_LARGEST_EXPANSION} times "
                "its size; decompress it if that is intended"
            )


def valid_text(text: str) -> str:
    """Return a text with bytes that are not UTF-8 read as Windows-1252."""
    return _ESCAPED.sub(
        lambda match: match[0].encode(errors=ENCODING_ERRORS).decode("cp1252", errors="replace"),
        text,
    )
