"""Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from molattn.data.table.base import MOST_COLUMNS, Row, Table, cell_text
from molattn.errors import InputError

__all__ = ["ParquetTable"]

_ROWS_AT_ONCE = 1024


class ParquetTable(Table):
    """The rows of a Parquet file; their cells are texts, and ``values`` what the file holds.

    Args:
        path: The file.

    Raises:
        InputError: If it is no Parquet file, or damaged.
    """

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                self.schema = file.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: not a readable Parquet file: {_line(error)}") from error
        self.header = list(self.schema.names)
        if not self.header:
            raise InputError(f"{path}: the file has no columns")
        if len(self.header) > MOST_COLUMNS:
            raise InputError(
                f"{path}: got {len(self.header)} columns, expected at most {MOST_COLUMNS}"
            )

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: If the file is damaged.
        """
        number = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                    columns = [column.to_pylist() for column in batch.columns]
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


def _text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_float32(kind) and value is not None and not value.is_integer():
        return str(np.float32(value))
    return cell_text(value)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
