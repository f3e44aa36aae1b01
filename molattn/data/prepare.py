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
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count, islice, takewhile
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console

from molattn.chem.descriptors import DESCRIPTORS, DescriptorCalculator
from molattn.chem.featurizer import FEATURIZERS, Featurizer
from molattn.chem.fingerprints import HashedCounts
from molattn.chem.packing import PackedMolecules
from molattn.chem.pretraining_targets import (
    PRETRAINING_DESCRIPTORS,
    PretrainingTarget,
    pretraining_target,
)
from molattn.chem.reader import MoleculeReader, rules
from molattn.config import WORKER_OPTIONS, PrepareConfig
from molattn.config.base import check_same_values
from molattn.data.labels import LabelError, number
from molattn.data.store import (
    INDEX_FILE,
    MOST_BASELINE_ROWS,
    PREPARED,
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
    config = config or PrepareConfig()
    folder = Path(os.path.abspath(folder))
    if config.engine == "ray":
        check_ray(config.ray_address)
    inputs = _inputs([open_table(source, options=config) for source in sources], config)
    run = _run(inputs, config)
    for table in inputs.tables:
        for remark in table.remarks:
            print_line(console, f"{table.path}: {remark}")
    check_output_folder(folder, "a store", _is_store_file, (INDEX_FILE,))
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
    check_output_folder(unfinished, "an unfinished store", _is_store_file, (_RUN_FILE,))
    unfinished.mkdir(parents=True, exist_ok=True)
    with locked(unfinished):
        _begin(unfinished, run, config.resume, console)
        try:
            _write_shards(inputs, unfinished, config, bool(run["baseline"]), console)
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


class _Inputs(NamedTuple):
    """Tables, and which of their columns are kept."""

    tables: Sequence[Table]
    columns: Sequence[Sequence[int]]  # the SMILES first, ``numbers`` last
    numbers: Sequence[str]  # names of the columns that are stored as numbers

    def blocks(self, start: int, size: int) -> Iterator[list[tuple[int, Row]]]:
        """Yield the rows after the first ``start`` in blocks, each with the number of its table."""
        rows = (
            (
                number,
                Row(row.line, [row.numeral(column) for column in columns], row.code, row.reason),
            )
            for number, (table, columns) in enumerate(zip(self.tables, self.columns, strict=True))
            for row in (raw.checked(columns) for raw in table)
        )
        remaining = islice(rows, start, None)
        while block := list(islice(remaining, size)):
            yield block


def _inputs(tables: Sequence[Table], config: PrepareConfig) -> _Inputs:
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
        [*indices, *(table.column(name, _COLUMNS_OPTION) for name in numbers)]
        for table, indices in zip(tables, texts, strict=True)
    ]
    return _Inputs(tables, columns, numbers)


def _text_columns(table: Table, config: PrepareConfig) -> list[int]:
    """Return the indices of the columns that the options name, the SMILES first."""
    options = [f"{name}_column" for name in ("smiles", "weight", "partner", "split")]
    options[1:1] = [
        f"{name}_columns" for name in ("target", "relation", "interval", "std", "feature")
    ]
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
        matching = [column for column in table.header if fnmatchcase(column, name)]
        if name in table.header or not matching:
            matching = [table.header[table.column(name, _COLUMNS_OPTION)]]
        columns.update(dict.fromkeys(matching))
    return [name for name in columns if table.header.index(name) not in texts]


def _run(inputs: _Inputs, config: PrepareConfig) -> dict[str, Any]:
    """Return all that determines the content of a store, as fields of its index."""
    first, *others = inputs.tables
    texts = inputs.columns[0][: len(inputs.columns[0]) - len(inputs.numbers)]
    rows = sum(table.count() for table in inputs.tables) if config.target_columns else 0
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(config).items()
        if name not in (*WORKER_OPTIONS, "resume", "overwrite")
    }
    versions = package_versions()
    descriptors = [*PRETRAINING_DESCRIPTORS, *inputs.numbers]
    return {
        "columns": [first.header[column] for column in texts],
        "unit": "row" if others else first.unit,
        "inputs": [
            {"name": Path(table.path).name, "sha256": table.digest()} for table in inputs.tables
        ],
        "options": {**options, "shard_rows": SHARD_ROWS},
        "featurizer": FEATURIZERS[config.featurizer]().to_dict(),
        "versions": {**{name: versions[name] for name in ("molattn", "rdkit")}, **rules()},
        "descriptors": descriptors if config.pretraining_targets else [],
        "baseline": [*DESCRIPTORS] if 0 < rows <= MOST_BASELINE_ROWS else [],
    }


