"""Open a table of any kind."""

from pathlib import Path

from .delimited import DelimitedTable
from .rows import Table
from .source import kind_of

__all__ = ["open_table"]


def open_table(path: str | Path) -> Table:
    """Open a CSV, TSV, Parquet, SDF or SMILES file, text also as gzip.

    Parquet and gzip are known by their content; other kinds by the name's ending (``.csv``,
    ``.tsv``, ``.sdf``, ``.smi`` and their likes), and CSV is supposed where it says nothing.

    Args:
        path: The file.

    Raises:
        InputError: If the file cannot be read or is no such table.
    """
    path = Path(path)
    kind = kind_of(path)
    if kind == "parquet":
        from .parquet import ParquetTable  # pyarrow takes its time

        return ParquetTable(path)
    if kind == "sdf":
        from .sdf import SDFTable  # so does RDKit

        return SDFTable(path)
    if kind == "smi":
        from .smi import SMITable

        return SMITable(path)
    return DelimitedTable(path, "\t" if kind == "tsv" else ",")
