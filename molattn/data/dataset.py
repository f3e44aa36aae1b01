"""Rows to labeled molecules."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.descriptors import (
    DESCRIPTOR_SETS,
    DESCRIPTORS,
    DescriptorCalculator,
    descriptor_matrix,
)
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import Fingerprint, SubstructureCounter
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import DataConfig
from molattn.data.columns import TrainingColumns, find_columns
from molattn.data.labels import (
    LabelError,
    Labels,
    RelationError,
    is_missing,
    number,
    positive_class,
    read_labels,
)
from molattn.data.table import Row, Table, listed, open_table
from molattn.errors import InputError, ReasonCode, SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.task import Task, check_columns
from molattn.utils.console import counted, print_groups
from molattn.utils.progress import row_progress
from molattn.utils.spooled_list import Selection, SpooledList

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MOST_BASELINE_ROWS",
    "Molecules",
    "SkippedRow",
    "TrainingTable",
    "describe_tasks",
    "read_training_table",
    "table_calculator",
]

_MOST_IN_MEMORY = 20_000  # rows: about 60 MB
_MOST_CODES = 5  # of classes, each of which occurs often
MOST_BASELINE_ROWS = 20_000
"""Most usable rows of a table with a random forest baseline, whose descriptors take long."""

_BASELINE = DescriptorCalculator(DESCRIPTORS, morgan_counts=2048)


class Molecules(NamedTuple):
    """Molecules with labels.

    Args:
        records: n molecules.
        targets: Their labels ``[n, T]`` in original units or as class indices (see
            :class:`molattn.task.Task`), NaN where missing or censored.
        weights: Their weights in the loss ``[n]``, of mean 1 unless all are 0; None = equal.
        features: Their feature columns ``[n, F]`` in original units; None = there are none.
        bounds: Lower and upper bounds of the censored labels ``[2, n, T]``, NaN where there is
            none; None = no label is censored.
    """

    records: Sequence[MoleculeRecord]
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None
    bounds: NDArray[np.float64] | None = None

    @property
    def values(self) -> NDArray[np.float64]:
        """The labels, and in place of a censored one its bound, ``[n, T]``."""
        return _values(self.targets, self.bounds)


class SkippedRow(NamedTuple):
    """A row that cannot be used for training, and the reason."""

    line: int
    smiles: str
    code: ReasonCode | Literal[""]
    reason: str


@dataclass(frozen=True, repr=False)
class TrainingTable:
    """The usable rows of a table, as molecules with labels.

    The first 20,000 rows and their molecules are in memory, further ones in temporary files, except
    for second molecules, which are all in memory.

    Args:
        path: The file; ``DataFrame`` where there is none.
        header: Its columns.
        rows: The usable rows, in order.
        smiles: Their SMILES as written.
        partners: The SMILES of their second molecules, or None without a partner column.
        records: Their molecules, with ``smiles`` and ``fingerprint``, and ``scaffold`` for a
            scaffold split. In memory, rows of equal texts share their arrays.
        tasks: The targets.
        targets: Their labels ``float64 [n, T]`` in original units or as class indices (see
            :class:`molattn.task.Task`), NaN where missing or censored.
        bounds: Lower and upper bounds of the censored labels ``float64 [2, n, T]``, NaN where there
            is none; None = no label is censored.
        weights: Their weights ``float64 [n]``, or None without a weight column.
        features: Their feature columns ``float64 [n, F]``, or None without any.
        parts: The cell of the split column for each row, or None without one.
        order: The cell of the order column for each row, or None without one.
        skipped: The other rows.
        digest: SHA-256 of the file.
        unit: What ``Row.line`` counts, ``line`` or ``row``.
        remarks: Properties found in the file that its name does not show, such as an encoding.
    """

    path: Path
    header: list[str]
    rows: Sequence[Row]
    smiles: Sequence[str]
    partners: Sequence[str] | None
    records: Sequence[MoleculeRecord]
    tasks: tuple[Task, ...]
    targets: NDArray[np.float64]
    bounds: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    features: NDArray[np.float64] | None
    parts: Sequence[str] | None
    order: Sequence[str] | None
    skipped: list[SkippedRow]
    digest: str
    unit: str = "line"
    remarks: tuple[str, ...] = ()

    @property
    def rows_in(self) -> int:
        """Number of rows in the file."""
        return len(self.rows) + len(self.skipped)

    @property
    def values(self) -> NDArray[np.float64]:
        """The labels, and in place of a censored one its bound, ``[n, T]``."""
        return _values(self.targets, self.bounds)

    @property
    def standardized(self) -> int | None:
        """Number of usable rows with a molecule changed by ``--standardize``; None without it."""
        if self.records[0].standardized is None:
            return None
        pairs = ((record, record.partner or record) for record in self.records)
        return sum(bool(one.standardized or other.standardized) for one, other in pairs)

    def fingerprints(self, rows: Sequence[int] | NDArray[np.int64]) -> list[Fingerprint]:
        """Return the Morgan fingerprints of some rows (first molecules of pairs)."""
        return [self.records[row].fingerprint for row in rows]  # pyright: ignore[reportReturnType]

    @cached_property
    def baseline_numbers(self) -> NDArray[np.float32]:
        """Inputs of the random forest for each row, ``[n, G]``, 0 where undefined.

        RDKit's descriptors and Morgan counts of the molecule, then those of a second one. They are
        calculated here, from the SMILES, if they were not calculated on reading.
        """
        numbers = [_baseline_numbers(self.smiles, self.records)]
        if self.partners is not None:
            partners = [record.partner for record in self.records]
            numbers.append(_baseline_numbers(self.partners, partners))
        return np.nan_to_num(np.hstack(numbers))

    def where(self, row: int) -> str:
        """Return a usable row's name for messages, such as ``line 7``."""
        return f"{self.unit} {self.rows[row].line}"

    def molecules(self, rows: NDArray[np.int64]) -> Molecules:
        """Return the molecules of some rows, by index among the usable rows."""
        weights = None if self.weights is None else self.weights[rows]
        if weights is not None and weights.any():
            weights = weights / weights.mean()
        return Molecules(
            Selection(self.records, rows),
            self.targets[rows],
            weights,
            None if self.features is None else self.features[rows],
            None if self.bounds is None else self.bounds[:, rows],
        )


