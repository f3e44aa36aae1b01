"""Splits of a table's rows into training, validation and test, and leakage between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.groups import same_cluster, same_molecule, same_scaffold
from molattn.chem.shift import shift_auc, shift_lines
from molattn.chem.split import Split, fold_split, group_split, rolling_split, time_split
from molattn.config import DataConfig
from molattn.data.auxiliary_rows import select_auxiliary_rows
from molattn.data.dataset import SPLITS, TrainingTable
from molattn.data.dates import date_text
from molattn.data.table import listed
from molattn.errors import InputError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.console import counted
from molattn.utils.spooled_list import Selection

_BALANCED = ("scaffold", "cluster")  # large groups go to train, unlike those of a random split
_MOST_TEST = 1000
_MOST_TRAINING = 50_000
_NEAR = 0.9
_FEW_ROWS = 300
_FEW_TESTED = 100


def split_rows(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    """Split the rows into training, validation and test.

    A split column decides; if it marks no validation rows, some of the training rows are set aside.
    It may mark no test rows. Without one, the rows are split by the configured method. Rows of one
    molecule stay together unless the split column separates them. Two kinds of rows are in no
    split, so that nothing is fitted to them: training and validation rows of weight 0, and in a
    split by time those as new as the first test row, of molecules that were measured before.
    """
    try:
        if table.split_cells is not None:
            split = _by_column(table, config, seed)
        elif config.folds is not None:
            groups = _groups(table.records, config)
            fold = config.only_fold or 1
            sizes: Any = {"folds": config.folds, "validation_size": config.validation_size}
            if config.split == "time":
                groups = _oldest_first(groups, table.dates.values)
                split = rolling_split(groups, fold=fold, **sizes)
            else:
                balanced = config.split in _BALANCED
                split = fold_split(groups, fold=fold, seed=seed, balanced=balanced, **sizes)
        else:
            rows = np.arange(len(table.rows))
            held_out = (config.validation_size, config.test_size)
            split = _by_method(table, rows, config, (1 - sum(held_out), *held_out), seed)
    except InputError as error:
        raise InputError(f"{table.path}: {error.command_line()}") from error
    if (first := table.first_test_date(split)) is not None:
        train, validation = (rows[table.dates.values[rows] < first] for rows in split[:2])
        split = split._replace(train=train, val=validation)
    check_labels(table, split, config)
    train, validation = (_weighted(table, rows) for rows in split[:2])
    return split._replace(train=train, val=validation)


def proposed_split(rows: int, tested: int, config: DataConfig) -> DataConfig:
    """Return the options of a table of few rows with a cross-validation; of others, unchanged.

    ``tested`` is the number of its test rows, 0 if there is none or it is not known.
    """
    is_small = rows < _FEW_ROWS or 0 < tested < _FEW_TESTED
    if not is_small or config.folds or config.split_column is not None or config.site_columns:
        return config
    return replace(
        config,
        folds=5,
        validation_size=config.validation_size if config.split == "time" else 0.0,
        test_size=DataConfig.test_size,
    )


def undivided(table: TrainingTable) -> Split:
    """Return a split in which all rows but rows of weight 0 are training rows."""
    none = np.zeros(0, dtype=np.int64)
    return Split(_weighted(table, np.arange(len(table.rows), dtype=np.int64)), none, none)


def marks_validation(table: TrainingTable) -> bool:
    """Return whether a cell of the table's split column marks a validation row."""
    return any(SPLITS.get(cell.strip().lower()) == "validation" for cell in table.split_cells or ())


