"""SDF files: molecules with properties."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from molattn.chem.limits import read_mol_block, write_mol_block
from molattn.chem.parse import smiles_of_mol_block
from molattn.config import MoleculeLimits
from molattn.data.table.base import (
    MOST_CHARACTERS,
    MOST_COLUMNS,
    Row,
    Structure,
    Table,
    TableWriter,
    cell_text,
    free_name,
)
from molattn.data.table.text import ENCODING_ERRORS, open_lines, refuse_binary
from molattn.errors import InputError, SmilesError

__all__ = ["SDFTable", "SDFWriter"]

_END_OF_RECORD = "$$$$"
_END_OF_STRUCTURE = "M  END"
_PROPERTY = re.compile(r">.*<([^<>]*)>")
_MOST_LINES = 20_000
_LINE_END = re.compile("\r\n?|\n")
_NAMES = ["smiles", "name"]
_NO_STRUCTURE = "\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n"
# Those of the molecule have been applied when it was read.
_NO_LIMITS = MoleculeLimits(max_length=MOST_CHARACTERS, max_atoms=MOST_CHARACTERS)


class SDFTable(Table):
    """An SDF file as a table of SMILES, names and properties, plain or compressed.

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
            end = _end_of_structure(lines)
            found = found or end is not None
            properties.update((name, None) for name, _ in _properties(lines[end or 0 :]))
            if len(properties) > MOST_COLUMNS:
                raise InputError(f"{path}: got more than {MOST_COLUMNS} properties")
        if not found:
            raise InputError(f"{path}: got no molecule, expected one with a line 'M  END'")
        self.header = [*_NAMES]
        for name in properties:
            self.header.append(free_name(name, self.header))
        self._places = {name: place for place, name in enumerate(properties, start=len(_NAMES))}
        self.check_header()

    def count(self) -> int:
        """Return the number of molecules."""
        return sum(1 for _ in self._records())

    def __iter__(self) -> Iterator[Row]:
        """Read the molecules."""
        for line, lines in self._records():
            yield self._row(line, lines)

    def _row(self, line: int, lines: list[str]) -> Row:
        cells = [""] * len(self.header)
        cells[1] = lines[0].strip()
        end = _end_of_structure(lines)
        for name, value in _properties(lines[end or 0 :]):
            if (place := self._places.get(name)) is not None:
                cells[place] = value
        if end is None:
            return Row(line, cells, "the structure has no line 'M  END'", "mol_block")
        if end > _MOST_LINES:
            fault = f"the structure has {end} lines, the limit is {_MOST_LINES}"
            return Row(line, cells, fault, "too_large")
        block = "\n".join(lines[:end]) + "\n"
        cells[0] = Structure("", block)
        try:
            smiles = read_mol_block(block, smiles_of_mol_block)
        except SmilesError as error:
            return Row(line, cells, error.reason, error.code)
        if smiles is None:
            return Row(line, cells, "the structure is not a readable mol block", "mol_block")
        cells[0] = Structure(smiles, block)
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


class SDFWriter(TableWriter):
    """Writes a record for each row, in V2000, or in V3000 beyond 999 atoms.

    The structure is that of the row's :class:`Structure`: its mol block, or one with 2D coordinates
    of its SMILES; a row without one has no atoms. The title is the cell of the column ``name``, if
    there is one. All other cells are properties, also a SMILES that was not made from a mol block.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._file = file
        self._names: list[str] = []
        for name in header:
            clean = re.sub(r"[<>\s]+", " ", name).strip() or "column"
            self._names.append(free_name(clean, self._names))
        self._title = self._names.index("name") if "name" in self._names else None

    def write(self, cells: Sequence[object]) -> None:
        """Write a row."""
        texts = [cell_text(cell) for cell in cells]
        title = "" if self._title is None else texts[self._title].strip()
        written = set()
        ends = title.startswith((_END_OF_RECORD, _END_OF_STRUCTURE)) or _LINE_END.search(title)
        if self._title is not None and not ends:
            written.add(self._title)
        else:
            title = ""
        block = None
        for place, cell in enumerate(cells):
            if isinstance(cell, Structure):
                block = cell.block or _block(cell)
                if cell.block is not None:
                    written.add(place)
                break
        rest = (block or _NO_STRUCTURE).partition("\n")[2]
        lines = [f"{title}\n{rest}"]
        for place, (name, text) in enumerate(zip(self._names, texts, strict=True)):
            if place not in written:
                lines.append(f"> <{name}>\n{_value(text)}\n\n")
        lines.append(f"{_END_OF_RECORD}\n")
        self._file.write("".join(lines).encode(errors=ENCODING_ERRORS))


def _block(smiles: str) -> str | None:
    try:
        return write_mol_block(smiles, _NO_LIMITS)
    except SmilesError:  # it takes too long; the SMILES is a property
        return None


def _value(text: str) -> str:
    """Return a text with a space before each line that would end the value or the record."""
    lines = _LINE_END.split(text)
    return "\n".join(
        f" {line}"
        if line.startswith((_END_OF_RECORD, ">")) or (not line and len(lines) > 1)
        else line
        for line in lines
    )


def _end_of_structure(lines: list[str]) -> int | None:
    """Return the number of lines of the structure; None if it does not end."""
    return next((i + 1 for i, line in enumerate(lines) if line.startswith(_END_OF_STRUCTURE)), None)


def _properties(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, values = None, []
    for line, after in zip(lines, [*lines, "> <>"][1:], strict=True):
        match = _PROPERTY.match(line) if line.startswith(">") and name is None else None
        if match is not None:
            name, values = match[1], []
        # Some programs end a value by a line of spaces; within a value it is one of its lines.
        elif name is not None and line and not (line.isspace() and _PROPERTY.match(after)):
            values.append(line)
        elif name is not None:
            yield name, "\n".join(values)
            name = None
    if name is not None:
        yield name, "\n".join(values)
