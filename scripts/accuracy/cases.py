"""Cases to compare models on: a dataset in one of its splits, and what is scored of it."""

import argparse
import csv
import gzip
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from molattn.chem import parse_smiles
from molattn.chem.groups import same_molecule, same_scaffold
from molattn.chem.split import fold_split, group_split
from molattn.data.labels import infer_task, is_missing, label_values
from molattn.errors import InputError, SmilesError, quoted
from molattn.task import Task
from scripts.benchmarks.benchmarking import SHARED

from .development import CLIFF, FOLDS, METHODS, SEED, find_set
from .results import CaseKey

GROUPS = {"random": same_molecule, "scaffold": same_scaffold}
"""What stays together in each kind of split."""
SPLITS = tuple(GROUPS)
PARTS = ("test", "validation")
_NAMES = ("train", "val", "test")

Split = dict[str, list[int]]
"""Rows of ``train``, ``val`` and ``test``."""


class Dataset(NamedTuple):
    """Molecules with a label each.

    ``smiles`` and ``labels`` (``[n]``, places of the two classes or numbers) have all rows of the
    file; ``usable`` are those that have both. ``splits`` are given ones by method and seed.
    ``cliffs`` says of each row whether it is an activity cliff, None where the file does not.
    """

    name: str
    smiles: list[str]
    labels: NDArray[np.float64]
    usable: list[int]
    task: Task
    splits: Mapping[str, Sequence[Split]] | None
    cliffs: NDArray[np.bool_] | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """Types of split that it has."""
        return SPLITS if self.splits is None else tuple(self.splits)

    def split(self, method: str, seed: int) -> Split:
        """Return the split of a seed, of usable rows alone.

        Raises:
            InputError: It is not among the splits given, or a part would be empty.
        """
        if self.splits is None:
            return self._made(method, seed)
        given = self.splits.get(method, ())
        if seed >= len(given):
            raise InputError(
                f"{self.name}: got the {method} split of seed {seed}, expected one of the "
                f"{len(given)} that its file has, counted from 0"
            )
        usable = set(self.usable)
        split = {part: [row for row in given[seed][part] if row in usable] for part in _NAMES}
        for part, rows in split.items():
            if not rows:
                raise InputError(
                    f"{self.name}: the {method} split of seed {seed} has no row for {part}"
                )
        return split

    def _made(self, method: str, seed: int) -> Split:
        molecules = [self.smiles[row] for row in self.usable]
        made = group_split(GROUPS[method](molecules), seed=seed, balanced=method == "scaffold")
        return _rows_of(made, self.usable)


class Case(NamedTuple):
    """What a model is trained on and scored by.

    ``part`` says which rows of the dataset are scored; among the rows of the case they are called
    ``test`` in either case, as no model is to see them before.
    """

    data: str
    split: str
    seed: int
    part: str
    task: Task
    smiles: list[str]
    labels: NDArray[np.float64]
    rows: Split
    cliffs: NDArray[np.bool_] | None = None

    @property
    def key(self) -> CaseKey:
        """What it is called among results."""
        return CaseKey(self.data, self.split, self.seed, self.part)

    def write(self, path: Path) -> Path:
        """Write a table of ``smiles``, ``y`` and ``split``, in the order of the file."""
        path.write_text(self._text(), encoding="utf-8", newline="")
        return path

    def digest(self) -> str:
        """Return what tells its molecules, labels and parts from others, in 12 hex digits."""
        return hashlib.sha256(self._text().encode()).hexdigest()[:12]

    def _text(self) -> str:
        part_of = sorted((row, part) for part, rows in self.rows.items() for row in rows)
        kind = int if self.task.kind == "binary" else float
        table = io.StringIO()
        writer = csv.writer(table)
        writer.writerow(["smiles", "y", "split"])
        writer.writerows(
            [self.smiles[row], repr(kind(self.labels[row])), part] for row, part in part_of
        )
        return table.getvalue()

    def scored(self) -> list[int]:
        """Return the rows that are scored, in the order of the file."""
        return sorted(self.rows["test"])


def case_of(data: Dataset, method: str, seed: int, part: str = "test") -> Case:
    """Return the case of a split of a dataset.

    With ``part="validation"`` the test rows are gone; the validation rows are scored in their
    place, and a random ninth of the training rows stands in for those.
    """
    rows = data.split(method, seed)
    if part == "validation":
        order = np.random.default_rng(seed).permutation(rows["train"]).tolist()
        held_out = max(1, round(len(order) / 9))
        rows = {"train": order[held_out:], "val": order[:held_out], "test": rows["val"]}
    smiles, labels, cliffs = data.smiles, data.labels, data.cliffs
    return Case(data.name, method, seed, part, data.task, smiles, labels, rows, cliffs)


def dataset_name(source: str) -> str:
    """Return what results call a dataset: ``NAME``, or that of a path's file."""
    return Path(source.removesuffix(".gz")).stem


def table_options() -> argparse.ArgumentParser:
    """Return a parent for parsers: what :func:`load_dataset` is told of tables beside a name."""
    parser = argparse.ArgumentParser(add_help=False)
    tables = parser.add_argument_group("tables")
    tables.add_argument("--smiles-column", default="smiles", metavar="NAME", help="of CSV files")
    tables.add_argument("--target-column", metavar="NAME", help="needed where there are several")
    tables.add_argument(
        "--splits-file",
        type=Path,
        metavar="JSON",
        help='{"random": [{"train": [rows], "val": [rows], "test": [rows]}, ...], "scaffold": ...}',
    )
    return parser


