"""Codes and atom pairs of many molecules at once, read from RDKit's binary form.

Calling RDKit's getters for each atom takes longer than parsing the SMILES. The binary form stores
every atom and bond as a few bytes that hold all its own properties, so that equal bytes mean equal
features, and the getters are called only once for each byte string. The layout is that of RDKit's
MolPickler, version 16.4. For a molecule or an RDKit with anything else, :func:`cut` returns None,
and the caller reads it atom by atom.
"""

import logging
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

from molattn.chem.atom_features import (
    ATOM_COLUMNS,
    ATOM_FEATURES,
    BOND_COLUMNS,
    BOND_FEATURES,
    Column,
    atom_row,
    bond_code,
)
from molattn.chem.distance import blocks, pair_codes, pair_distances, row_starts, split_rows
from molattn.record import MoleculeRecord

# Version 16.3 (RDKit 2026.3) has the same layout for the molecules that are read here.
_HEADS = tuple(
    bytes.fromhex(f"efbeadde0000000010000000{minor:02x}00000000000000") for minor in (3, 4)
)
_ATOMS = 0x01
_BONDS = 0x0B
_RINGS = 0x42
_ATOMS_AT = 29
_MAX_ATOMS = 254  # in larger molecules, atom indices take more than one byte
_STEREO = 0x02
_TYPE = 0x08  # of bonds that are not single
_COVALENT = b"\x01\x02\x03\x04\x0c"  # single to quadruple, and aromatic
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
_MAX_PAIR_DISTANCE = 30  # in bonds; RDKit counts no atom pairs beyond
_TYPES = 511  # of atoms in atom pairs, RDKit's


Counts = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]
"""Positions, ascending, and the count at each."""


class Pieces(NamedTuple):
    """The bytes of atoms and bonds, the two atoms of each bond, and the atoms of each ring."""

    atoms: list[bytes]
    bonds: list[bytes]
    ends: bytes
    rings: list[bytes]


def cut(mol: Chem.Mol) -> Pieces | None:
    """Return the pieces of a molecule's binary form; None for an unknown form of it."""
    num_atoms = mol.GetNumAtoms()
    if num_atoms > _MAX_ATOMS:
        return None
    data = mol.ToBinary(0)
    if not data.startswith(_HEADS):
        _log_unknown()
        return None
    try:
        return _cut(data, num_atoms, mol.GetNumBonds()) if data[_ATOMS_AT] == _ATOMS else None
    except (IndexError, KeyError):  # a property that is not supported
        return None


def each(
    mols: Sequence[Chem.Mol],
    pieces: Sequence[Pieces | None],
    fast: Callable[[list[Chem.Mol], list[Pieces]], list[Any]],
    plain: Callable[[Chem.Mol], Any],
) -> list[Any]:
    """Return the results of molecules in order, of all with pieces at once and of others alone."""
    known_pieces = {n: piece for n, piece in enumerate(pieces) if piece is not None}
    results = dict(
        zip(
            known_pieces,
            fast([mols[n] for n in known_pieces], [*known_pieces.values()]),
            strict=True,
        )
    )
    return [results[n] if n in results else plain(mol) for n, mol in enumerate(mols)]


@cache
def _log_unknown() -> None:
    logging.getLogger(__name__).warning(
        "RDKit %s stores molecules in an unknown form: they are read several times slower",
        rdBase.rdkitVersion,
    )


def _cut(data: bytes, num_atoms: int, num_bonds: int) -> Pieces | None:
    lengths = _ATOM_LENGTHS
    at = _ATOMS_AT + 1
    atoms = []
    bonds = []
    ends = []
    rings = []
    for _ in range(num_atoms):
        after = at + lengths[data[at + 1 : at + 4]]
        atoms.append(data[at:after])
        at = after
    if data[at] != _BONDS:
        return None
    at += 1
    for _ in range(num_bonds):
        start = at + 2
        flags = data[start]
        ends.append(data[at:start])
        at = start + _BOND_LENGTHS[flags]
        bonds.append(data[start:at])
        if flags & _STEREO:
            at += 1 + data[at]  # skip the atoms that the stereo refers to
    # A dative bond adds nothing to the valence from which RDKit calculates types of atoms.
    if data[at] != _RINGS or any(b[0] & _TYPE and b[1] not in _COVALENT for b in set(bonds)):
        return None
    num_rings = int.from_bytes(data[at + 1 : at + 5], "little")
    at += 5
    for _ in range(num_rings):
        after = at + 1 + data[at]
        rings.append(data[at + 1 : after])
        at = after
    return Pieces(atoms, bonds, b"".join(ends), rings)


