"""The file formats of tables, and how a file's format is recognized."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from molattn.data.table.base import Table, TableWriter
from molattn.data.table.delimited import DelimitedTable, DelimitedWriter
from molattn.data.table.smi import SMITable, SMIWriter
from molattn.data.table.text import COMPRESSIONS, file_start
from molattn.errors import InputError
from molattn.utils.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BUNDLED_TARGET",
    "BUNDLED_UNIT",
    "FORMATS",
    "FileFormat",
    "WriterMaker",
    "bundled_dataset",
    "format_by_suffix",
    "open_table",
]

BUNDLED_TARGET = "logS"
BUNDLED_UNIT = "log mol/L"
_OTHERS = {
    rb"\xd0\xcf\x11\xe0": "an old or encrypted Excel workbook",
    rb"PK\x03\x04(?!.{26}(\[Content_Types|_rels/|docProps/|xl/|customXml/))": "a ZIP archive",
    rb"(\xef\xbb\xbf)?\s*(\{\s*[\"}]|\[\s*[\[{\"])": "JSON",
}
"""What is not read, by a pattern of its first bytes."""

WriterMaker = Callable[[IO[bytes], Sequence[str], Any], TableWriter]


@dataclass(frozen=True)
class FileFormat:
    """A file format of tables.

    Args:
        name: Its name in messages, such as ``CSV``.
        suffixes: Endings of such files' names in lower case, such as ``.csv``.
        read: Opens a file as a table.
        write: Returns the writer of a new file, given the file, the columns and, if ``has_types``,
            their types as a ``pyarrow.Schema`` or None; None = such files are only read.
        signature: The first bytes of each such file, by which it is recognized under any name.
        is_text: Whether it is text: a file of another known kind is then refused, and a name that
            ends with ``.gz`` or ``.zst`` is written compressed.
        has_types: Whether columns have Arrow types; otherwise cells are written as texts.
        runs_formulas: Whether a spreadsheet takes text such as ``=1+1`` for a formula.
        is_resumable: Whether rows can be added to a file later: its writer puts the header into the
            file when it is made, each row when it is written, and nothing when it is closed.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path], Table]
    write: WriterMaker | None = None
    signature: bytes = b""
    is_text: bool = True
    has_types: bool = False
    runs_formulas: bool = True
    is_resumable: bool = False


FORMATS: Registry[FileFormat] = Registry("file format")
"""File formats by name; of two that share a suffix, the one registered last has it."""


def open_table(path: "str | Path | pd.DataFrame | Table") -> Table:
    """Open a table: a CSV, TSV, Parquet, Excel, SDF or SMILES file, a store, or a frame.

    Parquet, Excel, gzip and Zstandard are recognized by content, other formats by the suffix
    (``.csv``, ``.tsv``, ``.sdf``, ``.smi`` and similar); a file with an unknown suffix is read as
    CSV. Text may be compressed, and UTF-8 or UTF-16.

    Args:
        path: The file, of these or another registered format; the folder of a store of prepared
            molecules; or a pandas DataFrame. A table is returned as it is.

    Raises:
        InputError: The file cannot be read, or is not such a table.
    """
    if isinstance(path, Table):
        return path
    if not isinstance(path, str | Path):
        from molattn.data.table.frame import FrameTable  # pandas is slow to import

        return FrameTable(path)
    path = Path(path) if isinstance(path, str) else path
    if os.path.isdir(path):  # unlike Path.is_dir, no error if the name is too long
        from molattn.data.store.table import StoreTable

        return StoreTable(path)
    return _recognized(path).read(path)


def bundled_dataset() -> Path:
    """Return the CSV file of 1,282 measured aqueous solubilities that comes with the package.

    Its columns are name, smiles, logS (log mol/L) and split (train, test).

    Raises:
        InputError: The installation lacks it.
    """
    package = Path(__file__).parents[2]
    for folder in (package.parent / "datasets", package):  # in a checkout, in a wheel
        if (path := folder / "solubility.csv").is_file():
            return path
    raise InputError(
        "solubility.csv, the bundled dataset, is not installed; use a table of your own"
    )


def format_by_suffix(path: Path) -> FileFormat | None:
    """Return the format of a file's name, before ``.gz`` or ``.zst``; None if unknown."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    known = {suffix: one for one in FORMATS.values() for suffix in one.suffixes}
    return known.get(suffixes[-1]) if suffixes else None


def _recognized(path: Path) -> FileFormat:
    start = file_start(path)
    others = (name for one, name in _OTHERS.items() if re.match(one, start, re.DOTALL))
    other, found = next(others, None), format_by_suffix(path) or FORMATS["csv"]
    for one in FORMATS.values():
        if one.signature and start.startswith(one.signature) and (other is None or one is found):
            return one
    if found.signature or (other and found.is_text):
        *names, last = (one.name for one in FORMATS.values())
        expected = found.name if found.signature else f"a {', '.join(names)} or {last} file"
        raise InputError(f"{path}: got {other or 'something else'}, expected {expected}")
    return found


def _lazy(module: str, name: str) -> Callable[..., Any]:
    """Return a class whose module is imported when it is first called: RDKit, pyarrow are slow."""

    def make(*args: Any) -> Any:
        return getattr(import_module(f"molattn.data.table.{module}"), name)(*args)

    return make


for _key, _format in {
    "csv": FileFormat("CSV", (".csv",), DelimitedTable, DelimitedWriter, is_resumable=True),
    "tsv": FileFormat(
        "TSV",
        (".tsv", ".tab"),
        partial(DelimitedTable, delimiter="\t"),
        partial(DelimitedWriter, delimiter="\t"),
        is_resumable=True,
    ),
    "parquet": FileFormat(
        "Parquet",
        (".parquet", ".pq"),
        _lazy("parquet", "ParquetTable"),
        _lazy("parquet", "ParquetWriter"),
        signature=b"PAR1",
        is_text=False,
        has_types=True,
    ),
    "xlsx": FileFormat(
        "Excel",
        (".xlsx",),
        _lazy("xlsx", "XlsxTable"),
        _lazy("xlsx", "XlsxWriter"),
        signature=b"PK\x03\x04",
        is_text=False,
        has_types=True,
    ),
    "sdf": FileFormat(
        "SDF",
        (".sdf", ".sd", ".mol"),
        _lazy("sdf", "SDFTable"),
        _lazy("sdf", "SDFWriter"),
        runs_formulas=False,
        is_resumable=True,
    ),
    "smi": FileFormat(
        "SMILES",
        (".smi", ".smiles", ".ism"),
        SMITable,
        SMIWriter,
        runs_formulas=False,
        is_resumable=True,
    ),
}.items():
    FORMATS.register(_key)(_format)
