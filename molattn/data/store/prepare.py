"""From tables to a store of prepared molecules, shard by shard.

While a store ``NAME`` is written, its shards are in ``NAME.unfinished``, beside ``run.json``, which
says what they are made from. A shard holds a fixed number of rows of the input and is written
atomically, so that an interrupted command goes on after the last shard.
"""

import os
import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate, islice
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
from molattn.config import WORKER_OPTIONS, MoleculeLimits, PrepareConfig
from molattn.config.base import check_same_digest, check_same_values
from molattn.data.labels import LabelError, number
from molattn.data.store.shards import (
    Arrays,
    Shard,
    file_digest,
    join_arrays,
    map_arrays,
    read_texts,
    store_featurizer,
    text_arrays,
    write_arrays,
)
from molattn.data.store.table import (
    INDEX_FILE,
    REJECTED_FILE,
    StoreIndex,
    is_store,
    read_index,
    write_index,
)
from molattn.data.table import Row, Table, escape_formula, listed, open_table, write_table
from molattn.errors import InputError, SmilesError, is_of_input, quoted
from molattn.record import MoleculeRecord
from molattn.utils.console import counted, print_line
from molattn.utils.files import (
    UNFINISHED,
    check_output_folder,
    locked,
    read_json,
    replace_folder,
    write_json,
)
from molattn.utils.progress import row_progress
from molattn.utils.ray_workers import check_ray
from molattn.utils.workers import worker_map
from molattn.version import package_versions

__all__ = ["SHARD_ROWS", "Prepared", "prepare_store", "resume_hint"]

SHARD_ROWS = 32_768
"""Rows of each shard but the last: as many as fit into little memory and a minute of work."""

_BLOCK_ROWS = 256
_RAY_BLOCK_ROWS = 4096  # of --engine ray, which has more to do for each block
_LARGEST = float(np.finfo(np.float16).max)  # descriptors are stored as such
_COLUMNS_OPTION = "--pretraining-columns"
_RUN_FILE = "run.json"
_SHARD = re.compile(r"shard_\d{5,}\.safetensors")
_LEFTOVER = re.compile(r"\..+\.part")  # of a process that was killed while writing


class Prepared(NamedTuple):
    """A store, and the number of rows that were read for it now, not before an interruption."""

    index: StoreIndex
    rows: int


def prepare_store(
    sources: Sequence[str | Path | Table],
    folder: str | Path,
    config: PrepareConfig | None = None,
    console: Console | None = None,
) -> Prepared:
    """Read the molecules of tables, and write them to a store.

    The store has a row for each row of the tables, in order, with the columns that the options
    name. Rows without a molecule are also listed in ``rejected.csv``. The files are the same for
    any number of worker processes, and after an interruption.

    Args:
        sources: Tables of any kind that :func:`molattn.data.table.open_table` reads.
        folder: The folder to write.
        config: The options.
        console: Where to show progress; None = nowhere.

    Raises:
        InputError: A table cannot be read with these options, the folder cannot be written, or what
            is there cannot be resumed.
        MolattnError: A worker process was killed.
        OSError: A file cannot be written, such as to a full disk.
    """
    config, folder = config or PrepareConfig(), Path(os.path.abspath(folder))
    if config.engine == "ray":
        check_ray(config.ray_address)
    tables = [open_table(source) for source in sources]
    if not tables:
        raise InputError("INPUT is missing: expected one or more tables of molecules")
    columns = [_kept_columns(table, config) for table in tables]
    numbers = _pretraining_columns(tables[0], config)
    run = _run(tables, columns, numbers, config)
    for table, own in zip(tables, columns, strict=True):  # the last cells of a row
        own += [table.column(name, _COLUMNS_OPTION) for name in numbers]
        for remark in table.remarks:
            print_line(console, f"{table.path}: {remark}")
    unfinished = _unfinished(folder)
    check_output_folder(folder, "a store", _is_of_store, (INDEX_FILE,))
    check_output_folder(unfinished, "an unfinished store", _is_of_store, (_RUN_FILE,))
    if is_store(folder) and not config.overwrite:
        if not config.resume:
            raise InputError(
                f"{folder}: contains a store; use --overwrite to replace it, or another --output"
            )
        index = read_index(folder)
        _check_same(index._asdict(), run, folder)
        print_line(console, f"{folder} is finished; there is nothing to resume")
        return Prepared(index, 0)
    unfinished.mkdir(parents=True, exist_ok=True)
    with locked(unfinished):
        kept = _begin(unfinished, run, config.resume, console)
        try:
            _write_shards(_Rows(tables, columns), unfinished, kept, run, config, console)
            index = _index(unfinished, run, tables)
            _write_rejected(unfinished, index)
            write_index(unfinished, index)
            replace_folder(unfinished, folder)
        except BaseException as error:
            if not resume_hint(folder, error):
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
    with suppress(OSError):  # the store is whole
        (folder / _RUN_FILE).unlink()
    return Prepared(index, max(0, index.rows - SHARD_ROWS * kept))


