"""Morgan fingerprints, and how alike they are."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

__all__ = ["Fingerprint", "fingerprints", "nearest_similarity", "similarities"]

Fingerprint = Any
"""RDKit's ``ExplicitBitVect``."""


def fingerprints(mols: Iterable[Chem.Mol]) -> list[Fingerprint]:
    """Return Morgan fingerprints of radius 2 and 2,048 bits."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    return [generator.GetFingerprint(mol) for mol in mols]


def similarities(one: Fingerprint, others: Sequence[Fingerprint]) -> NDArray[np.float64]:
    """Return the Tanimoto similarity of a fingerprint to each of others."""
    return np.array(DataStructs.BulkTanimotoSimilarity(one, list(others)), dtype=np.float64)


def nearest_similarity(mols: Iterable[Chem.Mol], known: Iterable[Chem.Mol]) -> NDArray[np.float64]:
    """Return for each molecule the similarity of the most similar known one.

    Args:
        mols: n molecules.
        known: One or more molecules.
    """
    others = fingerprints(known)
    return np.array([similarities(one, others).max() for one in fingerprints(mols)])
