"""Counts of atom pairs of many molecules at once, the same as RDKit's in a sixth of the time.

RDKit's type of an atom follows from its bytes in the binary form (:mod:`molattn.chem.mol_binary`)
and its number of bonds, if all bonds are covalent (a dative bond adds nothing to the valence from
which RDKit calculates pi electrons), so that RDKit is asked once for each of these. Distances and
hashes are computed for all pairs of some molecules at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from molattn.chem.distance import blocks, pair_distances, row_starts
from molattn.chem.mol_binary import Pieces, bond_rows

__all__ = ["AtomPairs"]

_MAX_CACHED = 50_000
_FURTHEST = 30  # in bonds; RDKit counts no pairs beyond
_TYPES = 511  # of atoms, RDKit's


class AtomPairs:
    """Hashed atom pairs: the types of two atoms and their distance in bonds.

    Args:
        size: Number of positions.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._types: dict[tuple[bytes, int], int] = {}

    def __call__(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return for each molecule the positions of its pairs, ascending, and their counts.

        Args:
            mols: The molecules.
            pieces: What :func:`molattn.chem.mol_binary.cut` returns of each; all are covalent.
        """
        counts: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for block in blocks([len(piece.atoms) for piece in pieces]):
            counts += self._block(mols[block], pieces[block])
        return counts

    def _block(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        num_atoms = np.array([len(piece.atoms) for piece in pieces])
        bonds = bond_rows(pieces)
        distances = pair_distances(num_atoms, bonds, _FURTHEST + 1)
        starts = np.repeat(row_starts(num_atoms), num_atoms)
        types = self._atom_types(mols, pieces, np.bincount(bonds.ravel(), minlength=len(starts)))
        # Each pair once: columns are the atoms before that of the row.
        width = distances.shape[1]
        earlier = np.arange(width) < (np.arange(len(starts)) - starts)[:, None]
        earlier &= distances <= _FURTHEST
        place = np.flatnonzero(earlier)
        per_row = np.count_nonzero(earlier, axis=1)
        first = np.repeat(types, per_row)
        second = types[place + np.repeat(starts - np.arange(len(starts)) * width, per_row)]
        hashed = _mixed(np.zeros_like(first), np.minimum(first, second))
        hashed = _mixed(hashed, distances.ravel()[place])
        hashed = _mixed(hashed, np.maximum(first, second)) % np.uint32(self._size)
        molecule = np.repeat(np.arange(len(num_atoms)) * self._size, num_atoms)
        counts = np.bincount(
            np.repeat(molecule, per_row) + hashed, minlength=len(num_atoms) * self._size
        )
        found = np.flatnonzero(counts > 0)
        ends = np.searchsorted(found, np.arange(1, len(num_atoms)) * self._size)
        places = np.split(found % self._size, ends)
        return list(zip(places, np.split(counts[found], ends), strict=True))

    def _atom_types(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces], degrees: NDArray[np.intp]
    ) -> NDArray[np.uint32]:
        """Return RDKit's type of each atom of all molecules."""
        atoms = [atom for piece in pieces for atom in piece.atoms]
        keys = list(zip(atoms, degrees.tolist(), strict=True))
        if not self._types.keys() >= set(keys):
            if len(self._types) > _MAX_CACHED:
                self._types = {}
            indices = (index for piece in pieces for index in range(len(piece.atoms)))
            owners = (mol for mol, piece in zip(mols, pieces, strict=True) for _ in piece.atoms)
            for key, mol, index in zip(keys, owners, indices, strict=True):
                if key not in self._types:
                    atom = mol.GetAtomWithIdx(index)
                    self._types[key] = rdMolDescriptors.GetAtomPairAtomCode(atom) % _TYPES
        return np.array([self._types[key] for key in keys], dtype=np.uint32)


def _mixed(seed: NDArray[np.uint32], value: NDArray[np.unsignedinteger]) -> NDArray[np.uint32]:
    """Combine hashes as boost's ``hash_combine``, in 32 bits."""
    mixed = seed << np.uint32(6)
    mixed += seed >> np.uint32(2)
    mixed += value
    mixed += np.uint32(0x9E3779B9)
    mixed ^= seed
    return mixed
