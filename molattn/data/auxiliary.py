"""Rows with auxiliary labels, of the table of the targets and of a second table."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from molattn.config import DataConfig
from molattn.data.table import Row, Table, open_table
from molattn.errors import matching

SECOND = 10**9
"""What is added to the lines of the second table: more than a file has."""


class AuxiliaryTable(Table):
    """Structures, other inputs and auxiliary labels: rows of a table, then of a second one.

    Rows of the first table keep their lines. A table without any auxiliary column is not read if
    the other one has all of them; a label column that only one of them has is empty in the other,
    and so are the columns of split and time.

    Args:
        table: The table of the targets.
        config: Its columns, with ``auxiliary_columns``.

    Attributes:
        date_format: Format in which the dates are read; the format of the targets' dates.

    Raises:
        InputError: A column is missing, or the second table cannot be read.
    """

    date_format = ""

    def __init__(self, table: Table, config: DataConfig) -> None:
        labels = config.auxiliary
        self._tables = {0: table}
        if config.auxiliary_data is not None:
            options = replace(config, sheet=None, header_row=None)  # of the first table
            self._tables[SECOND] = open_table(config.auxiliary_data, options=options)
            if not any(matching(name, table.header) for name in labels.target_columns):
                del self._tables[0]
        *_, last = self._tables.values()
        self.path = last.path
        self.unit = last.unit
        self._columns: dict[str, dict[int, int]] = {}  # by name: index in each table
        for option in ("smiles_column", "partner_column", "weight_column", "feature_columns"):
            self._find(option, getattr(config, option), self._tables)
        for option, names in (
            ("auxiliary_columns", labels.target_columns),
            ("relation_columns", labels.relation_columns),
            ("split_column", [config.split_column]),
            ("time_column", [config.time_column]),
        ):
            for name in filter(None, names):
                tables = self._tables.items()
                matching_tables = {
                    key: candidate for key, candidate in tables if matching(name, candidate.header)
                }
                needed = self._tables if option.endswith("columns") else {}
                self._find(option, name, matching_tables or needed)
        self.remarks = last.remarks if last is not table else ()
        self.header = [*self._columns]

    def _find(self, option: str, names: Any, tables: dict[int, Table]) -> None:
        for name in (names,) if isinstance(names, str) else names or ():
            flag = f"--{option.replace('_', '-')}"
            self._columns[name] = {key: table.column(name, flag) for key, table in tables.items()}

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        for key, table in self._tables.items():
            columns = [indices.get(key) for indices in self._columns.values()]
            for row in table:
                cells = ["" if index is None else row.cells[index] for index in columns]
                molecule = row.molecule if columns[0] == 0 else None  # it stands for that column
                commas = [new for new, index in enumerate(columns) if index in row.commas]
                yield row._replace(
                    line=key + row.line, cells=cells, values=None, molecule=molecule, commas=commas
                )

    def check_featurizer(self, featurizer: Any) -> None:
        """Check that prepared molecules have the features of a featurizer."""
        for table in self._tables.values():
            table.check_featurizer(featurizer)

    def where(self, line: int) -> str:
        """Return a row's name for messages, with its file if there are two."""
        key = SECOND if line > SECOND else 0
        name = self._tables[key].where(line - key)
        return f"{name} of {self._tables[key].path}" if len(self._tables) > 1 else name
