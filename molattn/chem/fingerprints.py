"""Morgan fingerprints and their Tanimoto similarities."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

__all__ = [
    "FINGERPRINT_BYTES",
    "Fingerprint",
    "fingerprints",
    "SimilaritySearch",
    "packed_fingerprints",
    "similarities",
]

Fingerprint = Any
"""RDKit's ``ExplicitBitVect``."""

_BITS = 2048
FINGERPRINT_BYTES = _BITS // 8
"""Bytes of a packed fingerprint."""
_SET_BITS = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)


def fingerprints(mols: Iterable[Chem.Mol]) -> list[Fingerprint]:
    """Return Morgan fingerprints of radius 2 and 2,048 bits."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=_BITS)
    return [generator.GetFingerprint(mol) for mol in mols]


def packed_fingerprints(mols: Iterable[Chem.Mol]) -> NDArray[np.uint8]:
    """Return Morgan fingerprints as bytes, ``uint8 [n, 256]``, the lowest bit of each first."""
    texts = [DataStructs.BitVectToBinaryText(bits) for bits in fingerprints(mols)]
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, FINGERPRINT_BYTES)


def similarities(one: Fingerprint, others: Sequence[Fingerprint]) -> NDArray[np.float64]:
    """Return the Tanimoto similarity of one fingerprint to each of the others."""
    return np.array(DataStructs.BulkTanimotoSimilarity(one, list(others)), dtype=np.float64)


class SimilaritySearch:
    """Finds the similarity of molecules to the nearest of a set.

    Args:
        packed: Fingerprints of the set, of :func:`packed_fingerprints`, ``[m, 256]``, m > 0.
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        # One row for each byte of a fingerprint: of a query only the set bits are read, a few.
        self._by_byte = np.ascontiguousarray(packed.T)
        self._sizes = np.zeros(len(packed), dtype=np.int32)
        for byte in self._by_byte:
            self._sizes += _SET_BITS[byte]

    def nearest(self, packed: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return for each fingerprint its Tanimoto similarity to the nearest of the set.

        The number of common bits over the number of bits set in either; 0 without any.

        Args:
            packed: ``[n, 256]``.

        Returns:
            ``[n]``, from 0 to 1.
        """
        found = np.zeros(len(packed))
        masked = np.empty(len(self._sizes), dtype=np.uint8)
        has_bit = np.empty(len(self._sizes), dtype=bool)
        for row, fingerprint in enumerate(packed):
            bits = np.flatnonzero(np.unpackbits(fingerprint, bitorder="little"))
            # A byte for each count where it suffices, so that the counts stay in the cache.
            common = np.zeros(len(masked), dtype=np.uint8 if len(bits) < 256 else np.uint16)
            for bit in bits.tolist():
                np.bitwise_and(self._by_byte[bit // 8], np.uint8(1 << bit % 8), out=masked)
                np.not_equal(masked, 0, out=has_bit)
                np.add(common, has_bit, out=common)
            if len(bits):
                found[row] = (common / (self._sizes + len(bits) - common)).max()
        return found
