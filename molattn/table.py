"""Files to rows and molecules, and predictions back to rows.

A table is a stream of rows that remember their line in the file, so that a file of any length fits
in constant memory and every complaint can say where. Every cell stays the text that it was.
"""

import csv
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from math import isnan, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.chem.features import Featurizer
from molattn.chem.parse import parse_smiles
from molattn.config import DataConfig
from molattn.errors import InputError, SmilesError, quoted
from molattn.record import MoleculeRecord

__all__ = [
    "Row",
    "SkippedRow",
    "Table",
    "TrainingTable",
    "bundled_dataset",
    "chunks",
    "column_index",
    "featurize",
    "parse_target",
    "read_training_table",
    "write_table",
]

# One list for reading and writing, so that bytes which are no UTF-8 come out as they went in.
_ENCODING_ERRORS = "surrogateescape"
_SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\x1f\x8b": "gzip-compressed data",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST_TARGET = 1e30  # its square still fits a float64, and it a float32
_COLUMNS_SHOWN = 10


class Row(NamedTuple):
    """One row of a table.

    Args:
        line: Line of the file on which the row begins, counted from 1.
        cells: One text for each column.
        fault: Why the cells cannot be told apart, or None.
    """

    line: int
    cells: list[str]
    fault: str | None


class Table:
    """A CSV file, read row by row: comma-separated UTF-8 with a header.

    Blank lines are no rows. A row with too few or too many cells comes out with a ``fault``, padded
    with empty cells or with the surplus joined into its last cell.

    Args:
        path: The file.

    Raises:
        InputError: If the file cannot be read or is no CSV text with a header.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header = next(self._lines(), (0, []))[1]
        if not self.header:
            raise InputError(f"{self.path}: the file is empty, expected a header and rows")

    def __iter__(self) -> Iterator[Row]:
        lines = self._lines()
        next(lines, None)
        width = len(self.header)
        for line, cells in lines:
            fault = None
            if len(cells) != width:
                fault = f"{len(cells)} cells where the header has {width}"
            surplus = [",".join(cells[width - 1 :])] if len(cells) > width else cells[width - 1 :]
            padding = [""] * (width - len(cells))
            yield Row(line, cells[: width - 1] + surplus + padding, fault)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        _check_text_file(self.path)
        csv.field_size_limit(sys.maxsize)
        last_line = 0
        try:
            with open(self.path, newline="", encoding="utf-8-sig", errors=_ENCODING_ERRORS) as file:
                reader = csv.reader(file, strict=True)
                try:
                    for cells in reader:
                        line, last_line = last_line + 1, reader.line_num
                        if cells:
                            yield line, cells
                except csv.Error as error:
                    raise InputError(
                        f"{self.path}, line {last_line + 1}: not CSV ({error})"
                    ) from None
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from error

    def column(self, name: str, option: str) -> int:
        """Return the index of a column, or suggest the one that was meant.

        Args:
            name: The column's name in the header.
            option: The option that asked for it, for the message.

        Raises:
            InputError: If there is no such column, or more than one.
        """
        return column_index(self.header, name, option, self.path)


def column_index(header: Sequence[str], name: str, option: str, path: Path) -> int:
    """Return where ``name`` stands in ``header``; see :meth:`Table.column`."""
    found = [index for index, column in enumerate(header) if column == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"{path}: {len(found)} columns are named {quoted(name)} ({option}), expected one"
        )
    if len(header) == 1 and (separator := re.search(r"[;\t|]", header[0])):
        raise InputError(
            f"{path}: no column {quoted(name)} ({option}): the cells seem to be separated by "
            f"{quoted(separator[0])}, expected commas"
        )
    alike = {column.strip().lower(): column for column in header}
    close = get_close_matches(name.strip().lower(), alike, n=1)
    hint = f", did you mean {quoted(alike[close[0]])}?" if close else ";"
    raise InputError(
        f"{path}: no column {quoted(name)} ({option}){hint} the columns are {_listed(header)}"
    )


def chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Yield the rows in lists of ``size``; the last one may be shorter."""
    iterator = iter(rows)
    while chunk := list(islice(iterator, size)):
        yield chunk


def featurize(smiles: str, featurizer: Featurizer) -> MoleculeRecord | SmilesError:
    """Return the molecule, or what is wrong with it: a bad row never costs a good one."""
    try:
        return featurizer(parse_smiles(smiles))
    except SmilesError as error:
        return error


def parse_target(text: str) -> float:
    """Return a label as a number; NaN where it is missing.

    Args:
        text: The cell; empty or one of na, n/a, nan, null, none (any case) if missing.

    Raises:
        ValueError: If the text is neither a finite number of sane size nor missing.
    """
    text = text.strip()
    if text.lower() in _MISSING:
        return nan
    if not _NUMBER.fullmatch(text):
        raise ValueError("a number or an empty cell")
    value = float(text)
    if abs(value) > _LARGEST_TARGET:
        raise ValueError(f"a number of magnitude below {_LARGEST_TARGET:g}")
    return value


class SkippedRow(NamedTuple):
    """A row that training does without, and why."""

    line: int
    smiles: str
    code: str
    reason: str


