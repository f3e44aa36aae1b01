"""From tables of molecules to those that a model is pretrained on."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
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
from molattn.data.store import StoreTable
from molattn.data.table import Table, listed, open_table
from molattn.errors import InputError, SmilesError, quoted
from molattn.pretraining.store import MoleculeStore, open_targets

__all__ = ["prepare_molecules", "refusals"]

_INCHI_KEY = re.compile(r"([A-Z]{14})(-[A-Z]{10}-[A-Z])?")
_LIMITS = [limit.name for limit in fields(MoleculeLimits)]


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
    tables = [open_table(file) for file in files]
    excluded = [open_table(file) for file in config.exclude]
    name = config.smiles_column
    columns = [table.column(name, "--smiles-column") for table in (*tables, *excluded)]
    first = tables[0] if len(tables) == 1 and columns[0] == 0 else None
    if isinstance(first, StoreTable) and first.index.options["pretraining_targets"]:
        store = _checked(first, config)
    else:
        store = _prepared(tables, config, folder, console, num_workers)
    keys, refused = KeySet(), Counter[str]()
    for table, column in zip(excluded, columns[len(tables) :], strict=True):
        refused += _add_keys(keys, table, column, config)
    rows, counts, digest = _selected(store, keys, config)
    if not len(rows):
        names = ", ".join(str(table.path) for table in tables)
        raise InputError(
            f"{names}: no molecules to train on ({counts['duplicates']} duplicates, "
            f"{counts['left_out']} excluded; invalid rows: {refusals(counts['refused'])})"
        )
    about = {
        "files": [{name: one[name] for name in ("name", "sha256")} for one in store.index.inputs],
        "excluded": [
            {"name": Path(table.path).name, "sha256": table.digest()} for table in excluded
        ],
        "smiles_column": config.smiles_column,
        **{name: getattr(config, name) for name in _LIMITS},
        "rdkit": store.index.versions["rdkit"],
        "kept": len(rows),
        **counts,
        "excluded_refused": _by_number(refused),
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
    known = table.index.options["pretraining_columns"]
    if config.pretraining_columns and [*config.pretraining_columns] != known:
        raise InputError(
            f"{table.path}: was prepared with --pretraining-columns {listed(known) or 'none'}, got "
            f"{listed(config.pretraining_columns)}"
        )
    return table


def _add_keys(keys: KeySet, table: Table, column: int, config: MoleculesConfig) -> Counter[str]:
    """Add all molecules of a table, those of rows with other faults included; count the others."""
    # Not with lower limits than the default: the molecules of a pretraining are often small.
    least = MoleculeLimits()
    limits = MoleculeLimits(**{n: max(getattr(config, n), getattr(least, n)) for n in _LIMITS})
    refused: Counter[str] = Counter()
    has_molecule = False
    for row in table:
        text = row.cells[column]
        try:
            found = read_molecule(text, limits, connectivity_keys)[1]
        except SmilesError as error:
            if (key := _INCHI_KEY.fullmatch(text)) is None:
                refused[row.code or error.code] += 1
                continue
            found = [key[1]]
        has_molecule = True
        for key in found:
            keys.add(key)
    if not has_molecule:
        raise InputError(
            f"{table.path} has no valid SMILES or InChIKey in column "
            f"{quoted(table.header[column])} ({refused.total()} rows, invalid: "
            f"{refusals(_by_number(refused))})",
            option="exclude",
        )
    return refused


def _selected(
    store: StoreTable, excluded: KeySet, limits: MoleculeLimits
) -> tuple[NDArray[np.int64], dict[str, Any], str]:
    """Return which molecules are used, the numbers of others by reason, and a digest of the used.

    They are numbered over all shards.
    """
    chosen, seen, digest, first = list[int](), KeySet(), hashlib.sha256(), 0
    counts, refused = Counter[str](), Counter(store.index.rejected)
    for shard in open_targets(store):
        num_atoms = np.diff(shard.starts("atoms")).tolist()
        keys = shard.texts("key", 0, len(shard))
        smiles = shard.texts("cells", 0, len(shard))[:: shard.width]
        for number in np.flatnonzero(shard.is_read).tolist():
            names = keys[number].split(" ")
            if len(smiles[number]) > limits.max_length:
                refused["too_long"] += 1
            elif num_atoms[number] > limits.max_atoms:
                refused["too_large"] += 1
            elif any(name in excluded for name in names):
                counts["left_out"] += 1
            elif not seen.add(names[0]):
                counts["duplicates"] += 1
            else:
                chosen.append(first + number)
                digest.update(names[0].encode())
        first += len(shard)
    others = {name: counts[name] for name in ("duplicates", "left_out")}
    found = {**others, "refused": _by_number(refused)}
    return np.array(chosen, dtype=np.int64), found, digest.hexdigest()


def refusals(refused: Mapping[str, int]) -> str:
    """Return the number of invalid rows by reason, as text."""
    return ", ".join(f"{count} {code}" for code, count in refused.items()) or "none"


def _by_number(refused: Mapping[str, int]) -> dict[str, int]:
    """Return the commonest first, in an order that does not depend on the worker processes."""
    return dict(sorted(refused.items(), key=lambda reason: (-reason[1], reason[0])))
