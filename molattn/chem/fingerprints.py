"""Morgan fingerprints with counts."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

__all__ = [
    "FINGERPRINT_RADIUS",
    "FINGERPRINT_SIZE",
    "Fingerprint",
    "morgan_fingerprint",
    "split_fingerprints",
]

FINGERPRINT_SIZE = 2048
FINGERPRINT_RADIUS = 2
_GENERATOR = rdFingerprintGenerator.GetMorganGenerator(
    radius=FINGERPRINT_RADIUS, fpSize=FINGERPRINT_SIZE
)

Fingerprint = NDArray[np.uint16]
"""Positions, below 2,048, of the c atom environments of a molecule, ascending ``[c]``.

A position is there as often as it is counted: 2 times 7 and once 9 are ``[7, 7, 9]``.
"""


def morgan_fingerprint(mol: Chem.Mol) -> Fingerprint:
    """Return the fingerprint of a sanitized molecule, of radius 2.

    Example:
        >>> morgan_fingerprint(Chem.MolFromSmiles("CC")).tolist()
        [80, 80, 1057]
    """
    # Pairs of position and count after four numbers: much faster than RDKit's dictionary.
    found = np.frombuffer(_GENERATOR.GetCountFingerprint(mol).ToBinary(), dtype=np.uint32)[4:]
    return np.repeat(found[::2].astype(np.uint16), found[1::2])


def split_fingerprints(
    positions: Fingerprint, lengths: NDArray[np.integer[Any]]
) -> Sequence[Fingerprint]:
    """Return fingerprints of the given lengths that are stored one after another."""
    ends = accumulate(lengths.tolist(), initial=0)
    return [positions[start:end] for start, end in pairwise(ends)]