def _find_files(source: str, splits: Path | None) -> tuple[Path, Path | None, str | None]:
    """Return the file of a dataset, the file of its splits, and the method to make splits by."""
    path = Path(source)
    if source != path.stem:
        return path, splits, None
    if development_set := find_set(SHARED, source):
        return development_set, splits, METHODS[development_set.parent.name]
    splits = splits or SHARED / "splits" / f"{source}.json"
    return SHARED / f"{source}.csv", splits if splits.is_file() else None, None


def _check_columns(
    path: Path, header: Sequence[str], smiles_column: str, target_column: str | None
) -> str:
    """Return the column to learn, if the header has it and the column of SMILES."""
    others = [name for name in header if name not in (smiles_column, CLIFF)]
    if target_column is None and len(others) == 1:
        (target_column,) = others
    for option, column in (("smiles", smiles_column), ("target", target_column)):
        if column not in header:
            raise InputError(
                f"{path}: got {quoted(column)} as --{option}-column, "
                f"expected one of {', '.join(header)}"
            )
    return str(target_column)


def load_dataset(
    source: str, smiles_column: str, target_column: str | None, splits: Path | None
) -> Dataset:
    """Read a dataset by its name beside the checkout, or by the path of a CSV file.

    Args:
        source: ``NAME``, which is ``NAME.csv`` and ``splits/NAME.json`` there, or a development
            set (:mod:`accuracy.development`), or a path; ``.gz`` is unpacked.
        smiles_column: Column that holds the SMILES.
        target_column: Column to learn; not needed where there are but two columns and ``cliff``.
        splits: JSON file of splits, for a path or a development set; otherwise splits are made.

    Raises:
        InputError: A file cannot be read or lacks something.
    """
    path, splits, method = _find_files(source, splits)
    unpack = gzip.open if path.suffix == ".gz" else open
    try:
        with unpack(path, "rt", newline="", encoding="utf-8") as file:
            header, *lines = csv.reader(file)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"data {quoted(source)}: {path} cannot be read ({error}), expected the path of a CSV "
            f"file, or the name of one in {SHARED}"
        ) from error
    target_column = _check_columns(path, header, smiles_column, target_column)
    smiles, cells = (
        [line[header.index(column)] if len(line) == len(header) else "" for line in lines]
        for column in (smiles_column, target_column)
    )
    try:
        task = infer_task("y", cells)
        labels, bounds = label_values(cells, task)
        if not np.isnan(bounds).all():
            raise InputError("got censored labels, expected numbers")
    except InputError as error:
        raise InputError(f"{path}, column {quoted(target_column)}: {error}") from error
    if task.kind == "multiclass":
        raise InputError(
            f"{path}: got {len(task.classes)} classes, expected numbers or two classes"
        )
    usable = [
        row
        for row, (text, cell) in enumerate(zip(smiles, cells, strict=True))
        if not is_missing(cell) and _is_molecule(text)
    ]
    if not usable:
        raise InputError(f"{path}: no row has both a molecule and a label")
    given = None if splits is None else _read_splits(splits, len(lines))
    if given is None and method is not None:
        given = {method: _folds(method, smiles, usable)}
    cliffs = None
    if task.kind == "regression" and CLIFF in header and target_column != CLIFF:
        place = header.index(CLIFF)
        cliffs = np.array([len(line) == len(header) and line[place] == "1" for line in lines])
    # A binary label is written as 0 or 1, whatever the classes were called.
    task = Task("y", "binary", ("0", "1")) if task.kind == "binary" else task
    return Dataset(dataset_name(source), smiles, labels, usable, task, given, cliffs)


def _folds(method: str, smiles: Sequence[str], usable: Sequence[int]) -> list[Split]:
    """The folds of a cross-validation of usable rows, as splits of the seeds from 0."""
    groups = GROUPS[method]([smiles[row] for row in usable])
    return [
        _rows_of(fold_split(groups, folds=FOLDS, fold=fold, seed=SEED), usable)
        for fold in range(1, FOLDS + 1)
    ]


def _rows_of(made: Sequence[NDArray[np.int64]], usable: Sequence[int]) -> Split:
    """The rows of a file that a split of its usable rows has."""
    return {
        part: [usable[place] for place in places] for part, places in zip(_NAMES, made, strict=True)
    }


def _is_molecule(text: str) -> bool:
    try:
        return parse_smiles(text).GetNumAtoms() > 0
    except SmilesError:
        return False


def _read_splits(path: Path, count: int) -> dict[str, list[Split]]:
    try:
        content: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
        splits = {
            method: [{part: list(map(int, split[part])) for part in _NAMES} for split in several]
            for method, several in content.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: got no splits ({error!r}), expected "
            '{"random": [{"train": [...], "val": [...], "test": [...]}, ...], ...}'
        ) from error
    for method, several in splits.items():
        for seed, split in enumerate(several):
            rows = [row for part in split.values() for row in part]
            if len(set(rows)) < len(rows) or not all(0 <= row < count for row in rows):
                raise InputError(
                    f"{path}: {method} split {seed} has a row twice, or one that is none of the "
                    f"{count} rows of the table"
                )
    return splits
