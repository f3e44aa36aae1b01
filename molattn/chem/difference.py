"""The atoms in which a molecule differs from another."""

from rdkit import Chem
from rdkit.Chem import rdFMCS

from molattn.chem.parse import parse_accepted
from molattn.utils.time_limit import call_within

__all__ = ["differing_atoms"]

_SEARCH_SECONDS = 2  # of a search that may last for ever, and ends with the best so far
_MOST_SECONDS = 10.0


def differing_atoms(smiles: str, other: str) -> list[int]:
    """Return the atoms of a molecule that are not in its largest common part with another.

    An atom of the common part differs too if its charge or isotope does. If all atoms are in common
    and the molecules differ at stereocenters, those differ.

    Args:
        smiles: A valid SMILES.
        other: Another one.

    Returns:
        Indices of atoms, ascending; all, if the search needs too much time or memory.

    Example:
        >>> differing_atoms("CCO", "CCN")
        [2]
    """
    try:
        return call_within(_MOST_SECONDS, _differing, smiles, other)
    except TimeoutError:
        return list(range(parse_accepted(smiles).GetNumAtoms()))


def _differing(smiles: str, other: str) -> list[int]:
    mol, second = parse_accepted(smiles), parse_accepted(other)
    common = rdFMCS.FindMCS(
        [mol, second],
        timeout=_SEARCH_SECONDS,
        bondCompare=rdFMCS.BondCompare.CompareOrder,
        ringMatchesRingOnly=True,
        completeRingsOnly=True,
    )
    part = Chem.MolFromSmarts(common.smartsString) if common.numAtoms else None
    if part is None:  # a single atom, or nothing
        return list(range(mol.GetNumAtoms()))
    pairs = dict(zip(mol.GetSubstructMatch(part), second.GetSubstructMatch(part), strict=True))
    found = []
    for atom in mol.GetAtoms():
        twin = pairs.get(atom.GetIdx())
        if twin is None or _kind(atom) != _kind(second.GetAtomWithIdx(twin)):
            found.append(atom.GetIdx())
    if not found and mol.GetNumAtoms() == second.GetNumAtoms():
        centers = dict(Chem.FindMolChiralCenters(mol, includeUnassigned=True))
        others = dict(Chem.FindMolChiralCenters(second, includeUnassigned=True))
        found = [place for place in sorted(centers) if centers[place] != others.get(pairs[place])]
    return found


def _kind(atom: Chem.Atom) -> tuple[int, int, int]:
    return atom.GetAtomicNum(), atom.GetFormalCharge(), atom.GetIsotope()
