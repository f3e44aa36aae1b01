"""Morgan fingerprints as bytes."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

__all__ = [
    "FINGERPRINT_BITS",
    "FINGERPRINT_BYTES",
    "FINGERPRINT_RADIUS",
    "compress_fingerprints",
    "expand_fingerprints",
    "packed_fingerprints",
]

FINGERPRINT_BITS = 2048
FINGERPRINT_BYTES = FINGERPRINT_BITS // 8
FINGERPRINT_RADIUS = 2
_LONG = 255


def packed_fingerprints(mols: Iterable[Chem.Mol]) -> NDArray[np.uint8]:
    """Return Morgan fingerprints of radius 2, ``uint8 [n, 256]``, the lowest bit of each first."""
    generator = rdFingerprintGenerator.GetMorganGenerator(
        radius=FINGERPRINT_RADIUS, fpSize=FINGERPRINT_BITS
    )
    texts = [DataStructs.BitVectToBinaryText(generator.GetFingerprint(mol)) for mol in mols]
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, FINGERPRINT_BYTES)


def compress_fingerprints(
    fingerprints: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return fingerprints as the gaps between their bits, about one byte for each bit that is set.

    A gap is the number of zero bits before a one: as many bytes of 255 as fit into it, then a byte
    for the rest.

    Args:
        fingerprints: Packed fingerprints ``[n, 256]``.

    Returns:
        The bytes of all fingerprints, and the number of bytes of each ``[n]``.
    """
    rows, places = np.nonzero(np.unpackbits(fingerprints, axis=1, bitorder="little"))
    is_first = np.diff(rows, prepend=-1) != 0
    gaps = np.where(is_first, places, np.diff(places, prepend=0) - 1)
    long, rest = np.divmod(gaps, _LONG)
    ends = np.cumsum(long + 1)
    content = np.full(ends[-1] if len(ends) else 0, _LONG, dtype=np.uint8)
    content[ends - 1] = rest
    lengths = np.bincount(rows, weights=long + 1, minlength=len(fingerprints))
    return content, lengths.astype(np.int64)


def expand_fingerprints(
    content: NDArray[np.uint8], lengths: NDArray[np.integer[Any]]
) -> NDArray[np.uint8]:
    """Return the fingerprints ``[n, 256]`` that :func:`compress_fingerprints` was given."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    is_rest = content != _LONG
    steps = np.cumsum(content.astype(np.int64) + is_rest)
    before = np.concatenate([[0], steps])[np.cumsum(lengths) - lengths]
    bits = np.zeros((len(lengths), FINGERPRINT_BITS), dtype=np.uint8)
    bits[rows[is_rest], (steps - before[rows])[is_rest] - 1] = 1
    return np.packbits(bits, axis=1, bitorder="little")
