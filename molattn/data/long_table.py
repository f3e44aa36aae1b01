"""Tables with a row for each atom or bond, read with a row for each molecule."""

from collections.abc import Iterable, Iterator, Sequence
from math import nan

import numpy as np
import pandas as pd

from molattn.config import DataConfig
from molattn.config.data import TaskChoice
from molattn.data.labels import (
    LabelError,
    are_numbers,
    find_columns,
    is_missing,
    number,
    read_numbers,
)
from molattn.data.site_labels import column_options
from molattn.data.table import Row, Table
from molattn.data.table.base import cell_text
from molattn.errors import InputError, quoted
from molattn.utils.console import counted


class LongTable(Table):
    """The molecules of a table that has a row for each atom or bond.

    Rows that are equal in the molecule, in the order of its atoms, and in each other column of a
    training, such as the split, are one, with the cells of the first. Labels of atoms (bonds)
    become values by index in a cell, see :func:`molattn.data.site_labels.read_cell`; those of one
    atom are averaged, and counted in ``remarks``. ``lines`` has the row of each label, by the row
    of its molecule, the index of its column and the atom (``"2"``, bonds ``"2-3"``).

    Args:
        table: The table.
        config: Its columns, with ``atom_index_columns``.

    Raises:
        InputError: An index is no number, or labels of an atom differ and are no numbers.
    """

    def __init__(self, table: Table, config: DataConfig) -> None:
        columns = find_columns(table, config)
        ends = [table.column(name, "--atom-index-columns") for name in config.atom_index_columns]
        self.source = table.source
        self.path = table.path
        self.header = table.header
        self.unit = table.unit
        every_row = [*table]
        rows = [row for row in every_row if not row.code]
        optional = columns.weight, columns.split, columns.time, *columns.relations
        inputs = [columns.smiles, *columns.labels, *columns.features]
        inputs += [index for index in optional if index is not None]
        cells = pd.DataFrame([row.cells for row in rows], columns=range(len(self.header)))
        cells["order"] = [_order(row, columns.smiles) for row in rows]
        molecule = cells.groupby([*inputs, "order"], sort=False).ngroup()
        first = molecule.drop_duplicates().index
        counts = f"{counted(len(rows), 'row')} of {counted(len(first), 'molecule')}"
        self.remarks = (*table.remarks, counts)
        self._rows = [
            rows[row]._replace(
                cells=[*rows[row].cells], values=None, molecule=rows[row].block or None
            )
            for row in first
        ]
        self.lines: dict[tuple[int, int, str], int] = {}
        for level, indices in columns.sites.items():
            for position, column in enumerate(indices):
                (choice,) = column_options(config, level, position).task or (None,)
                ends_of_site = ends[: 1 + (level == "bond")]
                for index, text in self._lists(rows, molecule, column, ends_of_site, choice):
                    self._rows[index].cells[column] = f"{{{text}}}"
        self._rows += [row for row in every_row if row.code]

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        return iter(self._rows)

    def _lists(
        self,
        rows: Sequence[Row],
        molecule: "pd.Series[int]",
        column: int,
        ends: Sequence[int],
        choice: TaskChoice | None,
    ) -> Iterable[tuple[int, str]]:
        """Return each molecule with labels in a column, and these by index in a text."""
        texts = [row.numeral(column) for row in rows]
        if all(map(is_missing, texts)):
            return ()
        labels = pd.DataFrame({"molecule": molecule, "label": texts})
        labels = labels[~labels.label.map(is_missing)].reset_index(names="row")
        labeled = [rows[row] for row in labels.row]
        atoms = np.sort([read_numbers(self, labeled, end, _atom_index) for end in ends], axis=0)
        labels["site"] = ["-".join(f"{atom:.0f}" for atom in site) for site in atoms.T.tolist()]
        is_number = are_numbers(texts, choice)
        labels["number"] = pd.to_numeric(labels.label, errors="coerce") if is_number else nan
        numbers = {"mean": ("number", "mean"), "numbers": ("number", "count")}
        numbers |= {"texts": ("label", "nunique"), "rows": ("row", "size")}
        of_site = labels.groupby(["molecule", "site"], sort=False)
        sites = of_site.agg(row=("row", "last"), label=("label", "last"), **numbers).reset_index()
        name = quoted(self.header[column])
        wrong = sites[(sites.texts > 1) & (sites.numbers < sites.rows)]
        for row, site, label in wrong[["row", "site", "label"]].to_numpy().tolist():
            where = f"{self.path}, {self.where(rows[row].line)}, column {name}, atom {site}"
            message = f"got {quoted(label)} beside another label, expected equal labels or numbers"
            raise InputError(f"{where}: {message}")
        if repeated := len(labels) - len(sites):
            counts = counted(repeated, "repeated label")
            self.remarks += (f"{counts} averaged in column {name}",)
        for index, site, row in sites[["molecule", "site", "row"]].to_numpy().tolist():
            self.lines[self._rows[index].line, column, site] = rows[row].line
        means = sites["mean"].map(cell_text)
        sites["text"] = "#" + sites.site + ": " + sites.label.where(sites.texts == 1, means)
        lists = sites.groupby("molecule").text.agg(", ".join)
        return zip(lists.index.tolist(), lists.tolist(), strict=True)


def _order(row: Row, column: int) -> str | bytes:
    """Return what is equal in rows whose molecules have their atoms in the same order."""
    mol = getattr(row.cells[column], "mol", None)
    return mol.ToBinary(0) if mol else row.block.split("\n", 3)[-1]  # without the title


def _atom_index(cell: str) -> float:
    """Return a cell as the index of an atom."""
    if 0.0 <= (index := number(cell)) < 1e9 and index.is_integer():  # no molecule has 1e9 atoms
        return index
    raise LabelError(cell, "the index of an atom, from 0")
