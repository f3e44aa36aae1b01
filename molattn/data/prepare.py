"""From tables to a store of prepared molecules, shard by shard.

While a store ``NAME`` is written, its shards are in ``NAME.unfinished``, beside ``run.json``, which
says what they are made from. A shard holds a fixed number of rows of the input and is written
atomically, so that an interrupted command goes on after the last shard.
"""

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, count, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.packing import PackedMolecules
from molattn.chem.pretraining_targets import (
    PRETRAINING_DESCRIPTORS,
    PretrainingTarget,
    pretraining_target,
)
from molattn.chem.reader import Fields, MoleculeReader
from molattn.config import WORKER_OPTIONS, PrepareConfig
from molattn.config.base import check_same_values
from molattn.data.labels import LabelError, number
from molattn.data.store import (
    INDEX_FILE,
    REJECTED_FILE,
    Shard,
    StoreIndex,
    is_store,
    text_array,
    write_shard,
)
from molattn.data.table import Row, Table, escape_formula, open_table, write_table
from molattn.errors import InputError, SmilesError, is_of_input, quoted
from molattn.record import MoleculeRecord
from molattn.utils.console import counted, print_line, row_progress
from molattn.utils.files import (
    UNFINISHED,
    check_output_folder,
    locked,
    read_json,
    replace_folder,
    write_json,
)
from molattn.utils.workers import check_ray, worker_map
from molattn.version import package_versions

SHARD_ROWS = 32_768
"""Rows of each shard but the last: as many as fit into little memory and a minute of work."""

_BLOCK_ROWS = 256
_RAY_BLOCK_ROWS = 4096  # of --engine ray, which has more to do for each block
_LARGEST = float(np.finfo(np.float16).max)  # descriptors are stored as such
_COLUMNS_OPTION = "--pretraining-columns"
_RUN_FILE = "run.json"
_FILES = re.compile(rf"index\.json|rejected\.csv|{_RUN_FILE}|shard_\d{{5,}}\.arrow|\..+\.part")


def prepare_store(
    sources: Sequence[str | Path | Table],
    folder: str | Path,
    config: PrepareConfig | None = None,
    console: Console | None = None,
) -> StoreIndex:
    """Read the molecules of tables, and write them to a store.

    The store has a row for each row of the tables, in order, with the columns that the options
    name. Rows without a molecule are also listed in ``rejected.csv``. The files are the same for
    any number of worker processes, and after an interruption.
    """
    config, folder = config or PrepareConfig(), Path(os.path.abspath(folder))
    if config.engine == "ray":
        check_ray(config.ray_address)
    rows = _input_rows([open_table(source) for source in sources], config)
    run = _run(rows, config)
    for table in rows.tables:
        for remark in table.remarks:
            print_line(console, f"{table.path}: {remark}")
    check_output_folder(folder, "a store", _is_of_store, (INDEX_FILE,))
    if is_store(folder) and not config.overwrite:
        if not config.resume:
            raise InputError(
                f"{folder}: contains a store; use --overwrite to replace it, or another --output"
            )
        index = StoreIndex.read(folder)
        _check_same(index._asdict(), run, folder)
        print_line(console, f"{folder} is finished; there is nothing to resume")
        return index
    unfinished = _unfinished(folder)
    check_output_folder(unfinished, "an unfinished store", _is_of_store, (_RUN_FILE,))
    unfinished.mkdir(parents=True, exist_ok=True)
    with locked(unfinished):
        _begin(unfinished, run, config.resume, console)
        try:
            _write_shards(rows, unfinished, config, console)
            index = _finish(unfinished, run)
            replace_folder(unfinished, folder)
        except BaseException as error:
            if not resume_hint(folder, error):
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return index


def resume_hint(folder: Path, error: BaseException | None = None) -> str:
    """Return how much of an interrupted store is kept and how to resume it, "" if nothing is.

    After an ``error`` in the input nothing can be resumed.
    """
    unfinished = _unfinished(folder)
    if is_of_input(error) or not (shards := _shards(unfinished)):
        return ""
    what = counted(len(shards), "shard")
    return f"{what} kept in {unfinished}; to resume: the same command with --resume"


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{UNFINISHED}")


