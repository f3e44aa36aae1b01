"""Molecules and their pretraining targets in memory-mapped files.

A molecule of 27 atoms takes about 1.7 kB: 210 bytes for its graph, two for each descriptor, three
for each non-zero count, and 24 for the offsets of these.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.count_fingerprints import HashedCounts
from molattn.chem.featurizer import Featurizer
from molattn.chem.packing import PackedMolecules
from molattn.chem.pretraining_reader import NUM_COUNTS
from molattn.errors import InputError
from molattn.record import MoleculeRecord
from molattn.utils.files import read_json, write_json

__all__ = ["INDEX_FILE", "MoleculeStore", "StoreWriter", "open_store", "writing_store"]

INDEX_FILE = "index.json"
_VERSION = 4
_DTYPES = {
    "atom_starts": "<i8",
    "bond_starts": "<i8",
    "count_starts": "<i8",
    "atoms": "<u4",
    "ends": "<u2",
    "codes": "u1",
    "descriptors": "<f2",
    "count_places": "<u2",
    "counts": "u1",
}
"""Number type of each array, which is a file of that name."""
_STARTS = {"atom_starts": "atoms", "bond_starts": "codes", "count_starts": "counts"}
"""Arrays of offsets, and the array that each points into."""


@dataclass(frozen=True, eq=False)
class MoleculeStore:
    """Molecules with their pretraining targets.

    Args:
        molecules: Graphs of the ``M`` molecules.
        descriptors: Descriptors, ``float16 [M, D]``; NaN where undefined.
        count_starts: Offsets, ``int64 [M + 1]``; the counts of molecule ``m`` are those from
            ``count_starts[m]`` to ``count_starts[m + 1]``.
        count_places: Position of each non-zero count in the fingerprints, ``uint16``.
        counts: The non-zero counts, ``uint8``.
        names: Names of the descriptors.
        about: Sources, options and digests that were stored with the molecules, as JSON types.
        num_bytes: Size of all arrays in bytes.
    """

    molecules: PackedMolecules
    descriptors: NDArray[np.float16]
    count_starts: NDArray[np.int64]
    count_places: NDArray[np.uint16]
    counts: NDArray[np.uint8]
    names: tuple[str, ...]
    about: Mapping[str, Any]
    num_bytes: int

    def __len__(self) -> int:
        return len(self.molecules)

    def log_counts(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return ``log(1 + count)`` of some molecules, ``[len(rows), NUM_COUNTS]``."""
        found = np.zeros((len(rows), NUM_COUNTS), dtype=np.float32)
        for place, row in enumerate(rows):
            run = slice(self.count_starts[row], self.count_starts[row + 1])
            found[place, self.count_places[run]] = self.counts[run]
        return np.log1p(found, out=found)


class StoreWriter:
    """Appends molecules to the files of a store."""

    def __init__(self, files: Mapping[str, IO[bytes]], featurizer: Featurizer) -> None:
        self._files = files
        self._featurizer = featurizer
        self._ends = dict.fromkeys(_STARTS, 0)
        self.digests = {name: hashlib.sha256() for name in files}
        self.count = 0
        for name in _STARTS:
            self._write(name, np.zeros(1))

    def append(
        self,
        records: Sequence[MoleculeRecord],
        descriptors: NDArray[np.float32],
        counts: Sequence[HashedCounts],
    ) -> None:
        """Append one or more molecules, with their descriptors ``[n, D]``, NaN where undefined."""
        packed = PackedMolecules.pack(records, self._featurizer)
        self._append_starts("atom_starts", packed.atom_starts[1:])
        self._append_starts("bond_starts", packed.bond_starts[1:])
        self._append_starts("count_starts", np.cumsum([len(one.counts) for one in counts]))
        for name in ("atoms", "ends", "codes"):
            self._write(name, getattr(packed, name))
        most = np.finfo(np.float16).max  # larger values would become infinite
        self._write("descriptors", np.clip(descriptors, -most, most))
        self._write("count_places", np.concatenate([one.places for one in counts]))
        self._write("counts", np.concatenate([one.counts for one in counts]))
        self.count += len(records)

    def _append_starts(self, name: str, ends: NDArray[np.integer[Any]]) -> None:
        self._write(name, ends + self._ends[name])
        self._ends[name] += int(ends[-1])

    def _write(self, name: str, values: NDArray[Any]) -> None:
        content = values.astype(_DTYPES[name]).tobytes()
        self._files[name].write(content)
        self.digests[name].update(content)


@contextmanager
def writing_store(
    folder: Path, featurizer: Featurizer, names: Sequence[str], about: dict[str, Any]
) -> Iterator[StoreWriter]:
    """Write a store, which can be opened once the block has ended without an exception.

    ``about`` may be extended inside the block.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX_FILE).unlink(missing_ok=True)
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in _DTYPES}
        writer = StoreWriter(files, featurizer)
        yield writer
    index = {
        "version": _VERSION,
        "molecules": writer.count,
        "descriptors": list(names),
        "featurizer": featurizer.to_dict(),
        "sha256": {name: digest.hexdigest() for name, digest in writer.digests.items()},
        "about": about,
    }
    write_json(folder / INDEX_FILE, index)


def open_store(folder: Path) -> MoleculeStore | None:
    """Open a store; return None if there is none or it was not finished.

    Raises:
        InputError: Damaged files, or files of another release.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        return None
    try:
        index = read_json(path)
        if index["version"] != _VERSION:
            raise ValueError(f"version {index['version']}, expected {_VERSION}")
        _check_digests(folder, index["sha256"])
        arrays = {name: _mapped(folder / name, dtype) for name, dtype in _DTYPES.items()}
        count, names = index["molecules"], tuple(index["descriptors"])
        for name, of in _STARTS.items():
            # An atom may take several words; the reshaping below checks the rest.
            if len(arrays[name]) != count + 1 or len(arrays[of]) % max(1, int(arrays[name][-1])):
                raise ValueError(f"{name} does not fit {of}")
        num_atoms = int(arrays["atom_starts"][-1])
        featurizer = Featurizer.from_dict(index["featurizer"])
        packed = PackedMolecules(
            featurizer,
            arrays["atom_starts"],
            arrays["bond_starts"],
            arrays["atoms"].reshape(num_atoms, -1),
            arrays["ends"].reshape(int(arrays["bond_starts"][-1]), 2),
            arrays["codes"],
        )
        return MoleculeStore(
            packed,
            arrays["descriptors"].reshape(count, len(names)),
            arrays["count_starts"],
            arrays["count_places"],
            arrays["counts"],
            names,
            index["about"],
            sum(array.nbytes for array in arrays.values()),
        )
    except (OSError, ValueError, KeyError, TypeError, InputError) as error:
        raise InputError(
            f"{folder}: the prepared molecules cannot be read ({error}); remove the folder or "
            "select another one"
        ) from error


def _check_digests(folder: Path, digests: Any) -> None:
    if not isinstance(digests, dict) or digests.keys() != _DTYPES.keys():
        raise ValueError("sha256 does not name the arrays")
    for name, digest in digests.items():
        with open(folder / name, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ValueError(f"{name} is damaged")


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
