"""The parent of a molecule: its organic molecule without counterions and solvents, uncharged."""

from functools import cache
from typing import Any

from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize

from molattn.chem.parse import written
from molattn.errors import SmilesError

# Neutral and without stereo. The molecules of a group are removed while an organic one is left.
_SOLVENTS = """
C CO CCO CCCO CC(C)O CCCCO CC(C)CO CC(C)(C)O OCCO CC(O)CO OCC(O)CO CC(C)=O CCC(C)=O CC#N CS(C)=O
CN(C)C=O NC=O CC(=O)N(C)C CN1CCCC1=O C1CCOC1 CC1CCCO1 C1COCCO1 COCCOC CCOCC COC(C)(C)C CC(C)OC(C)C
CCOC(C)=O CC(C)OC(C)=O ClCCl ClC(Cl)Cl ClC(Cl)(Cl)Cl ClCCCl c1ccccc1 Cc1ccccc1 Cc1ccccc1C
Cc1ccc(C)cc1 Cc1cccc(C)c1 CCCCC CCCCCC CCCCCCC C1CCCCC1 c1ccncc1 NC(N)=O
"""
_ACIDS = """
O=CO CC(=O)O CCC(=O)O CCCC(=O)O CC(C)(C)C(=O)O O=C(O)C(F)(F)F O=C(O)C(Cl)(Cl)Cl O=C(O)O C#N N#CS
O=C(O)C(=O)O O=C(O)CC(=O)O O=C(O)CCC(=O)O O=C(O)CCCC(=O)O O=C(O)CCCCC(=O)O O=C(O)CCCCCCCCC(=O)O
O=C(O)C=CC(=O)O O=C(O)CC(O)C(=O)O O=C(O)C(O)C(O)C(=O)O O=C(O)CC(O)(CC(=O)O)C(=O)O CC(O)C(=O)O
O=C(O)CO CC(=O)CCC(=O)O O=C(O)CCC(=O)C(=O)O O=C(O)C(O)C(O)C(O)C(O)CO O=C(O)C1OC(O)C(O)C(O)C1O
O=C(O)C(O)C(O)C(O)C(O)C(=O)O O=C(O)C(O)C(O)C(O)C(O)C(O)CO
O=C(O)C(O)C(O)C(OC1OC(CO)C(O)C(O)C1O)C(O)CO NC(CC(=O)O)C(=O)O NC(CCC(=O)O)C(=O)O
O=C1CCC(C(=O)O)N1 O=C(O)c1cc2ccccc2c(Cc2c(O)c(C(=O)O)cc3ccccc23)c1O
CS(=O)(=O)O CCS(=O)(=O)O O=S(=O)(O)CCS(=O)(=O)O O=S(=O)(O)CCO O=S(=O)(O)C(F)(F)F
O=S(=O)(O)c1ccccc1 Cc1ccc(S(=O)(=O)O)cc1 O=S(=O)(O)c1ccc(Cl)cc1 Cc1cc(C)c(S(=O)(=O)O)c(C)c1
O=S(=O)(O)c1cccc2ccccc12 O=S(=O)(O)c1ccc2ccccc2c1 O=S(=O)(O)c1cccc2c(S(=O)(=O)O)cccc12
CC1(C)C2CCC1(CS(=O)(=O)O)C(=O)C2 O=S(=O)(O)NC1CCCCC1 COS(=O)(=O)O CCOS(=O)(=O)O
O=S(=O)(NS(=O)(=O)C(F)(F)F)C(F)(F)F O=C1NS(=O)(=O)c2ccccc21 CC1=CC(=O)NS(=O)(=O)O1
O=[N+]([O-])c1cc([N+](=O)[O-])c(O)c([N+](=O)[O-])c1 O=C(O)c1cc(S(=O)(=O)O)ccc1O
O=S(=O)(O)c1ccc(Br)cc1 O=C(O)C(OC(=O)c1ccccc1)C(OC(=O)c1ccccc1)C(=O)O
Cc1ccc(C(=O)OC(C(=O)O)C(OC(=O)c2ccc(C)cc2)C(=O)O)cc1
"""
_BASES = """
CN CNC CN(C)C CCN CCNCC CCN(CC)CC CC(C)N CC(C)(C)N CCCCN NC1CCCCC1 C1CCC(NC2CCCCC2)CC1 NCCN NCCO
OCCNCCO OCCN(CCO)CCO CN(C)CCO CCN(CC)CCO CC(C)(N)CO C[N+](C)(C)CCO NC(CO)(CO)CO
CNCC(O)C(O)C(O)C(O)CO
CCNCC(O)C(O)C(O)C(O)CO CNCC(O)C(O)C(O)CO OCCN1CCCC1 C1COCCN1 C1CNCCN1 C1CCNCC1 C1CCNC1 c1c[nH]cn1
N=C(N)N NCCCCC(N)C(=O)O N=C(N)NCCCC(N)C(=O)O NC(Cc1c[nH]cn1)C(=O)O O=C(O)C1CCCN1 NCC(=O)O
C[N+](C)(C)CC(=O)O c1ccc(CNCCNCc2ccccc2)cc1 c1ccc(CCNCc2ccccc2)cc1 CCN(CC)CCOC(=O)c1ccc(N)cc1
C[N+](C)(C)C CC[N+](CC)(CC)CC CCCC[N+](CCCC)(CCCC)CCCC
"""
# That are often the active part themselves, such as salicylic acid of its salt with choline.
_ACTIVE_ACIDS = """
CCCCCC(=O)O CCCCCCCC(=O)O CCCCCCCCCC(=O)O CCCCCCCCCCCC(=O)O CCCCCCCCCCCCCC(=O)O
CCCCCCCCCCCCCCCC(=O)O CCCCCCCCCCCCCCCCCC(=O)O CCCCCCCCC=CCCCCCCCC(=O)O C=CCCCCCCCCC(=O)O
O=C1OC(C(O)CO)C(O)=C1O O=C(O)c1ccccc1 O=C(O)c1ccccc1O O=C(O)c1ccc(O)cc1 O=C(O)c1cc(O)ccc1O
O=C(O)c1cccnc1 O=C(O)CNC(=O)c1ccccc1 O=C(O)C(O)c1ccccc1 O=C(O)C=Cc1ccccc1
O=C(O)c1cc(=O)[nH]c(=O)[nH]1 O=C(O)c1ccc2ccccc2c1O O=C(O)c1cc2ccccc2cc1O NCCS(=O)(=O)O
CCCCCCCCCCCCOS(=O)(=O)O Cn1c(=O)c2[nH]c(Cl)nc2n(C)c1=O Cn1c2nc(Cl)nc-2c(O)n(C)c1=O
"""
_CARBON = Chem.MolFromSmarts("[#6;!$([#6](=O)([O-])[OH,O-])]")  # carbonate is inorganic
_CHARGED = Chem.MolFromSmarts("[!+0]")
# Neither nonmetals nor the usual cations of salts.
_OTHER_ELEMENTS = (
    "H He B C N O F Ne Si P S Cl Ar Ge As Se Br Kr Te I Xe At Rn Li Na K Rb Cs Mg Ca Sr Ba Zn Al Ag"
)
_NUMBERS = map(Chem.GetPeriodicTable().GetAtomicNumber, _OTHER_ELEMENTS.split())
_METAL_SMARTS = ";".join(f"!#{number}" for number in _NUMBERS)
_METAL = Chem.MolFromSmarts(f"[{_METAL_SMARTS}]")
_CHARGED_METAL = Chem.MolFromSmarts(f"[{_METAL_SMARTS};!+0]")
# Not beside a group that stabilizes it, as in the salts of diketones.
_CARBANION = Chem.MolFromSmarts("[#6;-;!$(*#*);!$(*~[+]);!$(*~*=[O,S,N])]")


