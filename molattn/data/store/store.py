"""The rows and molecules of a store, memory-mapped."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from molattn.chem.featurizer import Featurizer
from molattn.chem.fingerprints import split_fingerprints
from molattn.chem.packing import PackedMolecules
from molattn.chem.prepared import PreparedSmiles
from molattn.data.store.index import StoreIndex
from molattn.data.store.shards import Arrays, map_arrays, ragged_rows, read_texts
from molattn.data.table.base import Row
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["FAULTY", "INVALID", "READ", "Shard", "open_shard", "store_featurizer"]

READ, INVALID, FAULTY = range(3)
"""Status of a row: with a molecule, with an invalid SMILES, or not readable as intended."""

_ROWS_AT_ONCE = 256


class Shard:
    """A range of rows of a store.

    Args:
        arrays: ``status``, ``lines`` and ``cell`` of each row; of each row without a molecule two
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
        return len(self.arrays["status"])

    @property
    def width(self) -> int:
        """Number of cells of a row."""
        return (len(self.arrays["cell_starts"]) - 1) // len(self)

    def rows(self) -> Iterator[Row]:
        """Yield the rows; a SMILES is a :class:`molattn.chem.prepared.PreparedSmiles`.

        An invalid one is a text as in a table: it is read again, perhaps with other limits.
        """
        width, molecule = self.width, 0
        for first in range(0, len(self), _ROWS_AT_ONCE):
            status = self.arrays["status"][first : first + _ROWS_AT_ONCE].tolist()
            last, count = first + len(status), status.count(READ)
            lines = self.arrays["lines"][first:last].tolist()
            cells = read_texts(self.arrays, "cell", width * first, width * last)
            reasons = iter(self.reasons(first - molecule, last - molecule - count))
            molecules = self._prepared(molecule, molecule + count)
            molecule += count
            for place, (state, line) in enumerate(zip(status, lines, strict=True)):
                own = cells[width * place : width * (place + 1)]
                fault: tuple[Any, str | None] = ("", None)
                if state == READ:
                    graph, fingerprint, canonical = next(molecules)
                    record = MoleculeRecord(
                        graph.atoms,
                        graph.pairs,
                        fingerprint=fingerprint,
                        smiles=canonical or own[0],
                    )
                    own[0] = PreparedSmiles(own[0], record, self._featurizer)
                elif (reason := next(reasons)) and state == FAULTY:
                    fault = reason
                yield Row(line, own, fault[1], fault[0])

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


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn the errors of damaged arrays within the block into one that names the file."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: the prepared molecules cannot be read ({error}); prepare them again"
        ) from error


def open_shard(folder: Path, index: StoreIndex, number: int, featurizer: Featurizer) -> Shard:
    """Open a shard of a store.

    Raises:
        InputError: It is damaged.
    """
    about = index.shards[number]
    path = folder / about["name"]
    with damage_named(path):
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != about["sha256"]:
                raise ValueError("its content has changed")
        return Shard(map_arrays(path), featurizer)
