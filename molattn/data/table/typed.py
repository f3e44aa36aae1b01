"""Tables whose cells have types: Parquet files, Excel workbooks (.xlsx) and DataFrames."""

import json
import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rdkit import Chem

from molattn.chem.draw import draw_png
from molattn.chem.limits import read_molecule
from molattn.chem.parse import NO_LIMITS
from molattn.data.table.base import (
    SMILES,
    SMILES_NAMES,
    MoleculeText,
    Row,
    Source,
    Table,
    TableWriter,
    Uncalculated,
    cell_text,
    escape_formula,
    first_named,
    listed,
    number_form,
    valid_text,
)
from molattn.data.table.overview import (
    LEGEND,
    OverviewSheet,
    colored,
    lay_out_headings,
    number_format,
    verdict,
)
from molattn.errors import InputError, SmilesError, check_one_of, quoted

_ROWS_READ = 1024
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 2**20
_PARQUET_ERRORS = (pa.ArrowException, ValueError, ArithmeticError, LookupError, OSError)
_MOST_ROWS = 2**20  # these are Excel's
_MOST_TEXT = 32_767
_LARGEST_WHOLE = 2**53
_FIRST_DATE = date(1900, 3, 1)  # Excel takes 1900 for a leap year
_NOT_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\[[^]]*\]')  # text in the format of a number
_FIRST_ROWS = 50  # of each sheet, which may be the header
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")


class FrameTable(Table):
    """The rows of a pandas DataFrame as texts; its index is ignored.

    An RDKit molecule in a cell is its canonical SMILES, a :class:`MoleculeText`. A row with one
    that cannot be used has a reason code.
    """

    path = Path("DataFrame")
    unit = "row"

    def __init__(self, frame: Any, numbers: Sequence[int] | None = None) -> None:
        import pandas as pd  # slow to import

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
            cells = list[Any]()
            code = ""
            reason = ""
            for value, is_missing in zip(values, gaps, strict=True):
                if isinstance(value, Chem.Mol):
                    try:
                        mol = read_molecule(value, NO_LIMITS, bool)[0]
                        cells.append(MoleculeText(Chem.MolToSmiles(mol)))
                        cells[-1].mol = value
                        continue
                    except SmilesError as error:
                        value = error.smiles
                        code = error.code
                        reason = error.reason
                elif isinstance(value, np.floating):  # in single precision with the same digits
                    value = float(str(value))
                cells.append("" if is_missing else cell_text(value))
            yield Row(number, cells, code, reason, commas=self.text_commas(values))


class ParquetTable(Table):
    """The rows of a Parquet file: ``cells`` as texts, ``values`` with the file's types."""

    unit = "row"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        with self._open() as file:
            self.schema = file.schema_arrow
            self._count = file.metadata.num_rows
        self.header = list(self.schema.names)
        self.check_header()

    def count(self) -> int:
        """Return the number of rows."""
        return self._count

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        number = 0
        with self._open() as file:
            for batch in file.iter_batches(batch_size=_ROWS_READ):
                columns = [column.to_pylist() for column in batch.columns]
                texts = [
                    [_parquet_text(value, kind) for value in values]
                    for values, kind in zip(columns, batch.schema.types, strict=True)
                ]
                rows = zip(zip(*texts, strict=True), zip(*columns, strict=True), strict=True)
                for cells, values in rows:
                    number += 1
                    yield Row(number, [*cells], values=values, commas=self.text_commas(values))

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        with (
            _reading(self.path, "Parquet file", _PARQUET_ERRORS),
            pq.ParquetFile(self.source.path) as file,
        ):
            yield file


class ParquetWriter(TableWriter):
    """Writes a Parquet file, a row group at a time; without a schema, all columns are texts."""

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        if len(set(header)) != len(header):
            raise InputError(f"two columns of {list(header)} have the same name; not in Parquet")
        self._schema = types or _texts(header)
        self._file = pq.ParquetWriter(file, self._schema)
        self._are_texts = [pa.types.is_string(field.type) for field in self._schema]
        self._most = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // max(1, len(header))))
        self._rows: list[Sequence[object]] = []

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        self._rows.append(
            [
                valid_text(cell_text(cell)) if is_text and cell is not None else cell
                for cell, is_text in zip(cells, self._are_texts, strict=True)
            ]
        )
        if len(self._rows) >= self._most:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the end of the file."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._schema)
        fields = zip(columns, self._schema, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in fields]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