@dataclass
class _InputRows:
    """The rows of tables after the first ``start``, ``size`` at a time."""

    tables: Sequence[Table]
    columns: Sequence[Sequence[int]]  # that of the SMILES first, those of ``numbers`` last
    numbers: Sequence[str]  # names of the columns that are stored as numbers
    start: int = 0
    size: int = _BLOCK_ROWS

    def __iter__(self) -> Iterator[list[tuple[int, Row]]]:
        """Yield blocks of rows, each row with the number of its table."""
        rows = (
            (number, Row(row.line, [row.cells[one] for one in own], row.code, row.reason))
            for number, (table, own) in enumerate(zip(self.tables, self.columns, strict=True))
            for row in table
        )
        remaining = islice(rows, self.start, None)
        while block := list(islice(remaining, self.size)):
            yield block


def _input_rows(tables: Sequence[Table], config: PrepareConfig) -> _InputRows:
    if not tables:
        raise InputError("INPUT is missing: expected one or more tables of molecules")
    texts = [_text_columns(table, config) for table in tables]
    for table, columns in zip(tables, texts, strict=True):
        if len(columns) != len(texts[0]):
            raise InputError(
                f"{table.path}: the options name {len(columns)} columns of this table, but "
                f"{len(texts[0])} of {tables[0].path}; expected as many"
            )
    numbers = _number_columns(tables[0], config, texts[0])
    columns = [
        [*own, *(table.column(name, _COLUMNS_OPTION) for name in numbers)]
        for table, own in zip(tables, texts, strict=True)
    ]
    return _InputRows(tables, columns, numbers)


def _text_columns(table: Table, config: PrepareConfig) -> list[int]:
    """Return the indices of the columns that the options name, that of the SMILES first."""
    options = [f"{name}_column" for name in ("smiles", "weight", "partner", "split", "order")]
    options[1:1] = [f"{name}_columns" for name in ("target", "relation", "feature")]
    columns: dict[int, None] = {}
    for option in (*options, "keep_columns"):
        value = getattr(config, option)
        for name in (value,) if isinstance(value, str) else value or ():
            columns[table.column(name, f"--{option.replace('_', '-')}")] = None
    return [*columns]


def _number_columns(table: Table, config: PrepareConfig, texts: Sequence[int]) -> list[str]:
    """Return the names of the columns to pretrain on, in the order of a table for a pattern."""
    columns: dict[str, None] = {}
    for name in config.pretraining_columns:
        matching = [one for one in table.header if fnmatchcase(one, name)]
        if name in table.header or not matching:
            matching = [table.header[table.column(name, _COLUMNS_OPTION)]]
        columns.update(dict.fromkeys(matching))
    return [name for name in columns if table.header.index(name) not in texts]


def _run(rows: _InputRows, config: PrepareConfig) -> dict[str, Any]:
    """Return what decides the content of a store, as fields of its index."""
    texts = rows.columns[0][: len(rows.columns[0]) - len(rows.numbers)]
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(config).items()
        if name not in (*WORKER_OPTIONS, "resume", "overwrite")
    }
    versions, descriptors = package_versions(), [*PRETRAINING_DESCRIPTORS, *rows.numbers]
    return {
        "columns": [rows.tables[0].header[column] for column in texts],
        "unit": rows.tables[0].unit if len(rows.tables) == 1 else "row",
        "inputs": [
            {"name": Path(str(table.path)).name, "sha256": table.digest()} for table in rows.tables
        ],
        "options": {**options, "shard_rows": SHARD_ROWS},
        "featurizer": FEATURIZERS[config.featurizer]().to_dict(),
        "versions": {name: versions[name] for name in ("molattn", "rdkit")},
        "descriptors": descriptors if config.pretraining_targets else [],
    }


