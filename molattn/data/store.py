"""Stores of prepared molecules: a folder of Arrow files, each a range of rows, and an index.

A store is read as a table: it has the rows of the tables that it was made of, with the columns that
were kept, and the molecules of their SMILES.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from molattn.chem.descriptors import DESCRIPTOR_SETS, DESCRIPTORS, DescriptorCalculator
from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import FINGERPRINT_SIZE, HashedCounts, SubstructureCounter
from molattn.chem.packing import PackedMolecules
from molattn.chem.reader import Fields, Preparation, PreparedMolecule, rules
from molattn.data.table.base import ENCODING_ERRORS, Row, Table
from molattn.errors import InputError, SmilesError, quoted
from molattn.record import MoleculeRecord
from molattn.utils.files import read_json, write_file, write_json

INDEX_FILE = "index.json"
REJECTED_FILE = "rejected.csv"
_FORMAT = 2
_ROWS_AT_ONCE = 256
_ARRAYS = "numbers fingerprint kernel_positions kernel_counts baseline is_redrawn".split()
MOST_BASELINE_ROWS = 20_000
"""Most usable rows of a table with a random forest baseline, whose descriptors take long."""
BASELINE = DescriptorCalculator(DESCRIPTORS, morgan_counts=FINGERPRINT_SIZE)
"""Calculates what the random forest predicts from."""
PREPARED = Fields(
    DescriptorCalculator(DESCRIPTOR_SETS["lipinski"]),
    SubstructureCounter(),
    fingerprint=True,
    smiles=True,
)
"""What a store has of each molecule: all that training and prediction use by default."""


class StoreIndex(NamedTuple):
    """The content of a store, as JSON types."""

    columns: list[str]  # the first has the SMILES
    unit: str  # what the line numbers of its rows count
    rows: int
    molecules: int
    rejected: dict[str, int]  # rows without a molecule by reason code, the most common first
    shards: list[dict[str, Any]]  # name, bytes and sha256 of each file
    inputs: list[dict[str, Any]]  # name and sha256 of each table
    options: dict[str, Any]
    featurizer: dict[str, Any]  # of Featurizer.to_dict
    versions: dict[str, str]  # also digests of the rules by which molecules are read
    descriptors: list[str]  # names of targets of pretraining, if there are any
    baseline: list[str]  # descriptors of the random forest, if there are any

    @property
    def num_bytes(self) -> int:
        """Size of all shards in bytes."""
        return sum(shard["bytes"] for shard in self.shards)

    @classmethod
    def read(cls, folder: Path) -> "StoreIndex":
        """Read the index of a store."""
        if not is_store(folder):
            raise InputError(
                f"{folder}: got a folder, expected a file, or a folder written by molattn prepare"
            )
        content = read_json(folder / INDEX_FILE)
        if content.pop("sha256", None) != _digest(content) or content.pop("format") != _FORMAT:
            raise InputError(f"{folder}: damaged, or of another release; prepare it again")
        return cls(**content)

    def write(self, folder: Path) -> None:
        """Write the index of a store, which is finished then."""
        content = {"format": _FORMAT, **self._asdict()}
        write_json(folder / INDEX_FILE, {**content, "sha256": _digest(content)})


def is_store(folder: Path) -> bool:
    """Return whether there is a finished store."""
    return (folder / INDEX_FILE).is_file()


class Shard:
    """A range of rows of a store, memory-mapped from an Arrow file of one record batch.

    Its columns are ``table`` (number of the table), ``line``, ``cells``, ``code`` and ``reason`` of
    each row, and of each molecule, empty in other rows: ``atoms``, ``ends`` and ``codes`` (see
    :class:`molattn.chem.packing.PackedMolecules`), ``canonical`` (its canonical SMILES if that is
    not the cell), ``fingerprint``, ``numbers``, ``kernel_positions`` and ``kernel_counts`` (see
    ``PREPARED``), ``baseline``, descriptors of the random forest, and ``is_redrawn``. The same
    names after ``parent_`` are of its parent, if that is another molecule, or the error if it has
    none. With targets of pretraining there are ``key``, ``descriptors``, ``counts`` and
    ``positions``, and ``columns`` if there are further ones.

    Attributes:
        molecules: The graphs of all rows; those without a molecule have no atoms.
        is_read: Whether a row has a molecule, ``bool [rows]``.
    """

    def __init__(self, path: Path, featurizer: Featurizer) -> None:
        with pa.memory_map(str(path)) as file:
            self._batch = pa.ipc.open_file(file).get_batch(0)
        self._featurizer = featurizer
        self.molecules = self._graphs()
        self.is_read = np.diff(self.starts("atoms")) > 0

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def width(self) -> int:
        """Number of cells of a row."""
        return len(self._batch["cells"].values) // len(self)

    def starts(self, name: str) -> NDArray[np.int32]:
        """Return where the values of each row of a column of lists begin, and the last ones end."""
        return self._batch[name].offsets.to_numpy()

    def values(self, name: str) -> NDArray[Any]:
        """Return the numbers of a column, of lists one after another."""
        column = self._batch[name]
        shape = [-1]
        while pa.types.is_nested(column.type):
            if pa.types.is_fixed_size_list(column.type):
                shape.append(column.type.list_size)
            column = column.values
        return column.to_numpy().reshape(shape)

    def texts(self, name: str, first: int, last: int) -> list[str]:
        """Return the texts of some rows; cells of all columns come one after another."""
        column = self._batch[name][first:last]
        column = column.flatten() if pa.types.is_list(column.type) else column
        return [
            text.decode(errors=ENCODING_ERRORS)
            for text in column.to_numpy(zero_copy_only=False).tolist()
        ]

    def rejected(self, row: int) -> Row:
        """Return a row without a molecule."""
        cells, (code,), (reason,) = (
            self.texts(name, row, row + 1) for name in ("cells", "code", "reason")
        )
        return Row(int(self.values("line")[row]), cells, code, reason)

    def rows(self, origin: Preparation) -> Iterator[Row]:
        """Yield the rows, each with a :class:`molattn.chem.reader.PreparedMolecule`."""
        lines = self.values("line").tolist()
        for first in range(0, len(self), _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, len(self))
            texts = iter(self.texts("cells", first, last))
            drawn = self._records(first, last)
            parents = self._records(first, last, "parent_")
            for row, record, parent in zip(range(first, last), drawn, parents, strict=True):
                cells = list(islice(texts, self.width))
                if not isinstance(record, MoleculeRecord):
                    yield self.rejected(row)
                    continue
                molecule = PreparedMolecule(cells[0], record, parent, origin)
                yield Row(lines[row], cells, molecule=molecule)

    def _graphs(self, prefix: str = "") -> PackedMolecules:
        """Return the atoms and bonds of all rows."""
        starts = (self.starts(f"{prefix}atoms"), self.starts(f"{prefix}codes"))
        arrays = (self.values(prefix + name) for name in ("atoms", "ends", "codes"))
        return PackedMolecules(self._featurizer, *starts, *arrays)

    def _records(
        self, first: int, last: int, prefix: str = ""
    ) -> Iterator[MoleculeRecord | SmilesError | None]:
        """Yield the molecules or parents of some rows, or their errors; None = there is none."""
        smiles = self.texts("cells", first, last)[:: self.width]
        canonical, parents, codes, reasons = (
            self.texts(prefix + name, first, last)
            for name in ("canonical", "standardized", "code", "reason")
        )
        numbers, fingerprints, positions, counts, baseline, redrawn = (
            self._batch[prefix + name][first:last].to_numpy(zero_copy_only=False)
            for name in _ARRAYS
        )
        for row, graph in enumerate(self._graphs(prefix).unpack(range(first, last))):
            if not graph.num_atoms:
                yield SmilesError(smiles[row], codes[row], reasons[row]) if codes[row] else None
                continue
            fingerprint = fingerprints[row]
            descriptors = baseline[row]
            morgan = np.bincount(fingerprint, minlength=len(descriptors) and FINGERPRINT_SIZE)
            yield MoleculeRecord(
                graph.atoms,
                graph.pairs,
                numbers[row],
                fingerprint=fingerprint,
                smiles=canonical[row] or smiles[row],
                counts=HashedCounts(positions[row], counts[row]),
                baseline_numbers=np.concatenate([descriptors, np.log1p(morgan)], dtype=np.float32),
                standardized=parents[row] or None,
                is_redrawn=bool(redrawn[row]),
            )


def text_array(texts: Iterable[str]) -> pa.Array:
    """Return texts as they are stored, with bytes that are not UTF-8."""
    return pa.array([text.encode(errors=ENCODING_ERRORS) for text in texts], pa.binary())


def write_shard(path: Path, batches: Sequence[pa.RecordBatch]) -> None:
    """Write batches of rows as a file of one, whole or not at all."""
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    write_file(path, sink.getvalue())  # pyright: ignore[reportArgumentType]


class StoreTable(Table):
    """The rows of a store of prepared molecules, as texts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = StoreIndex.read(path)
        self.header = self.index.columns
        self.unit = self.index.unit
        if (was := self.index.versions["rdkit"]) != (now := version("rdkit")):
            self.remarks = (f"prepared with RDKit {was}, read with {now}: results may differ",)

    def count(self) -> int:
        """Return the number of rows."""
        return self.index.rows

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of the index, which has the SHA-256 of each file."""
        return hashlib.sha256((self.path / INDEX_FILE).read_bytes()).hexdigest()

    def check_featurizer(self, featurizer: Featurizer) -> None:
        """Check that the molecules were prepared with this featurizer."""
        if self.prepared.featurizer != featurizer:
            name = quoted(self.index.options["featurizer"])
            raise InputError(
                f"{self.path}: contains molecules prepared with --featurizer {name}, which is "
                "another featurizer than is expected here; prepare them again with that one"
            )

    def shards(self) -> Iterator[Shard]:
        """Open the shards, one after another."""
        for shard in self.index.shards:
            path = self.path / shard["name"]
            try:
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise InputError(f"{path}: {error.strerror or error}; prepare again") from error
            if digest != shard["sha256"]:
                raise InputError(f"{path}: damaged; prepare the molecules again")
            yield Shard(path, self.prepared.featurizer)

    def __iter__(self) -> Iterator[Row]:
        """Read the rows."""
        rows = (row for shard in self.shards() for row in shard.rows(self.prepared))
        if len(self.index.inputs) == 1:
            return rows
        # Lines of multiple tables would be ambiguous.
        return (row._replace(line=number) for number, row in enumerate(rows, start=1))

    @cached_property
    def prepared(self) -> Preparation:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How the molecules were read."""
        baseline = BASELINE if tuple(self.index.baseline) == BASELINE.descriptors else None
        try:
            featurizer = Featurizer(**self.index.featurizer)
        except InputError as error:
            raise InputError(f"{self.path}: featurizer {error}") from error
        was = self.index.versions
        changed = [name for name, digest in rules().items() if was.get(name) != digest]
        return Preparation(featurizer, replace(PREPARED, baseline_numbers=baseline), changed)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
