"""Rows to files."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import Table
from molattn.data.table.formats import FORMATS, FileFormat, WriterMaker, format_by_suffix
from molattn.data.table.text import COMPRESSIONS, compressed
from molattn.errors import InputError
from molattn.utils.files import atomic_write

__all__ = [
    "check_output",
    "check_resumable",
    "is_resumable",
    "output_schema",
    "output_stream",
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
    return _format_of(path).is_resumable


def check_resumable(path: Path | IO[bytes]) -> None:
    """Check that an interrupted output can be resumed.

    Raises:
        InputError: It is a stream, or a file of another format than those that can.
    """
    if not isinstance(path, Path):
        raise InputError("--resume needs a file to write to (--output)")
    if not is_resumable(path):
        names = ", ".join(one.name for one in FORMATS.values() if one.write and one.is_resumable)
        raise InputError(
            f"--resume: {path}: {_format_of(path).name} files cannot be resumed, expected one of "
            f"{names} (also compressed)"
        )


def runs_formulas(path: Path | IO[bytes]) -> bool:
    """Return whether a spreadsheet takes some text of an output for formulas."""
    return _format_of(path).runs_formulas and not _format_of(path).has_types


def output_schema(path: Path | IO[bytes], table: Table | None, columns: Mapping[str, str]) -> Any:
    """Return the ``pyarrow.Schema`` of an output, None if its format has no types.

    Args:
        path: The output; a binary stream is CSV.
        table: The input, if its columns come first.
        columns: The other columns, each with its Arrow type, such as ``float64``.
    """
    if not _format_of(path).has_types:
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
    with output_stream(path) as stream, closing(make_writer(stream, header, schema)) as writer:
        yield writer.write


@contextmanager
def output_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when the block ends, compressed if the name says so."""
    with atomic_write(path) as file, compressed(file, path) as stream:
        yield stream


def row_writer(
    path: Path, file: IO[bytes], header: Sequence[str]
) -> Callable[[Sequence[object]], None]:
    """Return the function that writes one row of a resumable table, uncompressed.

    Args:
        path: What the table will be called.
        file: The file that its bytes are written to, the header at once.
        header: The columns.
    """
    return _writer_of(path)(file, header, None).write


def _format_of(path: Path | IO[bytes]) -> FileFormat:
    found = format_by_suffix(path) if isinstance(path, Path) else None
    return found or FORMATS["csv"]


def _writer_of(path: Path) -> WriterMaker:
    found, plain = _format_of(path), path
    if path.suffix.lower() in COMPRESSIONS:
        plain = path.with_suffix("")
    # Such as .xslx, but not the end of run_0.5 or of a date.
    is_unknown = format_by_suffix(path) is None and re.search("[A-Za-z]", plain.suffix)
    if (is_unknown and plain.suffix.lower() != ".txt") or found.write is None:
        suffixes = (one.suffixes[0] for one in FORMATS.values() if one.write is not None)
        raise InputError(
            f"{path}: got a file {plain.suffix}, expected {', '.join(suffixes)}, .txt or none"
        )
    if plain != path and not found.is_text:
        raise InputError(
            f"{path}: {found.name} files are compressed already, expected the name {plain}"
        )
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"{path}: expected a file in a folder that exists")
    return found.write
