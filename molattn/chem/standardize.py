"""The standard form of a molecule: its largest fragment, neutral, as canonical tautomer."""

from functools import cache
from typing import Any

import numpy as np
from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize

from molattn.chem.parse import atom_numbers, number_atoms, parse_accepted, quiet

__all__ = ["standardize", "standardized_smiles"]

_SMILES = "_molattn_standardized"


def standardize(mol: Chem.Mol, *, reorder: bool = False) -> Chem.Mol:
    """Return the standard form of a molecule, by RDKit's ``rdMolStandardize``.

    These are its largest fragment, uncharged where hydrogen atoms can be added or removed, and of
    that the canonical tautomer, within RDKit's limits. Stereocenters that it still has are kept: by
    default, RDKit removes those of all amino acids. The labels of double bonds that can move are
    removed. The same molecule is returned if nothing changes. With ``reorder`` the atoms are in the
    order of the canonical SMILES, else they keep their order.

    Raises:
        ValueError: RDKit cannot standardize it; also as ``RuntimeError``.
    """
    choose, uncharge, canonicalize = _steps()
    with quiet:
        neutral = uncharge(choose(mol))
        Chem.SanitizeMol(neutral)  # such as cyclopentadiene, no longer aromatic
        form = Chem.RemoveHs(canonicalize(neutral))  # [H]/N= keeps its hydrogen for its label
        smiles = Chem.MolToSmiles(form)
        if smiles == Chem.MolToSmiles(mol):
            return mol
    found = parse_accepted(smiles)  # so that it is what anyone else reads from its SMILES
    if not reorder:
        order = form.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
        found = Chem.RenumberAtoms(found, np.argsort(order).tolist())
        number_atoms(found, atom_numbers(form))
        Chem.GetSymmSSSR(found)  # or ranking the atoms would clear its rings
    found.SetProp(_SMILES, smiles)
    return found


def standardized_smiles(mol: Chem.Mol) -> str:
    """Return the canonical SMILES of what :func:`standardize` returned, "" if nothing changed."""
    return mol.GetProp(_SMILES) if mol.HasProp(_SMILES) else ""


@cache
def _steps() -> tuple[Any, Any, Any]:
    tautomers = rdMolStandardize.TautomerEnumerator()
    tautomers.SetRemoveSp3Stereo(False)
    chooser, uncharger = rdMolStandardize.LargestFragmentChooser(), rdMolStandardize.Uncharger()
    return chooser.choose, uncharger.uncharge, tautomers.Canonicalize
