"""Codes and atom pairs of many molecules at once, read from RDKit's binary form.

Calling RDKit's getters for each atom takes longer than parsing the SMILES. The binary form stores
every atom and bond as a few bytes that hold all its own properties, so that equal bytes mean equal
features, and the getters are called only once for each byte string. The layout is that of RDKit's
MolPickler, version 16.4. For a molecule or an RDKit with anything else, :func:`cut` returns None,
and the caller reads it atom by atom.
"""

import logging
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdFingerprintGenerator, rdMolDescriptors

from molattn.chem.atom_features import (
    ATOM_COLUMNS,
    ATOM_FEATURES,
    BOND_COLUMNS,
    BOND_FEATURES,
    Column,
    atom_row,
    bond_code,
    graph_codes,
)
from molattn.chem.distance import blocks, pair_codes, pair_distances, row_starts, split_rows
from molattn.record import MoleculeRecord

__all__ = ["AtomPairs", "Codes", "Pieces", "cut"]

# Molecules with everything that is read here, to compare with the installed RDKit.
_PROBES = (
    "C[C@H](O)c1ccc2[nH]ccc2c1.[Na+]",
    "F/C=C/C(=O)[O-]",
    "[13CH3][CH]C#N",
    "N->[Cu+2]<-N",
    "C1CC12CC2.[2H]O",
    "C",
)

# Version 16.3 (RDKit 2026.3) has the same layout for the molecules that are read here.
_HEADS = tuple(
    bytes.fromhex(f"efbeadde0000000010000000{minor:02x}00000000000000") for minor in (3, 4)
)
_ATOMS, _BONDS, _RINGS = 0x01, 0x0B, 0x42
_ATOMS_AT = 29
_MAX_ATOMS = 254  # in larger molecules, atom indices take more than one byte
_STEREO = 0x02
_TYPE = 0x08  # of bonds that are not single
_ORDERED = frozenset(
    int(kind)
    for kind in (
        Chem.BondType.SINGLE,
        Chem.BondType.DOUBLE,
        Chem.BondType.TRIPLE,
        Chem.BondType.QUADRUPLE,
        Chem.BondType.AROMATIC,
    )
)
# The length of an atom's bytes by its bytes 1 to 3: flags (aromatic, no implicit hydrogens; others
# have a payload and are not supported), and a word of properties. Each set bit of the word's low
# byte is a property of one byte (bit 0 is unused); bit 8 is an isotope of four bytes.
_ATOM_LENGTHS = {
    bytes((flags, low, high)): 6 + low.bit_count() + 4 * high
    for flags in (0x00, 0x20, 0x40, 0x60)
    for low in range(0, 256, 2)
    for high in (0, 1)
}
# The length of a bond's bytes by its flags: conjugated, aromatic; type, direction, stereo, which
# add a byte each.
_BOND_LENGTHS = {
    flags | fields: 1 + fields.bit_count()
    for flags in (0x00, 0x20, 0x40, 0x60)
    for fields in range(0, 16, 2)
}
_MAX_CACHED = 50_000  # far more kinds of atom than occur; bounds the memory for odd isotopes
_NO_RING = 255  # larger than any ring, as atom indices take one byte
_FURTHEST = 30  # in bonds; RDKit counts no atom pairs beyond
_TYPES = 511  # of atoms in atom pairs, RDKit's


class Pieces(NamedTuple):
    """The pieces of a molecule's binary form.

    Args:
        atoms: Bytes with all properties of each atom.
        bonds: Bytes with all properties of each bond other than its atoms and rings.
        ends: Indices of the two atoms of each bond, one byte each.
        rings: Indices of the atoms of each ring, in order around it.
    """

    atoms: list[bytes]
    bonds: list[bytes]
    ends: bytes
    rings: list[bytes]

    @property
    def is_covalent(self) -> bool:
        """Whether each bond is single to quadruple or aromatic, none dative or of order zero."""
        return all(not bond[0] & _TYPE or bond[1] in _ORDERED for bond in set(self.bonds))


def cut(mol: Chem.Mol) -> Pieces | None:
    """Return the pieces of a molecule's binary form; None if it or this RDKit is not supported."""
    return _pieces(mol) if _is_known() else None


@cache
def _is_known() -> bool:
    """Whether what is read of the binary form is what the installed RDKit calculates."""
    mols = [Chem.MolFromSmiles(smiles) for smiles in _PROBES]
    pieces = [piece for mol in mols if (piece := _pieces(mol)) is not None]
    if len(pieces) == len(mols):
        generator = rdFingerprintGenerator.GetAtomPairGenerator(fpSize=1024)
        records = Codes(ATOM_COLUMNS, BOND_COLUMNS, 10)(mols, pieces)
        counted = AtomPairs(1024)(mols, pieces)
        if all(
            _is_plain(mol, record)
            and dict(zip(*map(np.ndarray.tolist, found), strict=True))
            == generator.GetCountFingerprint(mol).GetNonzeroElements()
            for mol, record, found in zip(mols, records, counted, strict=True)
        ):
            return True
    logging.getLogger(__name__).warning(
        "RDKit %s stores molecules in an unknown form: they are read several times slower",
        rdBase.rdkitVersion,
    )
    return False


