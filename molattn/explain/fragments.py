"""Ring systems and substituents of a molecule, with the names that chemists give them."""

from typing import NamedTuple

from rdkit import Chem

_RINGS = {
    "c1ccccc1": "benzene",
    "c1ccncc1": "pyridine",
    "c1cncnc1": "pyrimidine",
    "c1c[nH]cn1": "imidazole",
    "c1cn[nH]c1": "pyrazole",
    "c1cc[nH]c1": "pyrrole",
    "c1ccoc1": "furan",
    "c1ccsc1": "thiophene",
    "c1cscn1": "thiazole",
    "c1ccc2ccccc2c1": "naphthalene",
    "c1ccc2[nH]ccc2c1": "indole",
    "c1ccc2ncccc2c1": "quinoline",
    "C1CCCCC1": "cyclohexane",
    "C1COCCN1": "morpholine",
    "C1CCNCC1": "piperidine",
    "C1CNCCN1": "piperazine",
    "C1CCNC1": "pyrrolidine",
}
_GROUPS = {
    "*C": "methyl",
    "*CC": "ethyl",
    "*C(C)C": "isopropyl",
    "*C(C)(C)C": "tert-butyl",
    "*C*": "methylene",
    "*O": "hydroxyl",
    "*O*": "ether",
    "*N": "amino",
    "*N*": "amine (NH)",
    "*N(*)*": "amine (N)",
    "*F": "fluoro",
    "*Cl": "chloro",
    "*Br": "bromo",
    "*S*": "thioether",
    "*C#N": "cyano",
    "*[N+](=O)[O-]": "nitro",
    "*C(F)(F)F": "trifluoromethyl",
    "*C(=O)O": "carboxylic acid",
    "*C(*)=O": "carbonyl",
    "*OC(*)=O": "ester",
    "*NC(*)=O": "amide",
    "*C(N)=O": "amide (NH2)",
    "*C(=O)N(*)*": "amide (N)",
    "*S(N)(=O)=O": "sulfonamide",
    "*NS(*)(=O)=O": "sulfonamide",
    "*N(*)S(*)(=O)=O": "sulfonamide (N)",
    "*NC(=O)N*": "urea",
    "*NC(=O)O*": "carbamate",
    "*S(*)(=O)=O": "sulfone",
}


class Fragment(NamedTuple):
    """A part of a molecule: a name, or its SMILES where ``*`` is the rest, and its atoms."""

    name: str
    atoms: tuple[int, ...]


def find_fragments(mol: Chem.Mol) -> list[Fragment]:
    """Divide the heavy atoms of a molecule into ring systems, alkyl groups and polar groups.

    Single bonds are cut between a ring system and anything else, and between carbon atoms and polar
    groups: heteroatoms, and carbon atoms with a multiple bond or two halogens beside these.
    """
    polar = [_is_polar(atom) for atom in mol.GetAtoms()]

    def is_cut(bond: Chem.Bond) -> bool:
        begin = bond.GetBeginAtom()
        end = bond.GetEndAtom()
        if bond.GetBondType() != Chem.BondType.SINGLE or bond.IsInRing():
            return False
        in_ring = begin.IsInRing() or end.IsInRing()
        return in_ring or polar[begin.GetIdx()] != polar[end.GetIdx()]

    bonds = [bond.GetIdx() for bond in mol.GetBonds() if is_cut(bond)]
    plain = Chem.Mol(mol)
    Chem.RemoveStereochemistry(plain)
    labels = [(0, 0)] * len(bonds)
    cut = Chem.FragmentOnBonds(plain, bonds, dummyLabels=labels) if bonds else plain
    count = mol.GetNumAtoms()
    groups: list[tuple[int, ...]] = []
    fragments = Chem.GetMolFrags(cut, asMols=True, sanitizeFrags=False, fragsMolAtomMapping=groups)
    return [
        Fragment(_name(fragment), tuple(atom for atom in group if atom < count))
        for fragment, group in zip(fragments, groups, strict=True)
    ]


def _is_polar(atom: Chem.Atom) -> bool:
    """Return whether an atom outside rings is a heteroatom or carbon of a functional group."""
    if atom.IsInRing():
        return False
    if atom.GetAtomicNum() != 6:
        return True
    others = [bond for bond in atom.GetBonds() if bond.GetOtherAtom(atom).GetAtomicNum() != 6]
    halogens = sum(bond.GetOtherAtom(atom).GetAtomicNum() in (9, 17, 35, 53) for bond in others)
    return halogens > 1 or any(bond.GetBondType() != Chem.BondType.SINGLE for bond in others)


def _name(fragment: Chem.Mol) -> str:
    smiles = Chem.MolToSmiles(fragment)
    ends = [atom for atom in fragment.GetAtoms() if not atom.GetAtomicNum()]
    ring = Chem.RWMol(fragment)
    for atom in ends:
        ring.GetAtomWithIdx(atom.GetIdx()).SetAtomicNum(1)
    parent = Chem.MolToSmiles(Chem.RemoveHs(ring, sanitize=False))
    if parent == "c1ccccc1" and len(ends) == 1:
        return "phenyl"
    return _RINGS.get(parent) or _GROUPS.get(smiles, smiles)
