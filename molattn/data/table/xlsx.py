"""Excel workbooks (.xlsx)."""

import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Any
from xml.etree.ElementTree import iterparse

from molattn.data.table.base import (
    MOST_CHARACTERS,
    Row,
    Table,
    TableWriter,
    cell_text,
    escape_formula,
    listed,
)
from molattn.data.table.text import check_expansion, valid_text
from molattn.errors import InputError, quoted

try:
    import openpyxl
    from openpyxl.cell import WriteOnlyCell
except ImportError:  # an extra
    openpyxl = None

__all__ = ["XlsxTable", "XlsxWriter"]

_MOST_ROWS = 2**20  # these three are Excel's
_MOST_CELLS = 2**14
_MOST_TEXT = 32_767
_LARGEST_WHOLE = 2**53
_FIRST_DATE = date(1900, 3, 1)  # Excel takes 1900 for a leap year
_CHUNK = 2**20
_MARKS = ("row", "f", "mergeCell")
_MARK = re.compile(rb"<(?:[A-Za-z]+:)?(row|f|mergeCell)[ />]")
_LONGEST_MARK = 64
_ESCAPED = re.compile("(_x[0-9A-Fa-f]{4}_)+")
_LIKE_ESCAPED = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
_NOT_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_NUMBER = re.compile(r"-?[0-9.]{1,17}(e[-+]?[0-9]{1,3})?")