def _check_same(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Check that what is in a folder is made from the same tables with the same options."""
    names = ("inputs", "featurizer", "versions")
    check_same_values(was["options"], now["options"], folder)
    check_same_values({n: was[n] for n in names}, {n: now[n] for n in names}, folder)


def _begin(unfinished: Path, run: Mapping[str, Any], resume: bool, console: Console | None) -> None:
    """Keep the shards that can be resumed, and remove all others."""
    shards = _shards(unfinished)
    if shards and resume:
        _check_same(read_json(unfinished / _RUN_FILE), run, unfinished)
        print_line(console, f"resuming after {counted(len(shards) * SHARD_ROWS, 'row')}")
    elif shards:
        what = f"{counted(len(shards), 'shard')} kept in {unfinished}"
        print_line(console, f"{what}: replaced, as --resume is not given")
    for path in {*unfinished.glob("shard_*")} - {*(shards if resume else ())}:
        path.unlink()
    write_json(unfinished / _RUN_FILE, run)


def _shards(folder: Path) -> list[Path]:
    """Return the shards that a run has written, up to the first that is missing."""
    paths = (folder / f"shard_{number:05}.arrow" for number in count())
    return [*takewhile(Path.exists, paths)]


def _is_of_store(name: str) -> bool:
    return _FILES.fullmatch(name) is not None


def _write_shards(
    rows: _InputRows, folder: Path, config: PrepareConfig, console: Console | None
) -> None:
    """Write the shards after those that are there."""
    number = len(_shards(folder))
    rows.start = number * SHARD_ROWS
    rows.size = _BLOCK_ROWS if config.engine == "local" else _RAY_BLOCK_ROWS
    read = worker_map(
        _BlockReader(FEATURIZERS[config.featurizer](), config, rows.numbers), rows, config
    )
    total = None
    if console is not None and not console.quiet:
        total = sum(table.count() for table in rows.tables)
    batches = list[pa.RecordBatch]()
    with closing(read), row_progress(console, "preparing", total, done=rows.start) as advance:
        for batch in chain(read, [None]):
            if batch is not None:
                num_atoms = np.diff(batch["atoms"].offsets.to_numpy())
                advance(len(batch), int(np.count_nonzero(num_atoms == 0)))
                batches.append(batch)
            if batches and (batch is None or len(batches) == SHARD_ROWS // rows.size):
                write_shard(folder / f"shard_{number:05}.arrow", batches)
                number, batches = number + 1, []


def _finish(folder: Path, run: Mapping[str, Any]) -> StoreIndex:
    """Write the table of rows without a molecule, and the index."""
    rejected: Counter[str] = Counter()
    shards: list[dict[str, Any]] = []
    rows, featurizer = 0, Featurizer.from_dict(run["featurizer"])
    with write_table(folder / REJECTED_FILE, ("file", "line", "smiles", "code", "reason")) as write:
        for path in _shards(folder):
            shard, content = Shard(path, featurizer), path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            shards.append({"name": path.name, "bytes": len(content), "sha256": digest})
            rows += len(shard)
            tables = shard.values("table").tolist()
            for number in np.flatnonzero(~shard.is_read).tolist():
                row = shard.rejected(number)
                rejected[row.code] += 1
                texts = map(escape_formula, (row.cells[0], row.code, row.reason))
                write([run["inputs"][tables[number]]["name"], row.line, *texts])
    index = StoreIndex(
        **{
            **run,
            "rows": rows,
            "molecules": rows - rejected.total(),
            "rejected": dict(sorted(rejected.items(), key=lambda one: (-one[1], one[0]))),
            "shards": shards,
        }
    )
    index.write(folder)
    (folder / _RUN_FILE).unlink()
    return index


@dataclass
class _BlockReader:
    """Reads blocks of rows to record batches of a :class:`Shard`, in any process."""

    featurizer: Featurizer
    config: PrepareConfig
    numbers: Sequence[str]

    def __post_init__(self) -> None:
        targets = pretraining_target if self.config.pretraining_targets else None
        fields = Fields(fingerprint=True, smiles=True, targets=targets)
        self._reader = MoleculeReader(self.featurizer, fields, limits=self.config)

    def __call__(self, block: Sequence[tuple[int, Row]]) -> pa.RecordBatch:
        rows, numbers = self._with_numbers([row for _, row in block])
        read = self._reader([row.cells[0] for row in rows if not row.code])
        results = [
            SmilesError("", row.code, row.reason) if row.code else next(read) for row in rows
        ]
        kept = [n for n, one in enumerate(results) if isinstance(one, MoleculeRecord)]
        records = [one for one in results if isinstance(one, MoleculeRecord)]
        errors = [one if isinstance(one, SmilesError) else None for one in results]
        canonical = [""] * len(rows)
        for n, record in zip(kept, records, strict=True):
            smiles = record.smiles or ""
            canonical[n] = "" if smiles == rows[n].cells[0] else smiles
        packed = PackedMolecules.pack(records, self.featurizer)
        lists = partial(_lists, len(rows), kept)
        atoms, bonds = np.diff(packed.atom_starts), np.diff(packed.bond_starts)
        cells, width = text_array([cell for row in rows for cell in row.cells]), len(rows[0].cells)
        columns = {
            "table": pa.array([table for table, _ in block], pa.uint16()),
            "line": pa.array([row.line for row in rows], pa.uint32()),
            "cells": _lists(len(rows), range(len(rows)), [width] * len(rows), cells),
            "code": text_array([error.code if error else "" for error in errors]),
            "reason": text_array([error.reason if error else "" for error in errors]),
            "atoms": lists(atoms, _fixed(packed.atoms)),
            "ends": lists(bonds, _fixed(packed.ends, pa.uint16())),
            "codes": lists(bonds, pa.array(packed.codes)),
            "fingerprint": lists(*_joined([one.fingerprint for one in records], np.uint16)),
            "canonical": text_array(canonical),
        }
        if self.config.pretraining_targets:
            columns |= _targets(len(rows), kept, [record.targets for record in records])
        if self.numbers:
            columns["columns"] = _fixed(numbers.astype(np.float32))
        return pa.RecordBatch.from_pydict(columns)

    def _with_numbers(self, rows: Sequence[Row]) -> tuple[list[Row], NDArray[np.float64]]:
        """Return the rows without the cells that are stored as numbers, and these, NaN if missing.

        A row with such a cell that is no number cannot be used.
        """
        numbers, others = np.full((len(rows), len(self.numbers)), np.nan), list[Row]()
        width = len(rows[0].cells) - len(self.numbers)
        for values, row in zip(numbers, rows, strict=True):
            other, column = row._replace(cells=row.cells[:width]), 0
            try:
                for column in () if row.code else range(len(self.numbers)):
                    values[column] = number(row.cells[width + column])
            except LabelError as error:
                reason = f"column {quoted(self.numbers[column])}: {error}"
                other = other._replace(code="invalid_label", reason=reason)
            others.append(other)
        return others, numbers


def _targets(
    count: int, rows: Sequence[int], targets: Sequence[PretrainingTarget]
) -> dict[str, pa.Array]:
    """Return the columns of the targets of pretraining of some of ``count`` rows."""
    keys, lists = [""] * count, partial(_lists, count, rows)
    descriptors = np.full((count, len(PRETRAINING_DESCRIPTORS)), np.nan, dtype=np.float32)
    for row, target in zip(rows, targets, strict=True):
        keys[row], descriptors[row] = " ".join(target.keys), target.descriptors
    return {
        "key": text_array(keys),
        "descriptors": _fixed(np.clip(descriptors, -_LARGEST, _LARGEST).astype(np.float16)),
        "counts": lists(*_joined([one.counts.counts for one in targets], np.uint8)),
        "positions": lists(*_joined([one.counts.positions for one in targets], np.uint16)),
    }


def _lists(count: int, rows: Sequence[int], lengths: Any, values: pa.Array) -> pa.ListArray:
    """Return a list for each of ``count`` rows, those of ``rows`` with some of the values."""
    every = np.zeros(count + 1, dtype=np.int64)
    every[np.asarray(rows, dtype=np.int64) + 1] = lengths
    return pa.ListArray.from_arrays(pa.array(np.cumsum(every), pa.int32()), values)


def _fixed(values: NDArray[Any], kind: pa.DataType | None = None) -> pa.FixedSizeListArray:
    """Return a list of the same length for each row of a matrix."""
    flat = pa.array(values.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat.cast(kind) if kind else flat, values.shape[1])


def _joined(arrays: Sequence[Any], kind: Any) -> tuple[list[int], pa.Array]:
    values = np.concatenate([np.zeros(0, kind), *arrays])
    return [len(one) for one in arrays], pa.array(values)