@dataclass(frozen=True)
class TrainingTable:
    """The usable rows of a table, as molecules with labels.

    Args:
        path: The file.
        header: Its columns.
        rows: The usable rows, in order.
        smiles: Their SMILES.
        records: Their molecules.
        targets: Their labels ``float64 [n, T]`` in original units, NaN where missing.
        parts: The cell of the split column for each row, or None without one.
        skipped: The other rows.
    """

    path: Path
    header: list[str]
    rows: list[Row]
    smiles: list[str]
    records: list[MoleculeRecord]
    targets: NDArray[np.float64]
    parts: list[str] | None
    skipped: list[SkippedRow]

    @property
    def rows_in(self) -> int:
        """Number of rows in the file."""
        return len(self.rows) + len(self.skipped)


def read_training_table(
    path: str | Path, config: DataConfig, featurizer: Featurizer
) -> TrainingTable:
    """Read a table of molecules with labels.

    Args:
        path: The file.
        config: Names of the columns.
        featurizer: Turns molecules into integers.

    Returns:
        The usable rows; a row without a molecule or without any label is among ``skipped``.

    Raises:
        InputError: If a column is missing, a label is neither a number nor missing, or no row is
            usable.
    """
    table = Table(path)
    smiles_index = table.column(config.smiles_column, "--smiles-column")
    if not config.target_columns:
        raise InputError(
            f"{table.path}: --target-columns: got none, expected the columns to learn, some of "
            + _listed(table.header)
        )
    target_indices = [table.column(name, "--target-columns") for name in config.target_columns]
    split_index = (
        None if config.split_column is None else table.column(config.split_column, "--split-column")
    )

    rows: list[Row] = []
    smiles: list[str] = []
    records: list[MoleculeRecord] = []
    labels: list[list[float]] = []
    skipped: list[SkippedRow] = []
    for row in table:
        text = row.cells[smiles_index]
        if row.fault is not None:
            skipped.append(SkippedRow(row.line, text, "ragged", row.fault))
            continue
        values = [_label(table, row, index) for index in target_indices]
        if all(isnan(value) for value in values):
            skipped.append(SkippedRow(row.line, text, "no_label", "no target has a value"))
            continue
        record = featurize(text, featurizer)
        if isinstance(record, SmilesError):
            skipped.append(SkippedRow(row.line, text, record.code, record.reason))
            continue
        rows.append(row)
        smiles.append(text)
        records.append(record)
        labels.append(values)
    if not rows:
        first = f"; the first, line {skipped[0].line}: {skipped[0].reason}" if skipped else ""
        raise InputError(
            f"{table.path}: got {len(skipped)} rows, expected some with a molecule and a label "
            f"(columns {quoted(config.smiles_column)}, {_listed(config.target_columns)}){first}"
        )
    return TrainingTable(
        path=table.path,
        header=table.header,
        rows=rows,
        smiles=smiles,
        records=records,
        targets=np.asarray(labels, dtype=np.float64),
        parts=None if split_index is None else [row.cells[split_index] for row in rows],
        skipped=skipped,
    )


@contextmanager
def write_table(
    path: str | Path, header: Sequence[str]
) -> Iterator[Callable[[Sequence[object]], object]]:
    """Write a CSV file that is there whole or not at all.

    Rows go to a file beside it, which takes its name when the block ends without an exception.

    Args:
        path: The file; one that is there is replaced.
        header: The columns.

    Yields:
        The function that writes one row.

    Raises:
        InputError: If the file cannot be written there.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: there is something that is not a file, expected a CSV to write")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        file = open(  # noqa: SIM115
            partial, "w", newline="", encoding="utf-8", errors=_ENCODING_ERRORS
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        with file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            yield writer.writerow
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def bundled_dataset() -> Path:
    """Return the file of the 1,282 measured aqueous solubilities that come with the package.

    Columns name, smiles, logS (log mol/L) and split (train, test).

    Raises:
        InputError: If this installation lacks it.
    """
    places = (
        Path(__file__).parents[1] / "datasets",
        Path(sysconfig.get_path("data")) / "share" / "molattn",
    )
    for place in places:
        if (place / "solubility.csv").is_file():
            return place / "solubility.csv"
    raise InputError(
        "solubility.csv, the bundled data set, was not installed; give a table of your own"
    )


def _label(table: Table, row: Row, index: int) -> float:
    try:
        return parse_target(row.cells[index])
    except ValueError as error:
        raise InputError(
            f"{table.path}, line {row.line}, column {quoted(table.header[index])}: "
            f"got {quoted(row.cells[index])}, expected {error}"
        ) from None


def _check_text_file(path: Path) -> None:
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not path.is_file():
            raise InputError(f"{path}: not a file, expected a CSV table")
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            raise InputError(f"{path}: got {kind}, expected a CSV table (plain UTF-8 text)")
    if b"\0" in start:
        raise InputError(f"{path}: got binary data, expected a CSV table (plain UTF-8 text)")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:_COLUMNS_SHOWN])
    return (
        f"{shown} and {len(names) - _COLUMNS_SHOWN} more" if len(names) > _COLUMNS_SHOWN else shown
    )
