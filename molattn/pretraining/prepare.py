"""From tables of molecules to those that a model is pretrained on."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS
from molattn.chem.limits import read_molecule
from molattn.chem.pretraining_targets import KeySet, connectivity_keys
from molattn.config import MoleculeLimits, MoleculesConfig, PrepareConfig
from molattn.data.prepare import prepare_store
from molattn.data.store import Shard, StoreTable
from molattn.data.table import Table, listed, open_table
from molattn.errors import InputError, SmilesError, quoted
from molattn.pretraining.store import MoleculeStore, open_targets

__all__ = ["prepare_molecules", "refusals"]

_INCHI_KEY = re.compile(r"([A-Z]{14})(-[A-Z]{10}-[A-Z])?")


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
    connectivity are left out, and so are those of ``config.exclude``. Invalid SMILES are counted by
    reason. The folder is locked while it is written; any number of processes may read it
    afterwards.

    Raises:
        InputError: A table that cannot be read with these options, no molecule left, a store of
            other files or options, or a folder that another process is filling.
    """
    tables = [open_table(file) for file in files]
    excluded = [open_table(file) for file in config.exclude]
    columns = [
        table.column(config.smiles_column, "--smiles-column") for table in (*tables, *excluded)
    ]
    first = tables[0] if len(tables) == 1 and columns[0] == 0 else None
    if isinstance(first, StoreTable) and first.index.options["pretraining_targets"]:
        first.check_featurizer(FEATURIZERS[config.featurizer]())
        store, known = first, first.index.options["pretraining_columns"]
        if config.pretraining_columns and [*config.pretraining_columns] != known:
            raise InputError(
                f"{first.path}: was prepared with --pretraining-columns "
                f"{listed(known) or 'none'}, got {listed(config.pretraining_columns)}"
            )
    else:
        for table in tables:
            if isinstance(table, StoreTable) and table.index.options["pretraining_columns"]:
                raise InputError(
                    f"{table.path}: a store with --pretraining-columns must be the only input"
                )
        shared = {field.name for field in fields(PrepareConfig)} & vars(config).keys()
        options = {name: getattr(config, name) for name in shared}
        prepared = PrepareConfig(
            **options, pretraining_targets=True, num_workers=num_workers, resume=True
        )
        prepare_store(tables, folder, prepared, console)
        store = StoreTable(folder)
    index = store.index
    chosen = _Chosen(Counter(index.rejected))
    for table, column in zip(excluded, columns[len(tables) :], strict=True):
        chosen.exclude(table, column, config)
    shards = open_targets(store)
    rows = chosen.rows(shards, config)
    if not len(rows):
        names = ", ".join(str(table.path) for table in tables)
        raise InputError(
            f"{names}: no molecules to train on ({chosen.duplicates} duplicates, "
            f"{chosen.left_out} excluded; invalid rows: {_commonest(chosen.refused)})"
        )
    about = {
        "files": [{name: one[name] for name in ("name", "sha256")} for one in index.inputs],
        "excluded": [
            {"name": Path(table.path).name, "sha256": table.digest()} for table in excluded
        ],
        "smiles_column": config.smiles_column,
        **{limit.name: getattr(config, limit.name) for limit in fields(MoleculeLimits)},
        "rdkit": index.versions["rdkit"],
        **chosen.about(),
    }
    return MoleculeStore(store, shards, rows, about)


def refusals(refused: Mapping[str, int]) -> str:
    """Return the number of invalid rows by reason, as text."""
    return ", ".join(f"{count} {code}" for code, count in refused.items()) or "none"


class _Chosen:
    """Selects the molecules of a store, and counts the others by reason."""

    def __init__(self, refused: Counter[str]) -> None:
        self._excluded = KeySet()
        self._digest = hashlib.sha256()
        self.refused = refused
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
                self._excluded.add(key)
        if not has_molecule:
            raise InputError(
                f"--exclude: {table.path} has no valid SMILES or InChIKey in column "
                f"{quoted(table.header[column])} ({refused.total()} rows, invalid: "
                f"{_commonest(refused)})"
            )
        self.excluded_refused += refused

    def rows(self, shards: Sequence[Shard], limits: MoleculeLimits) -> NDArray[np.int64]:
        """Return the rows of the molecules that are used, counted over all shards."""
        chosen, seen, before = [np.zeros(0, np.int64)], KeySet(), 0
        for shard in shards:
            own = []
            num_atoms = np.diff(shard.starts("atoms")).tolist()
            keys = shard.texts("key", 0, len(shard))
            smiles = shard.texts("cells", 0, len(shard))[:: shard.width]
            for number in np.flatnonzero(shard.is_read).tolist():
                names = keys[number].split(" ")
                if len(smiles[number]) > limits.max_length:
                    self.refused["too_long"] += 1
                elif num_atoms[number] > limits.max_atoms:
                    self.refused["too_large"] += 1
                elif any(name in self._excluded for name in names):
                    self.left_out += 1
                elif not seen.add(names[0]):
                    self.duplicates += 1
                else:
                    own.append(before + number)
                    self._digest.update(names[0].encode())
            self.kept += len(own)
            chosen.append(np.array(own, dtype=np.int64))
            before += len(shard)
        return np.concatenate(chosen)

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


def _by_number(refused: Counter[str]) -> dict[str, int]:
    """Return the commonest first, in an order that does not depend on the worker processes."""
    return dict(sorted(refused.items(), key=lambda reason: (-reason[1], reason[0])))


def _commonest(refused: Counter[str]) -> str:
    return refusals(dict(islice(_by_number(refused).items(), 3)))
