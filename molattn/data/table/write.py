"""Rows to files."""

import gzip
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import Table
from molattn.data.table.file_format import ENCODING_ERRORS, kind_of_name
from molattn.errors import InputError, quoted
from molattn.utils.files import atomic_write

__all__ = ["check_output", "no_formula", "output_schema", "write_table"]

_SPECIAL = {",": re.compile('[,"\r\n]'), "\t": re.compile('[\t"\r\n]')}
_FORMULA = re.compile(r"(?![+-]?[\d.]+$)[=+\-@\t\r].", re.DOTALL)
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 2**20
# Whoever asks for these would not be able to open a CSV file of that name.
_NOT_WRITTEN = ".xlsx .xls .ods .json .jsonl .feather .arrow .h5 .pkl .zip .bz2 .xz .zst".split()


def check_output(path: Path) -> None:
    """Refuse an output that cannot be a table, before anything is computed.

    Raises:
        InputError: A name of a kind that is only read, or a place that holds no file.
    """
    if (kind := kind_of_name(path)) not in ("csv", "tsv", "parquet"):
        raise InputError(f"{path}: got a {kind.upper()} file, expected .csv, .tsv or .parquet")
    if path.suffix.lower() in _NOT_WRITTEN:
        raise InputError(f"{path}: got the ending {path.suffix}, expected .csv, .tsv or .parquet")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: there is something that is not a file, expected one to write")


def no_formula(text: str) -> str:
    """Return the text, behind an apostrophe if a spreadsheet would take it for a formula.

    For texts that are refused, such as ``=cmd()`` for a SMILES; others stay what they were.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def output_schema(path: Path, table: Table | None, columns: Mapping[str, str]) -> Any:
    """Return the types of an output's columns as a ``pyarrow.Schema``, None if it is no Parquet.

    Args:
        path: The output.
        table: The input, if its columns come first.
        columns: The other columns, each with its Arrow type, such as ``float64``.
    """
    if kind_of_name(path) != "parquet":
        return None
    import pyarrow as pa  # takes its time

    names = table.header if table else ()
    own = (table and table.schema) or pa.schema([(_plain(name), pa.string()) for name in names])
    new = [pa.field(_plain(name), pa.type_for_alias(kind)) for name, kind in columns.items()]
    return pa.schema([*own, *new])


@contextmanager
def write_table(
    path: str | Path, header: Sequence[str], schema: Any = None
) -> Iterator[Callable[[Sequence[object]], None]]:
    """Write a table that is there whole or not at all.

    Rows go to a file beside it, which takes its name when the block ends without an exception. The
    name's ending decides: ``.tsv``, ``.parquet``, otherwise CSV; with ``.gz`` after it, as gzip.

    Args:
        path: The file; one that is there is replaced.
        header: The columns.
        schema: Their types, of :func:`output_schema`; by default texts.

    Yields:
        The function that writes one row; in text, None is an empty cell.

    Raises:
        InputError: If the file cannot be written there.
    """
    path = Path(path)
    check_output(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(atomic_write(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        writer = _writer(path, file, header, schema)
        yield writer.write
        writer.close()


class _Writer(ABC):
    @abstractmethod
    def write(self, cells: Sequence[object]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def _writer(path: Path, file: IO[bytes], header: Sequence[str], schema: Any) -> _Writer:
    kind = kind_of_name(path)
    if kind == "parquet":
        return _ParquetWriter(path, file, header, schema)
    is_gzip = path.suffix.lower() == ".gz"
    return _TextWriter(file, header, "\t" if kind == "tsv" else ",", is_gzip)


class _TextWriter(_Writer):
    """CSV or TSV.

    Not by csv.writer: with this line end it leaves a carriage return in a cell unquoted.
    """

    def __init__(
        self, file: IO[bytes], header: Sequence[str], delimiter: str, is_gzip: bool
    ) -> None:
        # No time stamp, so that the same rows make the same bytes.
        self._gzip = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if is_gzip else None
        self._file: Any = self._gzip or file
        self._delimiter = delimiter
        self._special = _SPECIAL[delimiter]
        self.write(header)

    def write(self, cells: Sequence[object]) -> None:
        texts = ["" if cell is None else str(cell) for cell in cells]
        line = self._delimiter.join(
            '"' + text.replace('"', '""') + '"' if self._special.search(text) else text
            for text in texts
        )
        self._file.write(((line or '""') + "\n").encode(errors=ENCODING_ERRORS))

    def close(self) -> None:
        if self._gzip is not None:
            self._gzip.close()


class _ParquetWriter(_Writer):
    """Parquet, a row group at a time."""

    def __init__(self, path: Path, file: IO[bytes], header: Sequence[str], schema: Any) -> None:
        import pyarrow as pa  # takes its time
        import pyarrow.parquet as pq

        if len(set(header)) != len(header):
            twice = next(name for name in header if list(header).count(name) > 1)
            raise InputError(
                f"{path}: two columns are named {quoted(twice)}, which Parquet does not allow"
            )
        self._pa = pa
        self._schema = schema or pa.schema([(_plain(name), pa.string()) for name in header])
        self._file = pq.ParquetWriter(file, self._schema)
        self._most = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, len(header))))
        self._rows: list[Sequence[object]] = []

    def write(self, cells: Sequence[object]) -> None:
        self._rows.append([_plain(cell) for cell in cells])
        if len(self._rows) >= self._most:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._schema)
        arrays = [
            self._pa.array(column, type=field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._file.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


def _plain(cell: Any) -> Any:
    """Return a text without bytes that are no UTF-8, which Parquet cannot hold."""
    return (
        cell.encode(errors=ENCODING_ERRORS).decode(errors="replace") if type(cell) is str else cell
    )