def _kept_columns(table: Table, config: PrepareConfig) -> list[int]:
    """Return the indices of the columns that the options name, that of the SMILES first."""
    named = [
        (config.smiles_column, "--smiles-column"),
        *((name, "--target-columns") for name in config.target_columns),
        *((name, "--relation-columns") for name in config.relation_columns),
        (config.weight_column, "--weight-column"),
        (config.partner_column, "--partner-column"),
        *((name, "--feature-columns") for name in config.feature_columns),
        (config.split_column, "--split-column"),
        (config.order_column, "--order-column"),
        *((name, "--keep-columns") for name in config.keep_columns),
    ]
    return [
        *dict.fromkeys(table.column(name, option) for name, option in named if name is not None)
    ]


def _pretraining_columns(table: Table, config: PrepareConfig) -> list[str]:
    """Return the names of the columns to pretrain on, in the order of a table for a pattern."""
    found = list[int]()
    for name in config.pretraining_columns:
        matching = [column for column, one in enumerate(table.header) if fnmatchcase(one, name)]
        if name in table.header or not matching:
            matching = [table.column(name, _COLUMNS_OPTION)]
        found += matching
    every = Counter([*found, *_kept_columns(table, config)])
    if twice := [table.header[column] for column in found if every[column] > 1]:
        raise InputError(
            f"{table.path}: {_COLUMNS_OPTION}: got {listed([*dict.fromkeys(twice)])} more than "
            "once, or in another option too"
        )
    return [table.header[column] for column in found]


def _run(
    tables: Sequence[Table],
    columns: Sequence[Sequence[int]],
    numbers: Sequence[str],
    config: PrepareConfig,
) -> dict[str, Any]:
    """Return what decides the content of a store, as fields of its index.

    Args:
        tables: The tables.
        columns: The columns of each that are kept as text.
        numbers: Names of those that are kept as numbers.
        config: The options.
    """
    headers = [
        [table.header[column] for column in own] for table, own in zip(tables, columns, strict=True)
    ]
    for table, header in zip(tables, headers, strict=True):
        if len(header) != len(headers[0]):
            raise InputError(
                f"{table.path}: the options name {len(header)} columns of this table, but "
                f"{len(headers[0])} of {tables[0].path}; expected as many"
            )
    left_out = (*WORKER_OPTIONS, "resume", "overwrite")
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(config).items()
        if name not in left_out
    }
    versions = package_versions()
    return {
        "columns": headers[0],
        "unit": tables[0].unit if len(tables) == 1 else "row",
        "inputs": [
            {"name": Path(str(table.path)).name, "sha256": table.digest()} for table in tables
        ],
        "options": {**options, "shard_rows": SHARD_ROWS},
        "featurizer": FEATURIZERS[config.featurizer]().to_dict(),
        "versions": {name: versions[name] for name in ("molattn", "rdkit")},
        "descriptors": [*PRETRAINING_DESCRIPTORS, *numbers] if config.pretraining_targets else [],
    }


