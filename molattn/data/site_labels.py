"""Labels of atoms and bonds: lists in the cells of a table, in the order of the input."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from molattn.chem.parse import Molecule
from molattn.chem.sites import Sites, labels_hydrogens
from molattn.config import DataConfig
from molattn.data.labels import LabelError, Labels, is_missing, read_labels
from molattn.data.table import Row, Table
from molattn.errors import InputError, ReasonCode, quoted
from molattn.record import MoleculeRecord
from molattn.task import Level, Task
from molattn.utils.console import counted

_BRACKETS = re.compile(r"\s*[\[(](.*)[\])]\s*", re.DOTALL)
_SPACE = re.compile(r"[\s;]+")

Faults = dict[int, list[tuple[ReasonCode, str]]]


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
        ranges = [np.arange(self.starts[row], self.starts[row + 1]) for row in rows.tolist()]
        sites = np.concatenate([np.zeros(0, dtype=np.int64), *ranges])
        starts = np.cumsum([0, *map(len, ranges)])
        bounds = None if self.bounds is None else self.bounds[:, sites]
        return SiteLabels(self.level, self.tasks, self.targets[sites], bounds, starts)


def split_cell(cell: str) -> list[str]:
    """Return the texts of a list in a cell, such as ``[12.5, None, 7]``; none of an empty cell.

    They are separated by commas or, without any, by spaces or semicolons.
    """
    match = _BRACKETS.fullmatch(cell)
    text = match[1] if match else cell
    if is_missing(text):
        return []
    texts = text.split(",") if "," in text else _SPACE.split(text.strip())
    return [value.strip().strip("'\"") for value in texts]


def has_hydrogen_labels(
    rows: Sequence[Row], molecules: Iterable[Molecule], columns: dict[Level, list[int]]
) -> bool:
    """Return whether a label is of a hydrogen atom, or of a bond with one."""
    for row, molecule in zip(rows, molecules, strict=True):
        for level, indices in columns.items():
            for index in indices:
                is_labeled = [not is_missing(text) for text in split_cell(row.cells[index])]
                if any(is_labeled) and labels_hydrogens(molecule, level, is_labeled):
                    return True
    return False


def read_site_labels(
    table: Table,
    rows: Sequence[Row],
    records: Sequence[MoleculeRecord],
    columns: Sequence[int],
    level: Level,
    config: DataConfig,
) -> tuple[SiteLabels, Faults]:
    """Read the labels of the atoms, or the bonds, of usable rows.

    A list has a value for each atom (bond) of the input, with or without those of hydrogen, or also
    for all hydrogens. A list of another length is a fault of its row and counts as missing; if half
    of a column are such lists, the first is an error.

    Returns:
        The labels, and why others are not read: codes and reasons by row.

    Raises:
        InputError: The labels of a column do not fit together, named by row and atom or bond.
    """
    sites: list[Sites] = [record.sites for record in records]
    counts = [len(site.atoms) if level == "atom" else site.bonds.shape[1] for site in sites]
    starts = np.cumsum([0, *counts])
    faults: Faults = {}
    read: list[Labels] = []
    for number, index in enumerate(columns):
        name = table.header[index]
        cells = [""] * int(starts[-1])
        misfits: dict[int, LabelError] = {}
        lists = [split_cell(row.cells[index]) for row in rows]
        for row, texts in enumerate(lists):
            try:
                for position, text in zip(_positions(texts, sites[row], level), texts, strict=True):
                    cells[starts[row] + position] = text
            except LabelError as error:
                misfits[row] = error
        if misfits and 2 * len(misfits) >= sum(map(bool, lists)):
            row, error = next(iter(misfits.items()))
            raise _located(table, rows[row], name, error)
        try:
            labels = read_labels(name, 0, cells, None, _options(config, level, number))
        except LabelError as error:
            same = (site for site, cell in enumerate(cells) if cell == error.text.strip())
            site = next(same) if error.row is None else error.row
            row = int(np.searchsorted(starts, site, side="right")) - 1
            which = f"{name}, {level} {site - starts[row]}"
            raise _located(table, rows[row], which, error) from None
        except InputError as error:
            message = f"{table.path}, column {quoted(name)}: {error.args[0]}"
            raise InputError(message, option=error.option) from None
        for row, error in misfits.items():
            reason = f"column {quoted(name)}: {error.command_line()}"
            faults.setdefault(row, []).append(("invalid_label", reason))
        for site, error in labels.invalid.items():
            row = int(np.searchsorted(starts, site, side="right")) - 1
            reason = f"column {quoted(name)}, {level} {site - starts[row]}: {error.command_line()}"
            faults.setdefault(row, []).append(("invalid_label", reason))
        read.append(labels)
    bounds = np.stack([labels.bounds for labels in read], axis=-1)
    return SiteLabels(
        level,
        tuple(labels.task for labels in read),
        np.column_stack([labels.values for labels in read]),
        None if np.isnan(bounds).all() else bounds,
        starts,
    ), faults


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


def _options(config: DataConfig, level: Level, number: int) -> DataConfig:
    """Return the options of a column as those of the only target."""
    index = len(config.target_columns) + number
    index += len(config.atom_target_columns) * (level == "bond")
    task = config.task[index : index + 1] if len(config.task) > 1 else config.task
    return replace(
        config,
        **{"target_columns": (), "atom_target_columns": (), "bond_target_columns": ()},
        **{"task": task, "target_units": (), "relation_columns": (), "task_weights": ()},
        **{"target_transform": ("none",), "positive_class": ("auto",)},
    )


def _located(table: Table, row: Row, which: str, error: LabelError) -> InputError:
    location = f"{table.where(row.line)}, column {which}"
    return InputError(f"{table.path}, {location}: {error.command_line()}")
