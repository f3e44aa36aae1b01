"""The rows and molecules of a store: arrays of variable length in memory-mapped files.

A shard is a safetensors file of the arrays of a range of rows. What has no fixed number of values
for each row or molecule is in two arrays: ``NAME``, the values of all, and ``NAME_starts``, where
each begins and the last one ends.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import split_fingerprints
from molattn.chem.packing import PackedMolecules
from molattn.chem.prepared import PreparedMolecule
from molattn.data.store.table import StoreIndex
from molattn.data.table.base import Row
from molattn.errors import InputError
from molattn.record import MoleculeRecord
from molattn.utils.files import write_file

__all__ = [
    "Arrays",
    "Shard",
    "file_digest",
    "join_arrays",
    "map_arrays",
    "open_shard",
    "ragged_rows",
    "read_texts",
    "store_featurizer",
    "text_arrays",
    "write_arrays",
]

Arrays = Mapping[str, NDArray[Any]]

_DTYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "F16": "<f2", "F32": "<f4"}
_ENCODING_ERRORS = "surrogateescape"  # as tables are read


def text_arrays(name: str, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return texts as arrays to join: their UTF-8 bytes, and the number of bytes of each."""
    content = [text.encode(errors=_ENCODING_ERRORS) for text in texts]
    lengths = np.fromiter(map(len, content), np.int64, len(content))
    return {name: np.frombuffer(b"".join(content), np.uint8), f"{name}_lengths": lengths}


def join_arrays(parts: Sequence[Arrays]) -> dict[str, NDArray[Any]]:
    """Return arrays one after another; lengths become starts."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name in [name for name in joined if name.endswith("_lengths")]:
        ends = np.cumsum(joined.pop(name))
        total = int(ends[-1]) if len(ends) else 0
        starts = np.zeros(len(ends) + 1, dtype="<u4" if total < 2**32 else "<u8")
        starts[1:] = ends
        joined[name.replace("_lengths", "_starts")] = starts
    return joined


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: Names the file, also if the disk is full.
    """
    from safetensors.numpy import save

    write_file(path, save({name: np.ascontiguousarray(one) for name, one in arrays.items()}))


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a file into memory; what is not used is not read."""
    whole = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    start = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    header = json.loads(whole[8:start].tobytes())
    arrays = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        values = whole[start + begin : start + end].view(_DTYPES[about["dtype"]])
        arrays[name] = values.reshape(about["shape"])
    return arrays


def read_texts(arrays: Arrays, name: str, first: int, last: int) -> list[str]:
    """Return some of the texts, by their numbers from ``first`` to before ``last``."""
    starts = arrays[f"{name}_starts"][first : last + 1].astype(np.int64)
    content = arrays[name][starts[0] : starts[-1]].tobytes()
    ends = (starts - starts[0]).tolist()
    return [content[a:b].decode(errors=_ENCODING_ERRORS) for a, b in pairwise(ends)]


def ragged_rows(
    arrays: Arrays, name: str, first: int, last: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the values of some rows, one after another, and the number of values of each."""
    starts = arrays[f"{name}_starts"][first : last + 1].astype(np.int64)
    return arrays[name][starts[0] : starts[-1]], np.diff(starts)


_ROWS_AT_ONCE = 256


class Shard:
    """A range of rows of a store.

    Args:
        arrays: ``is_read``, ``lines`` and ``cell`` of each row; of each row without a molecule two
            texts ``reason``, the code and the reason; of each molecule what
            :class:`molattn.chem.PackedMolecules` has, ``print`` (see
            :func:`molattn.chem.fingerprints.morgan_fingerprint`) and ``canonical``, its
            canonical SMILES if it is not the cell; with targets of pretraining ``key``,
            ``descriptors``, ``place`` and ``count``, and ``columns`` if there are further ones.
        featurizer: The featurizer of the molecules.

    Attributes:
        molecules: The graphs of the molecules.
    """

    def __init__(self, arrays: Arrays, featurizer: Featurizer) -> None:
        self.arrays = arrays
        self._featurizer = featurizer
        names = ("atom_starts", "bond_starts", "atoms", "ends", "codes")
        self.molecules = PackedMolecules(featurizer, *(arrays[name] for name in names))

    def __len__(self) -> int:
        return len(self.arrays["is_read"])

    @property
    def width(self) -> int:
        """Number of cells of a row."""
        return (len(self.arrays["cell_starts"]) - 1) // len(self)

    def rows(self) -> Iterator[Row]:
        """Yield the rows; a SMILES is a :class:`molattn.chem.prepared.PreparedMolecule`."""
        width, molecule = self.width, 0
        for first in range(0, len(self), _ROWS_AT_ONCE):
            is_read = self.arrays["is_read"][first : first + _ROWS_AT_ONCE].tolist()
            last, count = first + len(is_read), sum(is_read)
            lines = self.arrays["lines"][first:last].tolist()
            cells = read_texts(self.arrays, "cell", width * first, width * last)
            reasons = iter(self.reasons(first - molecule, last - molecule - count))
            molecules = self._prepared(molecule, molecule + count)
            molecule += count
            for number, line in enumerate(lines):
                own = cells[width * number : width * (number + 1)]
                if not is_read[number]:
                    code, reason = next(reasons)
                    yield Row(line, own, code, reason)
                    continue
                graph, fingerprint, smiles = next(molecules)
                record = MoleculeRecord(
                    graph.atoms, graph.pairs, fingerprint=fingerprint, smiles=smiles or own[0]
                )
                prepared = PreparedMolecule(own[0], record, self._featurizer)
                yield Row(line, own, molecule=prepared)

    def reasons(self, first: int, last: int) -> list[tuple[Any, str]]:
        """Return code and reason of rows without a molecule, by their numbers among these."""
        texts = read_texts(self.arrays, "reason", 2 * first, 2 * last)
        return list(zip(texts[::2], texts[1::2], strict=True))

    def _prepared(self, first: int, last: int) -> Iterator[tuple[MoleculeRecord, Any, str]]:
        prints = split_fingerprints(*ragged_rows(self.arrays, "print", first, last))
        canonical = read_texts(self.arrays, "canonical", first, last)
        return zip(self.molecules.unpack(range(first, last)), prints, canonical, strict=True)


def store_featurizer(folder: Path, index: StoreIndex) -> Featurizer:
    """Return the featurizer of a store.

    Raises:
        InputError: It is of another release, or has a feature that is not registered.
    """
    try:
        return Featurizer.from_dict(index.featurizer)
    except InputError as error:
        raise InputError(f"{folder}: the molecules cannot be used: {error}") from error


def open_shard(folder: Path, index: StoreIndex, number: int, featurizer: Featurizer) -> Shard:
    """Open a shard of a store.

    Raises:
        InputError: It is missing or damaged.
    """
    about = index.shards[number]
    path = folder / about["name"]
    try:
        digest = file_digest(path)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}; prepare the molecules again"
        ) from error
    if digest != about["sha256"]:
        raise InputError(f"{path}: damaged; prepare the molecules again")
    return Shard(map_arrays(path), featurizer)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
