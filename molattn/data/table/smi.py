"""SMILES files."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from molattn.data.table.base import Row, Table, TableWriter, listed
from molattn.data.table.text import ENCODING_ERRORS, check_text, open_text
from molattn.errors import InputError

__all__ = ["SMITable", "SMIWriter"]

_LINE = re.compile(r"\s*(\S+(?:[ \t]+\|[^|]*\|)?)\s*(.*?)\s*", re.DOTALL)
_HEADINGS = ("smiles", "canonical_smiles", "isomeric_smiles")
_SEPARATORS = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class SMITable(Table):
    """A SMILES file as a table: each line a SMILES and, after a space, a name.

    Without a header, the columns are ``smiles`` and ``name``, the rest of the line. A first line
    that begins with the word ``smiles`` is a header: the columns are its words, separated like the
    cells by tabs or by any white space. Blank lines are skipped.

    Raises:
        InputError: The file cannot be read, or is empty.
    """

    def __init__(self, path: Path) -> None:
        check_text(path)
        self.path = path
        _, first = next(self._lines(), (0, None))
        if first is None:
            raise InputError(f"{path}: the file is empty, expected molecules")
        self._delimiter = "\t" if "\t" in first else None
        words = [word.strip() for word in first.split(self._delimiter)]
        self._has_header = words[0].lower() in _HEADINGS
        self.header = words if self._has_header else ["smiles", "name"]
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the molecules."""
        lines = self._lines()
        if self._has_header:
            next(lines)
        for number, line in lines:
            if self._has_header:
                yield self.row(number, line.split(self._delimiter), " ")
            elif match := _LINE.fullmatch(line):
                yield Row(number, [*match.groups()])

    def _lines(self) -> Iterator[tuple[int, str]]:
        with open_text(self.path) as text:
            for number, line in enumerate(text, start=1):
                if not line.isspace():
                    yield number, line.rstrip("\r\n")


class SMIWriter(TableWriter):
    """Writes cells separated by tabs, the column of SMILES first, after a header.

    Tabs and line ends within a cell become spaces.

    Raises:
        InputError: No column is named as that of SMILES.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._file = file
        names = [name.lower() for name in header]
        smiles = next((names.index(name) for name in _HEADINGS if name in names), None)
        if smiles is None:
            raise InputError(
                f"a SMILES file needs a column named {', '.join(_HEADINGS[:2])} or "
                f"{_HEADINGS[2]}; the columns are {listed(header)}"
            )
        self._order = [smiles, *(other for other in range(len(header)) if other != smiles)]
        self.write(header)

    def write(self, cells: Sequence[object]) -> None:
        """Write a row."""
        texts = ("" if cells[index] is None else str(cells[index]) for index in self._order)
        line = "\t".join(_SEPARATORS.sub(" ", text) for text in texts)
        self._file.write(f"{line}\n".encode(errors=ENCODING_ERRORS))
