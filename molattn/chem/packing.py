"""Molecules for storage: about 200 bytes for one of 27 atoms, and exactly the same afterwards.

All molecules of a table share five arrays, so ten million of them are five arrays too, which can
stay in a file mapped into memory. Of the pairs only the bonds are kept; the distances are made
again.
"""

import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.distance import blocks, pair_codes, row_starts, split_rows
from molattn.chem.featurizer import Featurizer
from molattn.errors import InputError
from molattn.record import MoleculeRecord

__all__ = ["PackedMolecules"]

_MAGIC = b"molattn\n"
_VERSION = 1
# Magic, version, words an atom, bytes of an atom's index, featurizer; molecules, atoms, bonds.
_HEADER = struct.Struct("<8sHBBIQQQ")
_CHECKSUM = struct.Struct("<Q")
_BODY = _HEADER.size + _CHECKSUM.size
_WORD_VALUES = 1 << 32


@dataclass(frozen=True, eq=False)
class PackedMolecules:
    """Molecules of one featurizer in contiguous arrays; molecule ``m`` is a run of each.

    Args:
        featurizer: What made the records.
        atom_starts: ``int64 [M + 1]``; the atoms of ``m`` are ``atom_starts[m : m + 2]``.
        bond_starts: The same for the bonds.
        atoms: The codes of each atom as digits of one number (of more where 32 bits do not hold
            them), ``uint32 [atoms, words]``.
        ends: The two atoms of each bond, counted in their molecule, ``[bonds, 2]``; the smallest
            unsigned type that holds them.
        codes: Joint pair code of each bond, ``uint8 [bonds]``.

    Example:
        >>> from molattn.chem import featurize_smiles
        >>> featurizer = Featurizer.default()
        >>> records = list(featurize_smiles(["CCO", "C#N"], featurizer))
        >>> data = PackedMolecules.pack(records, featurizer).to_bytes()
        >>> packed = PackedMolecules.from_bytes(data, featurizer)
        >>> [record.num_atoms for record in packed.unpack([1, 0])]
        [2, 3]
    """

    featurizer: Featurizer
    atom_starts: NDArray[np.int64]
    bond_starts: NDArray[np.int64]
    atoms: NDArray[np.uint32]
    ends: NDArray[np.unsignedinteger[Any]]
    codes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.atom_starts) - 1

    @classmethod
    def pack(cls, records: Sequence[MoleculeRecord], featurizer: Featurizer) -> "PackedMolecules":
        """Pack records.

        Args:
            records: Any number of molecules.
            featurizer: What made them.

        Raises:
            InputError: A record is not one of this featurizer's: it would not come back the same.
        """
        atoms, ends, codes, counts = [], [], [], []
        for block in blocks([record.num_atoms for record in records]):
            ours = records[block]
            for index, record in enumerate(ours, block.start):
                _check_shapes(record, featurizer, index)
            num_atoms = np.array([record.num_atoms for record in ours], dtype=np.intp)
            atoms.append(_words(np.concatenate([record.atoms for record in ours]), featurizer))
            places, bond_codes, num_bonds = _bonds(ours, num_atoms, featurizer)
            ends.append(places)
            codes.append(bond_codes)
            counts.append(np.stack((num_atoms, num_bonds)))
            again = _expand(featurizer, num_atoms, num_bonds, atoms[-1], places, bond_codes)
            for index, (record, copy) in enumerate(zip(ours, again, strict=True), block.start):
                if not _equal(record, copy):
                    raise InputError(
                        f"record {index}: expected codes of the featurizer given, got others; "
                        "they would not come back the same"
                    )
        count = np.concatenate([np.zeros((2, 1), dtype=np.int64), *counts], axis=1)
        atom_starts, bond_starts = np.cumsum(count, axis=1)
        last = max(int(count[0].max()) - 1, 0)
        no_atoms = np.zeros((0, len(_digits(featurizer))), dtype=np.uint32)
        return cls(
            featurizer,
            atom_starts,
            bond_starts,
            np.concatenate([no_atoms, *atoms]),
            np.concatenate([np.zeros((0, 2), np.intp), *ends]).astype(np.min_scalar_type(last)),
            np.concatenate([np.zeros(0, np.uint8), *codes]),
        )

    def unpack(self, select: Sequence[int] | NDArray[np.integer[Any]]) -> list[MoleculeRecord]:
        """Return molecules as they were before packing.

        Args:
            select: Which, counted from 0; ``range(len(packed))`` for all of them.

        Raises:
            IndexError: There is no such molecule.
        """
        chosen = np.asarray(select, dtype=np.intp)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(
                f"expected molecules from 0 to {len(self) - 1}, "
                f"got {chosen.min()} to {chosen.max()}"
            )
        first_atom, first_bond = self.atom_starts[chosen], self.bond_starts[chosen]
        num_atoms = self.atom_starts[chosen + 1] - first_atom
        num_bonds = self.bond_starts[chosen + 1] - first_bond
        records: list[MoleculeRecord] = []
        for block in blocks(num_atoms.tolist()):
            atoms = _runs(first_atom[block], num_atoms[block])
            bonds = _runs(first_bond[block], num_bonds[block])
            records += _expand(
                self.featurizer,
                num_atoms[block],
                num_bonds[block],
                self.atoms[atoms],
                self.ends[bonds].astype(np.intp),
                self.codes[bonds],
            )
        return records

    def to_bytes(self) -> bytes:
        """Return everything but the featurizer as bytes, with a version and a checksum."""
        header = _HEADER.pack(
            _MAGIC,
            _VERSION,
            self.atoms.shape[1],
            self.ends.itemsize,
            _fingerprint(self.featurizer),
            len(self),
            len(self.atoms),
            len(self.codes),
        )
        kinds = _kinds(self.atoms.shape[1], self.ends.itemsize)
        arrays = (self.atom_starts, self.bond_starts, self.atoms, self.ends, self.codes)
        body = b"".join(
            array.astype(kind, copy=False).tobytes()
            for array, kind in zip(arrays, kinds, strict=True)
        )
        return header + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(header))) + body

    @classmethod
    def from_bytes(
        cls, data: "bytes | bytearray | memoryview", featurizer: Featurizer
    ) -> "PackedMolecules":
        """Read what :meth:`to_bytes` wrote; the arrays are views of ``data``.

        Args:
            data: The bytes, or any buffer of them, such as a file mapped into memory.
            featurizer: What made the molecules.

        Raises:
            InputError: The bytes are damaged, of another version, or of another featurizer.
        """
        view = memoryview(data).cast("B")
        if len(view) < _BODY:
            raise InputError(f"packed molecules: expected at least {_BODY} bytes, got {len(view)}")
        magic, version, words, index_size, fingerprint, *sizes = _HEADER.unpack_from(view)
        if magic != _MAGIC:
            raise InputError(f"packed molecules: expected to start with {_MAGIC}, got {magic}")
        if version != _VERSION:
            raise InputError(
                f"packed molecules: expected version {_VERSION}, got {version}; "
                "another release of molattn wrote them"
            )
        molecules, atoms, bonds = sizes
        shapes = [(molecules + 1,), (molecules + 1,), (atoms, words), (bonds, 2), (bonds,)]
        lengths = [math.prod(shape) for shape in shapes]
        widths = (8, 8, 4, index_size, 1)
        expected = _BODY + sum(n * w for n, w in zip(lengths, widths, strict=True))
        if len(view) != expected:
            raise InputError(f"packed molecules: expected {expected} bytes, got {len(view)}")
        (checksum,) = _CHECKSUM.unpack_from(view, _HEADER.size)
        if zlib.crc32(view[_BODY:], zlib.crc32(view[: _HEADER.size])) != checksum:
            raise InputError("packed molecules: the bytes are damaged, their checksum is another")
        if fingerprint != _fingerprint(featurizer):
            raise InputError(
                "packed molecules: expected those of the featurizer given, got another's"
            )
        arrays = []
        place = _BODY
        for shape, length, kind in zip(shapes, lengths, _kinds(words, index_size), strict=True):
            arrays.append(np.frombuffer(view, kind, length, place).reshape(shape))
            place += arrays[-1].nbytes
        return cls(featurizer, *arrays)