def _is_plain(mol: Chem.Mol, record: MoleculeRecord) -> bool:
    atoms, bonds, codes = graph_codes(mol, ATOM_COLUMNS, BOND_COLUMNS, 12)
    pairs = pair_codes(np.array([len(atoms)]), bonds, codes, 10)
    return np.array_equal(record.atoms, atoms) and np.array_equal(record.pairs, pairs)


def _pieces(mol: Chem.Mol) -> Pieces | None:
    num_atoms = mol.GetNumAtoms()
    if num_atoms > _MAX_ATOMS:
        return None
    data = mol.ToBinary(0)
    if not data.startswith(_HEADS) or data[_ATOMS_AT] != _ATOMS:
        return None
    try:
        return _cut(data, num_atoms, mol.GetNumBonds())
    except (IndexError, KeyError):
        return None


def _cut(data: bytes, num_atoms: int, num_bonds: int) -> Pieces | None:
    lengths = _ATOM_LENGTHS
    at = _ATOMS_AT + 1
    atoms = []
    for _ in range(num_atoms):
        after = at + lengths[data[at + 1 : at + 4]]
        atoms.append(data[at:after])
        at = after
    if data[at] != _BONDS:
        return None
    at += 1
    bonds = []
    ends = []
    for _ in range(num_bonds):
        start = at + 2
        flags = data[start]
        ends.append(data[at:start])
        at = start + _BOND_LENGTHS[flags]
        bonds.append(data[start:at])
        if flags & _STEREO:
            at += 1 + data[at]  # skip the atoms that the stereo refers to
    if data[at] != _RINGS:
        return None
    num_rings = int.from_bytes(data[at + 1 : at + 5], "little")
    at += 5
    rings = []
    for _ in range(num_rings):
        after = at + 1 + data[at]
        rings.append(data[at + 1 : after])
        at = after
    return Pieces(atoms, bonds, b"".join(ends), rings)


