"""Molecules as one row of numbers: Morgan counts and descriptors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rdkit.Chem import Descriptors, rdFingerprintGenerator

from molattn.chem.parse import parse_smiles
from molattn.chem.quiet import quiet

__all__ = ["fingerprints_and_descriptors"]

_RADIUS = 2
_BITS = 2048


def fingerprints_and_descriptors(smiles: Sequence[str]) -> NDArray[np.float32]:
    """Return Morgan counts (radius 2, 2,048 of them) and RDKit's 2-D descriptors.

    A descriptor that is undefined for a molecule is 0 there.

    Args:
        smiles: n molecules.

    Returns:
        ``[n, 2048 + descriptors]``, finite.

    Raises:
        SmilesError: A text that is not a molecule.
    """
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS, fpSize=_BITS)
    names = [name for name, _ in Descriptors.descList]
    rows = np.zeros((len(smiles), _BITS + len(names)), dtype=np.float64)
    with quiet:
        for row, text in zip(rows, smiles, strict=True):
            mol = parse_smiles(text)
            row[:_BITS] = generator.GetCountFingerprintAsNumPy(mol)
            values = Descriptors.CalcMolDescriptors(mol, missingVal=np.nan, silent=True)
            row[_BITS:] = [values[name] for name in names]
    # Some descriptors overflow, or are undefined.
    limit = float(np.finfo(np.float32).max)
    return np.nan_to_num(rows).clip(-limit, limit).astype(np.float32)
