"""A pandas DataFrame as a table."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit import Chem

from molattn.chem.limits import read_molecule
from molattn.config import MoleculeLimits
from molattn.data.table.base import Row, Table, cell_text
from molattn.errors import InputError, SmilesError, quoted

_LIMITS = MoleculeLimits(max_atoms=sys.maxsize)  # those of the reader come later


class FrameTable(Table):
    """The rows of a DataFrame; its index is ignored.

    An RDKit molecule in a cell is its canonical SMILES. A row with one that cannot be used has a
    reason code.
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

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        # Not by `itertuples`, which converts single to double precision.
        rows = zip(*(self.frame.iloc[:, k].array for k in range(len(self.header))), strict=True)
        missing = self.frame.isna().to_numpy()
        for number, values, gaps in zip(self._numbers, rows, missing, strict=True):
            cells = zip(values, gaps, strict=True)
            found, code, reason = [None if gap else _plain(value) for value, gap in cells], "", ""
            for column, value in enumerate(found):
                if isinstance(value, Chem.Mol):
                    try:
                        found[column] = read_molecule(value, _LIMITS, Chem.MolToSmiles)[1]
                    except SmilesError as error:
                        found[column], code, reason = error.smiles, error.code, error.reason
            yield Row(number, [cell_text(one) for one in found], code, reason, tuple(found))


def _plain(value: Any) -> Any:
    """Return a value of NumPy as Python's, a number in single precision with the same digits."""
    if isinstance(value, np.floating):
        return float(str(value))
    is_time = isinstance(value, np.datetime64 | np.timedelta64)  # which could become an integer
    return value.item() if isinstance(value, np.generic) and not is_time else value
