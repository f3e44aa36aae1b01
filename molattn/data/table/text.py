"""Tables of text: CSV and TSV, and SMILES files."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import IO, Any

from molattn.data.table.base import (
    ENCODING_ERRORS,
    MOST_CHARACTERS,
    Row,
    Source,
    Table,
    TableWriter,
    is_structure,
    listed,
)
from molattn.errors import InputError

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SPECIAL = {",": re.compile('[,"\r\n]'), "\t": re.compile('[\t"\r\n]')}
_ROWS_TRIED = 20
_SMI_LINE = re.compile(r"\s*(\S+(?:[ \t]+\|[^|]*\|)?)\s*(.*?)\s*", re.DOTALL)
_SMI_HEADINGS = ("smiles", "canonical_smiles", "isomeric_smiles")
_SMI_SEPARATORS = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class DelimitedTable(Table):
    """Cells separated by commas, semicolons or tabs, with a header.

    The expected delimiter is used if the header has it. If the header has several of the three, it
    is the one that makes the first rows as wide as the header. Blank lines are skipped, but in a
    table of one column a blank line before the last row is an empty cell.
    """

    def __init__(self, source: Source, delimiter: str = ",") -> None:
        super().__init__(source)
        source.check_text()
        widths = {candidate: self._widths(candidate) for candidate in (delimiter, *_DELIMITERS)}
        fitting = [candidate for candidate, counts in widths.items() if counts and counts[0] > 1]
        self.delimiter = min(
            fitting, key=lambda candidate: len({*widths[candidate]}) > 1, default=delimiter
        )
        if source.is_utf_16:
            self.remarks += ("read as UTF-16",)
        if self.delimiter != delimiter:
            self.remarks += (f"cells are separated by {_DELIMITERS[self.delimiter]}",)
        self.header = next((cells for _, cells in self._records(self.delimiter) if cells), [])
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
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
        with self.source.open_text() as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            before = 0
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


class PastedTable(DelimitedTable):
    """Cells separated by tabs, commas or semicolons, with or without a header.

    The first row is a header unless it has a structure in the column of structures, which
    :meth:`Table.column` finds by its cells. Without a header the columns are ``smiles``, ``name``
    (the first other one) and ``column 3`` and so on.

    Raises:
        InputError: There is one column, or no column of structures.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source, "\t")
        words = self.header
        self._has_header = True
        structures = self._structure_column()
        if structures is None or is_structure(words[structures]):
            self._has_header = False
            self.header = [""] * len(words)
            structures = self._structure_column()
        if len(words) == 1 or structures is None:
            raise InputError(f"{self.path}: expected a column of structures among several")
        if not self._has_header:
            self.header = [f"column {number}" for number in range(1, len(words) + 1)]
            self.header[structures] = "smiles"
            self.header[1 if structures == 0 else 0] = "name"
            self.remarks += (f"without a header, structures in column {structures + 1}",)

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        if self._has_header:
            yield from super().__iter__()
            return
        for line, cells in self._records(self.delimiter):
            if cells:
                yield self.row(line, cells, self.delimiter)


def with_found_structures(table: Table) -> Table:
    """Return a SMILES file of several columns without a header as a table, where it is one."""
    if isinstance(table, SMITable) and not table.has_header:
        with suppress(InputError):
            return PastedTable(table.source)
    return table


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

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        line = self._delimiter.join(
            '"' + text.replace('"', '""') + '"' if self._special.search(text) else text
            for text in ("" if cell is None else str(cell) for cell in cells)
        )
        self._file.write(((line or '""') + "\n").encode(errors=ENCODING_ERRORS))


class SMITable(Table):
    """A SMILES file as a table: each line a SMILES and, after a space, a name.

    Without a header, the columns are ``smiles`` and ``name``, the rest of the line. A first line
    that begins with the word ``smiles`` is a header: the columns are its words, separated like the
    cells by tabs or by any white space. Blank lines are skipped.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        source.check_text()
        _, first = next(self._lines(), (0, ""))
        self._delimiter = "\t" if "\t" in first else None
        words = [word.strip() for word in first.split(self._delimiter)]
        self.has_header = bool(words) and words[0].lower() in _SMI_HEADINGS
        self.header = words if self.has_header or not words else ["smiles", "name"]
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the molecules."""
        lines = self._lines()
        if self.has_header:
            next(lines)
        for number, line in lines:
            if self.has_header:
                yield self.row(number, line.split(self._delimiter), " ")
            elif match := _SMI_LINE.fullmatch(line):
                yield Row(number, [*match.groups()])

    def _lines(self) -> Iterator[tuple[int, str]]:
        with self.source.open_text() as text:
            for number, line in enumerate(text, start=1):
                if not line.isspace():
                    yield number, line.rstrip("\r\n")


class SMIWriter(TableWriter):
    """Writes cells separated by tabs, the column of SMILES first, after a header.

    Tabs and line ends within a cell become spaces.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._file = file
        names = [name.lower() for name in header]
        smiles = next((names.index(name) for name in _SMI_HEADINGS if name in names), None)
        if smiles is None:
            raise InputError(
                f"a SMILES file needs a column named {', '.join(_SMI_HEADINGS)}; the columns are "
                f"{listed(header)}"
            )
        self._order = [smiles, *(index for index in range(len(header)) if index != smiles)]
        self.write(header)

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        texts = ("" if cells[index] is None else str(cells[index]) for index in self._order)
        line = "\t".join(_SMI_SEPARATORS.sub(" ", text) for text in texts)
        self._file.write(f"{line}\n".encode(errors=ENCODING_ERRORS))