def _kinds(words: int, index_size: int) -> tuple[str, ...]:
    """Return the types of the arrays in bytes: little-endian, wide ones first, so all aligned."""
    return "<i8", "<i8", "<u4", f"<u{index_size}", "u1"


def _fingerprint(featurizer: Featurizer) -> int:
    return zlib.crc32(json.dumps(featurizer.to_dict(), sort_keys=True).encode())


def _digits(featurizer: Featurizer) -> list[dict[int, int]]:
    """Return for each word of an atom the columns it holds, each with the weight of its digit."""
    words: list[dict[int, int]] = []
    weight = _WORD_VALUES
    for column, size in enumerate(featurizer.atom_sizes):
        if weight * size > _WORD_VALUES:
            words.append({})
            weight = 1
        words[-1][column] = weight
        weight *= size
    return words


def _words(atoms: NDArray[np.uint8], featurizer: Featurizer) -> NDArray[np.uint32]:
    digits = _digits(featurizer)
    words = np.zeros((len(atoms), len(digits)), dtype=np.uint32)
    for word, columns in enumerate(digits):
        for column, weight in columns.items():
            words[:, word] += atoms[:, column] * np.uint32(weight)
    return words


def _codes(words: NDArray[np.uint32], featurizer: Featurizer) -> NDArray[np.uint8]:
    sizes = featurizer.atom_sizes
    atoms = np.empty((len(words), len(sizes)), dtype=np.uint8)
    for word, columns in enumerate(_digits(featurizer)):
        for column, weight in columns.items():
            atoms[:, column] = words[:, word] // np.uint32(weight) % np.uint32(sizes[column])
    return atoms