def _values(
    targets: NDArray[np.float64], bounds: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    return targets if bounds is None else np.fmax(targets, np.fmax(*bounds))


def read_training_table(
    path: "str | Path | pd.DataFrame | Table",
    config: DataConfig,
    featurizer: Featurizer,
    console: Console | None = None,
    *,
    baseline: bool = False,
    counter: SubstructureCounter | None = None,
    radius: int | None = None,
) -> TrainingTable:
    """Read a table of molecules with labels; of 20,000 rows each distinct SMILES is parsed once.

    Args:
        path: A table of any kind that :func:`molattn.data.table.open_table` reads.
        config: Names of the columns.
        featurizer: The atom and pair features to record.
        console: Where to show progress; silent without one.
        baseline: Whether to calculate the inputs of the random forest in the same pass.
        counter: Counts substructures in the same pass; None = none.
        radius: Record only the pairs of atoms at most this many bonds apart; None = all pairs.

    Returns:
        The usable rows. Rows without a readable molecule (or second molecule, with a partner
        column), without any label or without a feature are listed in ``skipped``, and so are rows
        with a label that is not a number, if more than half of its target are numbers.

    Raises:
        InputError: A column is missing, a cell does not fit its column, or no row is usable.
    """
    table = open_table(path)
    columns = find_columns(table, config)
    table.check_featurizer(featurizer)
    complete, skipped = _complete_rows(table, columns)
    if not complete:
        raise _no_usable_row(table, config, skipped)
    targets, reasons = _read_targets(table, complete, columns, config)
    valid = [row for row in range(len(complete)) if row not in reasons]
    for row, reason in reasons.items():
        line, cells = complete[row].line, complete[row].cells
        skipped.append(SkippedRow(line, cells[columns.smiles], "invalid_label", reason))
    read = MoleculeReader(
        featurizer,
        Fields(
            numbers=table_calculator(config),
            counts=counter,
            baseline_numbers=(_BASELINE if baseline and len(valid) <= MOST_BASELINE_ROWS else None),
            fingerprint=True,
            smiles=True,
            scaffold=config.split == "scaffold",
        ),
        limits=config,
        standardize=config.standardize,
        radius=radius,
        cache_size=20_000,
        num_workers=config.num_workers,
    )
    chosen = Selection(complete, valid)
    rows, groups, kept = SpooledList[Row](_MOST_IN_MEMORY), 0, list[int]()
    records = SpooledList[MoleculeRecord](_MOST_IN_MEMORY, shared=MoleculeRecord)
    texts = (row.structure(columns.smiles) for row in chosen)
    partners = _cells(chosen, columns.partner)
    with row_progress(console, "reading molecules", len(chosen)) as advance:
        for number, row, record in zip(valid, chosen, read(texts, partners), strict=True):
            advance(1)
            if isinstance(record, SmilesError):
                text = row.cells[columns.smiles]
                skipped.append(SkippedRow(row.line, text, record.code, record.reason))
            else:
                groups += row.has_stereo_groups(row.cells[columns.smiles])
                rows.append(row._replace(molecule=None))
                records.append(record)
                kept.append(number)
    print_groups(groups, console)
    skipped.sort()
    if not rows:
        raise _no_usable_row(table, config, skipped)
    values = np.column_stack([labels.values[kept] for labels in targets])
    bounds = np.stack([labels.bounds[:, kept] for labels in targets], axis=-1)
    for name, own in zip(config.target_columns, values.T, strict=True):
        if np.isnan(own).all():
            raise InputError(
                f"{table.path}, column {quoted(name)}: no usable row has a measured label"
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
        weights=None if columns.weight is None else _weights(table, rows, columns.weight),
        features=_features(table, rows, columns.features) if columns.features else None,
        parts=_cells(rows, columns.split),
        order=_cells(rows, columns.order),
        skipped=skipped,
        digest=table.digest(),
        unit=table.unit,
        remarks=table.remarks,
    )


def table_calculator(config: DataConfig) -> DescriptorCalculator:
    """Return the calculator of the extra features that a model uses of each molecule."""
    return DescriptorCalculator(DESCRIPTOR_SETS[config.descriptors], config.morgan_counts)


def describe_tasks(table: TrainingTable, config: DataConfig) -> list[str]:
    """Return a line for each target: its kind, its labels and, if binary, the positive class.

    It names the option that decides what the labels do not tell.
    """
    lines = []
    for index, (task, values) in enumerate(zip(table.tasks, table.targets.T, strict=True)):
        censored = ""
        if table.bounds is not None:
            low, high = (~np.isnan(table.bounds[:, :, index])).sum(axis=1).tolist()
            if low or high:
                count = counted(low + high, "censored label")
                censored = f"; {count} ({low:,} lower and {high:,} upper bounds)"
        known = values[~np.isnan(values)]
        described = _described(task, known)
        if not censored and len(known) > 1 and not task.classes and (known == known[0]).all():
            described += ": they do not vary, so that nothing can be learned"
        lines.append(f"{quoted(task.name)}: {described}{censored}{_undecided(task, known, config)}")
    return lines


def _undecided(task: Task, values: NDArray[np.float64], config: DataConfig) -> str:
    if task.kind == "binary" and {*config.positive_class} == {"auto"}:
        known = positive_class(task.classes)
        return "" if known else "; the names do not tell which is positive (--positive-class)"
    few = np.unique(values) if task.kind == "regression" and not config.task else values[:0]
    if 1 < len(few) <= _MOST_CODES and 2 * len(few) < len(values) and (few % 1.0 == 0.0).all():
        numbers = ", ".join(f"{value:g}" for value in few)
        return f"; if {numbers} are classes, use --task classification"
    return ""


def _baseline_numbers(
    smiles: Sequence[str], records: Sequence[MoleculeRecord | None]
) -> NDArray[np.float32]:
    numbers = [None if record is None else record.baseline_numbers for record in records]
    known = [row for row in numbers if row is not None]
    if len(known) == len(smiles):
        return np.stack(known)
    texts = [(one and one.standardized) or text for one, text in zip(records, smiles, strict=True)]
    return descriptor_matrix(texts, _BASELINE)


def _described(task: Task, values: NDArray[np.float64]) -> str:
    count = counted(len(values), "label")
    if task.kind == "regression":
        unit = f" {task.unit}" if task.unit else ""
        return f"regression, {count} from {values.min():.6g} to {values.max():.6g}{unit}"
    counts = [int((values == index).sum()) for index in range(len(task.classes))]
    if task.kind == "binary":
        return (
            f"binary, {count}, of which {counts[1]} are {quoted(task.classes[1])} (positive) and "
            f"{counts[0]} {quoted(task.classes[0])}"
        )
    shown = [f"{quoted(label)} ({n})" for label, n in zip(task.classes, counts, strict=True)]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return f"multiclass, {count} in {len(shown)} classes: {', '.join(shown[:10])}{more}"


class _Column(Sequence[str]):
    """The cells of a column."""

    def __init__(self, rows: Sequence[Row], column: int) -> None:
        self._rows, self._column = rows, column

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
    table: Table, columns: TrainingColumns
) -> tuple[Sequence[Row], list[SkippedRow]]:
    rows = SpooledList[Row](_MOST_IN_MEMORY, shared=Featurizer)
    skipped: list[SkippedRow] = []
    for row in table:
        text = row.cells[columns.smiles]
        blank = [index for index in columns.features if is_missing(row.cells[index])]
        if row.code:
            skipped.append(SkippedRow(row.line, text, row.code, row.reason))
        elif all(is_missing(row.cells[index]) for index in columns.targets):
            skipped.append(SkippedRow(row.line, text, "no_label", "no target has a value"))
        elif blank:
            reason = f"the feature {quoted(table.header[blank[0]])} has no value"
            skipped.append(SkippedRow(row.line, text, "missing_feature", reason))
        else:
            rows.append(row._replace(values=None))
    return rows, skipped


