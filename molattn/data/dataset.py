"""Read the rows of a table as molecules with labels."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rich.console import Console

from molattn.chem.descriptors import DESCRIPTOR_SETS, DescriptorCalculator
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import Fingerprint, SubstructureCounter
from molattn.chem.limits import read_mol_block, read_molecule
from molattn.chem.parse import NO_LIMITS, mol_of_mol_block
from molattn.chem.reader import Fields, MoleculeReader
from molattn.chem.split import Split
from molattn.config import DataConfig
from molattn.data.auxiliary import SECOND, AuxiliaryTable
from molattn.data.dates import NO_DATES, Dates, read_dates, read_like
from molattn.data.labels import (
    LabelError,
    Labels,
    TrainingColumns,
    find_columns,
    is_missing,
    positive_class,
    read_numbers,
    read_targets,
    standard_error,
    weight,
)
from molattn.data.site_labels import SiteLabels, SiteReader, has_hydrogen_labels
from molattn.data.store import BASELINE, MOST_BASELINE_ROWS
from molattn.data.table import Row, Table, listed, open_table
from molattn.errors import InputError, ReasonCode, SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.task import Level, Task, check_columns
from molattn.utils.console import counted, print_line, print_remarks, row_progress
from molattn.utils.spooled_list import Selection, SpooledList

if TYPE_CHECKING:
    import pandas as pd

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What cells of a split column mean."""
_MOST_IN_MEMORY = 20_000  # rows: about 60 MB
_MOST_CODES = 5  # of classes, each of which occurs often
_NO_PARENT_ITSELF = re.compile(r"[.+-]")  # in SMILES of salts, mixtures and ions


@dataclass(frozen=True, repr=False)
class Molecules:
    """Molecules with labels."""

    records: Sequence[MoleculeRecord]  # n molecules
    targets: NDArray[np.float64]  # in own units or class indices, NaN: missing, censored, [n, T]
    weights: NDArray[np.float64] | None = None  # [n]; None = equal
    features: NDArray[np.float64] | None = None  # feature columns in own units, [n, F]
    bounds: NDArray[np.float64] | None = None  # limits of labels, lower and upper, [2, n, T]
    stds: NDArray[np.float64] | None = None  # standard errors of labels, NaN: unknown, [n, T]
    # Labels of their atoms and bonds.
    sites: Mapping[Level, SiteLabels] = field(default_factory=dict[Level, SiteLabels])

    @property
    def labels_or_bounds(self) -> NDArray[np.float64]:
        """The labels ``[n, T]``; a censored label is its bound."""
        if self.bounds is None:
            return self.targets
        return np.where(np.isnan(self.targets), np.fmax(*self.bounds), self.targets)

    def molecules(self, rows: NDArray[np.int64]) -> "Molecules":
        """Return some of the molecules; their mean weight is 1, unless all weights are 0."""
        weights = None if self.weights is None else self.weights[rows]
        if weights is not None and weights.any():
            weights = weights / weights.mean()
        return Molecules(
            Selection(self.records, rows),
            self.targets[rows],
            weights,
            None if self.features is None else self.features[rows],
            None if self.bounds is None else self.bounds[:, rows],
            None if self.stds is None else self.stds[rows],
            {level: labels.molecules(rows) for level, labels in self.sites.items()},
        )