def check_labels(table: TrainingTable, split: Split, config: DataConfig) -> None:
    """Check that each split has a label of nonzero weight, and each task a training label.

    Censored labels do not count. There may be no validation rows.
    """
    label = "a label" if table.bounds is None else "an uncensored label"
    counts = np.array(config.task_weights or [1.0] * len(table.tasks)) > 0.0
    for rows, name in ((split.train, "training"), (split.val, "validation")):
        weighted = _weighted(table, rows)
        if len(rows) and not len(weighted):
            raise InputError(
                f"{table.path}, column {quoted(config.weight_column)}: the weight of every {name} "
                "row is 0"
            )
        has_sites = any(
            not np.isnan(labels.molecules(weighted).targets).all()
            for labels in table.sites.values()
        )
        if len(rows) and not has_sites and np.isnan(table.targets[weighted][:, counts]).all():
            raise InputError(
                f"{table.path}: no {name} row has {label} of a target with a nonzero weight "
                "(--task-weights)"
            )
    learned = _weighted(table, split.train)
    columns = [*table.targets[learned].T]
    for labels in table.sites.values():
        columns += [*labels.molecules(learned).targets.T]
    for task, values in zip(table.all_tasks, columns, strict=True):
        if np.isnan(values).all():
            raise InputError(
                f"{table.path}, column {quoted(task.name)}: no training row has {label}"
            )
    if (auxiliary := table.auxiliary) is not None:
        weighted = split._replace(train=_weighted(table, split.train))
        rows = select_auxiliary_rows(table, weighted).learned
        for task, labels in zip(auxiliary.tasks, auxiliary.targets[rows].T, strict=True):
            if np.isnan(labels).all():
                reason = "no molecule with a label may be learned from in this split"
                raise InputError(f"{auxiliary.path}, column {quoted(task.name)}: {reason}")


def missing_classes(table: TrainingTable, split: Split) -> list[str]:
    """Return a log line for each target with classes that no training row has."""
    learned = table.targets[_weighted(table, split.train)]
    lines = []
    for task, labels in zip(table.tasks, learned.T, strict=True):
        missing = [name for code, name in enumerate(task.classes) if not (labels == code).any()]
        if missing:
            lines.append(f"{quoted(task.name)}: no training row is of class {listed(missing)}")
    return lines


