"""What every kind of table is: a header, and rows that know where they stand."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from molattn.errors import InputError, ReasonCode, quoted

__all__ = ["MOST_CHARACTERS", "MOST_COLUMNS", "Row", "Table", "cell_text", "free_name", "listed"]

MOST_COLUMNS = 20_000
MOST_CHARACTERS = 2**25
"""In a line, a cell or a molecule's block: what an unclosed quote or a binary file would exceed."""
_COLUMNS_SHOWN = 10


class Row(NamedTuple):
    """One row of a table.

    Args:
        line: Where the row begins, counted from 1: the line of a text file (the header is line 1),
            the row of a Parquet file.
        cells: One text for each column.
        fault: Why the cells are not what the file means, or None.
        code: The same as a reason code (:mod:`molattn.errors`), or empty.
        values: The cells as the file holds them, where those are no texts.
    """

    line: int
    cells: list[str]
    fault: str | None = None
    code: ReasonCode | Literal[""] = ""
    values: tuple[Any, ...] | None = None


class Table(ABC):
    """A file of rows, read anew each time it is iterated over.

    Attributes:
        path: The file.
        header: Names of the columns.
        unit: What ``Row.line`` counts: ``line`` or ``row``.
        schema: The columns' types (a ``pyarrow.Schema``), where the file says them.
        remarks: What was found out about the file that its name does not say, for the terminal.
    """

    path: Path
    header: list[str]
    unit = "line"
    schema: Any = None
    remarks: tuple[str, ...] = ()

    @abstractmethod
    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""

    def digest(self) -> str:
        """Return the SHA-256 of the file, in hexadecimal."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def where(self, line: int) -> str:
        """Return how to call a row in a sentence, such as ``line 7``."""
        return f"{self.unit} {line}"

    def column(self, name: str, option: str) -> int:
        """Return the index of a column, or suggest the one that was meant.

        Args:
            name: The column's name in the header.
            option: The option that asked for it, for the message.

        Raises:
            InputError: If there is no such column, or more than one.
        """
        found = [index for index, column in enumerate(self.header) if column == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(
                f"{self.path}: {len(found)} columns are named {quoted(name)} ({option}), "
                "expected one"
            )
        if len(self.header) == 1 and "|" in self.header[0]:
            raise InputError(
                f"{self.path}: no column {quoted(name)} ({option}): the cells seem to be separated "
                "by '|', expected commas, semicolons or tabs"
            )
        alike = {column.strip().lower(): column for column in self.header}
        close = get_close_matches(name.strip().lower(), alike, n=1)
        hint = f", did you mean {quoted(alike[close[0]])}?" if close else ";"
        raise InputError(
            f"{self.path}: no column {quoted(name)} ({option}){hint} "
            f"the columns are {listed(self.header)}"
        )

    def smiles_column(self, name: str) -> int:
        """Return the index of the column of SMILES; case does not matter where one alone is meant.

        Raises:
            InputError: If there is no such column, or more than one.
        """
        alike = [column for column in self.header if column.lower() == name.lower()]
        if name not in self.header and len(alike) == 1:
            name = alike[0]
        return self.column(name, "--smiles-column")


def cell_text(value: Any) -> str:
    """Return a value as the text of a cell.

    Nothing is an empty text, a whole number has no decimal point, and any other number is the
    shortest text that means it.
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return str(value)


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name for another column, with as many underscores as make it a new one."""
    while name in taken:
        name += "_"
    return name


def listed(names: Sequence[str]) -> str:
    """Return the names in quotes, the first few of them if they are many."""
    shown = ", ".join(quoted(name) for name in names[:_COLUMNS_SHOWN])
    return (
        f"{shown} and {len(names) - _COLUMNS_SHOWN} more" if len(names) > _COLUMNS_SHOWN else shown
    )
