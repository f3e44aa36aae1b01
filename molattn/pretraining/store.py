"""The molecules of pretraining: some of those in a store, with their targets."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.packing import PackedMolecules
from molattn.chem.pretraining_targets import NUM_COUNTS, PRETRAINING_DESCRIPTORS
from molattn.data.store import Shard, StoreTable
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["MoleculeStore", "open_targets"]


class MoleculeStore:
    """Some of the molecules in a store, with their pretraining targets; memory-mapped.

    Args:
        table: The store.
        rows: Which molecules, counted over all shards, ascending ``[M]``.
        about: Sources, options, counts and digests, as JSON types.

    Attributes:
        names: Names of the descriptors, then of the further columns to predict.
        digest: SHA-256 of the molecules and of the content of the store.
    """

    def __init__(
        self, table: StoreTable, rows: NDArray[np.int64], about: Mapping[str, Any]
    ) -> None:
        index, self.about, self._rows = table.index, about, rows
        self.names, self.num_bytes = tuple(index.descriptors), index.num_bytes
        self._folder, self._shards = table.path.absolute(), open_targets(table)
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
        found = np.empty(len(rows), dtype=np.int64)
        for shard, indices, own in self._by_shard(rows):
            starts = shard.starts("atoms")
            found[indices] = starts[own + 1] - starts[own]
        return found

    def unpack(self, rows: NDArray[np.int64]) -> list[MoleculeRecord]:
        """Return some molecules, in any order."""
        found = [*self._by_shard(rows)]
        if not found:
            return []
        order = np.argsort(np.concatenate([indices for _, indices, _ in found]))
        parts = [(shard.molecules, own) for shard, _, own in found]
        return PackedMolecules.gather(parts).unpack(order)

    def descriptors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the descriptors and further columns of some molecules, NaN where undefined.

        ``[len(rows), len(names)]``.
        """
        found = np.empty((len(rows), len(self.names)), dtype=np.float32)
        width = len(PRETRAINING_DESCRIPTORS)
        for shard, indices, own in self._by_shard(rows):
            found[indices, :width] = shard.values("descriptors")[own]
            if len(self.names) > width:
                found[indices, width:] = shard.values("columns")[own]
        return found

    def log_counts(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return ``log(1 + count)`` of some molecules, ``[len(rows), NUM_COUNTS]``."""
        found = np.zeros((len(rows), NUM_COUNTS), dtype=np.float32)
        for shard, indices, own in self._by_shard(rows):
            starts = shard.starts("counts")
            positions, counts = shard.values("positions"), shard.values("counts")
            for index, start, end in zip(indices, starts[own], starts[own + 1], strict=True):
                found[index, positions[start:end]] = counts[start:end]
        return np.log1p(found, out=found)

    def _by_shard(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[Shard, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each shard with indices among ``rows`` and its own numbers of these molecules."""
        chosen = self._rows[rows]
        numbers = np.searchsorted(self._ends, chosen, side="right")
        for number in np.unique(numbers).tolist():
            shard = self._shards[number]
            indices = np.flatnonzero(numbers == number)
            yield shard, indices, chosen[indices] - (self._ends[number] - len(shard))


def open_targets(table: StoreTable) -> list[Shard]:
    """Open all shards of a store with targets of pretraining.

    Raises:
        InputError: They are damaged, or have the targets of another release.
    """
    if tuple(table.index.descriptors[: len(PRETRAINING_DESCRIPTORS)]) != PRETRAINING_DESCRIPTORS:
        raise InputError(
            f"{table.path}: has no targets of pretraining, or those of another release; prepare "
            "the molecules with --pretraining-targets"
        )
    return [*table.shards()]


def _reopened(folder: Path, rows: NDArray[np.int64], about: Mapping[str, Any]) -> MoleculeStore:
    return MoleculeStore(StoreTable(folder), rows, about)