def _weighted(table: TrainingTable, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows if table.weights is None else rows[table.weights[rows] > 0.0]


def _by_column(table: TrainingTable, config: DataConfig, seed: int) -> Split:
    rows: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    column = quoted(config.split_column)
    for row, cell in enumerate(table.split_cells or ()):
        name = SPLITS.get(cell.strip().lower())
        if name is None:
            raise InputError(
                f"{table.where(row)}, column {column}: got {quoted(cell)}, "
                f"expected one of {', '.join(SPLITS)}"
            )
        rows[name].append(row)
    if not rows["train"]:
        raise InputError(f"column {column}: no usable row is marked train")
    train, validation, test = (np.array(indices, dtype=np.int64) for indices in rows.values())
    if not len(validation):
        sizes = (1.0 - config.validation_size, config.validation_size, 0.0)
        train, validation, _ = _by_method(table, train, config, sizes, seed)
    return Split(train, validation, test)


def _by_method(
    table: TrainingTable,
    rows: NDArray[np.int64],
    config: DataConfig,
    sizes: tuple[float, float, float],
    seed: int,
) -> Split:
    """Split some of the rows; return indices among all."""
    groups = _groups(Selection(table.records, rows.tolist()), config)
    if config.split == "time":
        split = time_split(_oldest_first(groups, table.dates.values[rows]), sizes=sizes)
    else:
        split = group_split(groups, sizes=sizes, seed=seed, balanced=config.split in _BALANCED)
    return Split(*(rows[indices] for indices in split))


def _groups(records: Sequence[MoleculeRecord], config: DataConfig) -> list[list[int]]:
    if config.split == "scaffold":
        return same_scaffold(records)
    if config.split == "cluster":
        return same_cluster(records, config.cluster_cutoff)
    return same_molecule(records)


def _oldest_first(groups: list[list[int]], dates: NDArray[Any]) -> list[list[int]]:
    """Sort groups by their oldest date; groups of an equal date are joined."""

    def oldest(rows: list[int]) -> Any:
        return dates[rows].min()

    return [[*chain(*same)] for _, same in groupby(sorted(groups, key=oldest), oldest)]


@dataclass(frozen=True)
class Leakage:
    """Overlap and similarity of the test molecules and the training molecules.

    Args:
        duplicates: Number of molecules in more than one usable row; of pairs, first molecules.
        conflicts: Number of those whose uncensored labels differ; of pairs, for the same second
            molecule.
        first_conflict: The rows of the first of them, such as ``lines 2 and 42``, or empty.
        shared_test: Number of test molecules that are also in the training or validation set.
        test_molecules: Number of distinct test molecules.
        median_similarity: Median over test molecules of the Tanimoto similarity of Morgan counts
            (radius 2) to the nearest training molecule; None without test molecules. Of more than
            1,000 and 50,000, random samples are compared.
        near_share: Fraction of the test molecules with such a similarity of at least 0.9, likewise.
        pretrained_test: Number of test molecules with the fingerprint of a molecule that the
            pretrained model was trained on; None without one, or where its molecules are unknown.
        auxiliary_test: Number of test molecules with auxiliary labels, also of their salts or
            parents, which are not learned from.
        auxiliary_salts: Number of auxiliary rows left out as salts or parents of test molecules.
        auxiliary_future: Number of other auxiliary rows left out by date or split column.
        auxiliary_undated: Number of auxiliary rows left out without a date that can be read.
        measured_again: Number of rows of the test period left out, whose molecules have older
            training or validation rows.
        first_test_date: The first date or number of the test rows; None without a time column.
        shift: How well a classifier tells test molecules from training molecules, see
            :func:`molattn.chem.shift.shift_auc`.
    """

    duplicates: int = 0
    conflicts: int = 0
    first_conflict: str = ""
    shared_test: int = 0
    test_molecules: int = 0
    median_similarity: float | None = None
    near_share: float | None = None
    pretrained_test: int | None = None
    auxiliary_test: int = 0
    auxiliary_salts: int = 0
    auxiliary_future: int = 0
    auxiliary_undated: int = 0
    measured_again: int = 0
    first_test_date: str | None = None
    shift: float | None = None

    def lines(self) -> list[str]:
        """Return the findings as lines for the log."""
        lines = leakage_warnings([self])
        if self.duplicates:
            line = f"duplicates: {counted(self.duplicates, 'molecule')} in more than one row"
            conflicts = f", {self.conflicts} with conflicting labels (first: {self.first_conflict})"
            lines.insert(0, line + conflicts if self.conflicts else line)
        if self.median_similarity is not None:
            lines.append(
                "Tanimoto similarity of test molecules to the nearest training molecule: median "
                f"{self.median_similarity:.2f}, at least {_NEAR:g} for {self.near_share:.0%}"
            )
        if self.first_test_date is not None:
            lines.append(f"the test rows begin at {self.first_test_date}")
        if self.auxiliary_test:
            tested = f"{self.auxiliary_test} of {self.test_molecules} test molecules"
            lines.append(f"auxiliary labels of {tested} were left out of the training")
        left_out = {
            "labels of {} of the test period were left out: of molecules measured before": (
                self.measured_again
            ),
            "auxiliary labels of {} were left out: salts or parents of test molecules": (
                self.auxiliary_salts
            ),
            "auxiliary labels of {} were left out: by date or split column": self.auxiliary_future,
            "auxiliary labels of {} were left out: no date that can be read": (
                self.auxiliary_undated
            ),
        }
        lines += [line.format(counted(n, "row")) for line, n in left_out.items() if n]
        return lines + shift_lines(self.shift, "test molecules")


def leakage_warnings(findings: Sequence[Leakage]) -> list[str]:
    """Return log lines on leakage that makes the test scores too good.

    ``findings`` are the leakage of a run, or of each fold of a cross-validation; numbers are added
    up.
    """
    tested = sum(finding.test_molecules for finding in findings)
    what = {
        "shared_test": "are also in the training or validation set",
        "pretrained_test": "have the same fingerprint as a molecule that the pretrained model "
        "learned from",
    }
    counts = {name: sum(getattr(finding, name) or 0 for finding in findings) for name in what}
    return [
        f"leakage: {count} of {tested} test molecules {what[name]}"
        for name, count in counts.items()
        if count
    ]


def find_leakage(
    table: TrainingTable,
    split: Split,
    seed: int = 0,
    pretrained: FingerprintIndex | None = None,
) -> Leakage:
    """Compare the test rows with the others, and with the molecules of a pretrained model."""
    groups = same_molecule(table.records)
    conflicts = conflicting_rows(table, groups)
    lines = [str(table.rows[row].line) for row in (conflicts[0] if conflicts else ())]
    learned = {*split.train.tolist(), *split.val.tolist()}
    training_rows = {*split.train.tolist()}
    test_rows = {*split.test.tolist()}
    tested = [group for group in groups if not test_rows.isdisjoint(group)]
    rng = np.random.default_rng(seed)
    test = _sample([group[0] for group in tested], _MOST_TEST, rng)
    others = [group[0] for group in groups if not training_rows.isdisjoint(group)]
    index = FingerprintIndex(table.fingerprints(_sample(others, _MOST_TRAINING, rng)))
    nearest = index.similarity(test_fingerprints := table.fingerprints(test))
    pretrained_test = None
    if pretrained is not None:
        pretrained_test = sum(
            pretrained.contains(table.fingerprints([group[0] for group in tested]))
        )
    first = table.first_test_date(split)
    again = {row for group in groups if not learned.isdisjoint(group) for row in group}
    return Leakage(
        duplicates=sum(len(group) > 1 for group in groups),
        conflicts=len(conflicts),
        first_conflict=f"{table.unit}s {' and '.join(lines)}" if lines else "",
        shared_test=sum(not learned.isdisjoint(group) for group in tested),
        test_molecules=len(tested),
        median_similarity=float(np.median(nearest)) if test else None,
        near_share=float((nearest >= _NEAR).mean()) if test else None,
        pretrained_test=pretrained_test,
        **_auxiliary_counts(table, split, [group[0] for group in tested]),
        measured_again=0
        if first is None
        else int((table.dates.values[[*again - test_rows]] >= first).sum()),
        first_test_date=None
        if first is None or table.dates.format == "lines"
        else date_text(first),
        shift=shift_auc(index.fingerprints, test_fingerprints, seed),
    )


def _auxiliary_counts(table: TrainingTable, split: Split, tested: list[int]) -> dict[str, int]:
    """Count the auxiliary rows left out by reason; ``tested`` has a row of each test molecule."""
    if (auxiliary := table.auxiliary) is None:
        return {}
    rows = select_auxiliary_rows(table, split, with_validation=True)
    parents = {table.parents[row] for row in tested}
    smiles = {table.canonical_smiles[row] for row in tested}
    return {
        "auxiliary_test": len(parents & {*auxiliary.parents}),
        "auxiliary_salts": sum(
            parent in parents and text not in smiles
            for parent, text in zip(auxiliary.parents, auxiliary.canonical_smiles, strict=True)
        ),
        "auxiliary_future": len(rows.left_out),
        "auxiliary_undated": sum(row.code == "no_date" for row in auxiliary.skipped),
    }


def conflicting_rows(table: TrainingTable, groups: list[list[int]]) -> list[list[int]]:
    """Return two rows of each molecule (and second molecule) whose labels differ."""
    rounding = 1e-9 * np.nanmedian(np.abs(table.targets), axis=0)
    conflicts = []
    for group in (rows for rows in groups if len(rows) > 1):
        same = [group]
        if table.partners is not None:
            partners: list[Any] = [table.records[row].partner for row in group]
            same = [
                [group[position] for position in positions] for positions in same_molecule(partners)
            ]
        for rows in same:
            labels = table.targets[rows]
            low = np.fmin.reduce(labels)
            high = np.fmax.reduce(labels)
            differ = np.flatnonzero(high - low > rounding + 1e-6 * np.abs(high))  # none of NaN
            if len(differ):
                column = labels[:, differ[0]]
                conflicts.append(sorted((rows[np.nanargmin(column)], rows[np.nanargmax(column)])))
    return conflicts


def _sample(rows: list[int], most: int, rng: np.random.Generator) -> list[int]:
    if len(rows) <= most:
        return rows
    return sorted(rng.choice(rows, most, replace=False).tolist())
