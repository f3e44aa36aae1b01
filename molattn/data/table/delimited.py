"""CSV and TSV: cells separated by commas, semicolons or tabs."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import MOST_CHARACTERS, Row, Table, TableWriter
from molattn.data.table.text import ENCODING_ERRORS, is_utf_16, open_lines
from molattn.errors import InputError

__all__ = ["DelimitedTable", "DelimitedWriter"]

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SPECIAL = {",": re.compile('[,"\r\n]'), "\t": re.compile('[\t"\r\n]')}
_ROWS_TRIED = 20


class DelimitedTable(Table):
    """Cells separated by commas, semicolons or tabs, with a header; UTF-8 or UTF-16, or gzip of it.

    The expected delimiter is used if the header has it. If the header has several of the three, it
    is the one that makes the first rows as wide as the header. Blank lines are skipped, but in a
    table of one column a blank line before the last row is an empty cell, unless lines end with two
    carriage returns. A row with too few or too many cells has a ``fault``; it is padded with empty
    cells, or its surplus is joined into the last cell. Empty surplus cells are dropped.

    Args:
        path: The file.
        delimiter: The delimiter that the file's name stands for.

    Raises:
        InputError: The file cannot be read, or is not text with a header.
    """

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self.path = path
        self.delimiter = self._found_delimiter(delimiter)
        if is_utf_16(path):
            self.remarks += ("read as UTF-16",)
        if self.delimiter != delimiter:
            self.remarks += (f"cells are separated by {_DELIMITERS[self.delimiter]}",)
        self.header = next(self._filled_lines(self.delimiter), (0, []))[1]
        if not self.header or self.header == [""]:
            raise InputError(f"{path}: the file is empty, expected a header and rows")
        self.check_header()
        self._blank_are_cells = len(self.header) == 1 and not self._has_doubled_returns()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: A line that cannot be split into cells; names it.
        """
        lines = self._lines(self.delimiter)
        next((line for line, cells in lines if cells), None)  # the header
        width = len(self.header)
        blank = 0
        for line, cells in lines:
            if not cells:
                blank += self._blank_are_cells
                continue
            yield from (Row(number, [""]) for number in range(line - blank, line))
            blank = 0
            while len(cells) > width and not cells[-1]:
                cells.pop()
            if len(cells) == width:
                yield Row(line, cells)
                continue
            fault = f"the row has {len(cells)} cells, the header has {width}"
            last = [self.delimiter.join(cells[width - 1 :])] if len(cells) > width else []
            padding = [""] * (width - len(cells))
            yield Row(line, cells[: width - len(last)] + last + padding, fault, "ragged")

    def _filled_lines(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        return ((line, cells) for line, cells in self._lines(delimiter) if cells)

    def _lines(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(MOST_CHARACTERS)
        last_line = 0
        with open_lines(self.path) as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            try:
                for cells in reader:
                    line, last_line = last_line + 1, reader.line_num
                    yield line, cells
            except csv.Error as error:
                reason = str(error).replace("\t", "\\t")
                hint = "; is there an unclosed quote?" if "limit" in reason else ""
                raise InputError(
                    f"{self.path}, line {last_line + 1}: cannot be split into cells separated by "
                    f"{_DELIMITERS[delimiter]} ({reason}{hint})"
                ) from None

    def _has_doubled_returns(self) -> bool:
        """Return whether lines end with two carriage returns, as text mode on Windows can do."""
        with open_lines(self.path) as text:
            return next(text, "").endswith("\r") and next(text, "") == "\r\n"

    def _found_delimiter(self, expected: str) -> str:
        """Return the delimiter, if possible the expected one."""
        others = [delimiter for delimiter in _DELIMITERS if delimiter != expected]
        fitting = [one for one in (expected, *others) if next(self._widths(one), 0) > 1]
        if len(fitting) > 1:
            fitting.sort(key=lambda one: len(set(self._widths(one))) > 1)  # stable
        return fitting[0] if fitting else expected

    def _widths(self, delimiter: str) -> Iterator[int]:
        """Yield how many cells the header and the first rows would have."""
        with suppress(InputError):  # raised when the file is read
            for _, cells in islice(self._filled_lines(delimiter), _ROWS_TRIED):
                yield len(cells)


class DelimitedWriter(TableWriter):
    """Writes cells separated by commas or tabs.

    Not by ``csv.writer``, which with this line end leaves a carriage return in a cell unquoted.
    """

    def __init__(
        self, file: IO[bytes], header: Sequence[str], types: Any = None, delimiter: str = ","
    ) -> None:
        self._file = file
        self._delimiter = delimiter
        self._special = _SPECIAL[delimiter]
        self.write(header)

    def write(self, cells: Sequence[object]) -> None:
        """Write a row."""
        line = self._delimiter.join(
            '"' + text.replace('"', '""') + '"' if self._special.search(text) else text
            for text in ("" if cell is None else str(cell) for cell in cells)
        )
        self._file.write(((line or '""') + "\n").encode(errors=ENCODING_ERRORS))
