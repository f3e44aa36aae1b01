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

__all__ = ["PackedMolecules"]

_WORD_VALUES = 1 << 32


@dataclass(frozen=True, eq=False)
class PackedMolecules:
    """Molecules of one featurizer in contiguous arrays, each molecule a slice of them.

    Args:
        featurizer: The featurizer of the records.
        atom_starts: Offsets, integers ``[M + 1]``; the atoms of molecule ``m`` are those from
            ``atom_starts[m]`` to ``atom_starts[m + 1]``.
        bond_starts: The same for the bonds.
        atoms: The codes of each atom as the digits of one number, or of several where 32 bits are
            not enough, ``uint32 [atoms, words]``.
        ends: Indices of the two atoms of each bond within the molecule, ``[bonds, 2]``, in the
            smallest sufficient unsigned type.
        codes: Joint pair code of each bond, ``uint8 [bonds]``.

    Example:
        >>> from molattn.chem import featurize_smiles
        >>> featurizer = Featurizer.default()
        >>> records = list(featurize_smiles(["CCO", "C#N"], featurizer))
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
        """Pack records.

        Args:
            records: Any number of molecules; of each only atoms and pairs are packed.
            featurizer: Their featurizer.
        """
        atoms, ends, codes, counts = [], [], [], []
        for block in blocks([record.num_atoms for record in records]):
            ours = records[block]
            num_atoms = np.array([record.num_atoms for record in ours], dtype=np.intp)
            atoms.append(_words(np.concatenate([record.atoms for record in ours]), featurizer))
            places, bond_codes, num_bonds = _bonds(ours, num_atoms, featurizer)
            ends.append(places)
            codes.append(bond_codes)
            counts.append(np.stack((num_atoms, num_bonds)))
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

    @classmethod
    def gather(
        cls, parts: "Sequence[tuple[PackedMolecules, NDArray[np.integer[Any]]]]"
    ) -> "PackedMolecules":
        """Copy some molecules of several collections, which have the same featurizer.

        Args:
            parts: At least one collection, each with the indices of its molecules to copy.
        """
        atoms, ends, codes, counts = [], [], [], []
        for packed, select in parts:
            chosen = np.asarray(select, dtype=np.intp)
            first_atom, num_atoms = _extents(packed.atom_starts, chosen)
            first_bond, num_bonds = _extents(packed.bond_starts, chosen)
            bonds = _slices(first_bond, num_bonds)
            atoms.append(packed.atoms[_slices(first_atom, num_atoms)])
            ends.append(packed.ends[bonds])
            codes.append(packed.codes[bonds])
            counts.append(np.stack((num_atoms, num_bonds)))
        starts = np.cumsum(np.concatenate([np.zeros((2, 1), np.intp), *counts], axis=1), axis=1)
        whole = (np.concatenate(one) for one in (atoms, ends, codes))
        return cls(parts[0][0].featurizer, *starts, *whole)

    def unpack(self, select: Sequence[int] | NDArray[np.integer[Any]]) -> list[MoleculeRecord]:
        """Return some of the molecules, as they were before packing.

        Args:
            select: Their indices, in any order; ``range(len(packed))`` for all molecules.

        Raises:
            IndexError: An index out of range.
        """
        chosen = np.asarray(select, dtype=np.intp)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(
                f"expected molecules from 0 to {len(self) - 1}, "
                f"got {chosen.min()} to {chosen.max()}"
            )
        first_atom, num_atoms = _extents(self.atom_starts, chosen)
        first_bond, num_bonds = _extents(self.bond_starts, chosen)
        records: list[MoleculeRecord] = []
        for block in blocks(num_atoms.tolist()):
            atoms = _slices(first_atom[block], num_atoms[block])
            bonds = _slices(first_bond[block], num_bonds[block])
            records += _expand(
                self.featurizer,
                num_atoms[block],
                num_bonds[block],
                self.atoms[atoms],
                self.ends[bonds].astype(np.intp),
                self.codes[bonds],
            )
        return records


def _digits(featurizer: Featurizer) -> list[dict[int, int]]:
    """Return, for each word of an atom, its columns with the weights of their digits."""
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
    """Return the two atoms of each bond ``[bonds, 2]``, the codes, and the bonds per molecule."""
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


def _extents(
    starts: NDArray[np.integer[Any]], chosen: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the starts and the lengths of some molecules."""
    first = starts[chosen].astype(np.intp)
    return first, starts[chosen + 1].astype(np.intp) - first


def _slices(starts: NDArray[np.intp], lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the indices of several slices, one slice after another."""
    return np.arange(lengths.sum()) + np.repeat(starts - row_starts(lengths), lengths)
