"""Tables whose cells have types: Parquet files, Excel workbooks (.xlsx) and DataFrames."""

import json
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from io import BytesIO
from itertools import islice
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
    Row,
    Source,
    Table,
    TableWriter,
    cell_text,
    escape_formula,
    listed,
    valid_text,
)
from molattn.errors import InputError, SmilesError, quoted
from molattn.utils.console import decimals

_ROWS_READ = 1024
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 2**20
_PARQUET_ERRORS = (pa.ArrowException, ValueError, ArithmeticError, LookupError, OSError)
_MOST_ROWS = 2**20  # these are Excel's
_MOST_TEXT = 32_767
_LARGEST_WHOLE = 2**53
_FIRST_DATE = date(1900, 3, 1)  # Excel takes 1900 for a leap year
_NOT_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")


class FrameTable(Table):
    """The rows of a pandas DataFrame as texts; its index is ignored.

    An RDKit molecule in a cell is its canonical SMILES. A row with one that cannot be used has a
    reason code.
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
            cells, code, reason = list[str](), "", ""
            for value, is_missing in zip(values, gaps, strict=True):
                if isinstance(value, Chem.Mol):
                    try:
                        value = read_molecule(value, NO_LIMITS, Chem.MolToSmiles)[1]
                    except SmilesError as error:
                        value, code, reason = error.smiles, error.code, error.reason
                elif isinstance(value, np.floating):  # in single precision with the same digits
                    value = float(str(value))
                cells.append("" if is_missing else cell_text(value))
            yield Row(number, cells, code, reason)


class ParquetTable(Table):
    """The rows of a Parquet file: ``cells`` as texts, ``values`` with the file's types."""

    unit = "row"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        with self._open() as file:
            self.schema, self._count = file.schema_arrow, file.metadata.num_rows
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
                    yield Row(number, [*cells], values=values)

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
    own = (table and table.schema) or _texts(table.header if table else ())
    new = [pa.field(valid_text(name), pa.type_for_alias(kind)) for name, kind in columns.items()]
    return pa.schema([*own, *new])


class XlsxTable(Table):
    """The first visible sheet of a workbook: ``cells`` as texts, ``values`` with the file's types.

    Formulas have the values that were stored when the workbook was saved, if any, and only the
    first of merged cells has their value. Blank rows are skipped.
    """

    unit = "row"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._openpyxl = _openpyxl(self.path)
        errors = zipfile.BadZipFile, OSError
        with _reading(self.path, "Excel workbook", errors), zipfile.ZipFile(source.path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        source.check_expansion(size)
        _, values = next(self._filled_rows(), (0, []))
        self.header = [_excel_text(value) for value in values]
        self.check_header()

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        for number, values in islice(self._filled_rows(), 1, None):
            values += [None] * (len(self.header) - len(values))
            yield self.row(number, [_excel_text(value) for value in values], ",", tuple(values))

    def _filled_rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows that are not blank, without the empty cells at their ends."""
        # Exceptions are those of zipfile, of the XML parser, or of wrong XML in openpyxl. The
        # workbook is opened as a file, as by its name it might not be one.
        with _reading(self.path, "Excel workbook", Exception), open(self.source.path, "rb") as file:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of features that a table does not need
                book = self._openpyxl.load_workbook(file, read_only=True, data_only=True)
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


class XlsxWriter(TableWriter):
    """Writes a workbook of one sheet. Text is never a formula; numbers and dates are not text.

    A text that is a number is written as one if it reads back as the same text. Text that a
    spreadsheet would take for a formula when the cell is edited is marked as text (a quote prefix).
    There are no more rows, and no longer texts, than Excel allows. The metadata of the types may
    have titles of columns for people: numbers then show three digits, and details are folded.
    """

    def __init__(self, file: IO[bytes], header: Sequence[str], types: Any = None) -> None:
        self._openpyxl = _openpyxl("--output")
        self._file, self._number = file, 0
        self._book = self._openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("Sheet1")
        facts = (getattr(types, "metadata", None) or {}).get(b"readable")
        facts = json.loads(facts) if facts else {"headings": {}, "structures": False}
        self._has_structures: bool = facts["structures"]
        # Title, meaning, whether it is a detail, and unit of columns for people, by name.
        self._headings: dict[str, list[Any]] = {k: v for k, v in facts["headings"].items() if v}
        self._is_titled = [name in self._headings for name in header]
        titles = [self._headings.get(name, [name])[0] for name in header]
        self._columns = ["Structure"] * self._has_structures + titles
        if self._headings or self._has_structures:
            self._lay_out({one[0] for one in self._headings.values() if one[2]})
        self._append([self._heading_cell(name) for name in self._columns])

    def write(self, cells: Sequence[object], structure: str = "") -> None:
        """Write a row."""
        found = [
            self._rounded_cell(cell) if is_titled and isinstance(cell, float) else self._cell(cell)
            for cell, is_titled in zip(cells, self._is_titled, strict=True)
        ]
        if self._has_structures:
            found.insert(0, None)
            self._draw(structure)
        self._append(found)

    def close(self) -> None:
        """Write the workbook."""
        if self._headings:
            last = self._openpyxl.utils.get_column_letter(len(self._columns))
            self._sheet.auto_filter.ref = f"A1:{last}{self._number}"
            sheet = self._book.create_sheet("Columns")
            sheet.freeze_panes = "A2"
            for letter, width in zip("ABCD", (45, 45, 20, 110), strict=True):
                sheet.column_dimensions[letter].width = width
            words = "Heading", "Column", "Unit", "Meaning"
            sheet.append([self._heading_cell(one) for one in words])
            for name, (title, meaning, _, unit) in self._headings.items():
                sheet.append([self._text_cell(one) for one in (title, name, unit, meaning)])
        self._book.save(self._file)

    def _lay_out(self, details: set[str]) -> None:
        self._sheet.freeze_panes = "C2" if self._has_structures else "B2"
        self._sheet.sheet_properties.outlinePr.summaryRight = False
        for number, title in enumerate(self._columns, start=1):
            letter = self._openpyxl.utils.get_column_letter(number)
            is_wide = number == 1 or "smiles" in title.lower()
            width = 24 if is_wide else min(24, max(11, len(title) // 2))
            column = self._sheet.column_dimensions[letter]
            column.width, column.hidden = width, title in details
            column.outlineLevel = int(column.hidden)

    def _heading_cell(self, text: str) -> Any:
        cell = self._text_cell(text)
        if self._headings:
            cell.font = self._openpyxl.styles.Font(bold=True)
            cell.alignment = self._openpyxl.styles.Alignment(wrap_text=True, vertical="top")
        return cell

    def _rounded_cell(self, value: float) -> Any:
        if not math.isfinite(value):
            return self._cell(value)
        cell = self._openpyxl.cell.WriteOnlyCell(self._sheet, value)
        cell.number_format = f"#,##0.{'0' * decimals(value)}".rstrip(".")
        return cell

    def _draw(self, structure: str) -> None:
        """Draw a molecule beside the next row."""
        png = draw_png(structure) if structure else None
        if png is None:
            return
        from openpyxl.drawing.image import Image

        row = self._number + 1
        self._sheet.row_dimensions[row].height = 84
        self._sheet.add_image(Image(BytesIO(png)), f"A{row}")

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
    """Raise errors of other packages as those of the file."""
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


def _excel_text(value: Any) -> str:
    return str(value).upper() if isinstance(value, bool) else cell_text(value)