class Codes:
    """Encodes molecules for a featurizer; caches the codes of each piece of the binary form.

    Features that are not default ones are called for each atom and bond.
    """

    def __init__(
        self, atom_columns: Sequence[Column], bond_columns: Sequence[Column], max_distance: int
    ) -> None:
        self._columns = {column.name: (n, column) for n, column in enumerate(atom_columns)}
        self._own_atoms = self._columns.keys() - {column.name for column in ATOM_COLUMNS}
        self._bond_columns = bond_columns[: len(BOND_COLUMNS)]
        self._stereo_size = self._bond_columns[-1].size
        self._own_bonds = bond_columns[len(BOND_COLUMNS) :]
        self._max_distance = max_distance
        # Of the joint code, from outside to inside a ring; "ring" is the third column.
        self._ring_step = math.prod(column.size for column in bond_columns[3:])
        self._tables = {
            name: np.array([column.code(value) for value in range(256)], dtype=np.uint8)
            for name, (_, column) in self._columns.items()
            if name in ("degree", "ring_size")
        }
        self._atoms: dict[bytes, bytes] = {}
        self._bonds: dict[bytes, int] = {}

    def __call__(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[MoleculeRecord]:
        """Return the codes of sanitized molecules from their pieces; see :func:`cut`."""
        slices = blocks([len(piece.atoms) for piece in pieces])
        return [record for block in slices for record in self._block(mols[block], pieces[block])]

    def _block(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[MoleculeRecord]:
        """Return the codes of molecules; a row is an atom of any of them."""
        num_atoms = np.array([len(piece.atoms) for piece in pieces])
        starts = row_starts(num_atoms)
        bonds = _bond_rows(pieces)
        sizes = np.array([len(ring) for piece in pieces for ring in piece.rings], dtype=np.intp)
        ring_starts = np.repeat(np.repeat(starts, [len(piece.rings) for piece in pieces]), sizes)
        ring_atoms = _indices([ring for piece in pieces for ring in piece.rings]) + ring_starts

        atoms = self._atom_codes(mols, pieces)
        degree = np.bincount(bonds.ravel(), minlength=len(atoms))
        self._set(atoms, "degree", degree)
        smallest = np.full(len(atoms), _NO_RING)
        np.minimum.at(smallest, ring_atoms, np.repeat(sizes, sizes))
        self._set(atoms, "ring_size", smallest % _NO_RING)
        if "chirality" in self._columns:
            index, column = self._columns["chirality"]
            for row in np.flatnonzero(atoms[:, index] != column.code("none")).tolist():
                molecule = int(np.searchsorted(starts, row, side="right")) - 1
                atom = mols[molecule].GetAtomWithIdx(row - int(starts[molecule]))
                atoms[row, index] = column.code(ATOM_FEATURES["chirality"](atom))
        for name in self._own_atoms:
            index, column = self._columns[name]
            read = ATOM_FEATURES[name]
            atoms[:, index] = [column.code(read(atom)) for mol in mols for atom in mol.GetAtoms()]

        pairs = pair_codes(num_atoms, bonds, self._bond_codes(mols, pieces), self._max_distance)
        # Around each ring, from every atom to the next one and back.
        after = np.arange(1, len(ring_atoms) + 1)
        last = np.cumsum(sizes)
        after[last - 1] = last - sizes
        columns = ring_atoms - ring_starts
        rows = np.concatenate((ring_atoms, ring_atoms[after]))
        inside = rows, np.concatenate((columns[after], columns))
        pairs[inside] = pairs[inside] + np.uint8(self._ring_step)  # once, also if in two rings
        return split_rows(num_atoms, atoms, pairs)

    def _set(self, atoms: NDArray[np.uint8], name: str, values: NDArray[np.intp]) -> None:
        if name in self._columns:
            atoms[:, self._columns[name][0]] = self._tables[name][values]

    def _atom_codes(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> NDArray[np.uint8]:
        """Return the codes that follow from an atom's own bytes alone, ``uint8 [rows, A]``."""
        columns = [column for _, column in self._columns.values()]
        keys = [atom for piece in pieces for atom in piece.atoms]
        sizes = [len(piece.atoms) for piece in pieces]
        rows = _looked_up(
            self._atoms, keys, mols, sizes, lambda mol, n: atom_row(mol.GetAtomWithIdx(n), columns)
        )
        return np.frombuffer(bytearray().join(rows), dtype=np.uint8).reshape(-1, len(columns))

    def _bond_codes(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> NDArray[np.uint8]:
        """Return the joint codes of all bonds as if they were outside rings, ``uint8 [bonds]``."""

        def outside(mol: Chem.Mol, number: int) -> int:
            bond = mol.GetBondWithIdx(number)
            return bond_code(bond, self._bond_columns, 0) - self._stereo_size * bond.IsInRing()

        keys = [bond for piece in pieces for bond in piece.bonds]
        sizes = [len(piece.bonds) for piece in pieces]
        codes = _looked_up(self._bonds, keys, mols, sizes, outside)
        joint = np.array(codes, dtype=np.intp)
        for column in self._own_bonds:
            read = BOND_FEATURES[column.name]
            values = [column.code(read(bond)) for mol in mols for bond in mol.GetBonds()]
            joint = joint * column.size + np.array(values, dtype=np.intp)
        return (joint + self._max_distance + 2).astype(np.uint8)


class AtomPairs:
    """Atom pairs hashed to ``size`` positions, the same as RDKit's in half of the time.

    These are the types of two atoms and their distance in bonds. RDKit's type of an atom follows
    from its bytes in the binary form and its number of bonds.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._types: dict[tuple[bytes, int], int] = {}

    def __call__(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[Counts]:
        """Return the counts of the atom pairs of molecules from their pieces; see :func:`cut`."""
        slices = blocks([len(piece.atoms) for piece in pieces])
        return [counts for block in slices for counts in self._block(mols[block], pieces[block])]

    def _block(self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces]) -> list[Counts]:
        num_atoms = np.array([len(piece.atoms) for piece in pieces])
        bonds = _bond_rows(pieces)
        distances = pair_distances(num_atoms, bonds, _MAX_PAIR_DISTANCE + 1)
        starts = np.repeat(row_starts(num_atoms), num_atoms)
        types = self._atom_types(mols, pieces, np.bincount(bonds.ravel(), minlength=len(starts)))
        # Each pair once: columns are the atoms before that of the row.
        width = distances.shape[1]
        earlier = np.arange(width) < (np.arange(len(starts)) - starts)[:, None]
        earlier &= distances <= _MAX_PAIR_DISTANCE
        cells = np.flatnonzero(earlier)
        per_row = np.count_nonzero(earlier, axis=1)
        first = np.repeat(types, per_row)
        second = types[cells + np.repeat(starts - np.arange(len(starts)) * width, per_row)]
        hashed = _hash_combine(np.zeros_like(first), np.minimum(first, second))
        hashed = _hash_combine(hashed, distances.ravel()[cells])
        hashed = _hash_combine(hashed, np.maximum(first, second)) % np.uint32(self._size)
        molecule = np.repeat(np.arange(len(num_atoms)) * self._size, num_atoms)
        counts = np.bincount(
            np.repeat(molecule, per_row) + hashed, minlength=len(num_atoms) * self._size
        )
        counted = np.flatnonzero(counts > 0)
        ends = np.searchsorted(counted, np.arange(1, len(num_atoms)) * self._size)
        positions = np.split(counted % self._size, ends)
        return list(zip(positions, np.split(counts[counted], ends), strict=True))

    def _atom_types(
        self, mols: Sequence[Chem.Mol], pieces: Sequence[Pieces], degrees: NDArray[np.intp]
    ) -> NDArray[np.uint32]:
        """Return RDKit's type of each atom of all molecules."""
        keys = list(
            zip((a for piece in pieces for a in piece.atoms), degrees.tolist(), strict=True)
        )
        sizes = [len(piece.atoms) for piece in pieces]
        code = rdMolDescriptors.GetAtomPairAtomCode
        types = _looked_up(
            self._types, keys, mols, sizes, lambda mol, n: code(mol.GetAtomWithIdx(n))
        )
        return np.array(types, dtype=np.uint32) % np.uint32(_TYPES)


def _looked_up(
    cache: dict[Any, Any],
    keys: Sequence[Any],
    mols: Sequence[Chem.Mol],
    sizes: Sequence[int],
    read: Callable[[Chem.Mol, int], Any],
) -> list[Any]:
    """Return the value of each key, after reading the atoms or bonds of new keys.

    Molecules have so many of them, and ``read`` gets a molecule and the number of one in it.
    """
    try:
        return [cache[key] for key in keys]
    except KeyError:
        if len(cache) > _MAX_CACHED:
            cache.clear()
    ends = np.cumsum(sizes)
    for key, row in {key: row for row, key in enumerate(keys) if key not in cache}.items():
        molecule = int(np.searchsorted(ends, row, side="right"))
        cache[key] = read(mols[molecule], row - int(ends[molecule]) + sizes[molecule])
    return [cache[key] for key in keys]


def _hash_combine(
    seed: NDArray[np.uint32], value: NDArray[np.unsignedinteger]
) -> NDArray[np.uint32]:
    """Combine hashes as boost's ``hash_combine``, in 32 bits."""
    mixed = seed << np.uint32(6)
    mixed += seed >> np.uint32(2)
    mixed += value
    mixed += np.uint32(0x9E3779B9)
    mixed ^= seed
    return mixed


def _indices(texts: Sequence[bytes]) -> NDArray[np.intp]:
    """Return the bytes of texts as numbers, one text after another."""
    return np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.intp)


def _bond_rows(pieces: Sequence[Pieces]) -> NDArray[np.intp]:
    """Return the rows of the two atoms of each bond ``[2, B]``; a row is an atom of any."""
    starts = row_starts(np.array([len(piece.atoms) for piece in pieces]))
    shift = np.repeat(starts, [len(piece.ends) for piece in pieces])
    return (_indices([piece.ends for piece in pieces]) + shift).reshape(-1, 2).T
