"""SMILES files."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import Row, Table, TableWriter, listed
from molattn.data.table.text import ENCODING_ERRORS, open_lines, refuse_binary
from molattn.errors import InputError

__all__ = ["SMITable", "SMIWriter"]

_LINE = re.compile(r"(\S+(?:[ \t]+\|[^|]*\|)?)\s*(.*)", re.DOTALL)
_HEADINGS = ("smiles", "canonical_smiles", "isomeric_smiles")
_SEPARATORS = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class SMITable(Table):
    """A SMILES file as a table, plain or gzip: each line a SMILES and, after a space, a name.

    Without a header, the columns are ``smiles`` and ``name``, the rest of the line. A first line
    that begins with the word ``smiles`` is a header: the columns are its words, separated like the
    cells by tabs or by any white space. Blank lines are skipped, but in a file separated by tabs a
    line of tabs is a row of empty cells.

    Raises:
        InputError: The file cannot be read, or is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._delimiter: str | None = None
        self._first, self._has_header = 0, False
        refuse_binary(path)
        first = next(self._lines(), None)
        if first is None:
            raise InputError(f"{path}: the file is empty, expected molecules")
        self._first, self._delimiter = first[0], "\t" if "\t" in first[1] else None
        words = first[1].split(self._delimiter)
        self._has_header = words[0].strip().lower() in _HEADINGS
        self.header = [word.strip() for word in words] if self._has_header else ["smiles", "name"]
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the molecules."""
        lines = self._lines()
        if self._has_header:
            next(lines)
        for number, line in lines:
            yield self._with_header(number, line) if self._has_header else _named(number, line)

    def _with_header(self, number: int, line: str) -> Row:
        cells, width = line.split(self._delimiter), len(self.header)
        if len(cells) == width:
            return Row(number, cells)
        fault = f"the row has {len(cells)} cells, the header has {width}"
        kept = [*cells[: width - 1], " ".join(cells[width - 1 :])]
        return Row(number, kept + [""] * (width - len(kept)), fault, "ragged")

    def _lines(self) -> Iterator[tuple[int, str]]:
        with open_lines(self.path) as text:
            for number, raw in enumerate(text, start=1):
                is_row = self._has_header and number > self._first and "\t" in raw
                if not raw.isspace() or (is_row and self._delimiter):
                    yield number, raw.rstrip("\r\n")


def _named(number: int, line: str) -> Row:
    match = _LINE.fullmatch(line.strip())
    return Row(number, list(match.groups()) if match else [line, ""])


class SMIWriter(TableWriter):
    """Writes cells separated by tabs, the column of SMILES first, after a header.

    Tabs and line ends within a cell become spaces.

    Raises:
        InputError: No column is named as that of SMILES.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._file = file
        names = [name.lower() for name in header]
        place = next((names.index(name) for name in _HEADINGS if name in names), None)
        if place is None:
            *others, last = _HEADINGS
            raise InputError(
                f"a SMILES file needs a column named {', '.join(others)} or {last}; the columns "
                f"are {listed(header)}"
            )
        self._places = [place, *(other for other in range(len(header)) if other != place)]
        self.write(header)

    def write(self, cells: Sequence[object]) -> None:
        """Write a row."""
        texts = ("" if cells[place] is None else str(cells[place]) for place in self._places)
        line = "\t".join(_SEPARATORS.sub(" ", text) for text in texts)
        self._file.write(f"{line}\n".encode(errors=ENCODING_ERRORS))
