"""SMILES that are given directly."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from molattn.data.table.base import Row, Table

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

    def __iter__(self) -> Iterator[Row]:
        """Read the SMILES."""
        return (Row(number, [text]) for number, text in enumerate(self._smiles, start=1))
