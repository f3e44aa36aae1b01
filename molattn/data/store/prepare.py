"""From tables to a store of prepared molecules, shard by shard.

While a store ``NAME`` is written, its shards are in ``NAME.unfinished``, beside ``run.json``, which
says what they are made from, and lists each shard with its digest once it is written. A shard holds
a fixed number of rows of the input, so that an interrupted command goes on after the last shard in
the list that is as it was written.
"""

import hashlib
import os
import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import accumulate, chain, islice
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
    PretrainingTargets,
)
from molattn.chem.reader import MoleculeReader
from molattn.config import WORKER_OPTIONS, MoleculeLimits, PrepareConfig
from molattn.config.base import check_same_digest, check_same_values
from molattn.data.labels import LabelError, number
from molattn.data.store.index import (
    INDEX_FILE,
    REJECTED_FILE,
    StoreIndex,
    check_content,
    is_store,
    read_index,
    write_content,
    write_index,
)
from molattn.data.store.shards import (
    Arrays,
    join_arrays,
    map_arrays,
    read_texts,
    text_arrays,
    write_arrays,
)
from molattn.data.store.store import (
    FAULTY,
    INVALID,
    READ,
    Shard,
    damage_named,
    store_featurizer,
)
from molattn.data.table import Row, Table, escape_formula, listed, open_table, write_table
from molattn.errors import InputError, SmilesError, is_of_input, quoted
from molattn.record import MoleculeRecord
from molattn.utils.console import counted, print_line
from molattn.utils.files import (
    UNFINISHED,
    check_output_folder,
    lock_file,
    read_json,
    replace_folder,
)
from molattn.utils.progress import row_progress
from molattn.utils.ray_workers import check_ray, ray_map
from molattn.utils.workers import parallel_map
from molattn.version import package_versions

__all__ = ["SHARD_ROWS", "Prepared", "prepare_store", "resume_hint"]

SHARD_ROWS = 32_768
"""Rows of each shard but the last: as many as fit into little memory and a minute of work."""

_BLOCK_ROWS = 256
_RAY_BLOCK_ROWS = 4096  # of --engine ray, which has more to do for each block
_LARGEST = float(np.finfo(np.float16).max)  # descriptors are stored as such
_COLUMNS_OPTION = "--pretraining-columns"
_RUN_FILE = "run.json"
_LOCK_FILE = ".lock"
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
    places = [_kept_columns(table, config) for table in tables]
    numbers = _pretraining_columns(tables[0], config)
    for table in tables:
        for remark in table.remarks:
            print_line(console, f"{table.path}: {remark}")
    run = _run(tables, places, numbers, config)
    for table, own in zip(tables, places, strict=True):  # the last cells of a row
        own += [table.column(name, _COLUMNS_OPTION) for name in numbers]
    unfinished = _unfinished(folder)
    check_output_folder(folder, "a store", _is_of_store, (INDEX_FILE,))
    check_output_folder(unfinished, "an unfinished store", _is_of_store, (_RUN_FILE, _LOCK_FILE))
    if is_store(folder) and not config.overwrite:
        if not config.resume:
            raise InputError(
                f"{folder}: contains a store; use --overwrite to replace it, or another --output"
            )
        index = read_index(folder)
        _check_same(index._asdict(), run, folder)
        print_line(console, f"{folder} is finished; there is nothing to resume")
        return Prepared(index, 0)
    with _locked(unfinished, folder):
        kept = _begin(unfinished, run, config.resume, console)
        with _kept_if_resumable(folder):
            index = _write_shards(tables, places, unfinished, kept, run, config, console)
            _write_rejected(unfinished, index)
            write_index(unfinished, index)
            replace_folder(unfinished, folder)
    for name in (_RUN_FILE, _LOCK_FILE):
        with suppress(OSError):  # the store is whole
            (folder / name).unlink()
    return Prepared(index, max(0, index.rows - SHARD_ROWS * len(kept)))


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
        alike = [place for place, one in enumerate(table.header) if fnmatchcase(one, name)]
        if name in table.header or not alike:
            alike = [table.column(name, _COLUMNS_OPTION)]
        found += alike
    every = Counter([*found, *_kept_columns(table, config)])
    if twice := [table.header[place] for place in found if every[place] > 1]:
        raise InputError(
            f"{table.path}: {_COLUMNS_OPTION}: got {listed([*dict.fromkeys(twice)])} more than "
            "once, or in another option too"
        )
    return [table.header[place] for place in found]


