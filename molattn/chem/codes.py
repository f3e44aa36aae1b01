"""Codes of a molecule's default features, read fast from RDKit's binary form.

Equal bytes of an atom or bond in that form mean equal features, so the feature functions run once
for each kind of atom or bond and their codes are cached. :meth:`CodeEncoder.plain` calls them for
every atom and bond instead; it is the fallback and the reference in tests.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.atom_features import ATOM_FEATURES, BOND_COLUMNS, BOND_FEATURES, Column, Value
from molattn.chem.distance import blocks, pair_codes, row_starts, split_rows
from molattn.chem.mol_binary import PROBES, Pieces, bond_rows, cut, indices
from molattn.record import MoleculeRecord

__all__ = ["CodeEncoder"]

# Far more kinds of atom than occur; bounds the memory for an endless stream of odd isotopes.
_MAX_CACHED = 50_000
_NO_RING = 255  # larger than any ring, as atom indices take one byte


def _bond_values(bond: Chem.Bond) -> dict[str, Value]:
    return {column.name: BOND_FEATURES[column.name](bond) for column in BOND_COLUMNS}


class CodeEncoder:
    """Encodes molecules; caches the codes of each piece of the binary form.

    Args:
        atom_columns: Features of an atom, a selection of the default ones.
        bond_columns: Features of a bond, all the default ones.
        max_distance: Longest distance with a code of its own.
    """

    def __init__(
        self,
        atom_columns: tuple[Column, ...],
        bond_columns: tuple[Column, ...],
        max_distance: int,
    ) -> None:
        self._atom_columns = atom_columns
        self._max_distance = max_distance
        self._codes = {c.name: c.codes() for c in (*atom_columns, *bond_columns)}
        self._place = {column.name: place for place, column in enumerate(atom_columns)}
        sizes = [column.size for column in bond_columns]
        self._strides = {
            column.name: math.prod(sizes[place + 1 :]) for place, column in enumerate(bond_columns)
        }
        # The kind "none" has no rows among the bonded codes, which follow the unbonded ones.
        self._first_bonded = max_distance + 2 - self._strides[bond_columns[0].name]
        turn = self._code("ring", True) - self._code("ring", False)
        self._ring_step = np.uint8(turn * self._strides["ring"] % 256)
        self._tables = {
            name: np.array([self._code(name, value) for value in range(256)], dtype=np.uint8)
            for name in ("degree", "ring_size")
            if name in self._place
        }
        self._atoms: dict[bytes, bytes] = {}
        self._bonds: dict[bytes, int] = {}
        self._is_fast = self._reads_as_plain()

    def __call__(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces | None]
    ) -> list[MoleculeRecord]:
        """Return the codes of sanitized molecules, computed in blocks that share NumPy calls.

        Args:
            mols: The molecules.
            pieces: What :func:`molattn.chem.mol_binary.cut` returns of each.
        """
        records: list[MoleculeRecord] = []
        for block in blocks([mol.GetNumAtoms() for mol in mols]):
            records += self._block(mols[block], pieces[block])
        return records

    def plain(self, mol: Chem.Mol) -> MoleculeRecord:
        """Return the codes by calling the feature functions on each atom and bond."""
        atoms, bonds, codes = self.bond_graph(mol)
        pairs = pair_codes(np.array([len(atoms)]), bonds, codes, self._max_distance)
        return MoleculeRecord(atoms, pairs)

    def bond_graph(
        self, mol: Chem.Mol
    ) -> tuple[NDArray[np.uint8], NDArray[np.intp], NDArray[np.uint8]]:
        """Return the codes of atoms ``[n, A]``, the bonds ``[2, B]`` and their joint codes."""
        rows = [self._atom_row(atom) for atom in mol.GetAtoms()]
        atoms = np.frombuffer(bytearray().join(rows), dtype=np.uint8)
        ends: list[int] = []
        codes: list[int] = []
        for bond in mol.GetBonds():
            ends += (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
            codes.append(self._bond_code(_bond_values(bond)))
        return (
            atoms.reshape(-1, len(self._atom_columns)),
            np.array(ends, dtype=np.intp).reshape(-1, 2).T,
            np.array(codes, dtype=np.uint8),
        )

    def _block(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces | None]
    ) -> list[MoleculeRecord]:
        if not self._is_fast:
            pieces = [None] * len(mols)
        known = [(mol, piece) for mol, piece in zip(mols, pieces, strict=True) if piece is not None]
        read = iter(self._assemble(*zip(*known, strict=True)) if known else ())
        return [
            self.plain(mol) if piece is None else next(read)
            for mol, piece in zip(mols, pieces, strict=True)
        ]

    def _assemble(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[MoleculeRecord]:
        """Return the codes of molecules from their pieces; a row is an atom of any of them."""
        num_atoms = np.array([len(piece.atoms) for piece in pieces])
        starts = row_starts(num_atoms)
        bonds = bond_rows(pieces)
        rings = [ring for piece in pieces for ring in piece.rings]
        ring_sizes = np.array([len(ring) for ring in rings], dtype=np.intp)
        ring_starts = np.repeat(starts, [len(piece.rings) for piece in pieces])
        ring_atoms = indices(rings) + np.repeat(ring_starts, ring_sizes)

        atoms = self._atom_codes(mols, pieces)
        place = self._place
        if "degree" in self._tables:
            degree = np.bincount(bonds.ravel(), minlength=len(atoms))
            atoms[:, place["degree"]] = self._tables["degree"][degree]
        if "ring_size" in place:
            smallest = np.full(len(atoms), _NO_RING)
            np.minimum.at(smallest, ring_atoms, np.repeat(ring_sizes, ring_sizes))
            atoms[:, place["ring_size"]] = self._tables["ring_size"][smallest % _NO_RING]
        if "chirality" in place:
            labels = atoms[:, place["chirality"]]
            for row in np.flatnonzero(labels != self._code("chirality", "none")).tolist():
                molecule = int(np.searchsorted(starts, row, side="right")) - 1
                atom = mols[molecule].GetAtomWithIdx(row - int(starts[molecule]))
                labels[row] = self._code("chirality", ATOM_FEATURES["chirality"](atom))

        pairs = pair_codes(num_atoms, bonds, self._bond_codes(mols, pieces), self._max_distance)
        # Around each ring, from every atom to the next one and back.
        after = np.arange(1, len(ring_atoms) + 1)
        last = np.cumsum(ring_sizes)
        after[last - 1] = last - ring_sizes
        columns = ring_atoms - np.repeat(ring_starts, ring_sizes)
        rows = np.concatenate((ring_atoms, ring_atoms[after]))
        inside = rows, np.concatenate((columns[after], columns))
        pairs[inside] = pairs[inside] + self._ring_step  # Once, also for a bond of two rings.
        return split_rows(num_atoms, atoms, pairs)

    def _atom_codes(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> NDArray[np.uint8]:
        """Return the codes that follow from an atom's own bytes, ``uint8 [rows, A]``.

        Those of degree, ring size and chirality depend on the rest of the molecule; the caller
        replaces them.
        """
        try:
            rows = [self._atoms[atom] for piece in pieces for atom in piece.atoms]
        except KeyError:
            if len(self._atoms) > _MAX_CACHED:
                self._atoms = {}
            for mol, piece in zip(mols, pieces, strict=True):
                for index, atom in enumerate(piece.atoms):
                    if atom not in self._atoms:
                        self._atoms[atom] = self._atom_row(mol.GetAtomWithIdx(index))
            rows = [self._atoms[atom] for piece in pieces for atom in piece.atoms]
        flat = np.frombuffer(bytearray().join(rows), dtype=np.uint8)
        return flat.reshape(-1, len(self._atom_columns))

    def _bond_codes(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> NDArray[np.uint8]:
        """Return the joint codes of all bonds as if they were outside rings, ``uint8 [bonds]``."""
        try:
            codes = [self._bonds[bond] for piece in pieces for bond in piece.bonds]
        except KeyError:
            for mol, piece in zip(mols, pieces, strict=True):
                for index, bond in enumerate(piece.bonds):
                    if bond not in self._bonds:
                        values = {**_bond_values(mol.GetBondWithIdx(index)), "ring": False}
                        self._bonds[bond] = self._bond_code(values)
            codes = [self._bonds[bond] for piece in pieces for bond in piece.bonds]
        return np.array(codes, dtype=np.uint8)

    def _code(self, name: str, value: Value) -> int:
        codes = self._codes[name]
        return codes.get(value, len(codes))

    def _atom_row(self, atom: Chem.Atom) -> bytes:
        return bytes([self._code(name, ATOM_FEATURES[name](atom)) for name in self._place])

    def _bond_code(self, values: dict[str, Value]) -> int:
        return self._first_bonded + sum(
            self._code(name, values[name]) * stride for name, stride in self._strides.items()
        )

    def _reads_as_plain(self) -> bool:
        """Whether the fast way agrees with the plain one under the installed RDKit."""
        mols = [Chem.MolFromSmiles(smiles) for smiles in PROBES]
        pieces = [piece for mol in mols if (piece := cut(mol)) is not None]
        return len(pieces) == len(mols) and all(
            np.array_equal(fast.atoms, plain.atoms) and np.array_equal(fast.pairs, plain.pairs)
            for fast, plain in zip(self._assemble(mols, pieces), map(self.plain, mols), strict=True)
        )
