"""Files to rows, and rows back to files.

A table is a stream of rows with their line numbers, so that a file of any length is read in
constant memory and every error names its row. Cells keep their text unchanged. A format of your own
is one :class:`FileFormat` registered in :data:`FORMATS`.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, TYPE_CHECKING, Any

from molattn.data.table.base import COMPRESSIONS
from molattn.data.table.base import PLUS_MINUS as PLUS_MINUS
from molattn.data.table.base import Row as Row
from molattn.data.table.base import SMILESList as SMILESList
from molattn.data.table.base import Source as Source
from molattn.data.table.base import Table as Table
from molattn.data.table.base import TableWriter as TableWriter
from molattn.data.table.base import Uncalculated as Uncalculated
from molattn.data.table.base import escape_formula as escape_formula
from molattn.data.table.base import free_name as free_name
from molattn.data.table.base import listed as listed
from molattn.data.table.base import name_column as name_column
from molattn.data.table.text import DelimitedTable, DelimitedWriter, SMITable, SMIWriter
from molattn.data.table.text import with_found_structures as with_found_structures
from molattn.errors import InputError
from molattn.utils.files import atomic_write
from molattn.utils.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

BUNDLED_TARGET = "logS"
BUNDLED_UNIT = "log mol/L"
_OTHERS = {
    rb"\xd0\xcf\x11\xe0": "an old or encrypted Excel workbook",
    rb"PK\x03\x04(?!.{26}(\[Content_Types|_rels/|docProps/|xl/|customXml/))": "a ZIP archive",
    rb"(\xef\xbb\xbf)?\s*(\{\s*[\"}]|\[\s*[\[{\"])": "JSON",
}
"""What is not read, by a pattern of its first bytes."""


@dataclass(frozen=True)
class FileFormat:
    """A file format of tables.

    Args:
        name: Its name in messages, such as ``CSV``.
        suffixes: Endings of such files' names in lower case, such as ``.csv``.
        read: Opens a :class:`molattn.data.table.Source` as a table.
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
    read: Callable[[Source], Table]
    write: Callable[[IO[bytes], Sequence[str], Any], TableWriter] | None = None
    signature: bytes = b""
    is_text: bool = True
    has_types: bool = False
    runs_formulas: bool = False
    is_resumable: bool = False


FORMATS: Registry[FileFormat] = Registry("file format")
"""File formats by name; of two that share a suffix, the one registered last has it."""


def open_table(
    source: "str | Path | IO[bytes] | Source | pd.DataFrame | Table",
    format: str | None = None,
    name: str = "",
    options: Any = None,
) -> Table:
    """Open a table: a CSV, TSV, Parquet, Excel, SDF or SMILES file, a store, or a frame.

    Parquet, Excel, gzip and Zstandard are recognized by content, other formats by the suffix
    (``.csv``, ``.tsv``, ``.sdf``, ``.smi`` and similar); a file with an unknown suffix is read as
    CSV. Text may be compressed, and UTF-8 or UTF-16.

    Args:
        source: The file, by path or open in binary mode (an upload, or standard input, which is
            copied to a temporary file); the folder of a store of prepared molecules; or a pandas
            DataFrame. A table is returned as it is.
        format: The format of text in :data:`FORMATS`, such as ``sdf``; by default that of the
            suffix.
        name: What messages call the file; by default its path.
        options: How it is read, a :class:`molattn.config.data.FileOptions` with the options that
            name columns; by default a point is the decimal mark, and an Excel table begins at the
            first row of the first visible sheet that is not blank.

    Raises:
        InputError: The file cannot be read, or is not such a table.
    """
    table = source if isinstance(source, Table) else _opened(source, format, name)
    if options is not None:
        for option in ("sheet", "header_row"):
            if getattr(options, option) is not None and not (table.has_sheets or table is source):
                raise InputError(f"needs an Excel file, got {table.path}", option=option)
        table.use(options)
    return table


def _opened(
    source: "str | Path | IO[bytes] | Source | pd.DataFrame", format: str | None, name: str
) -> Table:
    if isinstance(source, str | Path) and os.path.isdir(source):
        from molattn.data.store import StoreTable

        return StoreTable(Path(source))
    if not (isinstance(source, str | Path | Source) or hasattr(source, "read")):
        from molattn.data.table.typed import FrameTable  # pyarrow is slow to import

        return FrameTable(source)  # pyright: ignore
    if not isinstance(source, Source):
        source = Source(source, name)  # pyright: ignore
    return _recognized(source, format).read(source)


