"""The atoms in which a molecule differs from another."""

from collections import Counter

from rdkit import Chem
from rdkit.Chem import rdFMCS

from molattn.chem.parse import parse_accepted
from molattn.utils.time_limit import call_within

__all__ = ["differing_atoms"]

_SEARCH_SECONDS = 2  # of a search that may last for ever, and ends with the best so far
_MOST_SECONDS = 10.0


def differing_atoms(smiles: str, other: str) -> list[int]:
    """Return the atoms of a molecule that are not in its largest common part with another.

    Connected parts that both have, such as a counterion, are in common. An atom of the common part
    differs too if its charge or isotope does. If all atoms are in common and the molecules differ
    at stereocenters or stereo bonds, those differ.

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
    first, last = parse_accepted(smiles), parse_accepted(other)
    atoms, mol = _without_parts_of(first, last)
    _, second = _without_parts_of(last, first)
    return [atoms[place] for place in _differing_in_one_part(mol, second)]


def _without_parts_of(mol: Chem.Mol, other: Chem.Mol) -> tuple[list[int], Chem.Mol]:
    """Leave out connected parts that the other has too, such as a counterion.

    Returns:
        The atoms that are left, ascending, and a molecule of these.
    """
    same = Counter(Chem.MolToSmiles(part) for part in Chem.GetMolFrags(other, asMols=True))
    rest = Chem.RWMol(mol)
    rest.BeginBatchEdit()
    kept: list[int] = []
    for places, part in zip(Chem.GetMolFrags(mol), Chem.GetMolFrags(mol, asMols=True), strict=True):
        text = Chem.MolToSmiles(part)
        if same[text]:
            same[text] -= 1
            for place in places:
                rest.RemoveAtom(place)
        else:
            kept += places
    rest.CommitBatchEdit()
    Chem.GetSymmSSSR(rest)  # the rings are unknown after a removal
    return sorted(kept), rest.GetMol()


def _differing_in_one_part(mol: Chem.Mol, second: Chem.Mol) -> list[int]:
    common = rdFMCS.FindMCS(
        [mol, second],
        timeout=_SEARCH_SECONDS,
        bondCompare=rdFMCS.BondCompare.CompareOrderExact,
        ringMatchesRingOnly=True,
        completeRingsOnly=True,
    )
    part = Chem.MolFromSmarts(common.smartsString) if common.numAtoms else None
    if part is None:
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
        marked = {place for place in centers if centers[place] != others.get(pairs[place])}
        for bond in mol.GetBonds():
            ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
            twin = second.GetBondBetweenAtoms(*(pairs[end] for end in ends))
            if twin is None or twin.GetStereo() != bond.GetStereo():
                marked.update(ends)
        found = sorted(marked)
    return found


def _kind(atom: Chem.Atom) -> tuple[int, int, int]:
    return atom.GetAtomicNum(), atom.GetFormalCharge(), atom.GetIsotope()