class SkippedRow(NamedTuple):
    """A row that cannot be used for training, and the reason."""

    line: int
    smiles: str
    code: ReasonCode | Literal[""]
    reason: str


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainingTable(Molecules):
    """The usable rows of a table, as molecules with labels.

    The first 20,000 rows and their molecules are in memory, further ones in temporary files, except
    for second molecules, which are all in memory. The records have ``smiles`` and ``fingerprint``,
    and ``scaffold`` for a scaffold split; in memory, rows of equal texts share their arrays.
    """

    path: Path  # DataFrame where there is no file
    header: list[str]
    rows: Sequence[Row]  # in order
    smiles: Sequence[str]  # as written
    partners: Sequence[str] | None  # SMILES of the second molecules; None = no partner column
    tasks: tuple[Task, ...]
    split_cells: Sequence[str] | None  # cells of the split column; None = no split column
    skipped: list[SkippedRow]  # the other rows
    unreadable: list[SkippedRow] = field(default_factory=list)  # labels that count as missing
    digest: str  # SHA-256 of the file
    unit: str  # what Row.line counts, line or row
    remarks: tuple[str, ...]  # on the file, such as its encoding
    # The rows with auxiliary labels, of this file and of ``auxiliary_data``, as a table whose
    # targets these are. A row of this file may be in both.
    auxiliary: "TrainingTable | None" = None
    hydrogens: bool = False  # whether hydrogens are atoms of the graphs, as some have labels
    dates: Dates = NO_DATES  # of a split by time, in the order of the rows without a time column
    is_by_time: bool = False  # rows from the first test row on are in its future

    @property
    def all_unreadable(self) -> list[SkippedRow]:
        """Labels that cannot be read: of the targets first, then of the auxiliary columns."""
        return [*self.unreadable, *(self.auxiliary.unreadable if self.auxiliary else ())]

    @property
    def rows_in(self) -> int:
        """Number of rows in the file; rows with auxiliary labels alone do not count."""
        return len(self.rows) + len(self.skipped)

    @property
    def all_tasks(self) -> tuple[Task, ...]:
        """The tasks of molecules, of atoms and of bonds."""
        return (*self.tasks, *(task for labels in self.sites.values() for task in labels.tasks))

    @property
    def learned_tasks(self) -> tuple[Task, ...]:
        """The tasks that a network learns: the targets, then the auxiliary columns."""
        return self.tasks + (() if self.auxiliary is None else self.auxiliary.tasks)

    @cached_property
    def canonical_smiles(self) -> list[str | None]:
        """The canonical SMILES of each row, equal for equal molecules (first ones of pairs)."""
        return [record.smiles for record in self.records]

    @cached_property
    def parents(self) -> list[str | None]:
        """The canonical SMILES of each row's parent, the same for a molecule and its salts."""
        return [_parent(smiles) for smiles in self.canonical_smiles]

    def first_test_date(self, split: Split) -> Any:
        """Return the first date of the test rows of a split by time; None in other splits."""
        tested = split.test if self.is_by_time else ()
        return self.dates.values[tested].min() if len(tested) else None

    @property
    def standardized(self) -> int | None:
        """Number of usable rows with a molecule changed by ``--standardize``; None without it."""
        if self.records[0].standardized is None:
            return None
        pairs = ((record, record.partner or record) for record in self.records)
        return sum(
            bool(molecule.standardized or partner.standardized) for molecule, partner in pairs
        )

    @cached_property
    def redrawn(self) -> int:
        """Number of usable rows with a molecule that is read in another drawing."""
        return sum(record.is_redrawn for record in self.records)

    def fingerprints(self, rows: Sequence[int] | NDArray[np.int64]) -> list[Fingerprint]:
        """Return the Morgan fingerprints of some rows (first molecules of pairs)."""
        return [self.records[row].fingerprint for row in rows]  # pyright: ignore[reportReturnType]

    @cached_property
    def baseline_numbers(self) -> NDArray[np.float32] | None:
        """Inputs of the random forest for each row, ``[n, G]``, 0 where undefined.

        RDKit's descriptors and Morgan counts of the molecule, then those of a second one; None if
        they were not calculated, as of more than ``MOST_BASELINE_ROWS``.
        """
        if self.records[0].baseline_numbers is None:
            return None
        records = [self.records]
        if self.partners is not None:
            records.append([record.partner for record in self.records])  # pyright: ignore
        numbers = [np.stack([record.baseline_numbers for record in column]) for column in records]  # pyright: ignore
        return np.nan_to_num(np.hstack(numbers))

    def where(self, row: int) -> str:
        """Return a usable row's name for messages, such as ``line 7``."""
        return f"{self.unit} {self.rows[row].line}"


