"""RDKit's binary form of a molecule, read in one pass: the fast way to all atoms and bonds.

Asking RDKit for each property of each atom costs more than parsing the SMILES. The binary form
lists every atom and bond as a few bytes that hold all its own properties, so equal bytes mean equal
features. This file only cuts the form into those pieces; what a piece means is learned from RDKit's
own getters by whoever asks. The layout is RDKit's MolPickler, version 16.4; a molecule or a version
with anything else in it is refused, and the caller reads atom by atom instead.
"""

from typing import NamedTuple

from rdkit import Chem

__all__ = ["CHIRAL", "Pieces", "cut"]

_HEAD = bytes.fromhex("efbeadde00000000100000000400000000000000")
_ATOMS, _BONDS, _RINGS = 0x01, 0x0B, 0x42
_ATOMS_AT = 29
_MAX_ATOMS = 254  # Beyond, atom indices take more than a byte.
_FLAGS, _PRESENT, _PRESENT_HIGH = 1, 2, 3

#: Bit of an atom piece's third byte: a chiral tag is set.
CHIRAL = 0x04


def _atom_length(present: int) -> int:
    # Each set bit of the low byte is a property of one byte; bit 0 is not in use.
    return 0 if present & 1 else 6 + present.bit_count()


# By the low byte of the "present" word. An isotope (bit 8) takes four bytes more.
_ATOM_LENGTHS = tuple(map(_atom_length, range(256)))
_PLAIN_ATOM_FLAGS = 0x60  # Aromatic, no implicit hydrogens. Any other flag has a payload.
_TYPE, _DIRECTION, _STEREO = 0x08, 0x04, 0x02
_PLAIN_BOND_FLAGS = 0x60 | _TYPE | _DIRECTION | _STEREO


class Pieces(NamedTuple):
    """A molecule's binary form, cut up.

    Args:
        atoms: Bytes that hold all properties of an atom, for each atom.
        bonds: Bytes that hold all properties of a bond but its place and rings, for each bond.
        ends: The two atoms of each bond, one byte each, one bond after another.
        rings: The atoms of each ring, in order around it.
    """

    atoms: list[bytes]
    bonds: list[bytes]
    ends: bytes
    rings: list[bytes]


def cut(mol: Chem.Mol) -> Pieces | None:
    """Cut a molecule's binary form into pieces, or return None where it holds anything unusual."""
    num_atoms = mol.GetNumAtoms()
    if num_atoms > _MAX_ATOMS:
        return None
    data = mol.ToBinary(0)
    if not data.startswith(_HEAD) or data[_ATOMS_AT] != _ATOMS:
        return None
    try:
        return _cut(data, num_atoms, mol.GetNumBonds())
    except IndexError:
        return None


def _cut(data: bytes, num_atoms: int, num_bonds: int) -> Pieces | None:
    lengths = _ATOM_LENGTHS
    at = _ATOMS_AT + 1
    atoms = []
    for _ in range(num_atoms):
        size = lengths[data[at + _PRESENT]]
        high = data[at + _PRESENT_HIGH]
        if not size or high > 1 or data[at + _FLAGS] & ~_PLAIN_ATOM_FLAGS:
            return None
        if high:
            size += 4
        atoms.append(data[at : at + size])
        at += size
    bonds = []
    ends = []
    if num_bonds:
        if data[at] != _BONDS:
            return None
        at += 1
    for _ in range(num_bonds):
        ends.append(data[at : at + 2])
        at += 2
        flags = data[at]
        if flags & ~_PLAIN_BOND_FLAGS:
            return None
        size = 1 + ((flags & _TYPE) != 0) + ((flags & _DIRECTION) != 0) + ((flags & _STEREO) != 0)
        bonds.append(data[at : at + size])
        at += size
        if flags & _STEREO:
            at += 1 + data[at]
    if not num_bonds and data[at] == _BONDS:
        at += 1
    if data[at] != _RINGS:
        return None
    num_rings = int.from_bytes(data[at + 1 : at + 5], "little")
    at += 5
    rings = []
    for _ in range(num_rings):
        size = data[at]
        rings.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    return Pieces(atoms, bonds, b"".join(ends), rings)