def _bonds(
    records: Sequence[MoleculeRecord], num_atoms: NDArray[np.intp], featurizer: Featurizer
) -> tuple[NDArray[np.intp], NDArray[np.uint8], NDArray[np.intp]]:
    """Return the bonds' two atoms ``[bonds, 2]``, their codes, and each molecule's number."""
    cells = np.concatenate([record.pairs.reshape(-1) for record in records])
    place = np.flatnonzero(cells >= featurizer.first_bond_code)
    molecule = np.repeat(np.arange(len(records)), num_atoms**2)[place]
    first, second = np.divmod(place - row_starts(num_atoms**2)[molecule], num_atoms[molecule])
    once = first < second
    ends = np.stack((first[once], second[once]), axis=1)
    return ends, cells[place[once]], np.bincount(molecule[once], minlength=len(records))


def _expand(
    featurizer: Featurizer,
    num_atoms: NDArray[np.intp],
    num_bonds: NDArray[np.intp],
    words: NDArray[np.uint32],
    ends: NDArray[np.intp],
    codes: NDArray[np.uint8],
) -> list[MoleculeRecord]:
    bonds = (ends + np.repeat(row_starts(num_atoms), num_bonds)[:, None]).T
    atoms = _codes(words, featurizer)
    pairs = pair_codes(num_atoms, bonds, codes, featurizer.max_distance)
    return split_rows(num_atoms, atoms, pairs)


def _runs(starts: NDArray[np.intp], lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the indices of several runs, one run after another."""
    return np.arange(lengths.sum()) + np.repeat(starts - row_starts(lengths), lengths)


def _check_shapes(record: MoleculeRecord, featurizer: Featurizer, index: int) -> None:
    if record.numbers is not None or record.partner is not None:
        raise InputError(f"record {index}: expected atoms and pairs alone, got more with them")
    got = record.atoms.shape, record.pairs.shape
    expected = (record.num_atoms, len(featurizer.atom_names)), (record.num_atoms,) * 2
    if got != expected:
        raise InputError(
            f"record {index}: expected atoms and pairs of shapes {expected}, got {got}"
        )


def _equal(one: MoleculeRecord, other: MoleculeRecord) -> bool:
    return np.array_equal(one.atoms, other.atoms) and np.array_equal(one.pairs, other.pairs)
