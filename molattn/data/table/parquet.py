"""Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from molattn.data.table.base import Row, Table, TableWriter, cell_text
from molattn.data.table.source import Source, valid_text
from molattn.errors import InputError

_ROWS_READ = 1024
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 2**20
_ERRORS = (pa.ArrowException, ValueError, ArithmeticError, LookupError, OSError)


class ParquetTable(Table):
    """The rows of a Parquet file: ``cells`` as texts, ``values`` with the file's types."""

    unit = "row"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        try:
            with pq.ParquetFile(source.path) as file:
                self.schema, self._count = file.schema_arrow, file.metadata.num_rows
        except _ERRORS as error:
            raise self._unreadable(error) from error
        self.header = list(self.schema.names)
        self.check_header()

    def count(self) -> int:
        """Return the number of rows."""
        return self._count

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        number = 0
        try:
            with pq.ParquetFile(self.source.path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_READ):
                    columns = [column.to_pylist() for column in batch.columns]
                    texts = [
                        [_text(value, kind) for value in values]
                        for values, kind in zip(columns, batch.schema.types, strict=True)
                    ]
                    rows = zip(zip(*texts, strict=True), zip(*columns, strict=True), strict=True)
                    for cells, values in rows:
                        number += 1
                        yield Row(number, [*cells], values=values)
        except _ERRORS as error:
            raise self._unreadable(error, f", after row {number}") from error

    def _unreadable(self, error: Exception, where: str = "") -> InputError:
        reason = " ".join(str(error).split())
        return InputError(f"{self.path}{where}: not a readable Parquet file: {reason}")


class ParquetWriter(TableWriter):
    """Writes a Parquet file, a row group at a time; without a schema, all columns are texts."""

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        if len(set(header)) != len(header):
            raise InputError(f"two columns of {list(header)} have the same name; not in Parquet")
        self._schema = types or _texts(header)
        self._file = pq.ParquetWriter(file, self._schema)
        self._are_texts = [pa.types.is_string(field.type) for field in self._schema]
        self._most = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, len(header))))
        self._rows: list[Sequence[object]] = []

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        self._rows.append(
            [
                valid_text(cell_text(cell)) if is_text and cell is not None else cell
                for cell, is_text in zip(cells, self._are_texts, strict=True)
            ]
        )
        if len(self._rows) >= self._most:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the end of the file."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._schema)
        fields = zip(columns, self._schema, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in fields]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


def arrow_schema(table: Table | None, columns: Mapping[str, str]) -> pa.Schema:
    """Return the types of the columns of an output."""
    own = (table and table.schema) or _texts(table.header if table else ())
    new = [pa.field(valid_text(name), pa.type_for_alias(kind)) for name, kind in columns.items()]
    return pa.schema([*own, *new])


def _texts(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(valid_text(name), pa.string()) for name in names])


def _text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_float32(kind) and value is not None and not value.is_integer():
        return str(np.float32(value))
    return cell_text(value)