def read_training_table(
    path: "str | Path | pd.DataFrame | Table",
    config: DataConfig,
    featurizer: Featurizer | MoleculeReader,
    console: Console | None = None,
    *,
    baseline: bool = False,
    counter: SubstructureCounter | None = None,
    radius: int | None = None,
) -> TrainingTable:
    """Read a table of molecules with labels; of 20,000 rows each distinct SMILES is parsed once.

    Rows without a readable molecule, any label or a feature are listed in ``skipped``, and so are
    those with a label that is not a number, if more than half of its target are numbers. Those that
    have only auxiliary labels are in ``auxiliary`` alone.

    Args:
        path: A table of any kind that :func:`molattn.data.table.open_table` reads.
        config: Names of the columns.
        featurizer: The atom and pair features to record; or the reader of a model, which the
            options on molecules then do not change.
        console: Where to show progress; silent without one.
        baseline: Whether to calculate the inputs of the random forest in the same pass.
        counter: Counts substructures in the same pass; None = none.
        radius: Record only the pairs of atoms at most this many bonds apart; None = all pairs.

    Raises:
        InputError: A column is missing, a cell does not fit its column, or no row is usable.
    """
    table = open_table(path, options=config)
    if config.atom_index_columns:
        from molattn.data.long_table import LongTable  # pandas is slow to import

        table = LongTable(table, config)
    options: Any = {"counter": counter, "radius": radius}
    read = _read_table(table, config, featurizer, console, baseline=baseline, **options)
    if not config.auxiliary_columns:
        return read
    source = AuxiliaryTable(table, config)
    source.date_format = read.dates.format
    auxiliary = _read_table(source, config.auxiliary, featurizer, console, **options)
    used = {row.line for row in auxiliary.rows}
    skipped = [row for row in read.skipped if row.code != "no_label" or row.line not in used]
    return replace(read, auxiliary=auxiliary, skipped=skipped)


def _read_table(
    table: Table,
    config: DataConfig,
    featurizer: Featurizer | MoleculeReader,
    console: Console | None,
    *,
    baseline: bool = False,
    counter: SubstructureCounter | None,
    radius: int | None,
) -> TrainingTable:
    """Read the rows with a label of a target; see :func:`read_training_table`."""
    columns = find_columns(table, config)
    is_reader = not isinstance(featurizer, Featurizer)
    table.check_featurizer(featurizer.featurizer if is_reader else featurizer)
    complete, skipped = _complete_rows(table, columns, console)
    if not complete:
        raise _no_usable_row(table, config, skipped)
    dates = _read_dates(table, complete, columns.time, config)
    undated = [] if dates is None else np.flatnonzero(dates.is_missing).tolist()
    errors = dict.fromkeys(undated, ("no_date", f"no date in column {quoted(config.time_column)}"))
    targets, faults = read_targets(table, complete, columns, config)
    numbers = [np.fmax(labels.values, np.fmax(*labels.bounds)) for labels in targets]
    is_unlabeled = np.isnan(numbers).all(axis=0) & ~_has_site_labels(complete, columns)
    unlabeled = np.flatnonzero(is_unlabeled).tolist()
    errors |= {number: faults[number][0] for number in unlabeled}
    labeled = [number for number in range(len(complete)) if number not in errors]
    reader = featurizer
    if not isinstance(reader, MoleculeReader):
        fields = _fields(config, counter, baseline and len(labeled) <= MOST_BASELINE_ROWS)
        reader = MoleculeReader(reader, fields, standardize=config.standardize, radius=radius)
    reader = _with_options(reader, config, columns, Selection(complete, labeled))
    print_missing(table, reader, console, has_partner=columns.partner is not None)
    records, refused = _read_molecules(reader, complete, labeled, columns, console)
    errors |= refused
    rows = ((complete[number], why) for number, why in errors.items())
    skipped += [SkippedRow(row.line, row.cells[columns.smiles], *why) for row, why in rows]
    skipped.sort()
    if not records:
        raise _no_usable_row(table, config, skipped)
    usable = [number for number in labeled if number not in errors]
    selected = Selection(complete, usable)
    sites = dict[Level, SiteLabels]()
    unread = [(complete[number], why) for number in usable for why in faults.get(number, ())]
    for level, indices in columns.sites.items():
        molecules = [_molecule(row, columns) for row in selected]
        site_reader = SiteReader(table, selected, molecules, records, level, config)
        sites[level] = site_reader.read(indices)
        unread += site_reader.faults
    unread.sort(key=lambda fault: fault[0].line)
    unreadable = [_unreadable(table, row, columns, *why) for row, why in unread]
    read = _labeled(table, columns, selected, records, usable, targets, skipped)
    read = replace(read, unreadable=unreadable, sites=sites, hydrogens=reader.hydrogens)
    check_columns(read.all_tasks)
    return read if dates is None else _dated(read, dates, usable, config)


def _has_site_labels(rows: Sequence[Row], columns: TrainingColumns) -> NDArray[np.bool_]:
    """Return which rows have a label of an atom or a bond."""
    indices = [index for level in columns.sites.values() for index in level]
    return np.array([any(not is_missing(row.cells[x]) for x in indices) for row in rows])


