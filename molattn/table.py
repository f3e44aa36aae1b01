"""Files to rows, and rows back to files.

A table is a stream of rows that remember their line in the file, so that a file of any length fits
in constant memory and every complaint can say where. Every cell stays the text that it was.
"""

import csv
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from molattn.errors import InputError, quoted

__all__ = [
    "BUNDLED_TARGET",
    "BUNDLED_UNIT",
    "Row",
    "Table",
    "bundled_dataset",
    "column_index",
    "listed",
    "write_table",
]

BUNDLED_TARGET = "logS"
BUNDLED_UNIT = "log mol/L"

# One list for reading and writing, so that bytes which are no UTF-8 come out as they went in.
_ENCODING_ERRORS = "surrogateescape"
_SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\x1f\x8b": "gzip-compressed data",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_SPECIAL = re.compile('[,"\r\n]')
_COLUMNS_SHOWN = 10


class Row(NamedTuple):
    """One row of a table.

    Args:
        line: Line of the file on which the row begins, counted from 1.
        cells: One text for each column.
        fault: Why the cells cannot be told apart, or None.
    """

    line: int
    cells: list[str]
    fault: str | None


class Table:
    """A CSV file, read row by row: comma-separated UTF-8 with a header.

    Blank lines are no rows. A row with too few or too many cells comes out with a ``fault``, padded
    with empty cells or with the surplus joined into its last cell.

    Args:
        path: The file.

    Raises:
        InputError: If the file cannot be read or is no CSV text with a header.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header = next(self._lines(), (0, []))[1]
        if not self.header:
            raise InputError(f"{self.path}: the file is empty, expected a header and rows")
        if any("\0" in name for name in self.header):  # a row that holds one costs only itself
            raise InputError(f"{self.path}: got binary data, expected a CSV table (UTF-8 text)")

    def __iter__(self) -> Iterator[Row]:
        lines = self._lines()
        next(lines, None)
        width = len(self.header)
        for line, cells in lines:
            fault = None
            if len(cells) != width:
                fault = f"{len(cells)} cells where the header has {width}"
            surplus = [",".join(cells[width - 1 :])] if len(cells) > width else cells[width - 1 :]
            padding = [""] * (width - len(cells))
            yield Row(line, cells[: width - 1] + surplus + padding, fault)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        _check_text_file(self.path)
        csv.field_size_limit(sys.maxsize)
        last_line = 0
        try:
            with open(self.path, newline="", encoding="utf-8-sig", errors=_ENCODING_ERRORS) as file:
                reader = csv.reader(file, strict=True)
                try:
                    for cells in reader:
                        line, last_line = last_line + 1, reader.line_num
                        if cells:
                            yield line, cells
                except csv.Error as error:
                    raise InputError(
                        f"{self.path}, line {last_line + 1}: not CSV ({error})"
                    ) from None
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from error

    def column(self, name: str, option: str) -> int:
        """Return the index of a column, or suggest the one that was meant.

        Args:
            name: The column's name in the header.
            option: The option that asked for it, for the message.

        Raises:
            InputError: If there is no such column, or more than one.
        """
        return column_index(self.header, name, option, self.path)


def column_index(header: Sequence[str], name: str, option: str, path: Path) -> int:
    """Return where ``name`` stands in ``header``; see :meth:`Table.column`."""
    found = [index for index, column in enumerate(header) if column == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"{path}: {len(found)} columns are named {quoted(name)} ({option}), expected one"
        )
    if len(header) == 1 and (separator := re.search(r"[;\t|]", header[0])):
        raise InputError(
            f"{path}: no column {quoted(name)} ({option}): the cells seem to be separated by "
            f"{quoted(separator[0])}, expected commas"
        )
    alike = {column.strip().lower(): column for column in header}
    close = get_close_matches(name.strip().lower(), alike, n=1)
    hint = f", did you mean {quoted(alike[close[0]])}?" if close else ";"
    raise InputError(
        f"{path}: no column {quoted(name)} ({option}){hint} the columns are {listed(header)}"
    )


@contextmanager
def write_table(
    path: str | Path, header: Sequence[str]
) -> Iterator[Callable[[Sequence[object]], None]]:
    """Write a CSV file that is there whole or not at all.

    Rows go to a file beside it, which takes its name when the block ends without an exception.

    Args:
        path: The file; one that is there is replaced.
        header: The columns.

    Yields:
        The function that writes one row.

    Raises:
        InputError: If the file cannot be written there.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: there is something that is not a file, expected a CSV to write")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        file = open(  # noqa: SIM115
            partial, "w", newline="", encoding="utf-8", errors=_ENCODING_ERRORS
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        with file:

            def write(cells: Sequence[object]) -> None:
                file.write(_csv_line(cells))

            write(header)
            yield write
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def bundled_dataset() -> Path:
    """Return the file of the 1,282 measured aqueous solubilities that come with the package.

    Columns name, smiles, logS (log mol/L) and split (train, test).

    Raises:
        InputError: If this installation lacks it.
    """
    places = (
        Path(__file__).parents[1] / "datasets",
        Path(__file__).parent,  # where the build puts it in a wheel
    )
    for place in places:
        if (place / "solubility.csv").is_file():
            return place / "solubility.csv"
    raise InputError(
        "solubility.csv, the bundled data set, was not installed; give a table of your own"
    )


def _csv_line(cells: Sequence[object]) -> str:
    # Not csv.writer: with this line end it leaves a carriage return in a cell unquoted.
    texts = [str(cell) for cell in cells]
    quoted_texts = [
        '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text for text in texts
    ]
    return (",".join(quoted_texts) or '""') + "\n"


def _check_text_file(path: Path) -> None:
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not path.is_file():
            raise InputError(f"{path}: not a file, expected a CSV table")
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            raise InputError(f"{path}: got {kind}, expected a CSV table (UTF-8 text)")


def listed(names: Sequence[str]) -> str:
    """Return the names in quotes, the first few of them if they are many."""
    shown = ", ".join(quoted(name) for name in names[:_COLUMNS_SHOWN])
    return (
        f"{shown} and {len(names) - _COLUMNS_SHOWN} more" if len(names) > _COLUMNS_SHOWN else shown
    )
