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
    that the canonical tautomer. The tautomers are enumerated within RDKit's limits. Stereocenters
    that the canonical tautomer still has are kept, unlike by default in RDKit: the default removes
    those of all amino acids. The labels of double bonds that can move are removed.

    Args:
        mol: A molecule as :func:`molattn.chem.parse_smiles` reads it; the same one is returned if
            its canonical SMILES is that of its standard form.
        reorder: Whether the atoms are put in the order of the canonical SMILES; otherwise those
            that are left keep their order.

    Raises:
        ValueError: RDKit cannot standardize it; also as ``RuntimeError``.

    Example:
        >>> from molattn.chem import parse_smiles
        >>> standardized_smiles(standardize(parse_smiles("[Na+].[O-]c1ccccn1")))
        'O=c1cccc[nH]1'
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
