"""A pandas DataFrame as a table."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from rdkit import Chem

from molattn.chem.limits import read_molecule
from molattn.config import MoleculeLimits
from molattn.data.table.base import Row, Table, cell_text
from molattn.errors import InputError, SmilesError, quoted

__all__ = ["FrameTable"]

_LIMITS = MoleculeLimits(max_atoms=sys.maxsize)  # those of the reader come later


class FrameTable(Table):
    """The rows of a DataFrame; its index is ignored.

    An RDKit molecule in a cell is its canonical SMILES. One that cannot be used is a fault of its
    row, and so is a missing value in the column of SMILES.

    Args:
        frame: The DataFrame.
        numbers: The rows' numbers in messages, such as their positions in a larger frame; None = 1,
            2 and so on.

    Raises:
        InputError: It is not a DataFrame, or has no columns.
    """

    path = Path("DataFrame")
    unit = "row"

    def __init__(self, frame: pd.DataFrame, numbers: Sequence[int] | None = None) -> None:
        if not isinstance(frame, pd.DataFrame):
            raise InputError(
                f"table: got {quoted(type(frame).__name__)}, expected a path or a DataFrame"
            )
        self.frame = frame
        self._numbers = range(1, len(frame) + 1) if numbers is None else numbers
        self.header = [str(name) for name in frame.columns]
        self.check_header()
        self._smiles: int | None = None

    def column(self, name: str, option: str) -> int:
        """Return the index of a column; that of the SMILES is remembered."""
        index = super().column(name, option)
        if option == "--smiles-column":
            self._smiles = index
        return index

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        # Not by `itertuples`, which converts single to double precision.
        rows = zip(*(self.frame.iloc[:, k].array for k in range(len(self.header))), strict=True)
        missing = self.frame.isna().to_numpy()
        for number, values, gaps in zip(self._numbers, rows, missing, strict=True):
            found, error = list(values), None
            for place, (value, gap) in enumerate(zip(values, gaps, strict=True)):
                if isinstance(value, Chem.Mol) or (gap and place == self._smiles):
                    try:
                        molecule = None if gap else value
                        found[place] = read_molecule(molecule, _LIMITS, Chem.MolToSmiles)[1]
                    except SmilesError as fault:
                        found[place], error = fault.smiles, fault
            cells = ["" if gap else cell_text(one) for one, gap in zip(found, gaps, strict=True)]
            if error is None:
                yield Row(number, cells, values=tuple(found))
            else:
                yield Row(number, cells, error.reason, error.code, tuple(found))

    def digest(self) -> str:
        """Return a SHA-256 of the header and the cells, in hexadecimal."""
        digest = hashlib.sha256()
        for cells in (self.header, *(row.cells for row in self)):
            digest.update(ascii(cells).encode())
        return digest.hexdigest()