def bundled_dataset() -> Path:
    """Return the CSV file of 1,282 measured aqueous solubilities that comes with the package.

    Its columns are name, smiles, logS (log mol/L) and split (train, test).
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
    by_suffix = {
        suffix: file_format for file_format in FORMATS.values() for suffix in file_format.suffixes
    }
    return by_suffix.get(suffixes[-1]) if suffixes else None


def output_format(output: Path | IO[bytes]) -> FileFormat:
    """Return the format that a table is written in; a binary stream is CSV."""
    if not isinstance(output, Path):
        return FORMATS["csv"]
    suffix_format = format_by_suffix(output)
    file_format = suffix_format or FORMATS["csv"]
    packing = output.suffix if output.suffix.lower() in COMPRESSIONS else ""
    plain = output.with_suffix("") if packing else output
    # Such as .xslx, but not the end of run_0.5 or of a date.
    is_unknown = suffix_format is None and re.search("[A-Za-z]", plain.suffix)
    is_refused = (is_unknown and plain.suffix.lower() != ".txt") or file_format.write is None
    if is_refused or (packing and not file_format.is_text):
        suffixes = (
            candidate.suffixes[0] for candidate in FORMATS.values() if candidate.write is not None
        )
        raise InputError(
            f"{output}: got a file {plain.suffix}{packing}, expected {', '.join(suffixes)}, .txt "
            "or none; text may be compressed"
        )
    if not output.parent.is_dir() or (output.exists() and not output.is_file()):
        raise InputError(f"{output}: expected a file in a folder that exists")
    return file_format


def output_schema(output: Path | IO[bytes], table: Table | None, columns: Mapping[str, str]) -> Any:
    """Return the ``pyarrow.Schema`` of an output, None if its format has no types.

    Columns of ``table`` come first, then ``columns`` with their Arrow types, such as ``float64``.
    """
    if not output_format(output).has_types:
        return None
    from molattn.data.table.typed import arrow_schema  # pyarrow is slow to import

    return arrow_schema(table, columns)


@contextmanager
def write_table(
    output: str | Path | IO[bytes], header: Sequence[str], schema: Any = None
) -> Iterator[Callable[..., None]]:
    """Write a table, whole or not at all.

    Rows go to a temporary file beside the path, which is renamed when the block ends without an
    exception. The suffix decides the format: ``.tsv``, ``.parquet`` or that of another registered
    format, otherwise CSV; text with ``.gz`` or ``.zst`` after it is compressed.

    Args:
        output: The file; an existing one is replaced. CSV goes to a binary stream as it is written.
        header: The columns.
        schema: Their types, of :func:`output_schema`; by default texts.

    Yields:
        The function that writes one row, :meth:`TableWriter.write`.

    Raises:
        InputError: The file cannot be written.
    """
    output = Path(output) if isinstance(output, str) else output
    make: Any = output_format(output).write
    if isinstance(output, Path):
        with output_stream(output) as stream, closing(make(stream, header, schema)) as writer:
            yield writer.write
    else:
        yield make(output, header, schema).write


@contextmanager
def output_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when the block ends, compressed if the name says so."""
    kind = COMPRESSIONS.get(path.suffix.lower())
    with atomic_write(path) as file:
        if kind is None:
            yield file
            return
        import pyarrow as pa

        # It closes what it writes to.
        with pa.CompressedOutputStream(open(os.dup(file.fileno()), "wb"), kind) as stream:
            yield stream


def _recognized(source: Source, format: str | None) -> FileFormat:
    named_format = FORMATS[format] if format else format_by_suffix(source.name) or FORMATS["csv"]
    others = (
        name for pattern, name in _OTHERS.items() if re.match(pattern, source.start, re.DOTALL)
    )
    other_kind = next(others, None)
    for file_format in FORMATS.values():
        is_signed = file_format.signature and source.start.startswith(file_format.signature)
        if is_signed and (other_kind is None or file_format is named_format):
            return file_format
    if named_format.signature or (other_kind and named_format.is_text):
        *names, last = (file_format.name for file_format in FORMATS.values())
        expected = (
            named_format.name if named_format.signature else f"a {', '.join(names)} or {last} file"
        )
        raise InputError(
            f"{source.name}: got {other_kind or 'something else'}, expected {expected}"
        )
    return named_format


def _lazy(name: str) -> Callable[..., Any]:
    """Return a class whose module is imported when it is first called: RDKit, pyarrow are slow."""
    return lambda *args: resolve_name(f"molattn.data.table.{name}")(*args)


_TEXT: Any = {"is_resumable": True}
_SPREADSHEET: Any = {"is_resumable": True, "runs_formulas": True}
_BINARY: Any = {"is_text": False, "has_types": True}
_TSV = partial(DelimitedTable, delimiter="\t"), partial(DelimitedWriter, delimiter="\t")
_PARQUET = _lazy("typed:ParquetTable"), _lazy("typed:ParquetWriter")
_XLSX = _lazy("typed:XlsxTable"), _lazy("typed:XlsxWriter")
_SDF = _lazy("sdf:SDFTable"), _lazy("sdf:SDFWriter")
for _key, _format in {
    "csv": FileFormat("CSV", (".csv",), DelimitedTable, DelimitedWriter, **_SPREADSHEET),
    "tsv": FileFormat("TSV", (".tsv", ".tab"), *_TSV, **_SPREADSHEET),
    "parquet": FileFormat("Parquet", (".parquet", ".pq"), *_PARQUET, b"PAR1", **_BINARY),
    "xlsx": FileFormat("Excel", (".xlsx",), *_XLSX, b"PK\x03\x04", **_BINARY),
    "sdf": FileFormat("SDF", (".sdf", ".sd", ".mol"), *_SDF, **_TEXT),
    "smi": FileFormat("SMILES", (".smi", ".smiles", ".ism"), SMITable, SMIWriter, **_TEXT),
}.items():
    FORMATS.register(_key)(_format)