def arrow_schema(table: Table | None, columns: Mapping[str, str]) -> pa.Schema:
    """Return the types of the columns of an output."""
    input_fields = (table and table.schema) or _texts(table.header if table else ())
    new = [pa.field(valid_text(name), pa.type_for_alias(kind)) for name, kind in columns.items()]
    return pa.schema([*input_fields, *new])


class XlsxTable(Table):
    """A sheet of a workbook from a header row on: ``cells`` as texts, ``values`` with their types.

    Without options it is the first visible sheet and its first row that is not blank. Percentages
    are the numbers shown before the sign. Formulas have the values that were stored when the
    workbook was saved, and only the first of merged cells has their value. Blank rows are skipped.
    """

    unit = "row"
    has_sheets = True

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._openpyxl = _openpyxl(self.path)
        errors = zipfile.BadZipFile, OSError
        with _reading(self.path, "Excel workbook", errors), zipfile.ZipFile(source.path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        source.check_expansion(size)
        self._first_rows = self._read_first_rows()
        self._header_at = next(iter(self._first_rows), ("", 0))
        self.header = self._first_rows.get(self._header_at, [])
        self.forms = Counter[tuple[int, str]]()
        self._formulas: Collection[tuple[int, int]] = ()  # their rows and columns
        self.check_header()

    def use(self, options: Any, *columns: str) -> None:
        """Read the sheet and the header row that the options name.

        By default it is the row with most of the columns that the options name; of several, the
        first with most filled cells, as a list of columns has their names too. If none has the
        default column of SMILES, another usual name counts, such as Structure.
        """
        column_options = [
            v for k, v in vars(options).items() if k.endswith(("_column", "_columns"))
        ]
        chained = chain(columns, *([v] if isinstance(v, str) else v or () for v in column_options))
        names = {name.lower() for name in chained}
        sheets = dict(reversed(self._first_rows))  # with their first rows
        check_one_of("sheet", options.sheet or self._header_at[0], [*sheets][::-1])
        matches = {
            (sheet, row): 2 * len(names.intersection(map(str.lower, cells)))
            + (SMILES in names and first_named(SMILES_NAMES, dict(enumerate(cells))) is not None)
            for (sheet, row), cells in self._first_rows.items()
            if options.sheet in (None, sheet) and options.header_row in (None, row)
        }
        if not matches:
            expected = f"one of the first {_FIRST_ROWS} rows of the sheet that are not blank"
            raise InputError(f"got {options.header_row}, expected {expected}", option="header_row")
        filled = {row: len([*filter(None, cells)]) for row, cells in self._first_rows.items()}
        header_at = max(matches, key=lambda row: (matches[row], matches[row] and filled[row]))
        if header_at != self._header_at or not self.forms:
            self._header_at = header_at
            self.header = self._first_rows[header_at]
            self._scan()
        sheet, row = header_at
        remark = f"sheet {quoted(sheet)} of {listed([*sheets][::-1])}, header in row {row}"
        self.remarks = (remark,) if len(sheets) > 1 or row != sheets[sheet] else ()
        super().use(options, *columns)

    def count(self) -> int:
        """Return the number of rows."""
        return self.forms[0, "row"] or super().count()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        width = len(self.header)
        for number, cells in self._rows():
            uncalculated = {
                index
                for index, cell in enumerate(cells if self._formulas else ())
                if _excel_value(cell)[0] is None and (number, index) in self._formulas
            }
            if not (uncalculated or _has_value(cells)):
                continue
            values = [_excel_value(cell)[0] for cell in cells] + [None] * (width - len(cells))
            texts = [
                Uncalculated() if index in uncalculated else _excel_text(value)
                for index, value in enumerate(values)
            ]
            yield self.row(number, texts, ",", tuple(values[:width]))

    def _scan(self) -> None:
        """Find percentages, decimal commas and formulas in the columns."""
        self._formulas = ()
        self.forms = forms = Counter[tuple[int, str]]()
        for _, cells in self._rows():
            forms[0, "row"] += _has_value(cells)
            forms.update(
                (index, _excel_value(cell)[1])
                for index, cell in enumerate(cells[: len(self.header)])
            )
        if any(form == "blank" for _, form in forms):
            # Only without the values does openpyxl tell formulas from empty cells.
            self._formulas = {
                (number, index)
                for number, cells in self._rows(data_only=False)
                for index, cell in enumerate(cells)
                if cell.data_type == "f"
            }
        if self._formulas:  # rows of formulas alone may count too
            del forms[0, "row"]

    def _rows(self, *, data_only: bool = True) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the cells of the rows below the header, with their numbers."""
        with self._opened(data_only) as book:
            yield from _rows(book[self._header_at[0]], self._header_at[1] + 1)

    def _read_first_rows(self) -> dict[tuple[str, int], list[str]]:
        """Return the rows that may be a header, by sheet and number."""
        rows = dict[tuple[str, int], list[str]]()
        with self._opened() as book:
            for sheet in book.worksheets:
                rows_of_sheet = _rows(sheet) if sheet.sheet_state == "visible" else ()
                filled = (row for row in rows_of_sheet if _has_value(row[1]))
                for number, cells in islice(filled, _FIRST_ROWS):
                    texts = [_excel_text(_excel_value(cell)[0]) for cell in cells]
                    while not texts[-1]:
                        texts.pop()
                    rows[sheet.title, number] = texts
        return rows

    @contextmanager
    def _opened(self, data_only: bool = True) -> Iterator[Any]:
        # Exceptions are those of zipfile, of the XML parser, or of wrong XML in openpyxl. The
        # workbook is opened as a file, as by its name it might not be one.
        with _reading(self.path, "Excel workbook", Exception), open(self.source.path, "rb") as file:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of features that a table does not need
                book = self._openpyxl.load_workbook(file, read_only=True, data_only=data_only)
            yield book


class XlsxWriter(TableWriter):
    """Writes a workbook of one sheet. Text is never a formula; numbers and dates are not text.

    A text that is a number is written as one if it reads back as the same text. Text that a
    spreadsheet would take for a formula when the cell is edited is marked as text (a quote prefix).
    There are no more rows, and no longer texts, than Excel allows. The metadata of the types may
    have titles of columns for people: numbers then show three digits, some with a color, details
    are folded, and an overview stands before the sheet.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._openpyxl = _openpyxl("--output")
        self._file = file
        self._number = 0
        self._book = self._openpyxl.Workbook(write_only=True)
        facts = (getattr(types, "metadata", None) or {}).get(b"readable")
        facts = json.loads(facts) if facts else {"headings": {}, "structures": False}
        columns = facts.get("overview")
        names = ["Overview", "Predictions"] if columns else ["Sheet1"]
        sheets = [self._book.create_sheet(name) for name in names]
        self._sheet = sheets[-1]
        self._drawn_on = sheets[0] if facts["structures"] else None
        self._has_structures: bool = facts["structures"] and not columns
        # Title, meaning, whether it is a detail, unit and colors of columns for people, by name.
        self._headings: dict[str, list[Any]] = {k: v for k, v in facts["headings"].items() if v}
        self._is_titled = [name in self._headings for name in header]
        self._ranges = [self._headings.get(name, [()])[-1] for name in header]
        grades = facts.get("grades", {})
        self._grades = [header.index(grades.get(name, name)) for name in header]
        titles = [self._headings.get(name, [name])[0] for name in header]
        self._columns = ["Structure"] * self._has_structures + titles
        if self._headings or self._has_structures:
            self._lay_out({heading[0] for heading in self._headings.values() if heading[2]})
        self._overview = None
        if columns:
            error = header.index(facts["error"])
            self._overview = OverviewSheet(sheets[0], self._openpyxl, columns, error)
            sheets[0].append([self._heading_cell(title) for title in self._overview.titles])
        self._append([self._heading_cell(name) for name in self._columns])

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        row = [
            self._rounded_cell(cell, ranges, cells[grade])
            if is_titled and isinstance(cell, float)
            else self._cell(cell)
            for cell, is_titled, ranges, grade in zip(
                cells, self._is_titled, self._ranges, self._grades, strict=True
            )
        ]
        if self._has_structures:
            row.insert(0, None)
        self._draw(structure)
        if self._overview:
            self._overview.append(cells, self._cell)
        self._append(row)

    def close(self) -> None:
        """Write the workbook."""
        if self._overview:
            self._overview.finish(self._number)
        if self._headings:
            last = self._openpyxl.utils.get_column_letter(len(self._columns))
            self._sheet.auto_filter.ref = f"A1:{last}{self._number}"
            sheet = self._book.create_sheet("Columns")
            sheet.freeze_panes = "A2"
            for letter, width in zip("ABCD", (45, 45, 20, 110), strict=True):
                sheet.column_dimensions[letter].width = width
            words = "Heading", "Column", "Unit", "Meaning"
            sheet.append([self._heading_cell(word) for word in words])
            for name, (title, meaning, _, unit, _) in self._headings.items():
                sheet.append([self._text_cell(text) for text in (title, name, unit, meaning)])
            if self._overview:
                sheet.append([self._text_cell(text) for text in ("Overview", "", "", LEGEND)])
        self._book.save(self._file)

    def _lay_out(self, details: set[str]) -> None:
        self._sheet.freeze_panes = "C2" if self._has_structures else "B2"
        self._sheet.sheet_properties.outlinePr.summaryRight = False
        widths = [
            24 if number == 0 or "smiles" in title.lower() else min(24, max(11, len(title) // 2))
            for number, title in enumerate(self._columns)
        ]
        lay_out_headings(self._sheet, self._openpyxl, self._columns, widths)
        for number, title in enumerate(self._columns, start=1):
            letter = self._openpyxl.utils.get_column_letter(number)
            column = self._sheet.column_dimensions[letter]
            column.hidden = title in details
            column.outlineLevel = int(column.hidden)

    def _heading_cell(self, text: str) -> Any:
        cell = self._text_cell(text)
        if self._headings:
            cell.font = self._openpyxl.styles.Font(bold=True)
            cell.alignment = self._openpyxl.styles.Alignment(wrap_text=True, vertical="top")
        return cell

    def _rounded_cell(self, value: float, ranges: Sequence[Any], grade: object) -> Any:
        if not math.isfinite(value):
            return self._cell(value)
        cell = self._openpyxl.cell.WriteOnlyCell(self._sheet, value)
        cell.number_format = number_format(value)
        return colored(cell, verdict(value, ranges, grade), self._openpyxl.styles)

    def _draw(self, structure: str) -> None:
        """Draw a molecule beside the next row."""
        png = draw_png(structure) if structure and self._drawn_on else None
        if png is None or self._drawn_on is None:
            return
        from openpyxl.drawing.image import Image

        row = self._number + 1
        self._drawn_on.row_dimensions[row].height = 84
        self._drawn_on.add_image(Image(BytesIO(png)), f"A{row}")

    def _append(self, cells: list[Any]) -> None:
        self._number += 1
        if self._number > _MOST_ROWS:
            raise InputError(f"got more than {_MOST_ROWS:,} rows, which Excel allows; use CSV")
        self._sheet.append(cells)

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            return float(value) if cell_text(float(value)) == value else self._text_cell(value)
        if isinstance(value, datetime) and cell_text(value) == str(value.date()):
            value = value.date()  # Excel would show midnight
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
        cell = self._openpyxl.cell.WriteOnlyCell(self._sheet, text or None)
        if text:
            cell.data_type = "s"  # in place of a formula or an error
        if escape_formula(text) != text:
            cell.quotePrefix = True
        return cell


@contextmanager
def _reading(path: Path, kind: str, errors: Any) -> Iterator[None]:
    """Raise an :class:`InputError` about the file in place of errors of other packages."""
    try:
        yield
    except errors as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: not a readable {kind}: {reason}") from error


def _texts(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(valid_text(name), pa.string()) for name in names])


def _openpyxl(where: object) -> Any:
    try:
        import openpyxl  # an extra
    except ImportError:
        raise InputError(
            f"{where}: Excel files need openpyxl, which is not installed: "
            'pip install "molattn[excel]"'
        ) from None
    return openpyxl


def _parquet_text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_float32(kind) and value is not None and not value.is_integer():
        return str(np.float32(value))
    return cell_text(value)


def _rows(sheet: Any, first: int = 1) -> Iterator[tuple[int, Sequence[Any]]]:
    """Return the cells of the rows of a sheet, with their numbers."""
    sheet.reset_dimensions()  # they need not be true
    return enumerate(sheet.iter_rows(min_row=first, max_row=_MOST_ROWS), start=first)


def _has_value(cells: Sequence[Any]) -> bool:
    return any(cell.value not in (None, "") for cell in cells)


def _excel_value(cell: Any) -> tuple[Any, str]:
    """Return the value of a cell, and its form, see :attr:`Table.forms`."""
    value = cell.value
    if isinstance(value, str):  # Excel escapes the carriage returns within a text
        return value.replace("_x000D_", "\r"), number_form(value)
    if value is None:  # the text of a formula is "str"
        is_blank = cell.data_type == "n" and cell.number_format is not None
        return value if cell.data_type == "n" else "", "blank" if is_blank else ""
    is_number = type(value) in (int, float) and "%" in cell.number_format
    if is_number and "%" in _LITERAL.sub("", cell.number_format):
        return float(f"{100 * value:.15g}"), "percentage"
    return value, ""


def _excel_text(value: Any) -> str:
    return str(value).upper() if isinstance(value, bool) else cell_text(value)
