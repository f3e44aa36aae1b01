"""One drawing of molecules that are usually drawn in several ways."""

import re
from itertools import chain

from rdkit import Chem

_MOST = 100_000  # matches, more than there can be in a molecule that is read
_ISOTOPE = Chem.MolFromSmarts("[#1;!0*]")
_SEPARATED = Chem.MolFromSmarts("[#15,#16,#33,#34;!-;!+0]-!@[#7,#8,#16,#34;-]")
_ALKALI = "[Li,Na,K,Rb,Cs"
_BONDED = "[#7,#8,#16,#34,F,Cl,Br,I"
# Bonds of alkali metals, and the charge that the metal has after each is broken.
_SALTS = (
    (Chem.MolFromSmarts(f"{_ALKALI};+0;D1]-{_BONDED};+0]"), 1),
    (Chem.MolFromSmarts(f"{_ALKALI}]<-{_BONDED}]"), 0),
)
_OTHERS = (_ISOTOPE, *(pattern for pattern, _ in _SALTS))
_METAL = r"\d*(?:Li|Na|K|Rb|Cs)"  # without a charge, or with a bond
MAY_BE_REDRAWN = re.compile(
    r"\[(?:\d+H(?![efgos])|\d*(?:[SPsp]|[Aa]s)[^]+]*\+"
    rf"|{_METAL}(?:[]:]|\+\](?=[^.\s]))|(?<=[^.\s]\[){_METAL}\+)"
)
"""Found in every SMILES whose molecule :func:`redrawn` changes."""
REDRAWN = "_molattn_redrawn"


def redrawn(mol: Chem.Mol) -> Chem.Mol:
    """Return the usual drawing of a sanitized molecule; the same object if nothing changes.

    - Isotopes of hydrogen become hydrogen; the atoms stay explicit.
    - S, P, As and Se with a positive charge beside a negative N, O, S or Se outside a ring get a
      double bond to it: ``C[S+](C)[O-]`` becomes ``CS(C)=O``. Of several neighbors, O is first,
      then the lightest. N oxides are not changed, nor sulfines with a label E or Z.
    - Bonds of Li, Na, K, Rb and Cs to N, O, S, Se and halogens are broken: ``CO[Na]`` becomes
      ``C[O-].[Na+]``.

    Atoms keep their order and stereocenters. Stereo labels are not assigned anew.
    """
    separated = _separated(mol) if mol.HasSubstructMatch(_SEPARATED) else []
    if not (separated or any(map(mol.HasSubstructMatch, _OTHERS))):
        return mol
    copy = Chem.RWMol(mol)
    Chem.Kekulize(copy, clearAromaticFlags=True)
    atom = copy.GetAtomWithIdx
    for (hydrogen,) in copy.GetSubstructMatches(_ISOTOPE, maxMatches=_MOST):
        atom(hydrogen).SetIsotope(0)
    for ends in separated:
        positive, negative = map(atom, ends)
        if positive.GetFormalCharge() > 0 > negative.GetFormalCharge():
            positive.SetFormalCharge(positive.GetFormalCharge() - 1)
            negative.SetFormalCharge(negative.GetFormalCharge() + 1)
            copy.GetBondBetweenAtoms(*ends).SetBondType(Chem.BondType.DOUBLE)
    for pattern, charge in _SALTS:
        for ends in copy.GetSubstructMatches(pattern, maxMatches=_MOST):
            metal, other = map(atom, ends)
            metal.SetFormalCharge(metal.GetFormalCharge() + charge)
            other.SetFormalCharge(other.GetFormalCharge() - charge)
            copy.RemoveBond(*ends)
    if Chem.SanitizeMol(copy, catchErrors=True) != Chem.SANITIZE_NONE:  # such as [O-][P+3](F)F
        return mol
    copy.SetBoolProp(REDRAWN, True)
    return copy.GetMol()


def _separated(mol: Chem.Mol) -> list[tuple[int, ...]]:
    """Return pairs of a positive and a negative atom to redraw, whatever the order of the atoms."""
    labelled = Chem.Mol(mol)
    Chem.AssignStereochemistry(labelled, cleanIt=False, force=True)
    atom = labelled.GetAtomWithIdx
    pairs = [
        ends
        for ends in mol.GetSubstructMatches(_SEPARATED, maxMatches=_MOST)
        if all(b.GetStereo() <= Chem.BondStereo.STEREOANY for b in atom(ends[0]).GetBonds())
    ]
    if len({*chain(*pairs)}) < 2 * len(pairs):  # an atom is in several
        ranks = [*Chem.CanonicalRankAtoms(labelled, breakTies=True)]
        pairs.sort(
            key=lambda ends: (
                ("O", "N", "S", "Se").index(atom(ends[1]).GetSymbol()),
                ranks[ends[1]],
                ranks[ends[0]],
            )
        )
    return pairs


def is_redrawn(mol: Chem.Mol) -> bool:
    """Return whether :func:`redrawn` changed a molecule."""
    return bool(mol.HasProp(REDRAWN)) and mol.GetBoolProp(REDRAWN)
