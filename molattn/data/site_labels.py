"""Labels of atoms and bonds: lists in the cells of a table, in the order of the input."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from molattn.chem.parse import Molecule
from molattn.chem.sites import Sites, labels_hydrogens, site_keys
from molattn.config import DataConfig
from molattn.data.labels import LabelError, Labels, is_missing, read_labels
from molattn.data.table import Row, Table
from molattn.errors import InputError, ReasonCode, SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.task import Level, Task
from molattn.utils.console import counted

_BRACKETS = re.compile(r"\s*[\[(](.*)[\])]\s*", re.DOTALL)
_MARKED = re.compile(r"\s*\[(\S*)\]\s+(.*)", re.DOTALL)
_ENTRY = re.compile(r"""['"]?#?([\w-]+)['"]?\s*:\s*['"]?([^,"'}]*)""")
_PREFIX = re.compile(r"(atom|bond)\.[dib]?prop\.")  # of RDKit's property lists
_CHARGE_ERROR = 0.05
_SPACE = re.compile(r"[\s;]+")


@dataclass(frozen=True, repr=False)
class SiteLabels:
    """Labels of the atoms, or of the bonds, of n molecules, one molecule after another.

    The order within a molecule is that of :class:`molattn.chem.sites.Sites`.
    """

    level: Level
    tasks: tuple[Task, ...]
    targets: NDArray[np.float64]  # values or class indices, NaN: missing or censored, [S, T]
    bounds: NDArray[np.float64] | None  # of censored labels, lower and upper, [2, S, T]
    starts: NDArray[np.int64]  # first site of each molecule, and the number of sites, [n + 1]

    @property
    def labels_or_bounds(self) -> NDArray[np.float64]:
        """The labels ``[S, T]``; a censored label is its bound."""
        bounds = self.bounds
        return self.targets if bounds is None else np.fmax(self.targets, np.fmax(*bounds))

    @property
    def molecule(self) -> NDArray[np.int64]:
        """The molecule of each site, ``[S]``."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def describe(self) -> list[str]:
        """Return a line for each task: its kind and its labels."""
        lines = []
        molecule = self.molecule
        for task, labels in zip(self.tasks, self.targets.T, strict=True):
            is_labeled = ~np.isnan(labels)
            molecules = counted(len(np.unique(molecule[is_labeled])), "molecule")
            line = f"{quoted(task.name)}: {task.kind}, {counted(int(is_labeled.sum()), 'label')}"
            classes = f" in {len(task.classes)} classes" * bool(task.classes)
            lines.append(f"{line}{classes} of the {self.level}s of {molecules}")
        return lines

    def molecules(self, rows: NDArray[np.int64]) -> "SiteLabels":
        """Return the labels of some of the molecules."""
        starts = self.starts.tolist()
        ranges = [np.arange(starts[row], starts[row + 1]) for row in rows.tolist()]
        sites = np.concatenate([np.zeros(0, dtype=np.int64), *ranges])
        starts = np.cumsum([0, *map(len, ranges)])
        bounds = None if self.bounds is None else self.bounds[:, sites]
        return SiteLabels(self.level, self.tasks, self.targets[sites], bounds, starts)


def split_cell(cell: str) -> list[str]:
    """Return the texts of a list in a cell, such as ``[12.5, None, 7]``; none of an empty cell.

    They are separated by commas or, without any, by spaces or semicolons. Property lists of RDKit
    may begin with their marker of a missing value (``[?] 12.5 ? 7``).
    """
    if match := _MARKED.fullmatch(cell):
        return ["" if text == match[1] else text for text in match[2].split()]
    match = _BRACKETS.fullmatch(cell)
    text = match[1] if match else cell
    if is_missing(text):
        return []
    texts = text.split(",") if "," in text else _SPACE.split(text.strip())
    return [value.strip().strip("'\"") for value in texts]


def read_cell(cell: str, molecule: Molecule, level: Level) -> list[str]:
    """Return the texts of a cell in the order of the atoms (bonds) of the input.

    The cell is a list, see :func:`split_cell`, or has values by atom, such as ``{3: 12.5, 4: 7}``,
    or ``{#3: 12.5, #4: 7}`` with indices, see :func:`molattn.chem.sites.site_keys`.
    """
    if not cell.lstrip().startswith("{"):
        return split_cell(cell)
    if _ENTRY.sub("", cell).strip("{}'\", \t\r\n"):
        raise LabelError(cell, f"values by {level}, such as {{3: 12.5, 4: 7}}")
    is_index = cell.lstrip().startswith("{#")
    positions, drawn = site_keys(molecule, level, by_index=is_index)
    texts = [""] * max([drawn, *(position + 1 for position in positions.values())])
    for key, text in _ENTRY.findall(cell):
        if key not in positions:
            raise LabelError(key, f"one of the {level}s {', '.join(positions)}")
        texts[positions[key]] = text
    return texts if any(texts[drawn:]) else texts[:drawn]


def has_hydrogen_labels(
    rows: Sequence[Row], molecules: Iterable[Molecule], columns: dict[Level, list[int]]
) -> bool:
    """Return whether a label is of a hydrogen atom, or of a bond with one."""
    for row, molecule in zip(rows, molecules, strict=True):
        for level, indices in columns.items():
            for index in indices:
                try:
                    texts = read_cell(row.cells[index], molecule, level)
                except (LabelError, SmilesError):
                    continue
                is_labeled = [not is_missing(text) for text in texts]
                if any(is_labeled) and labels_hydrogens(molecule, level, is_labeled):
                    return True
    return False


@dataclass(frozen=True, eq=False)
class SiteReader:
    """The columns of labels of the atoms (bonds) of usable rows, and why labels are not read.

    ``faults`` are rows of the table with a code and a reason.
    """

    table: Table
    rows: Sequence[Row]
    molecules: Sequence[Molecule]  # as they are read, in the order of the labels
    records: Sequence[MoleculeRecord]
    level: Level
    config: DataConfig
    faults: list[tuple[Row, tuple[ReasonCode, str]]] = field(default_factory=list)

    def read(self, columns: Sequence[int]) -> SiteLabels:
        """Read the labels of some columns.

        A list has a value for each atom (bond) of the input, with or without those of hydrogen, or
        also for all hydrogens. A list of another length is a fault of its row and counts as
        missing; if half of a column are such lists, the first is an error.

        Raises:
            InputError: The labels of a column do not fit together, named by row and atom or bond.
        """
        labels = [self._column(index, number) for number, index in enumerate(columns)]
        bounds = np.stack([column.bounds for column in labels], axis=-1)
        return SiteLabels(
            self.level,
            tuple(column.task for column in labels),
            np.column_stack([column.values for column in labels]),
            None if np.isnan(bounds).all() else bounds,
            self._starts,
        )

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """First site of each row, and the number of sites."""
        sites = [record.sites for record in self.records]
        return np.cumsum([0, *(len(getattr(site, f"{self.level}s").T) for site in sites)])

    def _column(self, index: int, number: int) -> Labels:
        """Read the column of an index, the ``number``-th of its level."""
        name = _PREFIX.sub("", self.table.header[index])
        cells = self._cells(index, name)
        try:
            labels = read_labels(
                name, 0, cells, None, column_options(self.config, self.level, number)
            )
        except LabelError as error:
            same = (site for site, cell in enumerate(cells) if cell == error.text.strip())
            row, where = self._where(next(same) if error.row is None else error.row, index)
            raise self._located(row, f"{name}{where}", error) from None
        except InputError as error:
            message = f"{self.table.path}, column {quoted(name)}: {error.args[0]}"
            raise InputError(message, option=error.option) from None
        for site, error in labels.invalid.items():
            row, where = self._where(site, index)
            self._add_fault(row, f"{quoted(name)}{where}", error)
        if self.table.header[index] in self.config.charge_columns:
            self._check_charges(name, labels.values)
        return labels

    def _check_charges(self, name: str, labels: NDArray[np.float64]) -> None:
        """Raise an InputError if most sums of labels are not the charge of their molecule."""
        atoms = [record.sites.atoms >= 0 for record in self.records]
        by_molecule = np.split(labels, self._starts[1:-1])
        sums = np.array([x[graph].sum() for x, graph in zip(by_molecule, atoms, strict=True)])
        errors = np.abs(sums - [record.sites.charge for record in self.records])
        misses = errors[~np.isnan(errors)] > _CHARGE_ERROR
        if 2 * misses.sum() > len(misses):
            number = (
                f"{misses.sum()} of {counted(len(misses), 'molecule')} in column {quoted(name)}"
            )
            message = f"got {number} with another charge, expected sums of all atoms"
            raise InputError(message, option="charge_columns")

    def _cells(self, index: int, name: str) -> list[str]:
        """Return the text of the label of each site."""
        cells = [""] * int(self._starts[-1])
        misfits: list[tuple[Row, LabelError]] = []
        labeled = 0
        for row, molecule in enumerate(self.molecules):
            cell = self.rows[row].cells[index]
            labeled += not is_missing(cell)
            try:
                texts = read_cell(cell, molecule, self.level)
                positions = _positions(texts, self.records[row].sites, self.level)
            except LabelError as error:
                misfits.append((self._row(row, index, error.text), error))
                self._add_fault(misfits[-1][0], quoted(name), error)
                continue
            for position, text in zip(positions, texts, strict=True):
                cells[self._starts[row] + position] = text
        if misfits and 2 * len(misfits) >= labeled:
            row, error = misfits[0]
            raise self._located(row, name, error)
        return cells

    def _where(self, site: int, index: int) -> tuple[Row, str]:
        """Return the row of a site in a column, and its number in the molecule as a text."""
        row = int(np.searchsorted(self._starts, site, side="right")) - 1
        number = int(site - self._starts[row])
        keys = []
        if hasattr(self.table, "lines"):
            positions, _ = site_keys(self.molecules[row], self.level, by_index=True)
            keys = [key for key, position in positions.items() if position == number]
        return self._row(row, index, *keys), f", {self.level} {number}"

    def _row(self, row: int, index: int, *keys: str) -> Row:
        """Return a row, with the line of an atom (bond) that is in another row of the table."""
        line = self.rows[row].line
        lines = getattr(self.table, "lines", {})  # of a long table
        of_keys = (lines[line, index, key] for key in keys if (line, index, key) in lines)
        return self.rows[row]._replace(line=next(of_keys, line))

    def _add_fault(self, row: Row, column: str, error: LabelError) -> None:
        reason = f"column {column}: {error.command_line()}"
        self.faults.append((row, ("invalid_label", reason)))

    def _located(self, row: Row, column: str, error: LabelError) -> InputError:
        location = f"{self.table.where(row.line)}, column {column}"
        return InputError(f"{self.table.path}, {location}: {error.command_line()}")


def _positions(texts: Sequence[str], sites: Sites, level: Level) -> Iterator[int]:
    """Return where the values of a list belong among the sites of its molecule."""
    is_heavy = sites.heavy_sites(level)
    drawn = sites.drawn[level == "bond"]
    heavy = np.flatnonzero(is_heavy[:drawn])
    if len(texts) in (0, drawn, len(is_heavy)):
        return iter(range(len(texts)))
    if len(texts) == len(heavy):
        return iter(heavy.tolist())
    numbers = " or ".join(map(str, dict.fromkeys([len(heavy), drawn, len(is_heavy)])))
    expected = f"{numbers}, one for each {level}"
    raise LabelError(f"{len(texts)} values", expected)


def column_options(config: DataConfig, level: Level, number: int) -> DataConfig:
    """Return the options of a column as those of the only target."""
    number += len(config.atom_target_columns) * (level == "bond")
    index = len(config.target_columns) + number
    task = config.task[index : index + 1] if len(config.task) > 1 else config.task
    if config.site_columns[number] in config.charge_columns:
        task = ("regression",)
    return replace(
        config,
        **{
            "charge_columns": (),
            "target_columns": (),
            "interval_columns": (),
            "atom_target_columns": (),
            "bond_target_columns": (),
            "atom_index_columns": (),
        },
        **{"task": task, "target_units": (), "relation_columns": (), "task_weights": ()},
        **{"target_transform": ("none",), "positive_class": ("auto",)},
    )
