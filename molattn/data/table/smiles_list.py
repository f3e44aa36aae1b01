"""SMILES that are given directly."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from molattn.data.table.base import Row, Table
from molattn.errors import InputError, quoted

__all__ = ["SMILESList"]


class SMILESList(Table):
    """SMILES as a table of one column.

    Args:
        smiles: The texts.
        column: Name of the column.
    """

    path = Path("INPUT")
    unit = "SMILES"

    def __init__(self, smiles: Sequence[str], column: str = "smiles") -> None:
        self.header = [column]
        self._smiles = smiles

    def column(self, name: str, option: str) -> int:
        """Return the index of a column; see :meth:`Table.column`."""
        if name.lower() != self.header[0].lower():
            raise InputError(
                f"got SMILES alone, without column {quoted(name)} ({option}); give a table with it"
            )
        return 0

    def __iter__(self) -> Iterator[Row]:
        """Read the SMILES."""
        return (Row(number, [text]) for number, text in enumerate(self._smiles, start=1))

    def digest(self) -> str:
        """Return a SHA-256 of the column and the SMILES, in hexadecimal."""
        return hashlib.sha256(ascii([*self.header, *self._smiles]).encode()).hexdigest()
