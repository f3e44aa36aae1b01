"""Molecular descriptors that several peers use."""

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import Descriptors

_LARGEST = 1e30


def molecule(smiles: str) -> Chem.Mol:
    """Return the molecule of a SMILES; the script ends with a message if it is none."""
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raise SystemExit(f"{smiles!r} is no molecule to RDKit")
    return mol


def descriptors(mol: Chem.Mol) -> NDArray[np.float64]:
    """Return all of RDKit's 2D descriptors, NaN where a molecule has none."""
    found = Descriptors.CalcMolDescriptors(mol, missingVal=np.nan)
    numbers = np.array(list(found.values()), dtype=np.float64)
    numbers[~(np.abs(numbers) < _LARGEST)] = np.nan  # Ipc overflows
    return numbers
