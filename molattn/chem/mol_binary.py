"""RDKit's binary form of a molecule, split into the bytes of each atom and bond.

Calling RDKit's getters for each atom takes longer than parsing the SMILES. The binary form stores
every atom and bond as a few bytes that hold all its own properties, so equal bytes mean equal
features, and the getters need to be called only once for each byte string
(:class:`molattn.chem.codes.CodeEncoder`). The layout is that of RDKit's MolPickler, version 16.4.
For a molecule or a version with anything else, :func:`cut` returns None, and the caller reads it
atom by atom.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from molattn.chem.distance import row_starts

__all__ = ["PROBES", "Pieces", "bond_rows", "cut", "indices"]

PROBES = (
    "C[C@H](O)c1ccc2[nH]ccc2c1.[Na+]",
    "F/C=C/C(=O)[O-]",
    "[13CH3][CH]C#N",
    "N->[Cu+2]<-N",
    "C1CC12CC2.[2H]O",
    "C",
)
"""Molecules with everything that is read here, to compare with the installed RDKit."""

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


def indices(texts: Sequence[bytes]) -> NDArray[np.intp]:
    """Return the bytes of some texts as numbers, one text after another."""
    return np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.intp)


def bond_rows(pieces: Sequence[Pieces]) -> NDArray[np.intp]:
    """Return the rows of the two atoms of each bond ``[2, B]``; rows are the atoms of all."""
    starts = row_starts(np.array([len(piece.atoms) for piece in pieces]))
    shift = np.repeat(starts, [len(piece.ends) for piece in pieces])
    return (indices([piece.ends for piece in pieces]) + shift).reshape(-1, 2).T


def cut(mol: Chem.Mol) -> Pieces | None:
    """Return the pieces of a molecule's binary form; None if it has an unsupported field."""
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