class XlsxTable(Table):
    """The first visible sheet of a workbook: ``cells`` as texts, ``values`` with the file's types.

    Formulas have the values that were stored when the workbook was saved, and only the first of
    merged cells has their value. Blank rows are skipped, but between the rows of a table of one
    column they are empty cells. A row with a cell beyond the header has a ``fault``.

    Raises:
        InputError: It is not such a file, it is damaged, a formula has no stored value, or openpyxl
            is not installed.
    """

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_installed(path)
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except (zipfile.BadZipFile, OSError) as error:
            raise InputError(f"{path}: not a readable Excel workbook: {error}") from error
        check_expansion(path, "Excel", size)
        with self._sheet() as sheet:
            marks = _marks(sheet)
            if marks["f"]:
                self._check_values(sheet)
            if marks["mergeCell"]:
                self.remarks += ("has merged cells; only the first of them has their value",)
            name, names = quoted(sheet.title), sheet.parent.sheetnames
            if len(names) > 1:
                self.remarks += (f"read the sheet {name}, one of {len(names)}",)
                one = "the first" if sheet.title == names[0] else "the first visible one"
                self.place = f", sheet {name} ({one} of {len(names)}: {listed(names)})"
        self._count = max(0, marks["row"] - 1)
        with self._sheet() as sheet:
            first = next(self._filled(sheet), None)
        if first is None:
            raise InputError(f"{path}{self.place}: the sheet is empty, expected a header and rows")
        self._first, values = first
        self.header = [cell_text(_plain(value)) for value in values]
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows.

        Raises:
            InputError: The file is damaged.
        """
        width, last = len(self.header), self._first
        with self._sheet() as sheet:
            for number, values in self._filled(sheet):
                if number == self._first:
                    continue
                if width == 1:
                    yield from (Row(blank, [""]) for blank in range(last + 1, number))
                last = number
                values = [_plain(value) for value in values]
                values += [None] * (width - len(values))
                texts = [_text(value) for value in values]
                if len(values) == width:
                    yield Row(number, texts, values=tuple(values))
                    continue
                fault = f"the row has {len(values)} cells, the header has {width}"
                cells = [*texts[: width - 1], ",".join(texts[width - 1 :])]
                yield Row(number, cells, fault, "ragged")

    def count(self) -> int:
        """Return the number of rows, blank ones included."""
        return self._count

    @contextmanager
    def _sheet(self) -> Iterator[Any]:
        """Open the first visible sheet; whatever is wrong with the file is one error."""
        book = None
        file = open(self.path, "rb")  # noqa: SIM115 (by its name it might not be a workbook)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of features that a table does not need
                book = openpyxl.load_workbook(  # pyright: ignore[reportOptionalMemberAccess]
                    file, read_only=True, data_only=True
                )
            sheets = [one for one in book.worksheets if one.sheet_state == "visible"]
            if not sheets:
                raise InputError(f"{self.path}: got a workbook without a visible sheet")
            sheets[0].reset_dimensions()  # they need not be true
            yield sheets[0]
        except (GeneratorExit, InputError, MemoryError):
            raise
        except Exception as error:  # of zipfile, of the XML parser, or of wrong XML in openpyxl
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{self.path}: not a readable Excel workbook: {reason}") from error
        finally:
            if book is not None:
                book.close()
            file.close()

    def _filled(self, sheet: Any) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows that are not blank, without the empty cells at their ends."""
        rows = sheet.iter_rows(values_only=True)
        for number in range(1, _MOST_ROWS + 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of dates before 1900, which become "#VALUE!"
                values = [*next(rows, (...,))]
            if values == [...]:
                return
            while values and values[-1] in (None, ""):
                values.pop()
            if values:
                yield number, values
        if next(rows, None) is not None:
            raise InputError(f"{self.path}: got more than {_MOST_ROWS:,} rows, which Excel allows")

    def _check_values(self, sheet: Any) -> None:
        with sheet._get_source() as source:
            for _, element in iterparse(source):
                name = element.tag.rpartition("}")[2]
                if name == "c":
                    parts = {child.tag.rpartition("}")[2]: child.text for child in element}
                    # An empty text is a value, but openpyxl writes an empty one for no value too.
                    is_text = "v" in parts and element.get("t") == "str"
                    has_value = parts.get("v") or "is" in parts or is_text
                    if "f" in parts and not has_value:
                        place = f"sheet {quoted(sheet.title)}, cell {element.get('r')}"
                        raise InputError(
                            f"{self.path}, {place}: the formula has no stored value; open the file "
                            "in a spreadsheet program and save it"
                        )
                if name == "row":
                    element.clear()


class XlsxWriter(TableWriter):
    """Writes a workbook of one sheet. Text is never a formula; numbers and dates are not text.

    A text that is a number is written as one if it reads back as the same text. Text that a
    spreadsheet would take for a formula when the cell is edited is marked as text (a quote prefix).

    Raises:
        InputError: openpyxl is not installed, or there are too many columns.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        _check_installed("--output")
        if len(header) > _MOST_CELLS:
            raise InputError(
                f"got {len(header):,} columns, which Excel does not allow; expected up to "
                f"{_MOST_CELLS:,}, or a CSV file"
            )
        self._file = file
        self._book = openpyxl.Workbook(write_only=True)  # pyright: ignore
        self._sheet = self._book.create_sheet("Sheet1")
        self._number = 0
        self._append([self._text_cell(name) for name in header])

    def write(self, cells: Sequence[object]) -> None:
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
        if isinstance(value, str):
            number = _exact_number(value)
            return self._text_cell(value) if number is None else number
        if value is None or isinstance(value, bool | time):
            return value
        if isinstance(value, int) and abs(value) < _LARGEST_WHOLE:
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        day = value.date() if isinstance(value, datetime) else value
        if isinstance(day, date) and day >= _FIRST_DATE and not getattr(value, "tzinfo", None):
            return value
        return self._text_cell(cell_text(value))

    def _text_cell(self, text: str) -> Any:
        if not text:
            return None
        text = valid_text(text)
        quoted_prefix = escape_formula(text) != text
        text = _LIKE_ESCAPED.sub("_x005F_", text)
        text = _NOT_XML.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
        if len(text) > _MOST_TEXT:
            raise InputError(
                f"row {self._number + 1}: got a text of {len(text):,} characters, which Excel does "
                f"not allow; expected up to {_MOST_TEXT:,}, or a CSV file"
            )
        cell = WriteOnlyCell(self._sheet)  # pyright: ignore[reportPossiblyUnboundVariable]
        cell._value, cell.data_type = text, "s"  # the setter would make it a formula or an error
        if quoted_prefix:
            cell.quotePrefix = True
        return cell


def _check_installed(where: object) -> None:
    if openpyxl is None:
        raise InputError(
            f"{where}: Excel files need openpyxl, which is not installed: "
            'pip install "molattn[excel]"'
        )


def _marks(sheet: Any) -> dict[str, int]:
    """Count elements in the XML of a sheet, without parsing it."""
    found: dict[str, int] = dict.fromkeys(_MARKS, 0)
    rest = b""
    with sheet._get_source() as source:
        while chunk := source.read(_CHUNK):
            part, end = rest + chunk, 0
            for match in _MARK.finditer(part):
                found[match[1].decode()] += 1
                end = match.end()
            rest = part[max(end, len(part) - _LONGEST_MARK) :]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > MOST_CHARACTERS:
            raise ValueError(f"a text of {len(value):,} characters")
        return _ESCAPED.sub(_unescaped, value)
    return value


def _unescaped(match: re.Match[str]) -> str:
    """Return the characters of escaped UTF-16; half a character is a replacement character."""
    digits = match[0].replace("_x", "").replace("_", "")
    return bytes.fromhex(digits).decode("utf-16-be", errors="replace")


def _text(value: Any) -> str:
    return str(value).upper() if isinstance(value, bool) else cell_text(value)


def _exact_number(text: str) -> float | int | None:
    """Return the number whose text this is, None if Excel would show it otherwise."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value = int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return None
    exact = abs(value) < _LARGEST_WHOLE and cell_text(value) == text
    return value if exact and text != "-0" else None
