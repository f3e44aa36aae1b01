"""Morgan fingerprints as bytes."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

__all__ = ["FINGERPRINT_BYTES", "packed_fingerprints"]

_BITS = 2048
FINGERPRINT_BYTES = _BITS // 8


def packed_fingerprints(mols: Iterable[Chem.Mol]) -> NDArray[np.uint8]:
    """Return Morgan fingerprints of radius 2, ``uint8 [n, 256]``, the lowest bit of each first."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=_BITS)
    texts = [DataStructs.BitVectToBinaryText(generator.GetFingerprint(mol)) for mol in mols]
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, FINGERPRINT_BYTES)
