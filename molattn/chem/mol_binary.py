"""RDKit's binary form of a molecule, read in one pass: the fast way to all atoms and bonds.

Asking RDKit for each property of each atom costs more than parsing the SMILES. The binary form
lists every atom and bond as a few bytes that hold all its own properties, so equal bytes mean equal
features. This file only cuts the form into those pieces; what a piece means is learned from RDKit's
own getters by whoever asks. The layout is RDKit's MolPickler, version 16.4; a molecule or a version
with anything else in it is refused, and the caller reads atom by atom instead.
"""

from typing import NamedTuple

from rdkit import Chem

__all__ = ["Pieces", "cut"]

# Version 16.3 (RDKit 2026.3) has nothing else for the molecules that are read here.
_HEADS = tuple(
    bytes.fromhex(f"efbeadde0000000010000000{minor:02x}00000000000000") for minor in (3, 4)
)
_ATOMS, _BONDS, _RINGS = 0x01, 0x0B, 0x42
_ATOMS_AT = 29
_MAX_ATOMS = 254  # Beyond, atom indices take more than a byte.
_TYPE, _DIRECTION, _STEREO = 0x08, 0x04, 0x02


def _atom_lengths() -> dict[bytes, int]:
    """Length of an atom's piece by its bytes 1 to 3: flags, and a word of properties present.

    Flags are aromatic and "no implicit hydrogens"; any other has a payload and is left out. Each
    set bit of the word's low byte is a property of one byte (bit 0 is not in use), bit 8 an
    isotope of four.
    """
    return {
        bytes((flags, low, high)): 6 + low.bit_count() + 4 * high
        for flags in (0x00, 0x20, 0x40, 0x60)
        for low in range(0, 256, 2)
        for high in (0, 1)
    }


def _bond_lengths() -> dict[int, int]:
    """Length of a bond's piece by its flags: conjugated and aromatic, and what follows them."""
    return {
        rest | kind | direction | stereo: 1 + sum(map(bool, (kind, direction, stereo)))
        for rest in (0x00, 0x20, 0x40, 0x60)
        for kind in (0, _TYPE)
        for direction in (0, _DIRECTION)
        for stereo in (0, _STEREO)
    }


_ATOM_LENGTHS = _atom_lengths()
_BOND_LENGTHS = _bond_lengths()


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
            at += 1 + data[at]  # The atoms that the stereo refers to.
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
