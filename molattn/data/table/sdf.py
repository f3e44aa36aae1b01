"""SDF files: molecules with properties."""

import re
from collections.abc import Iterator
from pathlib import Path

from molattn.chem.limits import read_mol_block
from molattn.data.table.base import MOST_CHARACTERS, MOST_COLUMNS, Row, Table, free_name
from molattn.data.table.text import open_lines, refuse_binary
from molattn.errors import InputError, SmilesError

__all__ = ["SDFTable"]

_END_OF_RECORD = "$$$$"
_END_OF_STRUCTURE = "M  END"
_PROPERTY = re.compile(r">.*<([^<>]*)>")
_MOST_LINES = 20_000
_NAMES = ["smiles", "name"]


class SDFTable(Table):
    """An SDF file as a table of SMILES, names and properties, plain or gzip.

    Columns are ``smiles`` (of the structure), ``name`` (its title line) and every property in the
    file; a property with the name of an earlier column gets an underscore. The row of a molecule
    that cannot be read has a ``fault``.

    Raises:
        InputError: The file cannot be read, or a molecule does not end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_binary(path)
        properties: dict[str, None] = {}
        found = False
        for _, lines in self._records():
            for line in lines:
                found = found or line.startswith(_END_OF_STRUCTURE)
                if line.startswith(">") and (match := _PROPERTY.match(line)):
                    properties[match[1]] = None
            if len(properties) > MOST_COLUMNS:
                raise InputError(f"{path}: got more than {MOST_COLUMNS} properties")
        if not found:
            raise InputError(f"{path}: got no molecule, expected one with a line 'M  END'")
        self.header = [*_NAMES]
        for name in properties:
            self.header.append(free_name(name, self.header))
        self._places = {name: place for place, name in enumerate(properties, start=len(_NAMES))}
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the molecules."""
        for line, lines in self._records():
            yield self._row(line, lines)

    def _row(self, line: int, lines: list[str]) -> Row:
        cells = [""] * len(self.header)
        cells[1] = lines[0].strip()
        end = next(
            (i + 1 for i, text in enumerate(lines) if text.startswith(_END_OF_STRUCTURE)), None
        )
        for name, value in _properties(lines[end or 0 :]):
            if (place := self._places.get(name)) is not None:
                cells[place] = value
        if end is None:
            return Row(line, cells, "the structure has no line 'M  END'", "mol_block")
        if end > _MOST_LINES:
            fault = f"the structure has {end} lines, the limit is {_MOST_LINES}"
            return Row(line, cells, fault, "too_large")
        try:
            smiles = read_mol_block("\n".join(lines[:end]) + "\n")
        except SmilesError as error:
            return Row(line, cells, error.reason, error.code)
        if smiles is None:
            return Row(line, cells, "the structure is not a readable mol block", "mol_block")
        cells[0] = smiles
        return Row(line, cells)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        start, size, lines = 1, 0, []
        with open_lines(self.path) as text:
            for number, raw in enumerate(text, start=1):
                line = raw.rstrip("\r\n")
                if line.startswith(_END_OF_RECORD):
                    yield start, lines or [""]
                    start, size, lines = number + 1, 0, []
                    continue
                size += len(raw)
                if size > MOST_CHARACTERS:
                    raise InputError(
                        f"{self.path}, line {start}: got {MOST_CHARACTERS:,} characters without an "
                        f"end of the molecule, expected a line {_END_OF_RECORD}"
                    )
                lines.append(line)
        if any(line.strip() for line in lines):
            yield start, lines


def _properties(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, values = None, []
    for line in lines:
        match = _PROPERTY.match(line) if line.startswith(">") and name is None else None
        if match is not None:
            name, values = match[1], []
        elif name is not None and line:
            values.append(line)
        elif name is not None:
            yield name, "\n".join(values)
            name = None
    if name is not None:
        yield name, "\n".join(values)
