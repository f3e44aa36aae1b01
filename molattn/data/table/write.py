"""Rows to files."""

import gzip
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import Table
from molattn.data.table.formats import FORMATS, FileFormat, WriterMaker, format_by_suffix
from molattn.errors import InputError
from molattn.utils.files import atomic_write

__all__ = ["check_output", "escape_formula", "output_schema", "write_table"]

_NUMBER = r"[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?%?"
_FORMULA = re.compile(rf"(?!{_NUMBER}\Z)[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n].", re.DOTALL)
# A CSV file of such a name could not be opened by the program that the name is meant for.
_NOT_WRITTEN = ".xlsx .xls .ods .json .jsonl .feather .arrow .h5 .pkl .zip .bz2 .xz .zst".split()


def check_output(path: Path) -> None:
    """Check that a table can be written to a file, before anything is computed.

    Raises:
        InputError: The name stands for a format that is not written, or the path is not a file's.
    """
    _writer_of(path)


def escape_formula(text: str) -> str:
    """Return the text, after an apostrophe if a spreadsheet would take it for a formula.

    That is a text, other than a number such as ``-1.5``, that begins with ``=``, ``+``, ``-``,
    ``@`` (or a full-width form of these), a tab, a carriage return or a line feed.

    Source: OWASP, CSV Injection.
    """
    return f"'{text}" if _FORMULA.match(text) else text


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
    format, otherwise CSV; text with ``.gz`` after it is compressed.

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
    found, make_writer = _writer_of(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(atomic_write(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        # No time stamp, so that the same rows make the same bytes.
        is_gzip = found.is_text and path.suffix.lower() == ".gz"
        stream: Any = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if is_gzip else file
        try:
            writer = make_writer(stream, header, schema)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        yield writer.write
        writer.close()
        if is_gzip:
            stream.close()


def _writer_of(path: Path) -> tuple[FileFormat, WriterMaker]:
    *others, last = (one.suffixes[0] for one in FORMATS.values() if one.write is not None)
    expected = f"expected {', '.join(others)} or {last}"
    found = format_by_suffix(path)
    if found is None:
        if path.suffix.lower() in _NOT_WRITTEN:
            raise InputError(f"{path}: got the suffix {path.suffix}, {expected}")
        found = FORMATS["csv"]
    if found.write is None:
        raise InputError(f"{path}: {found.name} files cannot be written, {expected}")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: got a folder or a device, expected a file")
    return found, found.write