def _check_same(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Check that the content of a folder is made from the same tables with the same options."""
    check_same_values(was["options"], now["options"], folder)
    check_same_values(was, {n: now[n] for n in ("inputs", "featurizer", "versions")}, folder)


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


def _is_store_file(name: str) -> bool:
    return _FILES.fullmatch(name) is not None


def _write_shards(
    inputs: _Inputs,
    folder: Path,
    config: PrepareConfig,
    has_baseline: bool,
    console: Console | None,
) -> None:
    """Write the shards that are missing."""
    number = len(_shards(folder))
    rows_written = number * SHARD_ROWS
    size = _BLOCK_ROWS if config.engine == "local" else _RAY_BLOCK_ROWS
    featurizer = FEATURIZERS[config.featurizer]()
    apply = _BlockReader(featurizer, config, inputs.numbers, has_baseline)
    read = worker_map(apply, inputs.blocks(rows_written, size), config)
    total = None
    if console is not None and not console.quiet:
        total = sum(table.count() for table in inputs.tables)
    with closing(read), row_progress(console, "preparing", total, done=rows_written) as advance:

        def with_progress(batch: pa.RecordBatch) -> pa.RecordBatch:
            num_atoms = np.diff(batch["atoms"].offsets.to_numpy())
            advance(len(batch), int(np.count_nonzero(num_atoms == 0)))
            return batch

        while batches := list(islice(map(with_progress, read), SHARD_ROWS // size)):
            write_shard(folder / f"shard_{number:05}.arrow", batches)
            number += 1


def _finish(folder: Path, run: Mapping[str, Any]) -> StoreIndex:
    """Write the table of rows without a molecule, and the index."""
    rejected: Counter[str] = Counter()
    shards: list[dict[str, Any]] = []
    rows = 0
    featurizer = Featurizer(**run["featurizer"])
    with write_table(folder / REJECTED_FILE, ("file", "line", "smiles", "code", "reason")) as write:
        for path in _shards(folder):
            shard = Shard(path, featurizer)
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            shards.append({"name": path.name, "bytes": len(content), "sha256": digest})
            rows += len(shard)
            tables = shard.values("table").tolist()
            for number in np.flatnonzero(~shard.is_read).tolist():
                row = shard.rejected(number)
                rejected[row.code] += 1
                texts = map(escape_formula, (row.cells[0], row.code, row.reason))
                write([run["inputs"][tables[number]]["name"], row.line, *texts])
    facts: Any = {"molecules": rows - rejected.total(), "rejected": by_number(rejected)}
    index = StoreIndex(rows=rows, shards=shards, **facts, **run)
    index.write(folder)
    (folder / _RUN_FILE).unlink()
    return index


def by_number(counts: Mapping[str, int]) -> dict[str, int]:
    """Sort counts, the largest first; the order does not depend on the worker processes."""
    return dict(sorted(counts.items(), key=lambda reason: (-reason[1], reason[0])))


@dataclass
class _BlockReader:
    """Reads blocks of rows to record batches of a :class:`Shard`, in any process."""

    featurizer: Featurizer
    config: PrepareConfig
    numbers: Sequence[str]
    has_baseline: bool

    def __post_init__(self) -> None:
        targets = pretraining_target if self.config.pretraining_targets else None
        descriptors = DescriptorCalculator(DESCRIPTORS) if self.has_baseline else None
        fields = replace(PREPARED, baseline_numbers=descriptors, targets=targets)
        self._reader = MoleculeReader(self.featurizer, fields, limits=self.config)
        self._parent_reader = replace(self._reader, standardize="parent")
        # In place of a molecule that cannot be read.
        atoms = np.zeros((0, len(self.featurizer.atom_sizes)), np.uint8)
        none = np.zeros(0, np.uint16)
        pairs = np.zeros((0, 0), np.uint8)
        missing = np.full(len(PRETRAINING_DESCRIPTORS), np.nan, np.float32)
        counts = HashedCounts(none, none.astype(np.uint8))
        target = PretrainingTarget((), missing, counts)
        numbers = np.zeros(len(PREPARED.numbers or ()), np.float32)
        values: Any = {"fingerprint": none, "smiles": "", "counts": counts, "targets": target}
        self._empty = MoleculeRecord(atoms, pairs, numbers, **values)

    def __call__(self, block: Sequence[tuple[int, Row]]) -> pa.RecordBatch:
        rows, numbers = zip(*(self._with_numbers(row) for _, row in block), strict=True)
        texts = [row.cells[0] for row in rows if not row.code]
        # Most molecules are their own parent, so that this is read first.
        forms = dict(zip(texts, self._parent_reader(texts), strict=True))
        parents = {
            text: form
            for text, form in forms.items()
            if isinstance(form, SmilesError) or form.standardized
        }
        drawn = forms | dict(zip(parents, self._reader(parents), strict=True))
        results = [
            SmilesError("", row.code, row.reason) if row.code else drawn[row.cells[0]]
            for row in rows
        ]
        cells = [row.cells[0] for row in rows]
        changed = self._molecules(cells, [parents.get(text, self._empty) for text in cells])
        columns = {
            "table": pa.array([table for table, _ in block], pa.uint16()),
            "line": pa.array([row.line for row in rows], pa.uint32()),
            "cells": _lists(
                np.arange(len(rows) + 1) * len(rows[0].cells),
                text_array(cell for row in rows for cell in row.cells),
            ),
            **self._molecules(cells, results),
            **{f"parent_{name}": column for name, column in changed.items()},
        }
        if self.config.pretraining_targets:
            columns |= _targets(
                [getattr(molecule, "targets", self._empty.targets) for molecule in results]
            )
        if self.numbers:
            columns["columns"] = _fixed(np.array(numbers, np.float32))
        return pa.RecordBatch.from_pydict(columns)

    def _molecules(
        self, cells: Sequence[str], results: Sequence[MoleculeRecord | SmilesError]
    ) -> dict[str, pa.Array]:
        """Return the columns of molecules, or of parents."""
        records = [
            self._empty if isinstance(molecule, SmilesError) else molecule for molecule in results
        ]
        errors = [molecule if isinstance(molecule, SmilesError) else None for molecule in results]
        packed = PackedMolecules.pack(records, self.featurizer)
        counts: list[Any] = [record.counts for record in records]
        pairs = zip(cells, records, strict=True)
        return {
            "code": text_array(error.code if error else "" for error in errors),
            "reason": text_array(error.reason if error else "" for error in errors),
            "atoms": _lists(packed.atom_starts, _fixed(packed.atoms)),
            "ends": _lists(packed.bond_starts, _fixed(packed.ends.astype(np.uint16))),
            "codes": _lists(packed.bond_starts, pa.array(packed.codes)),
            "canonical": text_array(
                (record.smiles or "") * (record.smiles != cell) for cell, record in pairs
            ),
            "is_redrawn": pa.array([record.is_redrawn for record in records]),
            "standardized": text_array(record.standardized or "" for record in records),
            "fingerprint": pa.array(
                [record.fingerprint for record in records], pa.list_(pa.uint16())
            ),
            "numbers": _fixed(np.array([record.numbers for record in records], np.float32)),
            "kernel_positions": pa.array(
                [hashed.positions for hashed in counts], pa.list_(pa.uint16())
            ),
            "kernel_counts": pa.array([hashed.counts for hashed in counts], pa.list_(pa.uint8())),
            "baseline": pa.array(
                [() if row.baseline_numbers is None else row.baseline_numbers for row in records],
                pa.list_(pa.float32()),
            ),
        }

    def _with_numbers(self, row: Row) -> tuple[Row, list[float]]:
        """Return a row without the cells that are stored as numbers, and these, NaN if missing.

        A row with such a cell that is no number cannot be used.
        """
        width = len(row.cells) - len(self.numbers)
        text_row = row._replace(cells=row.cells[:width])
        numbers = [nan] * len(self.numbers)
        for column, name in enumerate(self.numbers):
            try:
                numbers[column] = nan if row.code else number(row.cells[width + column])
            except LabelError as error:
                reason = f"column {quoted(name)}: {error}"
                return text_row._replace(code="invalid_label", reason=reason), numbers
        return text_row, numbers


def _targets(targets: Sequence[PretrainingTarget]) -> dict[str, pa.Array]:
    """Return the columns of the targets of pretraining."""
    descriptors = np.stack([target.descriptors for target in targets])
    return {
        "key": text_array(" ".join(target.keys) for target in targets),
        "descriptors": _fixed(np.clip(descriptors, -_LARGEST, _LARGEST).astype(np.float16)),
        "counts": pa.array([target.counts.counts for target in targets], pa.list_(pa.uint8())),
        "positions": pa.array(
            [target.counts.positions for target in targets], pa.list_(pa.uint16())
        ),
    }


def _lists(starts: NDArray[Any], values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values)


def _fixed(values: NDArray[Any]) -> pa.FixedSizeListArray:
    """Return a list of the same length for each row of a matrix."""
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
