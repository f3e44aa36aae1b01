"""CSV and TSV."""

import csv
from collections.abc import Iterator
from pathlib import Path

from molattn.errors import InputError

from .rows import MOST_CHARACTERS, MOST_COLUMNS, Row, Table
from .source import open_lines

__all__ = ["DelimitedTable"]


class DelimitedTable(Table):
    """Cells between commas or tabs, with a header; UTF-8, plain or gzip.

    Blank lines are no rows. A row with too few or too many cells comes out with a ``fault``, padded
    with empty cells or with the surplus joined into its last cell; empty surplus is dropped.

    Args:
        path: The file.
        delimiter: What stands between cells.

    Raises:
        InputError: If the file cannot be read or is no text with a header.
    """

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self.path = path
        self.delimiter = delimiter
        self.header = next(self._lines(), (0, []))[1]
        if not self.header or self.header == [""]:
            raise InputError(f"{path}: the file is empty, expected a header and rows")
        if any("\0" in name for name in self.header):  # a row that holds one costs only itself
            raise InputError(f"{path}: got binary data, expected a table (text in UTF-8)")
        if len(self.header) > MOST_COLUMNS:
            raise InputError(
                f"{path}: got {len(self.header)} columns, expected at most {MOST_COLUMNS}"
            )

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: If the text stops being a table; names the line.
        """
        lines = self._lines()
        next(lines, None)
        width = len(self.header)
        for line, cells in lines:
            while len(cells) > width and not cells[-1]:
                cells.pop()
            if len(cells) == width:
                yield Row(line, cells)
                continue
            fault = f"{len(cells)} cells where the header has {width}"
            last = [self.delimiter.join(cells[width - 1 :])] if len(cells) > width else []
            padding = [""] * (width - len(cells))
            yield Row(line, cells[: width - len(last)] + last + padding, fault, "ragged")

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(MOST_CHARACTERS)
        last_line = 0
        with open_lines(self.path) as text:
            reader = csv.reader(text, delimiter=self.delimiter, strict=True)
            try:
                for cells in reader:
                    line, last_line = last_line + 1, reader.line_num
                    if cells:
                        yield line, cells
            except csv.Error as error:
                hint = "; is there an unclosed quote?" if "limit" in str(error) else ""
                raise InputError(
                    f"{self.path}, line {last_line + 1}: not {self._name()} ({error}{hint})"
                ) from None

    def _name(self) -> str:
        return "CSV" if self.delimiter == "," else "TSV"

    def _separator(self) -> str:
        return "commas" if self.delimiter == "," else "tabs"
