"""Excel workbooks (.xlsx)."""

import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from itertools import islice
from typing import IO, Any

from molattn.data.table.base import Row, Table, TableWriter, cell_text, escape_formula, listed
from molattn.data.table.source import Source, valid_text
from molattn.errors import InputError, quoted

try:
    import openpyxl
    from openpyxl.cell import WriteOnlyCell
except ImportError:  # an extra
    openpyxl = None

_MOST_ROWS = 2**20  # these are Excel's
_MOST_TEXT = 32_767
_LARGEST_WHOLE = 2**53
_FIRST_DATE = date(1900, 3, 1)  # Excel takes 1900 for a leap year
_NOT_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")


class XlsxTable(Table):
    """The first visible sheet of a workbook: ``cells`` as texts, ``values`` with the file's types.

    Formulas have the values that were stored when the workbook was saved, if any, and only the
    first of merged cells has their value. Blank rows are skipped.
    """

    unit = "row"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        _check_installed(self.path)
        try:
            with zipfile.ZipFile(source.path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except (zipfile.BadZipFile, OSError) as error:
            raise InputError(f"{self.path}: not a readable Excel workbook: {error}") from error
        source.check_expansion(size)
        _, values = next(self._filled_rows(), (0, []))
        self.header = [_text(value) for value in values]
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        for number, values in islice(self._filled_rows(), 1, None):
            values += [None] * (len(self.header) - len(values))
            yield self.row(number, [_text(value) for value in values], ",", tuple(values))

    def _filled_rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows that are not blank, without the empty cells at their ends."""
        try:
            # From a file, as by its name it might not be a workbook.
            with open(self.source.path, "rb") as file:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of features that a table does not need
                    book = openpyxl.load_workbook(file, read_only=True, data_only=True)  # pyright: ignore
                sheet = next(one for one in book.worksheets if one.sheet_state == "visible")
                if len(book.sheetnames) > 1:
                    names = listed(book.sheetnames)
                    self.remarks = (f"read the sheet {quoted(sheet.title)} of {names}",)
                sheet.reset_dimensions()  # they need not be true
                rows = sheet.iter_rows(values_only=True, max_row=_MOST_ROWS)
                for number, cells in enumerate(rows, start=1):
                    # Excel escapes the carriage returns within a text.
                    values = [
                        value.replace("_x000D_", "\r") if isinstance(value, str) else value
                        for value in cells
                    ]
                    while values and values[-1] in (None, ""):
                        values.pop()
                    if values:
                        yield number, values
        except Exception as error:  # of zipfile, of the XML parser, or of wrong XML in openpyxl
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{self.path}: not a readable Excel workbook: {reason}") from error


class XlsxWriter(TableWriter):
    """Writes a workbook of one sheet. Text is never a formula; numbers and dates are not text.

    A text that is a number is written as one if it reads back as the same text. Text that a
    spreadsheet would take for a formula when the cell is edited is marked as text (a quote prefix).
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        _check_installed("--output")
        self._file, self._number = file, 0
        self._book = openpyxl.Workbook(write_only=True)  # pyright: ignore
        self._sheet = self._book.create_sheet("Sheet1")
        self._append([self._text_cell(name) for name in header])

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row.

        Raises:
            InputError: There are more rows, or a longer text, than Excel allows.
        """
        self._append([self._cell(cell) for cell in cells])

    def close(self) -> None:
        """Write the workbook."""
        self._book.save(self._file)

    def _append(self, cells: list[Any]) -> None:
        self._number += 1
        if self._number > _MOST_ROWS:
            raise InputError(f"got more than {_MOST_ROWS:,} rows, which Excel allows; use CSV")
        self._sheet.append(cells)

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            return float(value) if cell_text(float(value)) == value else self._text_cell(value)
        day = value.date() if isinstance(value, datetime) else value
        is_held = (
            value is None
            or isinstance(value, bool | time)
            or (isinstance(value, float) and math.isfinite(value))
            or (isinstance(value, int) and abs(value) < _LARGEST_WHOLE)
            or (isinstance(day, date) and day >= _FIRST_DATE and not getattr(value, "tzinfo", None))
        )
        return value if is_held else self._text_cell(cell_text(value))

    def _text_cell(self, text: str) -> Any:
        text = _NOT_XML.sub("\ufffd", valid_text(text))
        if len(text) > _MOST_TEXT:
            raise InputError(
                f"row {self._number + 1}: got a text of {len(text):,} characters, expected up to "
                f"{_MOST_TEXT:,} as Excel allows, or a CSV file"
            )
        cell = WriteOnlyCell(self._sheet, text or None)  # pyright: ignore[reportPossiblyUnbound]
        if text:
            cell.data_type = "s"  # in place of a formula or an error
        if escape_formula(text) != text:
            cell.quotePrefix = True
        return cell


def _check_installed(where: object) -> None:
    if openpyxl is None:
        raise InputError(
            f"{where}: Excel files need openpyxl, which is not installed: "
            'pip install "molattn[excel]"'
        )


def _text(value: Any) -> str:
    return str(value).upper() if isinstance(value, bool) else cell_text(value)