def _no_usable_row(table: Table, config: DataConfig, skipped: Sequence[SkippedRow]) -> InputError:
    if not skipped:
        return InputError(f"{table.path}: the table has a header but no rows")
    codes = Counter(row.code for row in skipped)
    (most, _), *_ = codes.most_common(1)
    first = next(row for row in skipped if row.code == most)
    return InputError(
        f"{table.path}: of {counted(len(skipped), 'row')} none has both a molecule (column "
        f"{quoted(config.smiles_column)}) and a label ({listed(config.target_columns)}); reasons: "
        f"{', '.join(f'{count:,} {code}' for code, count in codes.most_common())}; "
        f"{table.where(first.line)}: {first.reason}"
    )


def _read_targets(
    table: Table, rows: Sequence[Row], columns: TrainingColumns, config: DataConfig
) -> tuple[list[Labels], dict[int, str]]:
    """Return the labels of each target, and why rows with a label that is not read are skipped."""
    indices = columns.targets
    options = (
        tuple(columns.relations),
        config.task or (None,),
        config.target_transform,
        config.positive_class,
        config.target_units or ("",),
    )
    each = (values * len(indices) if len(values) == 1 else values for values in options)
    targets: list[Labels] = []
    reasons: dict[int, str] = {}
    for index, sign, choice, transform, positive, unit in zip(indices, *each, strict=True):
        cells, relations = list(_Column(rows, index)), _cells(rows, sign)
        with _located(table, rows, index, sign):
            labels = read_labels(
                table.header[index],
                cells,
                relations,
                choice,
                unit=unit,
                positive=positive,
                is_log=transform == "log",
            )
            if positive != "auto" and labels.task.kind != "binary":
                raise InputError(
                    f"--positive-class: got {quoted(positive)}, expected auto for a target that "
                    f"is not of two classes ({labels.task.kind})"
                )
        for row, error in labels.invalid.items():
            column = sign if isinstance(error, RelationError) and sign is not None else index
            reasons.setdefault(row, f"column {quoted(table.header[column])}: {error}")
        targets.append(labels)
    check_columns([labels.task for labels in targets])
    return targets, reasons


