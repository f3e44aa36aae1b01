"""Lossless storage of molecular graphs, about 213 bytes for a molecule of 27 atoms.

All molecules share five arrays, which may be memory-mapped files, so that ten million molecules are
no more than five arrays. Of the pairs only the bonds are stored; distances are recomputed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from molattn.chem.distance import blocks, pair_codes, row_starts, split_rows
from molattn.chem.featurizer import Featurizer
from molattn.record import MoleculeRecord

_WORD_VALUES = 1 << 32


@dataclass(frozen=True, eq=False)
class PackedMolecules:
    """Molecules of one featurizer in contiguous arrays, each molecule a slice of them.

    Args:
        featurizer: The featurizer of the records.
        atom_starts: Offsets of the molecules' atoms, ``[M + 1]``.
        bond_starts: The same for the bonds.
        atoms: The codes of each atom as the digits of one number, or of several where 32 bits are
            not enough, ``uint32 [atoms, words]``.
        ends: Indices of the two atoms of each bond within the molecule, ``[bonds, 2]``, in the
            smallest sufficient unsigned type.
        codes: Joint pair code of each bond, ``uint8 [bonds]``.

    Example:
        >>> from molattn.chem.reader import MoleculeReader
        >>> featurizer = Featurizer.default()
        >>> records = list(MoleculeReader(featurizer)(["CCO", "C#N"]))
        >>> packed = PackedMolecules.pack(records, featurizer)
        >>> [record.num_atoms for record in packed.unpack([1, 0])]
        [2, 3]
    """

    featurizer: Featurizer
    atom_starts: NDArray[np.integer[Any]]
    bond_starts: NDArray[np.integer[Any]]
    atoms: NDArray[np.uint32]
    ends: NDArray[np.unsignedinteger[Any]]
    codes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.atom_starts) - 1

    @classmethod
    def pack(cls, records: Sequence[MoleculeRecord], featurizer: Featurizer) -> "PackedMolecules":
        """Pack the atoms and pairs of records of a featurizer."""
        num_atoms = np.array([record.num_atoms for record in records], dtype=np.intp)
        no_atoms = np.zeros((0, len(featurizer.atom_sizes)), dtype=np.uint8)
        # The pairs of all molecules at once: one at a time takes a tenth of the time of reading.
        pairs = [np.zeros(0, np.uint8), *(record.pairs.reshape(-1) for record in records)]
        codes = np.concatenate(pairs)
        is_bond = np.flatnonzero(codes >= featurizer.first_bond_code)
        molecule = np.repeat(np.arange(len(records)), num_atoms**2)[is_bond]
        first, second = np.divmod(is_bond - row_starts(num_atoms**2)[molecule], num_atoms[molecule])
        once = first < second
        num_bonds = np.bincount(molecule[once], minlength=len(records))
        ends = np.stack((first[once], second[once]), axis=1)
        return cls(
            featurizer,
            np.concatenate([[0], np.cumsum(num_atoms)]),
            np.concatenate([[0], np.cumsum(num_bonds)]),
            _words(np.concatenate([no_atoms, *(record.atoms for record in records)]), featurizer),
            ends.astype(np.min_scalar_type(max(num_atoms, default=1) - 1)),
            codes[is_bond[once]],
        )

    @classmethod
    def gather(
        cls, parts: "Sequence[tuple[PackedMolecules, NDArray[np.integer[Any]]]]"
    ) -> "PackedMolecules":
        """Copy molecules, by their indices, of collections with the same featurizer."""
        taken = [
            PackedMolecules._take(packed, np.asarray(select, dtype=np.intp))
            for packed, select in parts
        ]
        offsets = zip(*((copy.atom_starts, copy.bond_starts) for copy in taken), strict=True)
        atom_starts, bond_starts = (
            np.cumsum(np.concatenate([[0], *map(np.diff, starts)])) for starts in offsets
        )
        arrays = zip(*((copy.atoms, copy.ends, copy.codes) for copy in taken), strict=True)
        return cls(taken[0].featurizer, atom_starts, bond_starts, *map(np.concatenate, arrays))

    def unpack(self, select: Sequence[int] | NDArray[np.integer[Any]]) -> list[MoleculeRecord]:
        """Return molecules by their indices, as they were before packing."""
        indices = np.asarray(select, dtype=np.intp)
        records: list[MoleculeRecord] = []
        sizes = self.atom_starts[indices + 1] - self.atom_starts[indices]
        for block in blocks(sizes.tolist()):
            taken = self._take(indices[block])
            num_atoms = np.diff(taken.atom_starts)
            num_bonds = np.diff(taken.bond_starts)
            bonds = taken.ends + np.repeat(row_starts(num_atoms), num_bonds)[:, None]
            longest = self.featurizer.max_distance
            pairs = pair_codes(num_atoms, bonds.T, taken.codes, longest)
            records += split_rows(num_atoms, _codes(taken.atoms, self.featurizer), pairs)
        return records

    def _take(self, indices: NDArray[np.intp]) -> "PackedMolecules":
        """Return a copy of some molecules."""
        atom_starts, atoms = _slices(self.atom_starts, indices)
        bond_starts, bonds = _slices(self.bond_starts, indices)
        arrays = self.atoms[atoms], self.ends[bonds], self.codes[bonds]
        return PackedMolecules(self.featurizer, atom_starts, bond_starts, *arrays)


def _digits(featurizer: Featurizer) -> list[tuple[int, int]]:
    """Return, for each column of an atom, its word and the weight of its digit there."""
    digits: list[tuple[int, int]] = []
    word = -1
    weight = _WORD_VALUES
    for size in featurizer.atom_sizes:
        if weight * size > _WORD_VALUES:
            word += 1
            weight = 1
        digits.append((word, weight))
        weight *= size
    return digits


def _words(atoms: NDArray[np.uint8], featurizer: Featurizer) -> NDArray[np.uint32]:
    digits = _digits(featurizer)
    words = np.zeros((len(atoms), digits[-1][0] + 1), dtype=np.uint32)
    for column, (word, weight) in enumerate(digits):
        words[:, word] += atoms[:, column] * np.uint32(weight)
    return words


def _codes(words: NDArray[np.uint32], featurizer: Featurizer) -> NDArray[np.uint8]:
    sizes = featurizer.atom_sizes
    atoms = np.empty((len(words), len(sizes)), dtype=np.uint8)
    for column, (word, weight) in enumerate(_digits(featurizer)):
        atoms[:, column] = words[:, word] // np.uint32(weight) % np.uint32(sizes[column])
    return atoms


def _slices(
    starts: NDArray[np.integer[Any]], indices: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return new starts of some molecules, and the indices of their rows, one after another."""
    first = starts[indices].astype(np.intp)
    lengths = starts[indices + 1].astype(np.intp) - first
    new = np.cumsum(np.concatenate([[0], lengths]))
    return new, np.arange(new[-1]) + np.repeat(first - new[:-1], lengths)
