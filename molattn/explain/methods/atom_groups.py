"""Atoms that are masked together."""

from collections.abc import Callable, Sequence

from rdkit import Chem
from rdkit.Chem import BRICS

from molattn.errors import InputError, quoted

__all__ = ["GROUPINGS", "atom_groups"]

Groups = list[tuple[int, ...]]


def _atoms(mol: Chem.Mol) -> Groups:
    return [(place,) for place in range(mol.GetNumAtoms())]


def _rings(mol: Chem.Mol) -> Groups:
    systems: list[set[int]] = []
    for ring in map(set, mol.GetRingInfo().AtomRings()):
        apart = [system for system in systems if not system & ring]
        systems = [*apart, ring.union(*(system for system in systems if system & ring))]
    return _filled(mol, systems)


def _brics(mol: Chem.Mol) -> Groups:
    bonds = [mol.GetBondBetweenAtoms(*ends).GetIdx() for ends, _ in BRICS.FindBRICSBonds(mol)]
    cut = Chem.FragmentOnBonds(mol, bonds, addDummies=False) if bonds else mol
    return [*Chem.GetMolFrags(cut)]


GROUPINGS: dict[str, Callable[[Chem.Mol], Groups]] = {
    "atoms": _atoms,
    "rings": _rings,
    "brics": _brics,
}
"""``atoms``: single atoms; ``rings``: systems of fused rings, and single atoms outside rings;
``brics``: BRICS fragments (Degen et al. 2008)."""


def atom_groups(mol: Chem.Mol, groups: str | Sequence[Sequence[int]]) -> Groups:
    """Partition the atoms of a molecule into groups.

    Args:
        mol: The molecule.
        groups: A name in :data:`GROUPINGS`, or the atoms of each group, counted from 0; every
            other atom is a group of its own.

    Raises:
        InputError: No such name, an empty group, or an atom that does not exist or is in two
            groups.
    """
    if isinstance(groups, str):
        if groups not in GROUPINGS:
            names = ", ".join(GROUPINGS)
            raise InputError(f"groups: got {quoted(groups)}, expected one of {names}, or atoms")
        return GROUPINGS[groups](mol)
    named = [atom for group in groups for atom in group]
    if (
        not all(groups)
        or len({*named}) != len(named)
        or not {*named} <= {*range(mol.GetNumAtoms())}
    ):
        raise InputError(
            f"groups: got {quoted([list(group) for group in groups])}, expected groups of atoms 0 "
            f"to {mol.GetNumAtoms() - 1}, each in one at most"
        )
    return _filled(mol, groups)


def _filled(mol: Chem.Mol, groups: "Sequence[Sequence[int] | set[int]]") -> Groups:
    taken = {atom for group in groups for atom in group}
    alone = [(atom,) for atom in range(mol.GetNumAtoms()) if atom not in taken]
    return [*(tuple(sorted(group)) for group in groups), *alone]