def _run(
    tables: Sequence[Table],
    places: Sequence[Sequence[int]],
    numbers: Sequence[str],
    config: PrepareConfig,
) -> dict[str, Any]:
    """Return what decides the content of a store, as fields of its index.

    Args:
        tables: The tables.
        places: The columns of each that are kept as text.
        numbers: Names of those that are kept as numbers.
        config: The options.
    """
    headers = [
        [table.header[place] for place in own] for table, own in zip(tables, places, strict=True)
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
    missing = {  # in stores of earlier versions
        name: [] if isinstance(value, list) else None for name, value in now["options"].items()
    }
    former = {**missing, **was["options"]}
    check_same_values(former, now["options"], folder)
    if was["featurizer"] != now["featurizer"]:
        raise InputError(
            f"{folder}: contains molecules prepared with a featurizer other than "
            f"{quoted(now['options']['featurizer'])}, which has changed since; use another --output"
        )
    rdkit = was["versions"]["rdkit"], now["versions"]["rdkit"]
    if rdkit[0] != rdkit[1]:
        raise InputError(
            f"{folder}: contains molecules prepared with RDKit {rdkit[0]}, got {rdkit[1]}; use "
            "another --output"
        )


@contextmanager
def _locked(unfinished: Path, folder: Path) -> Iterator[None]:
    """Make a folder that no other process writes to within the block."""
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        lock = open(unfinished / _LOCK_FILE, "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    with lock:
        if lock_file(lock.fileno()) is False:
            raise InputError(
                f"{folder}: another process is writing to this folder; wait for it to end"
            )
        yield


def resume_hint(folder: Path, error: BaseException | None = None) -> str:
    """Return how much of an interrupted store is kept and how to resume it, "" if nothing is.

    After an ``error`` in the input nothing can be resumed.
    """
    if is_of_input(error):
        return ""
    unfinished = _unfinished(folder)
    if not (kept := _listed(unfinished)):
        return ""
    what = counted(len(kept), "shard")
    return f"{what} kept in {unfinished}; to resume: the same command with --resume"


@contextmanager
def _kept_if_resumable(folder: Path) -> Iterator[None]:
    """Remove the unfinished store after an error that leaves nothing to resume."""
    try:
        yield
    except BaseException as error:
        if not resume_hint(folder, error):
            shutil.rmtree(_unfinished(folder), ignore_errors=True)
        raise


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{UNFINISHED}")


def _begin(
    unfinished: Path, run: Mapping[str, Any], resume: bool, console: Console | None
) -> list[Path]:
    """Return the shards that are there and can be resumed; remove all others.

    Raises:
        InputError: They are of another run, or it is not known of which.
    """
    there = [path for path in unfinished.iterdir() if _SHARD.fullmatch(path.name)]
    kept: list[Path] = []
    if there and resume:
        was = read_json(unfinished / _RUN_FILE)
        check_content(unfinished / _RUN_FILE, was, {*run, "shards"})
        _check_same(was, run, unfinished)
        for shard in _listed(unfinished):
            path = unfinished / shard["name"]
            if _digest(path) != shard["sha256"]:
                print_line(console, f"{path}: changed since it was written; prepared again")
                break
            kept.append(path)
    elif there:
        what = f"{counted(len(there), 'shard')} kept in {unfinished}"
        print_line(console, f"{what}: replaced, as --resume is not given")
    for path in {*there} - {*kept}:
        path.unlink()
    if not kept:
        write_content(unfinished / _RUN_FILE, {**run, "shards": []})
    return kept


def _listed(unfinished: Path) -> list[dict[str, Any]]:
    """Return the shards that a run has written, up to the first that is missing."""
    found = []
    with suppress(InputError, LookupError, TypeError):  # no list, or a damaged one
        for number, shard in enumerate(read_json(unfinished / _RUN_FILE)["shards"]):
            if shard["name"] != _shard_name(number) or not (unfinished / shard["name"]).exists():
                break
            found.append(shard)
    return found


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shard_name(number: int) -> str:
    return f"shard_{number:05}.safetensors"


def _is_of_store(name: str) -> bool:
    known = (INDEX_FILE, REJECTED_FILE, _RUN_FILE, _LOCK_FILE)
    return name in known or bool(_SHARD.fullmatch(name) or _LEFTOVER.fullmatch(name))


def _write_shards(
    tables: Sequence[Table],
    places: Sequence[Sequence[int]],
    folder: Path,
    kept: Sequence[Path],
    run: dict[str, Any],
    config: PrepareConfig,
    console: Console | None,
) -> StoreIndex:
    """Write the shards after those that are kept, and return the index of all."""
    featurizer = FEATURIZERS[config.featurizer]()
    rejected: Counter[str] = Counter()
    shards: list[dict[str, Any]] = []

    def add(path: Path) -> None:
        with damage_named(path):
            shard = Shard(map_arrays(path), featurizer)
        reasons = shard.reasons(0, len(shard) - len(shard.molecules))
        rejected.update(code for code, _ in reasons)
        sizes = {"rows": len(shard), "molecules": len(shard.molecules)}
        size = path.stat().st_size
        shards.append({"name": path.name, **sizes, "bytes": size, "sha256": _digest(path)})

    for path in kept:
        add(path)
    start = sum(shard["rows"] for shard in shards)
    if start:
        print_line(console, f"resuming after {counted(start, 'row')}")
    total = None if console is None or console.quiet else sum(table.count() for table in tables)
    rows = [0] * len(tables)
    numbers = run["descriptors"][len(PRETRAINING_DESCRIPTORS) :]
    reader = _BlockReader(featurizer, config, config.pretraining_targets, numbers)
    is_ray = config.engine == "ray"
    size = _RAY_BLOCK_ROWS if is_ray else _BLOCK_ROWS
    blocks = _Blocks(tables, places, start, size)
    if is_ray:
        report = partial(print_line, console)
        address = config.ray_address
        read = ray_map(reader, blocks, config.num_workers, address=address, report=report)
    else:
        read = parallel_map(reader, blocks, config.num_workers)
    with closing(read), row_progress(console, "preparing", total, done=start) as advance:
        arrays = _advancing(read, rows, advance)
        while parts := list(islice(arrays, SHARD_ROWS // size)):
            path = folder / _shard_name(len(shards))
            write_arrays(path, join_arrays(parts))
            add(path)
            write_content(folder / _RUN_FILE, {**run, "shards": shards})
    inputs = [{**one, "rows": n} for one, n in zip(run["inputs"], rows, strict=True)]
    sums = {name: sum(shard[name] for shard in shards) for name in ("rows", "molecules")}
    common = dict(sorted(rejected.items(), key=lambda reason: (-reason[1], reason[0])))
    found: dict[str, Any] = {**run, **sums, "inputs": inputs, "rejected": common, "shards": shards}
    return StoreIndex(**found)


class _Block(NamedTuple):
    """Rows, and how many of each table were read when the last of them was."""

    rows: Sequence[Row]
    counts: Sequence[int]


@dataclass
class _Blocks:
    """The rows of tables after the first ``start``, with the kept cells, ``size`` at a time.

    The last block has no rows.
    """

    tables: Sequence[Table]
    places: Sequence[Sequence[int]]
    start: int
    size: int

    def __iter__(self) -> Iterator[_Block]:
        counts = [0] * len(self.tables)

        def rows(number: int) -> Iterator[Row]:
            places = self.places[number]
            for row in self.tables[number]:
                counts[number] += 1
                yield row._replace(cells=[row.cells[place] for place in places], values=None)

        left = islice(chain.from_iterable(map(rows, range(len(counts)))), self.start, None)
        while block := list(islice(left, self.size)):
            yield _Block(block, [*counts])
        yield _Block([], counts)


def _advancing(
    read: Iterable[tuple[Arrays, Sequence[int]]], rows: list[int], advance: Callable[..., None]
) -> Iterator[Arrays]:
    """Yield the arrays, and keep the number of rows of each table."""
    for part, counts in read:
        rows[:] = counts
        if part:
            status = part["status"]
            advance(len(status), int(np.count_nonzero(status != READ)))
            yield part


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
            fingerprints=True,
            canonical=True,
            limits=self.limits,
            targets=PretrainingTargets() if self.targets else None,
        )

    def __call__(self, block: _Block) -> tuple[Arrays, Sequence[int]]:
        """Return the arrays of a block, and the number of rows of each table."""
        return self._arrays(block.rows) if block.rows else {}, block.counts

    def _arrays(self, rows: Sequence[Row]) -> Arrays:
        """Return the arrays of :class:`molattn.data.store.store.Shard`, to be joined."""
        rows, numbers = self._with_numbers(rows)
        found = iter(self._reader([row.cells[0] for row in rows if row.fault is None]))
        status: list[int] = []
        reasons: list[str] = []
        records: list[MoleculeRecord] = []
        canonical: list[str] = []
        kept: list[int] = []
        for place, row in enumerate(rows):
            record = None if row.fault is not None else next(found)
            if record is None:
                status.append(FAULTY)
                reasons += [row.code, row.fault or ""]
            elif isinstance(record, SmilesError):
                status.append(INVALID)
                reasons += [record.code, record.reason]
            else:
                status.append(READ)
                own = record.smiles or ""
                canonical.append("" if own == row.cells[0] else own)
                records.append(record)
                kept.append(place)
        graphs = [MoleculeRecord(record.atoms, record.pairs) for record in records]
        packed = PackedMolecules.pack(graphs, self.featurizer)
        prints = [record.fingerprint for record in records if record.fingerprint is not None]
        return {
            "status": np.array(status, dtype=np.uint8),
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
        for own, row in zip(numbers, rows, strict=True):
            width = len(row.cells) - len(self.numbers)
            other = row._replace(cells=row.cells[:width])
            if row.fault is None:
                for place, (name, cell) in enumerate(
                    zip(self.numbers, row.cells[width:], strict=True)
                ):
                    try:
                        own[place] = number(cell)
                    except LabelError as error:
                        reason = f"column {quoted(name)}: {error}"
                        other = other._replace(fault=reason, code="invalid_label")
                        break
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
            places = np.flatnonzero(arrays["status"] != READ).tolist()
            for place, (code, reason) in zip(places, shard.reasons(0, len(places)), strict=True):
                (smiles,) = read_texts(arrays, "cell", width * place, width * place + 1)
                name = index.inputs[bisect_right(ends, before + place)]["name"]
                line = int(arrays["lines"][place])
                write([name, line, *map(escape_formula, (smiles, code, reason))])
            before += len(shard)