def _with_options(
    reader: MoleculeReader, config: DataConfig, columns: TrainingColumns, labeled: Sequence[Row]
) -> MoleculeReader:
    """Return a reader for the rows with a label, with the options of the table."""
    options: Any = {"num_workers": config.num_workers, "limits": config, "cache_size": 20_000}
    if columns.sites:
        molecules = (_molecule(row, columns) for row in labeled)
        options["hydrogens"] = has_hydrogen_labels(labeled, molecules, columns.sites)
    return replace(reader, sites=bool(columns.sites), **options)


def _unreadable(
    table: Table, row: Row, columns: TrainingColumns, code: ReasonCode, reason: str
) -> SkippedRow:
    """Describe a label that is not read; the row may be of a second table."""
    where = f" ({table.path})" if row.line > SECOND else ""
    return SkippedRow(row.line % SECOND, row.cells[columns.smiles], code, f"{reason}{where}")


def print_missing(
    table: Table, reader: MoleculeReader, console: Console | None, *, has_partner: bool
) -> None:
    """Name what a store lacks for a reader, so that its SMILES are read again."""
    names = table.prepared and [
        *reader.missing(table.prepared),
        *["second molecules"] * has_partner,
    ]
    if names:
        print_line(console, f"{table.path}: read from SMILES again, to add {', '.join(names)}")


def _read_dates(
    table: Table, rows: Sequence[Row], column: int | None, config: DataConfig
) -> Dates | None:
    """Return the dates of rows for a split by time.

    Without a time column, they are lines; the rows of a second table are older than all lines.
    """
    if column is None:
        lines = [row.line if row.line < SECOND else -np.inf for row in rows]
        return Dates("lines", np.array(lines)) if config.split == "time" else None
    cells = [row.cells[column] for row in rows]
    try:
        is_auxiliary = isinstance(table, AuxiliaryTable)
        return read_like(cells, table.date_format) if is_auxiliary else read_dates(cells)
    except LabelError as error:
        row = rows[[cell.strip() for cell in cells].index(error.text.strip())]
        message = f"{table.path}, {table.where(row.line)}: {error.args[0]}"
        raise InputError(message, option="time_column") from None


def _dated(
    table: TrainingTable, dates: Dates, usable: Sequence[int], config: DataConfig
) -> TrainingTable:
    """Add dates to the usable rows of a table, and a description of the dates to its remarks."""
    usable_dates = dates._replace(values=dates.values[usable])
    undated = int(dates.is_missing.sum())
    remarks = table.remarks
    if config.time_column is not None:
        left_out = f"; {counted(undated, 'row')} without a date left out" if undated else ""
        remarks += (f"{quoted(config.time_column)}: {usable_dates.describe()}{left_out}",)
    return replace(
        table, dates=usable_dates, is_by_time=config.split_column is None, remarks=remarks
    )


def _fields(config: DataConfig, counter: SubstructureCounter | None, baseline: bool) -> Fields:
    return Fields(
        numbers=table_calculator(config),
        counts=counter,
        baseline_numbers=BASELINE if baseline else None,
        fingerprint=True,
        smiles=True,
        scaffold=config.split == "scaffold",
    )


def _read_molecules(
    reader: MoleculeReader,
    rows: Sequence[Row],
    indices: Sequence[int],
    columns: TrainingColumns,
    console: Console | None,
) -> tuple[Sequence[MoleculeRecord], dict[int, tuple[ReasonCode, str]]]:
    """Read the molecules of some rows; return them, and why others cannot be read, by index."""
    records = SpooledList[MoleculeRecord](_MOST_IN_MEMORY, shared=MoleculeRecord)
    errors: dict[int, tuple[ReasonCode, str]] = {}
    selected = Selection(rows, indices)
    molecules = (_molecule(row, columns) for row in selected)
    read = reader(molecules, _cells(selected, columns.partner))
    with row_progress(console, "reading molecules", len(indices)) as advance:
        for index, record in zip(indices, read, strict=True):
            advance(1)
            if isinstance(record, SmilesError):
                errors[index] = record.code, record.reason
            else:
                records.append(record)
    return records, errors


