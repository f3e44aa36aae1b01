"""SDF files: molecules with properties."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any

from molattn.chem.limits import read_mol_block, write_mol_block
from molattn.chem.parse import NO_LIMITS, smiles_of_mol_block
from molattn.data.table.base import (
    ENCODING_ERRORS,
    MOST_CHARACTERS,
    Row,
    Source,
    Table,
    TableWriter,
    cell_text,
    free_name,
    number_form,
)
from molattn.errors import InputError, SmilesError

_END_OF_RECORD = "$$$$"
_END_OF_STRUCTURE = "M  END"
_PROPERTY = re.compile(r">.*<([^<>]*)>")
_MOST_LINES = 20_000
_LINE_END = re.compile("\r\n?|\n")
_NO_STRUCTURE = "\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n"


class SDFTable(Table):
    """An SDF file as a table of SMILES, names and properties.

    Columns are ``smiles`` (of the structure), ``name`` (its title line) and every property in the
    file; a property with the name of an earlier column gets an underscore. RDKit reads the mol
    block alone: its supplier loses the properties after a line of one space.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        source.check_text()
        self._columns: dict[str, int] = {}
        self.forms = Counter[tuple[int, str]]()
        has_molecule = False
        for _, lines in self._records():
            block, properties = _split_record(lines)
            has_molecule = has_molecule or bool(block)
            for name, value in properties.items():
                column = self._columns.setdefault(name, 2 + len(self._columns))
                self.forms[column, number_form(value)] += 1
        if not has_molecule:
            raise InputError(f"{self.path}: got no molecule, expected one with a line 'M  END'")
        self.header = ["smiles", "name"]
        for name in self._columns:
            self.header.append(free_name(name, self.header))
        self.check_header()

    def count(self) -> int:
        """Return the number of molecules."""
        return sum(1 for _ in self._records())

    def __iter__(self) -> Iterator[Row]:
        """Read the molecules."""
        for line, lines in self._records():
            block, properties = _split_record(lines)
            cells = [""] * len(self.header)
            cells[1] = lines[0].strip()
            for name, value in properties.items():
                cells[self._columns[name]] = value
            try:
                cells[0] = _smiles(block)
                yield Row(line, cells, molecule=block, commas=self.commas)
            except SmilesError as error:
                yield Row(line, cells, error.code, error.reason, molecule=block)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        start = 1
        size = 0
        lines = []
        with self.source.open_text() as text:
            for number, raw in enumerate(text, start=1):
                line = raw.rstrip("\r\n")
                if line.startswith(_END_OF_RECORD):
                    yield start, lines or [""]
                    start = number + 1
                    size = 0
                    lines = []
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

    The structure is a mol block, or one with 2D coordinates of a SMILES; a row without one has no
    atoms. The title is the cell of the column ``name``, if there is one. All other cells are
    properties, but for the first column beside a mol block, whose SMILES it is.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._file = file
        self._names: list[str] = []
        for name in header:
            clean = re.sub(r"[<>\s]+", " ", name).strip() or "column"
            self._names.append(free_name(clean, self._names))

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        is_block = "\n" in structure
        title = ""
        properties = []
        for column, (name, cell) in enumerate(zip(self._names, cells, strict=True)):
            text = cell_text(cell)
            if name == "name":
                title = " ".join(text.split())
                title = f" {title}" if title.startswith(_END_OF_RECORD) else title
            elif column or not is_block:
                properties.append(f"> <{name}>\n{_value(text)}\n\n")
        block = structure if is_block else _drawn(structure)
        body = block.partition("\n")[2]
        record = f"{title}\n{body}{''.join(properties)}{_END_OF_RECORD}\n"
        self._file.write(record.encode(errors=ENCODING_ERRORS))


def _smiles(block: str) -> str:
    """Return the SMILES of a mol block."""
    if not block:
        raise SmilesError("", "mol_block", f"the structure has no line {_END_OF_STRUCTURE!r}")
    if (length := block.count("\n")) > _MOST_LINES:
        reason = f"the structure has {length} lines, the limit is {_MOST_LINES}"
        raise SmilesError("", "too_large", reason)
    smiles = read_mol_block(block, smiles_of_mol_block)
    if smiles is None:
        raise SmilesError("", "mol_block", "the structure is not a readable mol block")
    return smiles


def _drawn(smiles: str) -> str:
    """Return the mol block of a SMILES; one without atoms if there is none."""
    try:
        return write_mol_block(smiles, NO_LIMITS) if smiles else _NO_STRUCTURE
    except SmilesError:  # it takes too long; the SMILES is a property
        return _NO_STRUCTURE


def _value(text: str) -> str:
    """Return a text with a space before each line that would end the value or the record."""
    lines = _LINE_END.split(text)
    ends = [
        line.startswith((_END_OF_RECORD, ">")) or (not line and len(lines) > 1) for line in lines
    ]
    return "\n".join(f" {line}" if end else line for line, end in zip(lines, ends, strict=True))


def _split_record(lines: list[str]) -> tuple[str, dict[str, str]]:
    """Return the mol block of a record, empty if it does not end, and the properties."""
    numbers = range(len(lines))
    end = next((n + 1 for n in numbers if lines[n].startswith(_END_OF_STRUCTURE)), 0)
    property_lines = lines[end:]
    values = None
    properties: dict[str, list[str]] = {}
    for line, after in zip(property_lines, [*property_lines, "> <>"][1:], strict=True):
        if values is None:
            if match := _PROPERTY.match(line):
                values = properties[match[1]] = []
        # Some programs end a value by a line of spaces; within a value it is one of its lines.
        elif line and not (line.isspace() and _PROPERTY.match(after)):
            values.append(line)
        else:
            values = None
    block = "\n".join(lines[:end]) + "\n" if end else ""
    return block, {name: "\n".join(value) for name, value in properties.items()}