def parent_of(mol: Chem.Mol) -> Chem.Mol:
    """Return the parent of a molecule; the same object if nothing is removed.

    Of several organic molecules, usual solvents, then acids, bases, and acids that are often active
    are removed, as long as one is left. The parent is uncharged where hydrogen atoms can be added
    or removed.

    Raises:
        SmilesError: The molecule has no carbon atom but of carbonate, a metal that may be bonded to
            what is left, or several organic molecules that differ in more than charges and stereo.
    """
    if not mol.HasSubstructMatch(_CARBON):
        reason = "it has no organic fragment (with carbon other than carbonate), and thus no parent"
        raise SmilesError(written(mol), "no_parent", reason)
    return uncharged(mol if len(Chem.GetMolFrags(mol)) == 1 else _organic_molecule(mol))


def uncharged(mol: Chem.Mol) -> Chem.Mol:
    """Return a molecule, of all its fragments, uncharged where hydrogen atoms can move.

    Salts of ammonium and acids become amines and acids, and zwitterions neutral; ions that metals
    or quaternary nitrogen balance stay. The same object is returned if nothing changes, and of a
    molecule that RDKit cannot neutralize, such as a hexafluorophosphate.
    """
    if not mol.HasSubstructMatch(_CHARGED):
        return mol
    form = uncharger().uncharge(mol)
    charges = ([atom.GetFormalCharge() for atom in molecule.GetAtoms()] for molecule in (mol, form))
    if next(charges) == next(charges):
        return mol
    return mol if Chem.SanitizeMol(form, catchErrors=True) != Chem.SANITIZE_NONE else form


def _organic_molecule(mol: Chem.Mol) -> Chem.Mol:
    """Return the one organic molecule of several fragments that is no counterion or solvent."""
    fragments = Chem.GetMolFrags(mol, asMols=True)
    organic = [fragment for fragment in fragments if fragment.HasSubstructMatch(_CARBON)]
    bare = (fragment for fragment in fragments if not fragment.HasSubstructMatch(_CARBON))
    if (
        mol.HasSubstructMatch(_CHARGED_METAL)
        or mol.HasSubstructMatch(_CARBANION)
        or any(fragment.HasSubstructMatch(_METAL) for fragment in bare)
    ):
        reason = "a metal or a carbanion is drawn apart from what it may be bonded to"
        raise SmilesError(written(mol), "metal_complex", reason)
    names = [_without_stereo(fragment) for fragment in organic] if len(organic) > 1 else [""]
    remaining = {*names}
    for removed in _counterions():
        remaining = remaining - removed or remaining
    if len(remaining) > 1:
        reason = (
            f"it has {len(remaining)} organic molecules that are no usual counterions or solvents; "
            "predict each alone"
        )
        raise SmilesError(written(mol), "organic_mixture", reason)
    same = (fragment for fragment, name in zip(organic, names, strict=True) if name in remaining)
    return min(same, key=Chem.MolToSmiles)


def _without_stereo(mol: Chem.Mol) -> str:
    neutral = uncharger().uncharge(mol)
    Chem.SanitizeMol(neutral)
    return Chem.MolToSmiles(neutral, isomericSmiles=False)


@cache
def _counterions() -> tuple[frozenset[str], ...]:
    groups = (text.split() for text in (_SOLVENTS, _ACIDS, _BASES, _ACTIVE_ACIDS))
    return tuple(frozenset(_without_stereo(Chem.MolFromSmiles(text)) for text in g) for g in groups)


@cache
def uncharger() -> Any:
    """Return RDKit's tool that neutralizes molecules, made once."""
    return rdMolStandardize.Uncharger()