class Codes:
    """Encodes molecules; caches the codes of each piece of the binary form.

    Args:
        atom_columns: Features of an atom; those that are not default ones are called for each atom.
        bond_columns: Features of a bond, first all the default ones.
        max_distance: Longest distance with a code of its own.
    """

    def __init__(
        self, atom_columns: Sequence[Column], bond_columns: Sequence[Column], max_distance: int
    ) -> None:
        self._columns = {column.name: column for column in atom_columns}
        self._index = {name: index for index, name in enumerate(self._columns)}
        self._bond_columns = bond_columns[: len(BOND_COLUMNS)]
        self._own_bonds = bond_columns[len(BOND_COLUMNS) :]
        self._own_atoms = self._columns.keys() - {column.name for column in ATOM_COLUMNS}
        self._max_distance = max_distance
        # Of the joint code, from outside to inside a ring; "ring" is the third column.
        self._ring_step = math.prod(column.size for column in bond_columns[3:])
        self._tables = {
            name: np.array([column.code(value) for value in range(256)], dtype=np.uint8)
            for name, column in self._columns.items()
            if name in ("degree", "ring_size")
        }
        self._atoms: dict[bytes, bytes] = {}
        self._bonds: dict[bytes, int] = {}

    def __call__(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[MoleculeRecord]:
        """Return the codes of sanitized molecules, given what :func:`cut` returns of each."""
        records: list[MoleculeRecord] = []
        for block in blocks([mol.GetNumAtoms() for mol in mols]):
            records += self._block(mols[block], pieces[block])
        return records

    def _block(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[MoleculeRecord]:
        """Return the codes of molecules; a row is an atom of any of them."""
        num_atoms = np.array([len(piece.atoms) for piece in pieces])
        starts = row_starts(num_atoms)
        bonds = _bond_rows(pieces)
        rings = [ring for piece in pieces for ring in piece.rings]
        ring_sizes = np.array([len(ring) for ring in rings], dtype=np.intp)
        ring_starts = np.repeat(starts, [len(piece.rings) for piece in pieces])
        ring_atoms = _indices(rings) + np.repeat(ring_starts, ring_sizes)

        atoms = self._atom_codes(mols, pieces)
        index = self._index
        if "degree" in index:
            degree = np.bincount(bonds.ravel(), minlength=len(atoms))
            atoms[:, index["degree"]] = self._tables["degree"][degree]
        if "ring_size" in index:
            smallest = np.full(len(atoms), _NO_RING)
            np.minimum.at(smallest, ring_atoms, np.repeat(ring_sizes, ring_sizes))
            atoms[:, index["ring_size"]] = self._tables["ring_size"][smallest % _NO_RING]
        if "chirality" in index:
            column, labels = self._columns["chirality"], atoms[:, index["chirality"]]
            for row in np.flatnonzero(labels != column.code("none")).tolist():
                molecule = int(np.searchsorted(starts, row, side="right")) - 1
                atom = mols[molecule].GetAtomWithIdx(row - int(starts[molecule]))
                labels[row] = column.code(ATOM_FEATURES["chirality"](atom))

        for name in self._own_atoms:
            code, read = self._columns[name].code, ATOM_FEATURES[name]
            atoms[:, index[name]] = [code(read(atom)) for mol in mols for atom in mol.GetAtoms()]

        pairs = pair_codes(num_atoms, bonds, self._bond_codes(mols, pieces), self._max_distance)
        # Around each ring, from every atom to the next one and back.
        after = np.arange(1, len(ring_atoms) + 1)
        last = np.cumsum(ring_sizes)
        after[last - 1] = last - ring_sizes
        columns = ring_atoms - np.repeat(ring_starts, ring_sizes)
        rows = np.concatenate((ring_atoms, ring_atoms[after]))
        inside = rows, np.concatenate((columns[after], columns))
        pairs[inside] = pairs[inside] + np.uint8(
            self._ring_step
        )  # Once, also for a bond of two rings.
        return split_rows(num_atoms, atoms, pairs)

    def _atom_codes(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> NDArray[np.uint8]:
        """Return the codes that follow from an atom's own bytes, ``uint8 [rows, A]``.

        Others depend on the rest of the molecule; the caller replaces them.
        """
        try:
            rows = [self._atoms[atom] for piece in pieces for atom in piece.atoms]
        except KeyError:
            if len(self._atoms) > _MAX_CACHED:
                self._atoms = {}
            columns = [*self._columns.values()]
            for mol, piece in zip(mols, pieces, strict=True):
                for index, atom in enumerate(piece.atoms):
                    if atom not in self._atoms:
                        self._atoms[atom] = atom_row(mol.GetAtomWithIdx(index), columns)
            return self._atom_codes(mols, pieces)
        flat = np.frombuffer(bytearray().join(rows), dtype=np.uint8)
        return flat.reshape(-1, len(self._columns))

    def _bond_codes(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> NDArray[np.uint8]:
        """Return the joint codes of all bonds as if they were outside rings, ``uint8 [bonds]``."""
        try:
            codes = [self._bonds[bond] for piece in pieces for bond in piece.bonds]
        except KeyError:
            for mol, piece in zip(mols, pieces, strict=True):
                for index, key in enumerate(piece.bonds):
                    if key not in self._bonds:
                        bond = mol.GetBondWithIdx(index)
                        in_ring = self._bond_columns[-1].size * bond.IsInRing()
                        self._bonds[key] = bond_code(bond, self._bond_columns, 0) - in_ring
            return self._bond_codes(mols, pieces)
        joint = np.array(codes, dtype=np.intp)
        for column in self._own_bonds:
            read = BOND_FEATURES[column.name]
            own = [column.code(read(bond)) for mol in mols for bond in mol.GetBonds()]
            joint = joint * column.size + np.array(own, dtype=np.intp)
        return (joint + self._max_distance + 2).astype(np.uint8)


class AtomPairs:
    """Hashed atom pairs, the same as RDKit's in a sixth of the time.

    These are the types of two atoms and their distance in bonds. RDKit's type of an atom follows
    from its bytes in the binary form and its number of bonds, if all bonds are covalent (a dative
    bond adds nothing to the valence from which RDKit calculates pi electrons).

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
            pieces: What :func:`cut` returns of each; all are covalent.
        """
        counts: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for block in blocks([len(piece.atoms) for piece in pieces]):
            counts += self._block(mols[block], pieces[block])
        return counts

    def _block(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        num_atoms = np.array([len(piece.atoms) for piece in pieces])
        bonds = _bond_rows(pieces)
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


def _indices(texts: Sequence[bytes]) -> NDArray[np.intp]:
    """Return the bytes of some texts as numbers, one text after another."""
    return np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.intp)


def _bond_rows(pieces: Sequence[Pieces]) -> NDArray[np.intp]:
    """Return the rows of the two atoms of each bond ``[2, B]``; rows are the atoms of all."""
    starts = row_starts(np.array([len(piece.atoms) for piece in pieces]))
    shift = np.repeat(starts, [len(piece.ends) for piece in pieces])
    return (_indices([piece.ends for piece in pieces]) + shift).reshape(-1, 2).T