def _molecule(row: Row, columns: TrainingColumns) -> Any:
    """Return the structure of a row; with labels of atoms, in the order of its molecule."""
    if not columns.sites:
        return row.structure(columns.smiles)
    text = row.cells[columns.smiles]
    drawn = row.block and read_mol_block(row.block, mol_of_mol_block)
    return drawn or getattr(text, "mol", text)


def _labeled(
    table: Table,
    columns: TrainingColumns,
    rows: Sequence[Row],
    records: Sequence[MoleculeRecord],
    usable: Sequence[int],
    targets: Sequence[Labels],
    skipped: list[SkippedRow],
) -> TrainingTable:
    """Join the usable rows, their molecules and their numbers."""
    none = np.zeros((3, len(usable), 0))  # of a table of labels of atoms or bonds alone
    numbers = [np.stack([labels.values, *labels.bounds])[:, usable, None] for labels in targets]
    values, *bounds = np.concatenate([none, *numbers], axis=-1)
    bounds = np.stack(bounds)
    for labels, column in zip(targets, values.T, strict=True):
        if np.isnan(column).all() and not table.tasks:
            name = quoted(labels.task.name)
            raise InputError(f"{table.path}, column {name}: no usable row has a measured label")
    weights = features = stds = None
    if columns.weight is not None:
        weights = read_numbers(table, rows, columns.weight, weight)
        if not weights.any():
            name = quoted(table.header[columns.weight])
            raise InputError(f"{table.path}, column {name}: the weight of every usable row is 0")
    if columns.features:
        features = np.column_stack(
            [read_numbers(table, rows, column) for column in columns.features]
        )
    if columns.stds:
        stds = np.column_stack(
            [read_numbers(table, rows, column, standard_error) for column in columns.stds]
        )
    return TrainingTable(
        path=table.path,
        header=table.header,
        rows=rows,
        smiles=_Column(rows, columns.smiles),
        partners=_cells(rows, columns.partner),
        records=records,
        tasks=tuple(labels.task for labels in targets),
        targets=values,
        bounds=None if np.isnan(bounds).all() else bounds,
        weights=weights,
        features=features,
        stds=stds,
        split_cells=_cells(rows, columns.split),
        skipped=skipped,
        digest=table.digest(),
        unit=table.unit,
        remarks=table.remarks,
    )


def table_calculator(config: DataConfig) -> DescriptorCalculator:
    """Return the calculator of the extra features that a model uses of each molecule."""
    return DescriptorCalculator(DESCRIPTOR_SETS[config.descriptors], config.morgan_counts)


def describe_tasks(table: TrainingTable, config: DataConfig | None = None) -> list[str]:
    """Return a line for each target: its kind, its labels and, if binary, the positive class.

    Lines of auxiliary columns follow. With a ``config``, a line names the option that decides what
    the labels do not tell.
    """
    lines = [line for labels in table.sites.values() for line in labels.describe()]
    for index, task in enumerate(table.tasks):
        labels = table.targets[:, index]
        labels = labels[~np.isnan(labels)]
        line = f"{quoted(task.name)}: {task.kind}, {counted(len(labels), 'label')}"
        counts = [int((labels == code).sum()) for code in range(len(task.classes))]
        named = [f"{quoted(name)} ({n})" for name, n in zip(task.classes, counts, strict=True)]
        if task.kind == "regression":
            line += f" from {labels.min():.6g} to {labels.max():.6g} {task.unit}".rstrip()
        elif task.kind == "binary":
            line += f": {named[1]} is positive, {named[0]} negative"
        else:
            more = f" and {len(named) - 10} more" if len(named) > 10 else ""
            line += f" in {len(named)} classes: {', '.join(named[:10])}{more}"
        if table.bounds is not None:
            is_bound = ~np.isnan(table.bounds[:, :, index])
            is_interval = is_bound.all(axis=0)
            low, high = (is_bound & ~is_interval).sum(axis=1).tolist()
            line += f"; {low:,} lower and {high:,} upper bounds" if low or high else ""
            line += f"; {counted(int(is_interval.sum()), 'interval')}" if is_interval.any() else ""
        values = table.labels_or_bounds[:, index]
        if task.kind == "regression" and len(labels) > 1 and np.nanmin(values) == np.nanmax(values):
            line += ": they do not vary, so that nothing can be learned"
        lines.append(line if config is None else line + _undecided(task, labels, config))
    if table.unreadable:
        reasons = "; ".join(
            f"{table.unit} {row.line}: {row.reason}" for row in table.unreadable[:3]
        )
        labels = counted(len(table.unreadable), "label")
        lines.append(f"{labels} that cannot be read count as missing ({reasons})")
    if table.auxiliary is not None:
        lines += [f"auxiliary {line}" for line in describe_tasks(table.auxiliary)]
    return lines


