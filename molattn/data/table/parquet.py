"""Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from molattn.data.table.base import LeftOpen, Row, Table, TableWriter, cell_text, listed
from molattn.data.table.text import valid_text
from molattn.errors import InputError, quoted

__all__ = ["ParquetTable", "ParquetWriter", "arrow_schema"]

_ROWS_READ = 1024
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 2**20
_ERRORS = (pa.ArrowException, ValueError, ArithmeticError, LookupError, OSError)


class ParquetTable(Table):
    """The rows of a Parquet file: ``cells`` as texts, ``values`` with the file's types.

    Raises:
        InputError: It is not a Parquet file, or damaged.
    """

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                self.schema = file.schema_arrow
        except _ERRORS as error:
            raise InputError(f"{path}: not a readable Parquet file: {_line(error)}") from error
        self.header = list(self.schema.names)
        if times := [field.name for field in self.schema if field.type == pa.time64("ns")]:
            self.remarks += (f"times are read without nanoseconds: {listed(times)}",)
        self.check_header()

    def count(self) -> int:
        """Return the number of rows."""
        with pq.ParquetFile(self.path) as file:
            return file.metadata.num_rows

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: The file is damaged, or Python has no such value, as a date before year 1.
        """
        number = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_READ):
                    columns = [
                        self._values(column, field, number)
                        for column, field in zip(batch.columns, self.schema, strict=True)
                    ]
                    texts = [
                        [_text(value, field.type) for value in values]
                        for values, field in zip(columns, self.schema, strict=True)
                    ]
                    for row in range(batch.num_rows):
                        number += 1
                        cells = [column[row] for column in texts]
                        yield Row(number, cells, values=tuple(column[row] for column in columns))
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.path}, after row {number}: not readable Parquet data: {_line(error)}"
            ) from error

    def _values(self, column: pa.Array, field: pa.Field, before: int) -> list[Any]:
        try:
            return column.to_pylist()
        except _ERRORS as error:
            raise InputError(
                f"{self.path}, rows {before + 1} to {before + len(column)}, column "
                f"{quoted(field.name)}: got a value of type {quoted(str(field.type))} that cannot "
                f"be read ({_line(error)}); expected text in UTF-8, numbers, or dates and times of "
                "the years 1 to 9999"
            ) from error


class ParquetWriter(TableWriter):
    """Writes a Parquet file, a row group at a time; without a schema, all columns are texts.

    Raises:
        InputError: Two columns have the same name.
    """

    def __init__(
        self, file: IO[bytes], header: Sequence[str], schema: pa.Schema | None = None
    ) -> None:
        if len(set(header)) != len(header):
            twice = next(name for name in header if list(header).count(name) > 1)
            raise InputError(f"two columns are named {quoted(twice)}, which Parquet does not allow")
        self._schema = schema or _texts(header)
        self._file = pq.ParquetWriter(LeftOpen(file), self._schema)
        self._are_texts = [pa.types.is_string(field.type) for field in self._schema]
        self._most = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, len(header))))
        self._rows: list[Sequence[object]] = []

    def write(self, cells: Sequence[object]) -> None:
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
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


def arrow_schema(table: Table | None, columns: Mapping[str, str]) -> pa.Schema:
    """Return the types of a table's columns, texts unless it has types, and of further columns."""
    own = (table and table.schema) or _texts(table.header if table else ())
    new = [pa.field(valid_text(name), pa.type_for_alias(kind)) for name, kind in columns.items()]
    return pa.schema([*own, *new])


def _texts(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(valid_text(name), pa.string()) for name in names])


def _text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_float32(kind) and value is not None and not value.is_integer():
        return str(np.float32(value))
    return cell_text(value)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
