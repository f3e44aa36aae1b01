"""The molecules that a model was trained on, and how like them another one is."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from molattn.chem import parse_smiles
from molattn.chem.fingerprints import FINGERPRINT_BYTES, SimilaritySearch, packed_fingerprints
from molattn.errors import InputError
from molattn.utils.files import write_file

__all__ = ["MOST_KEPT", "FingerprintIndex"]

MOST_KEPT = 100_000
"""Most fingerprints kept with a model: 25.6 MB."""
_TENSOR = "fingerprints"


class FingerprintIndex:
    """Fingerprints of training molecules: Morgan, radius 2, 2,048 bits in 256 bytes each.

    Of more than 100,000 different ones so many are drawn at random; the nearest of those may then
    be less similar than the nearest of all.

    Args:
        fingerprints: ``uint8 [m, 256]``, one or more.
    """

    def __init__(self, fingerprints: NDArray[np.uint8]) -> None:
        self.fingerprints = fingerprints

    @classmethod
    def from_smiles(cls, smiles: Sequence[str], seed: int = 0) -> "FingerprintIndex":
        """Keep the fingerprints of some molecules.

        Args:
            smiles: One or more.
            seed: Seed of which are kept where there are too many.

        Raises:
            SmilesError: A text that is not a molecule.
            InputError: No molecule.
        """
        if not len(smiles):
            raise InputError("training molecules: got none, expected one or more")
        found = packed_fingerprints(map(parse_smiles, smiles))
        found = np.unique(found, axis=0)
        if len(found) > MOST_KEPT:
            rng = np.random.default_rng(seed)
            found = found[np.sort(rng.choice(len(found), MOST_KEPT, replace=False))]
        return cls(found)

    @classmethod
    def load(cls, path: Path) -> "FingerprintIndex":
        """Read what :meth:`save` wrote.

        Raises:
            InputError: A file that is damaged or is none of those.
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
        """Write them to a file, there whole or not at all."""
        write_file(path, safetensors.numpy.save({_TENSOR: self.fingerprints}))

    def similarity(self, molecules: Sequence[str] | NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return for each molecule its Tanimoto similarity to the nearest of these, ``[n]``.

        Args:
            molecules: SMILES, or fingerprints ``uint8 [n, 256]`` where they are known.

        Raises:
            SmilesError: A text that is not a molecule.
        """
        if not isinstance(molecules, np.ndarray):
            molecules = packed_fingerprints(map(parse_smiles, molecules))
        return self._search.nearest(molecules)

    def have(self, smiles: Sequence[str]) -> list[bool]:
        """Return for each molecule whether one of these has its fingerprint.

        Chains that differ in length alone may share theirs, as may mirror images.

        Raises:
            SmilesError: A text that is not a molecule.
        """
        known = {row.tobytes() for row in self.fingerprints}
        return [row.tobytes() in known for row in packed_fingerprints(map(parse_smiles, smiles))]

    @cached_property
    def _search(self) -> SimilaritySearch:
        return SimilaritySearch(self.fingerprints)