def _weights(table: Table, rows: Sequence[Row], index: int) -> NDArray[np.float64]:
    with _located(table, rows, index):
        weights = np.array([_weight(row.cells[index]) for row in rows])
        if not weights.any():
            raise InputError("the weight of every usable row is 0")
    return weights


def _weight(cell: str) -> float:
    try:
        if (weight := number(cell)) >= 0.0:  # false for NaN
            return weight
    except LabelError as error:
        raise LabelError(cell, error.expected.removesuffix(" or an empty cell")) from None
    raise LabelError(cell, "a weight of at least 0")


def _features(table: Table, rows: Sequence[Row], indices: Sequence[int]) -> NDArray[np.float64]:
    columns = []
    for index in indices:
        with _located(table, rows, index):
            columns.append([number(row.cells[index]) for row in rows])
    return np.column_stack(columns)


@contextmanager
def _located(
    table: Table, rows: Sequence[Row], index: int, relation: int | None = None
) -> Iterator[None]:
    """Add the file, the row and the column to errors about cells."""
    column = f"column {quoted(table.header[index])}"
    try:
        yield
    except LabelError as error:
        if isinstance(error, RelationError) and relation is not None:
            column = f"column {quoted(table.header[relation])}"
        text, wrong = error.text.strip(), error.row
        same = (row.line for row in rows if row.cells[index].strip() == text)
        line = next(same) if wrong is None else rows[wrong].line
        raise InputError(
            f"{table.path}, {table.where(line)}, {column}: {error.command_line()}"
        ) from None
    except InputError as error:
        raise InputError(f"{table.path}, {column}: {error.command_line()}") from None
