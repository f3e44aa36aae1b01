"""The molecules of pretraining, with their targets: from tables to some rows of a store."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS
from molattn.chem.limits import read_molecule
from molattn.chem.packing import PackedMolecules
from molattn.chem.pretraining_targets import (
    NUM_COUNTS,
    PRETRAINING_DESCRIPTORS,
    KeySet,
    connectivity_keys,
)
from molattn.config import MoleculeLimits, MoleculesConfig, PrepareConfig
from molattn.data.prepare import by_number, prepare_store
from molattn.data.store import Shard, StoreTable
from molattn.data.table import Table, listed, open_table
from molattn.errors import InputError, SmilesError, quoted
from molattn.record import MoleculeRecord

_INCHI_KEY = re.compile(r"([A-Z]{14})(-[A-Z]{10}-[A-Z])?")
_LIMITS = [limit.name for limit in fields(MoleculeLimits)]


class MoleculeStore:
    """Some of the molecules in a store, with their pretraining targets; memory-mapped.

    ``rows``: which molecules, counted over all shards, ascending ``[M]``; ``about``: sources,
    options, counts and digests, as JSON types; ``names``: of the descriptors, then of the further
    columns to predict; ``digest``: SHA-256 of the molecules and of the content of the store.

    Raises:
        InputError: The store has the targets of another release.
    """

    def __init__(
        self, table: StoreTable, rows: NDArray[np.int64], about: Mapping[str, Any]
    ) -> None:
        index = table.index
        self.about = about
        self._rows = rows
        self.names = tuple(index.descriptors)
        self.num_bytes = index.num_bytes
        if self.names[: len(PRETRAINING_DESCRIPTORS)] != PRETRAINING_DESCRIPTORS:
            raise InputError(f"{table.path}: has the targets of another release; prepare it again")
        self._folder = table.path.absolute()
        self._shards = [*table.shards()]
        content = [about["sha256"], self.names, [shard["sha256"] for shard in index.shards]]
        self.digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    def __reduce__(self) -> Any:
        """Let another process open the files, in place of sending their content."""
        return _reopened, (self._folder, self._rows, self.about)

    def __len__(self) -> int:
        return len(self._rows)

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of atoms of some molecules."""
        sizes = np.empty(len(rows), dtype=np.int64)
        for shard, indices, shard_rows in self._by_shard(rows):
            starts = shard.starts("atoms")
            sizes[indices] = starts[shard_rows + 1] - starts[shard_rows]
        return sizes

    def unpack(self, rows: NDArray[np.int64]) -> list[MoleculeRecord]:
        """Return some molecules, in any order."""
        by_shard = [*self._by_shard(rows)]
        if not by_shard:
            return []
        order = np.argsort(np.concatenate([indices for _, indices, _ in by_shard]))
        parts = [(shard.molecules, shard_rows) for shard, _, shard_rows in by_shard]
        return PackedMolecules.gather(parts).unpack(order)

    def descriptors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the descriptors and further columns of some molecules, NaN where undefined.

        ``[len(rows), len(names)]``.
        """
        numbers = np.empty((len(rows), len(self.names)), dtype=np.float32)
        width = len(PRETRAINING_DESCRIPTORS)
        for shard, indices, shard_rows in self._by_shard(rows):
            numbers[indices, :width] = shard.values("descriptors")[shard_rows]
            if len(self.names) > width:
                numbers[indices, width:] = shard.values("columns")[shard_rows]
        return numbers

    def log_counts(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return ``log(1 + count)`` of some molecules, ``[len(rows), NUM_COUNTS]``."""
        log_counts = np.zeros((len(rows), NUM_COUNTS), dtype=np.float32)
        for shard, indices, shard_rows in self._by_shard(rows):
            starts = shard.starts("counts")
            positions = shard.values("positions")
            counts = shard.values("counts")
            for index, start, end in zip(
                indices, starts[shard_rows], starts[shard_rows + 1], strict=True
            ):
                log_counts[index, positions[start:end]] = counts[start:end]
        return np.log1p(log_counts, out=log_counts)

    def _by_shard(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[Shard, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each shard with indices among ``rows`` and its own numbers of these molecules."""
        store_rows = self._rows[rows]
        numbers = np.searchsorted(self._ends, store_rows, side="right")
        for number in np.unique(numbers).tolist():
            shard = self._shards[number]
            indices = np.flatnonzero(numbers == number)
            yield shard, indices, store_rows[indices] - (self._ends[number] - len(shard))


def _reopened(folder: Path, rows: NDArray[np.int64], about: Mapping[str, Any]) -> MoleculeStore:
    return MoleculeStore(StoreTable(folder), rows, about)


def prepare_molecules(
    files: Sequence[str],
    config: MoleculesConfig,
    folder: Path,
    console: Console | None = None,
    *,
    num_workers: int = 0,
) -> MoleculeStore:
    """Return the molecules of tables with their targets, from a store that is written if need be.

    A single file that is a store with targets is used as it is. Otherwise a store is written to
    ``folder``, or used again if it is there. Each molecule is taken once: later ones of the same
    connectivity are left out, and so are those of ``config.exclude``.

    Raises:
        InputError: A table that cannot be read, a store of other files or options, or no molecule.
    """
    tables = [open_table(file, options=config) for file in files]
    by_columns = replace(config, sheet=None, header_row=None)
    excluded = [open_table(file, options=by_columns) for file in config.exclude]
    name = config.smiles_column
    columns = [table.column(name, "--smiles-column") for table in (*tables, *excluded)]
    first = tables[0] if len(tables) == 1 and columns[0] == 0 else None
    if isinstance(first, StoreTable) and first.index.options["pretraining_targets"]:
        store = _checked(first, config)
    else:
        store = _prepared(tables, config, folder, console, num_workers)
    keys = KeySet()
    skipped = Counter[str]()
    for table, column in zip(excluded, columns[len(tables) :], strict=True):
        skipped += _add_keys(keys, table, column, config)
    rows, counts, digest = _selected(store, keys, config)
    if not len(rows):
        names = ", ".join(str(table.path) for table in tables)
        raise InputError(
            f"{names}: no molecules to train on ({counts['duplicates']} duplicates, "
            f"{counts['left_out']} excluded; skipped rows: {reasons_text(counts['skipped'])})"
        )
    about = {
        "files": [
            {name: source[name] for name in ("name", "sha256")} for source in store.index.inputs
        ],
        "excluded": [
            {"name": Path(table.path).name, "sha256": table.digest()} for table in excluded
        ],
        "smiles_column": config.smiles_column,
        **{name: getattr(config, name) for name in _LIMITS},
        "rdkit": store.index.versions["rdkit"],
        "kept": len(rows),
        **counts,
        "excluded_skipped": by_number(skipped),
        "sha256": digest,
    }
    return MoleculeStore(store, rows, about)


def _prepared(
    tables: Sequence[Table],
    config: MoleculesConfig,
    folder: Path,
    console: Console | None,
    num_workers: int,
) -> StoreTable:
    """Write a store with targets, or use the one that is there."""
    for table in tables:
        if isinstance(table, StoreTable) and table.index.options["pretraining_columns"]:
            reason = "a store with --pretraining-columns must be the only input"
            raise InputError(f"{table.path}: {reason}")
    shared = {field.name for field in fields(PrepareConfig)} & vars(config).keys()
    options = {name: getattr(config, name) for name in shared}
    options |= {"pretraining_targets": True, "num_workers": num_workers, "resume": True}
    prepare_store(tables, folder, PrepareConfig(**options), console)
    return StoreTable(folder)


def _checked(table: StoreTable, config: MoleculesConfig) -> StoreTable:
    """Return a store if it was prepared with these options."""
    table.check_featurizer(FEATURIZERS[config.featurizer]())
    prepared_columns = table.index.options["pretraining_columns"]
    if config.pretraining_columns and [*config.pretraining_columns] != prepared_columns:
        prepared = listed(prepared_columns) or "none"
        raise InputError(
            f"{table.path}: was prepared with --pretraining-columns {prepared}, got "
            f"{listed(config.pretraining_columns)}"
        )
    return table


def _add_keys(keys: KeySet, table: Table, column: int, config: MoleculesConfig) -> Counter[str]:
    """Add all molecules of a table; return the numbers of skipped rows by reason.

    Molecules of rows with other faults, such as a missing cell, are added too.
    """
    # Not with lower limits than the default: the molecules of a pretraining are often small.
    default = MoleculeLimits()
    highest = {name: max(getattr(config, name), getattr(default, name)) for name in _LIMITS}
    limits = MoleculeLimits(**highest)
    skipped = Counter[str]()
    count = 0
    for count, row in enumerate(table, start=1):  # noqa: B007
        text = row.cells[column]
        try:
            keys_of_row = read_molecule(text, limits, connectivity_keys)[1]
        except SmilesError as error:
            if (key := _INCHI_KEY.fullmatch(text)) is None:
                skipped[row.code or error.code] += 1
                continue
            keys_of_row = [key[1]]
        for key in keys_of_row:
            keys.add(key)
    if skipped.total() == count:
        raise InputError(
            f"{table.path} has no valid SMILES or InChIKey in column "
            f"{quoted(table.header[column])} (skipped rows: {reasons_text(by_number(skipped))})",
            option="exclude",
        )
    return skipped


def _selected(
    store: StoreTable, excluded: KeySet, limits: MoleculeLimits
) -> tuple[NDArray[np.int64], dict[str, Any], str]:
    """Return which molecules are used, the numbers of others by reason, and a digest of the used.

    They are numbered over all shards.
    """
    selected = list[int]()
    seen = KeySet()
    digest = hashlib.sha256()
    first = 0
    counts = {"duplicates": 0, "left_out": 0}
    skipped = Counter(store.index.rejected)
    for shard in store.shards():
        num_atoms = np.diff(shard.starts("atoms")).tolist()
        keys = shard.texts("key", 0, len(shard))
        smiles = shard.texts("cells", 0, len(shard))[:: shard.width]
        for number in np.flatnonzero(shard.is_read).tolist():
            names = keys[number].split(" ")
            if len(smiles[number]) > limits.max_length:
                skipped["too_long"] += 1
            elif num_atoms[number] > limits.max_atoms:
                skipped["too_large"] += 1
            elif any(name in excluded for name in names):
                counts["left_out"] += 1
            elif not seen.add(names[0]):
                counts["duplicates"] += 1
            else:
                selected.append(first + number)
                digest.update(names[0].encode())
        first += len(shard)
    all_counts = {**counts, "skipped": by_number(skipped)}
    return np.array(selected, dtype=np.int64), all_counts, digest.hexdigest()


def reasons_text(counts: Mapping[str, int]) -> str:
    """Return the numbers of skipped rows by reason, as text."""
    return ", ".join(f"{count} {code}" for code, count in counts.items()) or "none"
