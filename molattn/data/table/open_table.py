"""Open a table of any kind."""

from pathlib import Path
from typing import TYPE_CHECKING

from molattn.data.table.base import Table
from molattn.data.table.delimited import DelimitedTable
from molattn.data.table.file_format import kind_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["open_table"]


def open_table(path: "str | Path | pd.DataFrame | Table") -> Table:
    """Open a CSV, TSV, Parquet, SDF or SMILES file, or a pandas DataFrame.

    Parquet and gzip are known by their content; other kinds by the name's ending (``.csv``,
    ``.tsv``, ``.sdf``, ``.smi`` and their likes), and CSV is supposed where it says nothing. Text
    may be gzip, and UTF-8 or UTF-16.

    Args:
        path: The file, or the frame; a table is taken as it is.

    Raises:
        InputError: If the file cannot be read or is no such table.
    """
    if isinstance(path, Table):
        return path
    if not isinstance(path, str | Path):
        from molattn.data.table.frame import FrameTable

        return FrameTable(path)
    path = Path(path)
    kind = kind_of(path)
    if kind == "parquet":
        from molattn.data.table.parquet import ParquetTable  # pyarrow takes its time

        return ParquetTable(path)
    if kind == "sdf":
        from molattn.data.table.sdf import SDFTable  # so does RDKit

        return SDFTable(path)
    if kind == "smi":
        from molattn.data.table.smi import SMITable

        return SMITable(path)
    return DelimitedTable(path, "\t" if kind == "tsv" else ",")