def _undecided(task: Task, labels: NDArray[np.float64], config: DataConfig) -> str:
    if task.kind == "binary" and {*config.positive_class} == {"auto"}:
        positive = positive_class(task.classes)
        return "" if positive else "; the names do not tell which is positive (--positive-class)"
    codes = np.unique(labels) if task.kind == "regression" and not config.task else labels[:0]
    if 1 < len(codes) <= _MOST_CODES and 2 * len(codes) < len(labels) and (codes % 1 == 0).all():
        return f"; if {codes.astype(int).tolist()} are classes, use --task classification"
    return ""


@lru_cache(_MOST_IN_MEMORY)
def _parent(smiles: str | None) -> str | None:
    """Return the canonical SMILES of a molecule's parent, or its own if it has no parent."""
    if smiles is None or _NO_PARENT_ITSELF.search(smiles) is None:
        return smiles
    try:
        return Chem.MolToSmiles(read_molecule(smiles, NO_LIMITS, bool, standardize="parent")[0])
    except SmilesError:
        return smiles


class _Column(Sequence[str]):
    """The cells of a column, looked up when they are asked for."""

    def __init__(self, rows: Sequence[Row], column: int) -> None:
        self._rows = rows
        self._column = column

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [row.cells[self._column] for row in self._rows[index]]
        return self._rows[index].cells[self._column]

    def __iter__(self) -> Iterator[str]:
        return (row.cells[self._column] for row in self._rows)


def _cells(rows: Sequence[Row], column: int | None) -> Sequence[str] | None:
    return None if column is None else _Column(rows, column)


def _complete_rows(
    table: Table, columns: TrainingColumns, console: Console | None
) -> tuple[Sequence[Row], list[SkippedRow]]:
    """Return the rows that have a label and all features, and the skipped rows."""
    rows = SpooledList[Row](_MOST_IN_MEMORY, shared=Featurizer)
    skipped = list[SkippedRow]()
    groups = 0
    numbers = [*columns.features] if columns.weight is None else [*columns.features, columns.weight]
    others = columns.partner, columns.split, columns.time
    inputs = [columns.smiles, *numbers, *(index for index in others if index is not None)]
    numbers += [*columns.labels, *columns.stds]
    labels = [*columns.labels, *chain.from_iterable(columns.sites.values())]
    for row in table:
        for index in numbers if row.commas else ():
            row.cells[index] = row.numeral(index)
        is_labeled = not all(is_missing(row.cells[index]) for index in labels)
        row = row.checked(inputs if is_labeled else [*inputs, *labels])
        text = row.cells[columns.smiles]
        code = row.code
        reason = row.reason
        blank = [index for index in columns.features if is_missing(row.cells[index])]
        if not code and not is_labeled:
            code = "no_label"
            reason = "no target has a value"
        elif not code and blank:
            reason = f"the feature {quoted(table.header[blank[0]])} has no value"
            code = "missing_feature"
        if code:
            skipped.append(SkippedRow(row.line, text, code, reason))
            continue
        groups += row.has_stereo_groups(text)
        # The structure of a store, but no mol block, which the SMILES stands for.
        molecule = None if row.block and not columns.sites else row.molecule
        rows.append(row._replace(values=None, molecule=molecule, commas=()))
    print_remarks(console, Counter(), groups)
    return rows, skipped


def _no_usable_row(table: Table, config: DataConfig, skipped: Sequence[SkippedRow]) -> InputError:
    if not skipped:
        return InputError(f"{table.path}: the table has a header but no rows")
    codes = Counter(row.code for row in skipped).most_common()
    first = next(row for row in skipped if row.code == codes[0][0])
    return InputError(
        f"{table.path}: of {counted(len(skipped), 'row')} none has both a molecule (column "
        f"{quoted(config.smiles_column)}) and a label ({listed(config.target_columns)}); reasons: "
        f"{', '.join(f'{count:,} {code}' for code, count in codes)}; "
        f"{table.where(first.line)}: {first.reason}"
    )
