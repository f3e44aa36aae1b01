"""The atoms in which a molecule differs from another."""

from collections import Counter

from rdkit import Chem
from rdkit.Chem import rdFMCS

from molattn.chem.parse import parse_accepted
from molattn.utils.time_limit import call_within

_SEARCH_SECONDS = 2  # of a search that may last for ever, and ends with the best so far
_MOST_SECONDS = 10.0


def differing_atoms(smiles: str, other: str) -> list[int]:
    """Return the atoms of a molecule that are not in its largest common part with another.

    Connected parts that both have, such as a counterion, are in common. An atom of the common part
    differs too if its charge or isotope does. If all atoms are in common and the molecules differ
    at stereocenters or stereo bonds, those differ. All do, if the search needs too much time.
    """
    try:
        return call_within(_MOST_SECONDS, _differing, smiles, other)
    except TimeoutError:
        return list(range(parse_accepted(smiles).GetNumAtoms()))


def _differing(smiles: str, other: str) -> list[int]:
    first, last = parse_accepted(smiles), parse_accepted(other)
    atoms, mol = _without_parts_of(first, last)
    _, second = _without_parts_of(last, first)
    common = rdFMCS.FindMCS(
        [mol, second],
        timeout=_SEARCH_SECONDS,
        bondCompare=rdFMCS.BondCompare.CompareOrderExact,
        ringMatchesRingOnly=True,
        completeRingsOnly=True,
    )
    pattern = Chem.MolFromSmarts(common.smartsString) if common.numAtoms else None
    if pattern is None:
        return atoms
    matches = mol.GetSubstructMatch(pattern), second.GetSubstructMatch(pattern)
    twins = dict(zip(*matches, strict=True))
    found = [
        atom.GetIdx()
        for atom in mol.GetAtoms()
        if atom.GetIdx() not in twins
        or _kind(atom) != _kind(second.GetAtomWithIdx(twins[atom.GetIdx()]))
    ]
    if not found and mol.GetNumAtoms() == second.GetNumAtoms():
        found = _differing_stereo(mol, second, twins)
    return [atoms[index] for index in found]


def _without_parts_of(mol: Chem.Mol, other: Chem.Mol) -> tuple[list[int], Chem.Mol]:
    """Return the atoms outside connected parts that the other has too, and a molecule of these."""
    same = Counter(Chem.MolToSmiles(part) for part in Chem.GetMolFrags(other, asMols=True))
    rest = Chem.RWMol(mol)
    rest.BeginBatchEdit()
    kept: list[int] = []
    for atoms, part in zip(Chem.GetMolFrags(mol), Chem.GetMolFrags(mol, asMols=True), strict=True):
        text = Chem.MolToSmiles(part)
        if same[text]:
            same[text] -= 1
            for atom in atoms:
                rest.RemoveAtom(atom)
        else:
            kept += atoms
    rest.CommitBatchEdit()
    Chem.GetSymmSSSR(rest)  # the rings are unknown after a removal
    return sorted(kept), rest.GetMol()


def _differing_stereo(mol: Chem.Mol, second: Chem.Mol, twins: dict[int, int]) -> list[int]:
    centers = dict(Chem.FindMolChiralCenters(mol, includeUnassigned=True))
    others = dict(Chem.FindMolChiralCenters(second, includeUnassigned=True))
    found = {atom for atom, label in centers.items() if label != others.get(twins[atom])}
    for bond in mol.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        twin = second.GetBondBetweenAtoms(*(twins[end] for end in ends))
        if twin is None or twin.GetStereo() != bond.GetStereo():
            found.update(ends)
    return sorted(found)


def _kind(atom: Chem.Atom) -> tuple[int, int, int]:
    return atom.GetAtomicNum(), atom.GetFormalCharge(), atom.GetIsotope()
