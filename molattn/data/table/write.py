"""Rows to files."""

import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from molattn.data.table.base import LeftOpen, Table
from molattn.data.table.formats import (
    COMPRESSED,
    FORMATS,
    WriterMaker,
    format_by_suffix,
)
from molattn.errors import InputError
from molattn.utils.files import atomic_write, keep_mode

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

__all__ = [
    "check_output",
    "check_resumable",
    "is_resumable",
    "move_rows",
    "output_schema",
    "row_writer",
    "runs_formulas",
    "write_table",
]


def check_output(path: Path) -> None:
    """Check that a table can be written to a file, before anything is computed.

    Raises:
        InputError: The name stands for a format that is not written, or the path is not a file's.
    """
    _writer_of(path)


def is_resumable(path: Path) -> bool:
    """Return whether rows can be added to a table of this name later, before it is compressed."""
    return (format_by_suffix(path) or FORMATS["csv"]).is_resumable


def check_resumable(path: Path | IO[bytes]) -> None:
    """Check that an interrupted output can be resumed.

    Raises:
        InputError: It is a stream, or a file of another format than those that can.
    """
    if not isinstance(path, Path):
        raise InputError("--resume needs a file to write to (--output)")
    if not is_resumable(path):
        got = (format_by_suffix(path) or FORMATS["csv"]).name
        *others, last = (one.name for one in FORMATS.values() if one.write and one.is_resumable)
        raise InputError(
            f"--resume: {path}: {got} files cannot be resumed, expected {', '.join(others)} or "
            f"{last} (also compressed)"
        )


def runs_formulas(path: Path | IO[bytes]) -> bool:
    """Return whether a spreadsheet takes some text of an output for formulas."""
    found = format_by_suffix(path) if isinstance(path, Path) else None
    return found is None or (found.runs_formulas and not found.has_types)


def output_schema(path: Path | IO[bytes], table: Table | None, columns: Mapping[str, str]) -> Any:
    """Return the ``pyarrow.Schema`` of an output, None if its format has no types.

    Args:
        path: The output; a binary stream is CSV.
        table: The input, if its columns come first.
        columns: The other columns, each with its Arrow type, such as ``float64``.
    """
    found = format_by_suffix(path) if isinstance(path, Path) else None
    if found is None or not found.has_types:
        return None
    from molattn.data.table.parquet import arrow_schema  # pyarrow is slow to import

    return arrow_schema(table, columns)


@contextmanager
def write_table(
    path: str | Path | IO[bytes], header: Sequence[str], schema: Any = None
) -> Iterator[Callable[[Sequence[object]], None]]:
    """Write a table, whole or not at all.

    Rows go to a temporary file beside the path, which is renamed when the block ends without an
    exception. The suffix decides the format: ``.tsv``, ``.parquet`` or that of another registered
    format, otherwise CSV; text with ``.gz`` or ``.zst`` after it is compressed.

    Args:
        path: The file; an existing one is replaced. CSV goes to a binary stream as it is written.
        header: The columns.
        schema: Their types, of :func:`output_schema`; by default texts.

    Yields:
        The function that writes one row; in text, None is an empty cell.

    Raises:
        InputError: The file cannot be written.
    """
    if not isinstance(path, str | Path):
        yield FORMATS["csv"].write(path, header, schema).write  # pyright: ignore
        return
    path = Path(path)
    make_writer = _writer_of(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(atomic_write(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        compress = _COMPRESSIONS.get(path.suffix.lower())
        stream = compress(file) if compress else file
        try:
            writer = make_writer(stream, header, schema)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

        def write(cells: Sequence[object]) -> None:
            try:
                writer.write(cells)
            except InputError as error:
                raise InputError(f"{path}: {error}") from None

        yield write
        writer.close()
        if compress:
            stream.close()


def row_writer(
    path: Path, file: "SupportsWrite[bytes]", header: Sequence[str], *, has_header: bool
) -> Callable[[Sequence[object]], None]:
    """Return the function that writes one row of a resumable table, uncompressed.

    Args:
        path: What the table will be called.
        file: The file that its bytes are written to.
        header: The columns.
        has_header: Whether they were written before.
    """
    stream = _Silenced(file)
    stream.is_silent = has_header
    try:
        writer = _writer_of(path)(stream, header, None)  # pyright: ignore[reportArgumentType]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    stream.is_silent = False
    return writer.write


def move_rows(rows: Path, path: Path) -> None:
    """Move a whole file of :func:`row_writer` to the name of the table, compressed if it says so.

    Raises:
        OSError: Names ``path``, also if the disk is full; the rows are left where they are.
    """
    compress = _COMPRESSIONS.get(path.suffix.lower())
    if compress is None and not path.is_symlink():
        with open(rows, "rb") as file:
            os.fsync(file.fileno())
        keep_mode(path, rows)
        rows.replace(path)
        return
    with open(rows, "rb") as source, atomic_write(path) as file:
        stream = compress(file) if compress else file
        shutil.copyfileobj(source, stream)
        if compress:
            stream.close()
    rows.unlink()


class _Silenced:
    """A file to which nothing is written for a while."""

    is_silent = False

    def __init__(self, file: "SupportsWrite[bytes]") -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        if not self.is_silent:
            self._file.write(data)


def _gzip(file: IO[bytes]) -> Any:
    # No time stamp, so that the same rows make the same bytes.
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0)


def _zstandard(file: IO[bytes]) -> Any:
    import pyarrow as pa  # slow to import

    return pa.CompressedOutputStream(LeftOpen(file), compression="zstd")


_COMPRESSIONS: dict[str, Callable[[IO[bytes]], Any]] = {".gz": _gzip, ".zst": _zstandard}


def _writer_of(path: Path) -> WriterMaker:
    suffixes = (one.suffixes[0] for one in FORMATS.values() if one.write is not None)
    expected = f"expected {', '.join(suffixes)}, .txt or none"
    found = format_by_suffix(path)
    if found is None:
        plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
        # Such as .xslx, but not the end of run_0.5 or of a date.
        if plain.suffix.lower() != ".txt" and re.search("[A-Za-z]", plain.suffix):
            raise InputError(f"{path}: got the suffix {plain.suffix}, {expected}")
        found = FORMATS["csv"]
    if not found.is_text and path.suffix.lower() in COMPRESSED:
        raise InputError(
            f"{path}: {found.name} files are not compressed again, expected a name without "
            f"{path.suffix}"
        )
    if found.write is None:
        raise InputError(f"{path}: {found.name} files cannot be written, {expected}")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: got a folder or a device, expected a file")
    return found.write