def _check_same(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Check that what is in a folder is made from the same tables with the same options.

    Raises:
        InputError: Names the first difference.
    """
    before, after = ([one["name"] for one in run["inputs"]] for run in (was, now))
    if len(before) != len(after):
        raise InputError(
            f"INPUT: got {len(after)} tables, but the store in {folder} has molecules of "
            f"{len(before)} ({', '.join(before)}); use the same, or another --output"
        )
    for old, new in zip(was["inputs"], now["inputs"], strict=True):
        check_same_digest(f"{new['name']}: the file has", new["sha256"], old["sha256"], folder)
    check_same_values(was["options"], now["options"], folder)
    for name in ("featurizer", "versions"):
        if was[name] != now[name]:
            raise InputError(
                f"{folder}: contains molecules prepared with other {name} ({was[name]}); use "
                "another --output"
            )


def resume_hint(folder: Path, error: BaseException | None = None) -> str:
    """Return how much of an interrupted store is kept and how to resume it, "" if nothing is.

    After an ``error`` in the input nothing can be resumed.
    """
    unfinished = _unfinished(folder)
    if is_of_input(error) or not (kept := _whole_shards(unfinished)):
        return ""
    what = counted(kept, "shard")
    return f"{what} kept in {unfinished}; to resume: the same command with --resume"


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{UNFINISHED}")


def _begin(unfinished: Path, run: Mapping[str, Any], resume: bool, console: Console | None) -> int:
    """Return the number of shards that are there and can be resumed; remove all others.

    Raises:
        InputError: They are of another run, or it is not known of which.
    """
    kept = _whole_shards(unfinished)
    if kept and resume:
        _check_same(read_json(unfinished / _RUN_FILE), run, unfinished)
    elif kept:
        what = f"{counted(kept, 'shard')} kept in {unfinished}"
        print_line(console, f"{what}: replaced, as --resume is not given")
        kept = 0
    names = {_shard_name(number) for number in range(kept)}
    for path in unfinished.iterdir():
        if _SHARD.fullmatch(path.name) and path.name not in names:
            path.unlink()
    write_json(unfinished / _RUN_FILE, run)
    return kept


def _whole_shards(unfinished: Path) -> int:
    """Return the number of shards that a run has written, up to the first that is missing."""
    number = 0
    while (unfinished / _shard_name(number)).exists():
        number += 1
    return number


def _shard_name(number: int) -> str:
    return f"shard_{number:05}.safetensors"


def _is_of_store(name: str) -> bool:
    known = (INDEX_FILE, REJECTED_FILE, _RUN_FILE)
    return name in known or bool(_SHARD.fullmatch(name) or _LEFTOVER.fullmatch(name))


def _write_shards(
    rows: "_Rows",
    folder: Path,
    kept: int,
    run: Mapping[str, Any],
    config: PrepareConfig,
    console: Console | None,
) -> None:
    """Write the shards after those that are kept."""
    rows.start = kept * SHARD_ROWS
    if kept:
        print_line(console, f"resuming after {counted(rows.start, 'row')}")
    numbers = run["descriptors"][len(PRETRAINING_DESCRIPTORS) :]
    featurizer = FEATURIZERS[config.featurizer]()
    reader = _BlockReader(featurizer, config, config.pretraining_targets, numbers)
    rows.size = _BLOCK_ROWS if config.engine == "local" else _RAY_BLOCK_ROWS
    read = worker_map(reader, rows, config)
    total = None
    if console is not None and not console.quiet:
        total = sum(table.count() for table in rows.tables)
    with closing(read), row_progress(console, "preparing", total, done=rows.start) as advance:
        arrays = _advancing(read, advance)
        while parts := list(islice(arrays, SHARD_ROWS // rows.size)):
            write_arrays(folder / _shard_name(kept), join_arrays(parts))
            kept += 1


@dataclass
class _Rows:
    """The rows of tables after the first ``start``, with the kept cells, ``size`` at a time."""

    tables: Sequence[Table]
    columns: Sequence[Sequence[int]]
    start: int = 0
    size: int = 1

    def __iter__(self) -> Iterator[list[Row]]:
        every = (
            Row(row.line, [row.cells[column] for column in own], row.code, row.reason)
            for table, own in zip(self.tables, self.columns, strict=True)
            for row in table
        )
        remaining = islice(every, self.start, None)
        while block := list(islice(remaining, self.size)):
            yield block


def _advancing(read: Iterable[Arrays], advance: Callable[..., None]) -> Iterator[Arrays]:
    for part in read:
        advance(len(part["is_read"]), int(np.count_nonzero(part["is_read"] == 0)))
        yield part


def _index(folder: Path, run: Mapping[str, Any], tables: Sequence[Table]) -> StoreIndex:
    """Return the index of the shards in a folder."""
    rejected: Counter[str] = Counter()
    shards: list[dict[str, Any]] = []
    featurizer = Featurizer.from_dict(run["featurizer"])
    for path in (folder / _shard_name(n) for n in range(_whole_shards(folder))):
        shard = Shard(map_arrays(path), featurizer)
        sizes = {"rows": len(shard), "molecules": len(shard.molecules)}
        size = path.stat().st_size
        shards.append({"name": path.name, **sizes, "bytes": size, "sha256": file_digest(path)})
        rejected.update(code for code, _ in shard.reasons(0, len(shard) - len(shard.molecules)))
    counts = [table.count() for table in tables]
    return StoreIndex(
        **{
            **run,
            **{name: sum(shard[name] for shard in shards) for name in ("rows", "molecules")},
            "inputs": [{**one, "rows": n} for one, n in zip(run["inputs"], counts, strict=True)],
            "rejected": dict(sorted(rejected.items(), key=lambda one: (-one[1], one[0]))),
            "shards": shards,
        }
    )


@dataclass
class _BlockReader:
    """Reads blocks of rows to arrays, in any process."""

    featurizer: Featurizer
    limits: MoleculeLimits
    targets: bool
    numbers: Sequence[str]  # names of the last columns, which are stored as numbers

    @cached_property
    def _reader(self) -> MoleculeReader:  # which cannot be pickled
        return MoleculeReader(
            self.featurizer,
            Fields(
                fingerprint=True,
                smiles=True,
                targets=pretraining_target if self.targets else None,
            ),
            limits=self.limits,
        )

    def __call__(self, rows: Sequence[Row]) -> Arrays:
        """Return the arrays of :class:`molattn.data.store.shards.Shard`, to be joined."""
        rows, numbers = self._with_numbers(rows)
        found = iter(self._reader([row.cells[0] for row in rows if not row.code]))
        read = [None if row.code else next(found) for row in rows]
        kept = [n for n, record in enumerate(read) if isinstance(record, MoleculeRecord)]
        records = [record for record in read if isinstance(record, MoleculeRecord)]
        reasons: list[str] = []
        for row, record in zip(rows, read, strict=True):
            if isinstance(record, SmilesError):
                reasons += [record.code, record.reason]
            elif record is None:
                reasons += [row.code, row.reason]
        texts = (
            (rows[n].cells[0], record.smiles or "") for n, record in zip(kept, records, strict=True)
        )
        canonical = ["" if own == text else own for text, own in texts]
        graphs = [MoleculeRecord(record.atoms, record.pairs) for record in records]
        packed = PackedMolecules.pack(graphs, self.featurizer)
        prints = [record.fingerprint for record in records if record.fingerprint is not None]
        return {
            "is_read": np.isin(np.arange(len(rows)), kept).astype(np.uint8),
            "lines": np.array([row.line for row in rows], dtype=np.uint32),
            **text_arrays("cell", [cell for row in rows for cell in row.cells]),
            **text_arrays("reason", reasons),
            **{name: getattr(packed, name) for name in ("atoms", "ends", "codes")},
            "atom_lengths": np.diff(packed.atom_starts),
            "bond_lengths": np.diff(packed.bond_starts),
            "print": np.concatenate([np.zeros(0, np.uint16), *prints]),
            "print_lengths": np.array([len(one) for one in prints], dtype=np.int64),
            **text_arrays("canonical", canonical),
            **(
                _target_arrays([record.targets for record in records], numbers[kept])
                if self.targets
                else {}
            ),
        }

    def _with_numbers(self, rows: Sequence[Row]) -> tuple[list[Row], NDArray[np.float64]]:
        """Return the rows without the cells that are stored as numbers, and these, NaN if missing.

        A row with such a cell that is no number cannot be used.
        """
        numbers, others = np.full((len(rows), len(self.numbers)), nan), list[Row]()
        width = len(rows[0].cells) - len(self.numbers)
        for own, row in zip(numbers, rows, strict=True):
            other, column = row._replace(cells=row.cells[:width]), 0
            try:
                for column in () if row.code else range(len(self.numbers)):
                    own[column] = number(row.cells[width + column])
            except LabelError as error:
                reason = f"column {quoted(self.numbers[column])}: {error}"
                other = other._replace(code="invalid_label", reason=reason)
            others.append(other)
        return others, numbers


def _target_arrays(targets: Sequence[PretrainingTarget], columns: NDArray[np.float64]) -> Arrays:
    counts = [target.counts for target in targets]
    numbers = np.array([target.descriptors for target in targets], dtype=np.float32)
    numbers = numbers.reshape(-1, len(PRETRAINING_DESCRIPTORS))
    numbers = np.clip(numbers, -_LARGEST, _LARGEST)
    return {
        **text_arrays("key", [" ".join(target.keys) for target in targets]),
        "descriptors": numbers.astype(np.float16),
        **({"columns": columns.astype(np.float32)} if columns.shape[1] else {}),
        "count": np.concatenate([np.zeros(0, np.uint8), *(one.counts for one in counts)]),
        "count_lengths": np.array([len(one.counts) for one in counts], dtype=np.int64),
        "place": np.concatenate([np.zeros(0, np.uint16), *(one.places for one in counts)]),
    }


def _write_rejected(folder: Path, index: StoreIndex) -> None:
    """Write a table of the rows without a molecule."""
    ends = list(accumulate(one["rows"] for one in index.inputs))
    featurizer, width, before = store_featurizer(folder, index), len(index.columns), 0
    with write_table(folder / REJECTED_FILE, ("file", "line", "smiles", "code", "reason")) as write:
        for about in index.shards:
            shard = Shard(map_arrays(folder / about["name"]), featurizer)
            arrays = shard.arrays
            rows = np.flatnonzero(arrays["is_read"] == 0).tolist()
            for row, (code, reason) in zip(rows, shard.reasons(0, len(rows)), strict=True):
                (smiles,) = read_texts(arrays, "cell", width * row, width * row + 1)
                name = index.inputs[bisect_right(ends, before + row)]["name"]
                line = int(arrays["lines"][row])
                write([name, line, *map(escape_formula, (smiles, code, reason))])
            before += len(shard)
