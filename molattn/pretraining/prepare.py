"""From tables of molecules to a store, in one pass and constant memory."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rdkit import rdBase
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.inchi_keys import KeySet, connectivity_keys
from molattn.chem.limits import read_molecule
from molattn.chem.pretraining_reader import (
    PRETRAINING_DESCRIPTORS,
    PretrainingBlock,
    PretrainingReader,
)
from molattn.config import MoleculeLimits, MoleculesConfig
from molattn.data.table import Table, open_table
from molattn.errors import InputError, SmilesError, quoted
from molattn.pretraining.store import MoleculeStore, open_store, writing_store
from molattn.training.run_folder import locked_folder
from molattn.utils.progress import row_progress
from molattn.utils.workers import parallel_map

__all__ = ["prepare_molecules", "refusals"]

_BLOCK_ROWS = 256
_INCHI_KEY = re.compile(r"([A-Z]{14})(-[A-Z]{10}-[A-Z])?")


def prepare_molecules(
    files: Sequence[str],
    config: MoleculesConfig,
    folder: Path,
    console: Console | None = None,
    *,
    num_workers: int = 0,
) -> MoleculeStore:
    """Read molecules and write them with their targets to a store, or open the existing store.

    Each molecule is taken once: later ones of the same connectivity are left out, and so are those
    of ``config.exclude``. Invalid SMILES are counted by reason. The folder is locked while it is
    written; any number of processes may read it afterwards.

    Raises:
        InputError: A table that cannot be read with these options, no molecule left, a store of
            other files or options, or a folder that another process is filling.
    """
    tables = [open_table(file) for file in files]
    excluded = [open_table(file) for file in config.exclude]
    columns = {
        id(table): table.column(config.smiles_column, "--smiles-column")
        for table in (*tables, *excluded)
    }
    asked = {
        "files": [_described(table) for table in tables],
        "excluded": [_described(table) for table in excluded],
        "smiles_column": config.smiles_column,
        "max_length": config.max_length,
        "max_atoms": config.max_atoms,
        "max_seconds": config.max_seconds,
        "rdkit": rdBase.rdkitVersion,
    }
    featurizer = FEATURIZERS[config.featurizer]()
    store = open_store(folder)
    if store is None:
        folder.mkdir(parents=True, exist_ok=True)
        with locked_folder(folder):
            store = open_store(folder)  # if another process has written it meanwhile
            if store is None:
                _write_store(
                    tables,
                    excluded,
                    columns,
                    asked,
                    config,
                    featurizer,
                    folder,
                    num_workers,
                    console,
                )
                store = open_store(folder)
    if store is None:
        raise InputError(f"{folder}: the prepared molecules were removed during the run")
    if store.molecules.featurizer != featurizer:
        raise InputError(
            f"{folder}: contains molecules prepared with a featurizer other than "
            f"{quoted(config.featurizer)}; select that featurizer or another folder"
        )
    for name, value in asked.items():
        if store.about.get(name) != value:
            raise InputError(
                f"{folder}: contains molecules prepared with other {name}: "
                f"{_short(store.about.get(name))}, not {_short(value)}; select another folder"
            )
    return store


def refusals(refused: Mapping[str, int]) -> str:
    """Return the number of invalid rows by reason, as text."""
    return ", ".join(f"{count} {code}" for code, count in refused.items()) or "none"


def _write_store(
    tables: Sequence[Table],
    excluded: Sequence[Table],
    columns: Mapping[int, int],
    asked: Mapping[str, Any],
    limits: MoleculeLimits,
    featurizer: Featurizer,
    folder: Path,
    num_workers: int,
    console: Console | None,
) -> None:
    about: dict[str, Any] = dict(asked)
    with (
        row_progress(console, "preparing molecules") as advance,
        writing_store(folder, featurizer, PRETRAINING_DESCRIPTORS, about) as store,
    ):
        chosen = _Chosen()
        for table in excluded:
            chosen.exclude(table, columns[id(table)], limits)
        texts = chain.from_iterable(
            _texts(table, columns[id(table)], chosen.refused) for table in tables
        )
        reader = PretrainingReader(limits, chosen.excluded, featurizer)
        for read in parallel_map(reader, texts, num_workers):
            if new := chosen.new(read):
                store.append(
                    [read.records[place] for place in new],
                    read.descriptors[new],
                    [read.counts[place] for place in new],
                )
            advance(read.num_texts)
        if store.count == 0:
            files = ", ".join(str(table.path) for table in tables)
            raise InputError(
                f"{files}: no molecules to train on ({chosen.duplicates} duplicates, "
                f"{chosen.left_out} excluded; invalid SMILES: {_commonest(chosen.refused)})"
            )
        about |= chosen.about()


class _Chosen:
    """Selects the molecules of a store, and counts the others by reason."""

    def __init__(self) -> None:
        self.excluded = KeySet()
        self._seen = KeySet()
        self._digest = hashlib.sha256()
        self.refused: Counter[str] = Counter()
        self.excluded_refused: Counter[str] = Counter()
        self.kept = self.duplicates = self.left_out = 0

    def exclude(self, table: Table, column: int, limits: MoleculeLimits) -> None:
        """Exclude all molecules of a table, those of rows with other faults included."""
        # Not with lower limits than the default: the molecules of a pretraining are often small.
        names = [limit.name for limit in fields(MoleculeLimits)]
        least = MoleculeLimits()
        limits = MoleculeLimits(**{n: max(getattr(limits, n), getattr(least, n)) for n in names})
        refused: Counter[str] = Counter()
        has_molecule = False
        for row in table:
            try:
                text = row.cells[column]
                _, keys = read_molecule(text, limits, connectivity_keys)
            except SmilesError as error:
                if (key := _INCHI_KEY.fullmatch(row.cells[column])) is None:
                    refused[row.code or error.code] += 1
                    continue
                keys = [key[1]]
            has_molecule = True
            for key in keys:
                self.excluded.add(key)
        if not has_molecule:
            raise InputError(
                f"--exclude: {table.path} has no valid SMILES or InChIKey in column "
                f"{quoted(table.header[column])} ({refused.total()} rows, invalid: "
                f"{_commonest(refused)})"
            )
        self.excluded_refused += refused

    def new(self, read: PretrainingBlock) -> list[int]:
        """Return the indices of the molecules that occur in this block for the first time."""
        new = [place for place, key in enumerate(read.keys) if self._seen.add(key)]
        for place in new:
            self._digest.update(read.keys[place].encode())
        self.kept += len(new)
        self.duplicates += read.duplicates + len(read.keys) - len(new)
        self.left_out += read.left_out
        self.refused.update(read.refused)
        return new

    def about(self) -> dict[str, Any]:
        """Return the counts, and a digest of the molecules that were kept."""
        return {
            "kept": self.kept,
            "duplicates": self.duplicates,
            "left_out": self.left_out,
            "refused": _by_number(self.refused),
            "excluded_refused": _by_number(self.excluded_refused),
            "sha256": self._digest.hexdigest(),
        }


def _texts(table: Table, column: int, refused: Counter[str]) -> Iterator[list[str]]:
    rows = iter(table)
    while block := list(islice(rows, _BLOCK_ROWS)):
        refused.update(row.code for row in block if row.fault is not None)
        yield [row.cells[column] for row in block if row.fault is None]


def _described(table: Table) -> dict[str, str]:
    return {"name": Path(table.path).name, "sha256": table.digest()}


def _short(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join(f"{one['name']} ({one['sha256'][:12]})" for one in value) or "none"


def _by_number(refused: Counter[str]) -> dict[str, int]:
    """Return the commonest first, in an order that does not depend on the worker processes."""
    return dict(sorted(refused.items(), key=lambda reason: (-reason[1], reason[0])))


def _commonest(refused: Counter[str]) -> str:
    return refusals(dict(islice(_by_number(refused).items(), 3)))
