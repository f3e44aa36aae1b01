"""Fingerprints of the training molecules, and the similarity of others to them."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from molattn.chem.fingerprints import FINGERPRINT_BYTES, SimilaritySearch, packed_fingerprints
from molattn.chem.parse import parse_smiles
from molattn.errors import InputError
from molattn.utils.files import write_file

__all__ = ["MOST_KEPT", "FingerprintIndex"]

MOST_KEPT = 100_000
"""Most fingerprints kept with a model: 25.6 MB."""
_TENSOR = "fingerprints"


class FingerprintIndex:
    """Morgan fingerprints of the training molecules: radius 2, 2,048 bits in 256 bytes each.

    This is the model's applicability domain: a molecule unlike all of these is predicted less
    accurately. Of more than 100,000 distinct fingerprints a random sample of that size is kept; the
    nearest of the sample may be less similar than the nearest of all.

    Args:
        fingerprints: ``uint8 [m, 256]``, one or more.
    """

    def __init__(self, fingerprints: NDArray[np.uint8]) -> None:
        self.fingerprints = fingerprints

    @classmethod
    def from_smiles(cls, smiles: Sequence[str], seed: int = 0) -> "FingerprintIndex":
        """Keep the fingerprints of some molecules, as :meth:`from_fingerprints`.

        Args:
            smiles: One or more.
            seed: Seed of the sample where there are too many.

        Raises:
            SmilesError: A text that is not a molecule.
            InputError: No molecule.
        """
        return cls.from_fingerprints(packed_fingerprints(map(parse_smiles, smiles)), seed)

    @classmethod
    def from_fingerprints(
        cls, fingerprints: NDArray[np.uint8], seed: int = 0
    ) -> "FingerprintIndex":
        """Keep the distinct ones of some fingerprints, or a sample of ``MOST_KEPT`` of them.

        Args:
            fingerprints: Of :func:`molattn.chem.fingerprints.packed_fingerprints`, ``[n, 256]``.
            seed: Seed of the sample.

        Raises:
            InputError: No fingerprint.
        """
        if not len(fingerprints):
            raise InputError("training molecules: got none, expected one or more")
        found = np.unique(fingerprints, axis=0)
        if len(found) > MOST_KEPT:
            rng = np.random.default_rng(seed)
            found = found[np.sort(rng.choice(len(found), MOST_KEPT, replace=False))]
        return cls(found)

    @classmethod
    def load(cls, path: Path) -> "FingerprintIndex":
        """Read what :meth:`save` wrote.

        Raises:
            InputError: The file is damaged or holds something else.
        """
        try:
            found = safetensors.numpy.load_file(path).get(_TENSOR, np.zeros(0))
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: not a readable file of fingerprints: {error}") from error
        if (
            found.ndim != 2
            or not len(found)
            or found.shape[1] != FINGERPRINT_BYTES
            or found.dtype != np.uint8
        ):
            raise InputError(
                f"{path}: got {found.dtype} {list(found.shape)}, expected uint8 "
                f"[molecules, {FINGERPRINT_BYTES}]"
            )
        return cls(found)

    def save(self, path: Path) -> None:
        """Write the fingerprints to a file, whole or not at all."""
        write_file(path, safetensors.numpy.save({_TENSOR: self.fingerprints}))

    def similarity(self, molecules: Sequence[str] | NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return each molecule's Tanimoto similarity to the nearest of these, ``[n]``.

        Args:
            molecules: n SMILES, or their fingerprints ``uint8 [n, 256]``.

        Raises:
            SmilesError: A text that is not a molecule.
        """
        return self._search.nearest(_fingerprints(molecules))

    def contains(self, molecules: Sequence[str] | NDArray[np.uint8]) -> list[bool]:
        """Return for each molecule whether its fingerprint is among these.

        Different molecules can share a fingerprint: chains of different length, mirror images.

        Args:
            molecules: SMILES, or their fingerprints ``uint8 [n, 256]``.

        Raises:
            SmilesError: A text that is not a molecule.
        """
        known = {row.tobytes() for row in self.fingerprints}
        return [row.tobytes() in known for row in _fingerprints(molecules)]

    @cached_property
    def _search(self) -> SimilaritySearch:
        return SimilaritySearch(self.fingerprints)


def _fingerprints(molecules: Sequence[str] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    if isinstance(molecules, np.ndarray) and molecules.dtype == np.uint8:
        return molecules
    return packed_fingerprints(map(parse_smiles, molecules))
