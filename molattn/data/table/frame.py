"""A pandas DataFrame as a table."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from molattn.data.table.base import Row, Table, cell_text
from molattn.errors import InputError, quoted

__all__ = ["FrameTable"]


class FrameTable(Table):
    """The rows of a DataFrame; its index is ignored.

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

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        # Not by `itertuples`, which converts single to double precision.
        rows = zip(*(self.frame.iloc[:, k].array for k in range(len(self.header))), strict=True)
        missing = self.frame.isna().to_numpy()
        for number, values, gaps in zip(self._numbers, rows, missing, strict=True):
            cells = ["" if gap else cell_text(v) for v, gap in zip(values, gaps, strict=True)]
            yield Row(number, cells, values=values)

    def digest(self) -> str:
        """Return a SHA-256 of the header and the cells, in hexadecimal."""
        digest = hashlib.sha256()
        for cells in (self.header, *(row.cells for row in self)):
            digest.update(ascii(cells).encode())
        return digest.hexdigest()
