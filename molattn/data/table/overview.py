"""Sheets for people in an Excel workbook: colors, headings, and an overview before the table."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from molattn.utils.console import decimals

_FILLS = {"good": "DFF3EA", "poor": "FBE3D6"}  # those of the page
_MARKS = {"good": "\u2713 ", "poor": "! ", "": ""}
_LINE = 15.0  # height of a line of text, in points
_WIDTH = 14

LEGEND = (
    "\u2713 desired, ! undesired, by thresholds in use, and for probabilities by 0.3 and 0.7; then "
    "the value and its confidence. A value of low confidence has neither mark nor color. Each has "
    "its own columns, with interval and details, in the sheet Predictions."
)


def verdict(value: object, ranges: Sequence[Sequence[Any]], grade: object) -> str:
    """Return whether a value is ``good`` or ``poor``, "" in no range or of low confidence."""
    if not isinstance(value, float) or grade == "low":
        return ""
    within = (
        name
        for low, high, name in ranges
        if (low is None or value >= low) and (high is None or value < high)
    )
    return next(within, "")


def colored(cell: Any, name: str, styles: Any) -> Any:
    """Fill a cell with the color of a verdict, if it has one."""
    if name:
        cell.fill = styles.PatternFill("solid", fgColor=_FILLS[name])
    return cell


def number_format(value: float, *, percent: bool = False) -> str:
    """Return the format in which a number has three digits."""
    return "0%" if percent else f"#,##0.{'0' * decimals(value)}".rstrip(".")


def lay_out_headings(
    sheet: Any, openpyxl: Any, titles: Sequence[str], widths: Sequence[int]
) -> None:
    """Set the widths of columns, and the height of the first row so that no heading is cut."""
    lines = 1
    for number, (title, width) in enumerate(zip(titles, widths, strict=True), start=1):
        width = max(width, *(len(word) + 3 for word in title[:200].split()[:20]), 3)
        sheet.column_dimensions[openpyxl.utils.get_column_letter(number)].width = min(width, 60)
        lines = max(lines, len(textwrap.wrap(title, min(width, 60) - 3)))
    sheet.row_dimensions[1].height = min(400.0, _LINE * lines + 4.0)


class OverviewSheet:
    """The overview of a workbook.

    Each of ``columns`` has a ``title`` and the ``index`` of what it shows in the whole table, -1
    for drawings. That of a property also has the ``ranges`` of the value at ``colored_by``, the
    index of its ``grade``, or -1, and whether it is a ``percent``. ``error`` is the index of the
    reason why a row has no prediction, which stands in place of the first property.
    """

    def __init__(
        self, sheet: Any, openpyxl: Any, columns: Sequence[Mapping[str, Any]], error: int
    ) -> None:
        self.titles = [column["title"] for column in columns]
        self._sheet = sheet
        self._openpyxl = openpyxl
        self._columns = columns
        self._error = error
        self._first = next(n for n, column in enumerate(columns) if "ranges" in column)
        sheet.freeze_panes = f"{'ABC'[self._first]}2"
        widths = [24 if number < self._first else _WIDTH for number in range(len(columns))]
        lay_out_headings(sheet, openpyxl, self.titles, widths)

    def append(self, values: Sequence[object], make_cell: Callable[[Any], Any]) -> None:
        """Add a row, given that of the whole table."""
        cells = [
            self._property(column, values, make_cell)
            if "ranges" in column
            # No value beside a drawing.
            else make_cell(values[column["index"]] if column["index"] >= 0 else None)
            for column in self._columns
        ]
        if values[self._error]:
            cells[self._first] = make_cell(values[self._error])
        self._sheet.append(cells)

    def finish(self, rows: int) -> None:
        """Let the columns be filtered."""
        last = self._openpyxl.utils.get_column_letter(len(self._columns))
        self._sheet.auto_filter.ref = f"A1:{last}{rows}"

    def _property(
        self, column: Mapping[str, Any], values: Sequence[object], make_cell: Callable[[Any], Any]
    ) -> Any:
        value = values[column["index"]]
        if value is None:
            return None
        grade = values[column["grade"]] if column["grade"] >= 0 else None
        name = verdict(values[column["colored_by"]], column["ranges"], grade)
        if isinstance(value, float):
            cell = self._openpyxl.cell.WriteOnlyCell(self._sheet, value)
            texts = (_MARKS[name], f" {grade}" if grade else "")
            mark, word = (f'"{text}"' if text else "" for text in texts)
            cell.number_format = f"{mark}{number_format(value, percent=column['percent'])}{word}"
        else:
            cell = make_cell(f"{value}, {grade}" if grade else value)
        return colored(cell, name, self._openpyxl.styles)
