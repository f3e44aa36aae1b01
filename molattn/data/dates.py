"""The column of dates or numbers of ``--split time``: one reading of the whole column."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.data.labels import LabelError, is_missing

NUMBERS = "numbers"
_BOTH = "YYYY-MM-DD and DD.MM.YYYY"
# Formats of dates; of several that fit, the first is named. Days without a year are refused.
_FORMATS = (
    f"YYYY-MM-DD|DD.MM.YYYY|{_BOTH}|DD.MM.YY|YYYY.MM.DD|YYYY/MM/DD|"
    "DD/MM/YYYY|MM/DD/YYYY|DD-MM-YYYY|MM-DD-YYYY|"
    "DD/MM/YY|MM/DD/YY|YY/MM/DD|DD-MM-YY|MM-DD-YY|YY-MM-DD|"
    "YYYY-MM|YYYY/MM|MM/YYYY|MM-YYYY|MM/YY|MM-YY|YY/MM|YY-MM|DD/MM|DD-MM|MM/DD|MM-DD|"
    "DD month YYYY|DD month YY|month DD YYYY|YYYY month DD|"
    "month YYYY|month YY|YYYY month|YY month|DD month"
).split("|")
_DAY = "(0[1-9]|[12][0-9]|3[01])"
_MONTH = "(0[1-9]|1[0-2])"
_YEAR = "(19|20)[0-9]{2}"
_NUMERALS = {  # numbers that are dates if all of a column are
    # A spreadsheet writes 10.2020 as 10.202, and 10.2000 as 10.2.
    "MM.YYYY": r"0*([1-9]|1[0-2])\.(19[0-9]{0,2}|2|20[0-9]{0,2})",
    "YYYY.MM": rf"0?{_YEAR}\.(0[1-9]|1[0-2]?)",
    "YYYY.M": rf"0?{_YEAR}\.([1-9]|1[0-2])",
    "MM.YY": rf"{_MONTH}\.[0-9]{{2}}",
    "DD.MM": rf"{_DAY}\.{_MONTH}",
    "MMYY": _MONTH + "[0-9]{2}",
    "YYYYMM": _YEAR + _MONTH,
    "MMYYYY": f"({_MONTH}|[1-9]){_YEAR}",
    "DDMMYYYY": f"({_DAY}|[1-9]){_MONTH}{_YEAR}",
    "MMDDYYYY": f"({_MONTH}|[1-9]){_DAY}{_YEAR}",
    "DDMMYY": f"{_DAY}{_MONTH}[0-9]{{2}}",
    "MMDDYY": f"{_MONTH}{_DAY}[0-9]{{2}}",
    "YYMMDD": f"[0-9]{{2}}{_MONTH}{_DAY}",
}
# What one number at least must look like, as most numbers of these formats are no dates.
_SIGNS = {"YYYY.M": r".*\.1[0-2]", "MM.YY": "0", "DD.MM": "0", "MMYY": "0"}
_EXPECTED = "ISO dates such as 2019-12-31 or 2019-12"
_PARTS = r"^(?P<day>.*?)(?:[T\s]+(?P<clock>\d{1,2}:.*))?$"
_MONTH_NAME = r"[\s,./-]*([A-Za-z]{3,9})[\s,./-]*"


class Dates(NamedTuple):
    """The dates or numbers of rows.

    Args:
        format: How they are written, such as ``DD.MM.YYYY`` or ``numbers``.
        values: ``datetime64`` or ``float64``; NaT or NaN where a row has none.
    """

    format: str
    values: NDArray[Any]

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        """Whether a row has no date."""
        return self.values != self.values

    def describe(self) -> str:
        """Return the format, and the first and the last date."""
        dated = self.values[~self.is_missing]
        return f"{self.format} from {date_text(dated.min())} to {date_text(dated.max())}"


NO_DATES = Dates("", np.zeros(0))


def date_text(value: Any) -> str:
    """Return a date, without its time, or a number as text."""
    return str(value)[:10] if isinstance(value, np.datetime64) else f"{value:.12g}"


def read_dates(cells: Sequence[str]) -> Dates:
    """Read a column, all cells in one format; those without a digit, such as ``n.d.``, are missing.

    Raises:
        LabelError: No format fits all cells, several do and differ, or the cells are numbers that
            all look like dates.
    """
    stripped = dict.fromkeys(cell.strip() for cell in cells)
    texts = [text for text in stripped if re.search("[0-9]", text) and not is_missing(text)]
    if not texts:
        raise LabelError(cells[0], "a date or a number")
    shape = _shape(re.sub(_PARTS, r"\g<day>", texts[0]))
    read = [
        read_as(texts, name)
        for name in (*_FORMATS, NUMBERS)
        if name == NUMBERS or shape in map(_shape, name.split(" and "))
    ]
    best = min(read, key=lambda dates: dates.is_missing.sum())
    for row in np.flatnonzero(best.is_missing).tolist()[:1]:
        names = dict.fromkeys((best.format, "YYYY-MM-DD"))
        raise LabelError(texts[row], f"one format in all rows, such as {' or '.join(names)}")
    fits = [dates for dates in read[:-1] if not dates.is_missing.any()]
    for row in np.flatnonzero([dates.values != best.values for dates in fits])[:1] % len(texts):
        both = (f"{date_text(dates.values[row])} as {dates.format}" for dates in fits)
        raise LabelError(texts[row], f"{_EXPECTED}: it is {' or '.join(both)}")
    date_formats = [] if "Y" in best.format else [best.format]
    if date_formats := _dates_in_numbers(texts) if best.format == NUMBERS else date_formats:
        raise LabelError(texts[0], f"{_EXPECTED}: it looks like {' or '.join(date_formats)}")
    return read_as(cells, best.format)


def _shape(text: str) -> str:
    """Return a date or a format with W for a word, ? for four digits and 0 for fewer."""
    text = re.sub("YY|MM|DD|[0-9]{1,2}", "0", re.sub("YYYY|[0-9]{4}", "?", text))
    return re.sub(_MONTH_NAME, "W", text).replace(",", "")


def read_like(cells: Sequence[str], name: str) -> Dates:
    """Read a column in the format of another table; what does not fit is missing.

    Raises:
        LabelError: Day and month in the other order fit more cells.
    """
    name = _BOTH if name in _BOTH.split(" and ") else name
    swapped = read_as(cells, name.translate(str.maketrans("DM", "MD")))
    read = read_as(cells, name)
    if swapped.is_missing.sum() < read.is_missing.sum():
        row = int((read.is_missing & ~swapped.is_missing).argmax())
        raise LabelError(cells[row], f"{name}, as in the table of the targets")
    return read


def read_as(cells: Sequence[str], name: str) -> Dates:
    """Read a column in a format; what does not fit is missing. A month is its first day."""
    import pandas as pd

    texts = pd.Series([cell.strip() for cell in cells])
    texts = texts.where(texts.str.contains("[0-9]"), "")  # "today" is no date
    if name == NUMBERS:
        return Dates(name, pd.to_numeric(texts, errors="coerce").to_numpy(np.float64))
    parts = texts.str.extract(_PARTS)
    words = {_MONTH_NAME: r" \1 ", ",": " "} if "month" in name else {}
    days = parts["day"].replace(words, regex=True).str.strip()
    pattern = name.replace("YYYY", "%Y").replace("YY", "%y").replace("MM", "%m").replace("DD", "%d")
    read = [
        pd.to_datetime(days, format=directives.replace("month", month), errors="coerce")
        for directives in pattern.split(" and ")
        for month in ("%b", "%B")
    ]
    read = pd.concat(read, axis=1, ignore_index=True).astype("datetime64[s]").bfill(axis=1)[0]
    read = read.where(read.dt.year.between(1900, 2099))
    clocks = "2000-01-01 " + parts["clock"].fillna("00:00:00")
    times = pd.to_datetime(clocks, format="mixed", errors="coerce", utc=True)
    return Dates(name, (read + (times - pd.Timestamp("2000-01-01", tz="UTC"))).to_numpy())


def _dates_in_numbers(texts: Sequence[str]) -> list[str]:
    """Return the names of the formats of dates that all numbers have."""
    texts = [text.removesuffix(".0") for text in texts]
    width = max(map(len, texts))
    return [
        name
        for name, pattern in _NUMERALS.items()
        if all(re.fullmatch(pattern, text.zfill(width)) for text in texts)
        and any(re.match(_SIGNS.get(name, ""), text) for text in texts)
    ]
