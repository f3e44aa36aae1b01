"""CSV and TSV: cells separated by commas, semicolons or tabs."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import MOST_CHARACTERS, Row, Table, TableWriter
from molattn.data.table.text import ENCODING_ERRORS, check_text, is_utf_16, open_text
from molattn.errors import InputError

__all__ = ["DelimitedTable", "DelimitedWriter"]

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SPECIAL = {",": re.compile('[,"\r\n]'), "\t": re.compile('[\t"\r\n]')}
_ROWS_TRIED = 20


class DelimitedTable(Table):
    """Cells separated by commas, semicolons or tabs, with a header.

    The expected delimiter is used if the header has it. If the header has several of the three, it
    is the one that makes the first rows as wide as the header. Blank lines are skipped, but in a
    table of one column a blank line before the last row is an empty cell.

    Args:
        path: The file.
        delimiter: The delimiter that the file's name stands for.

    Raises:
        InputError: The file cannot be read, or is not text with a header.
    """

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        check_text(path)
        self.path = path
        others = [one for one in _DELIMITERS if one != delimiter]
        widths = {one: self._widths(one) for one in (delimiter, *others)}
        fitting = [one for one, found in widths.items() if found and found[0] > 1]
        self.delimiter = min(fitting, key=lambda one: len({*widths[one]}) > 1, default=delimiter)
        if is_utf_16(path):
            self.remarks += ("read as UTF-16",)
        if self.delimiter != delimiter:
            self.remarks += (f"cells are separated by {_DELIMITERS[self.delimiter]}",)
        self.header = next((cells for _, cells in self._records(self.delimiter) if cells), [])
        if not self.header or self.header == [""]:
            raise InputError(f"{path}: the file is empty, expected a header and rows")
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: A line that cannot be split into cells; names it.
        """
        records = self._records(self.delimiter)
        next(line for line, cells in records if cells)  # the header
        blank = 0
        for line, cells in records:
            if not cells:
                blank += len(self.header) == 1
                continue
            yield from (Row(number, [""]) for number in range(line - blank, line))
            blank = 0
            yield self.row(line, cells, self.delimiter)

    def _widths(self, delimiter: str) -> list[int]:
        """Return how many cells the header and the first rows would have."""
        with suppress(InputError):  # raised when the file is read
            filled = (cells for _, cells in self._records(delimiter) if cells)
            return [len(cells) for cells in islice(filled, _ROWS_TRIED)]
        return []

    def _records(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the line on which each record begins, and its cells; a blank line has none."""
        csv.field_size_limit(MOST_CHARACTERS)
        with open_text(self.path) as text:
            reader, before = csv.reader(text, delimiter=delimiter, strict=True), 0
            try:
                for cells in reader:
                    yield before + 1, cells
                    before = reader.line_num
            except csv.Error as error:
                reason = str(error).replace("\t", "\\t")
                raise InputError(
                    f"{self.path}, line {before + 1}: cannot be split into cells separated by "
                    f"{_DELIMITERS[delimiter]} ({reason}); is there an unclosed quote?"
                ) from None


class DelimitedWriter(TableWriter):
    """Writes cells separated by commas or tabs.

    Not by ``csv.writer``, which before Python 3.13 leaves a carriage return in a cell unquoted.
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
