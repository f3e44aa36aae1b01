"""Hashed counts of Morgan environments and atom pairs, stored sparsely."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

__all__ = ["COUNT_GROUPS", "NUM_COUNTS", "HashedCounts", "SubstructureCounter"]

_SIZE = 1024
_RADIUS = 2
COUNT_GROUPS = {"morgan": slice(0, _SIZE), "atom_pairs": slice(_SIZE, 2 * _SIZE)}
"""Positions of each kind of count."""
NUM_COUNTS = 2 * _SIZE


class HashedCounts(NamedTuple):
    """Non-zero counts of a molecule, at most 255 each, and their positions, ascending ``[k]``."""

    places: NDArray[np.uint16]
    counts: NDArray[np.uint8]


class SubstructureCounter:
    """Counts Morgan environments and atom pairs of a molecule, each hashed to 1,024 positions.

    Environments have radius 0 to 2 (Rogers and Hahn, J. Chem. Inf. Model. 2010, 50, 742); a pair is
    the types of two atoms and their distance in bonds (Carhart et al., J. Chem. Inf. Comput. Sci.
    1985, 25, 64).

    Example:
        >>> SubstructureCounter()(Chem.MolFromSmiles("CC")).counts
        array([2, 1, 1], dtype=uint8)
    """

    def __call__(self, mol: Chem.Mol) -> HashedCounts:
        """Return the counts of a sanitized molecule."""
        counts = np.concatenate(
            [generator.GetCountFingerprintAsNumPy(mol) for generator in self._generators]
        )
        places = np.flatnonzero(counts)
        return HashedCounts(
            places.astype(np.uint16), np.minimum(counts[places], 255).astype(np.uint8)
        )

    def __reduce__(self) -> tuple[type["SubstructureCounter"], tuple[()]]:
        return type(self), ()  # without RDKit's generators, which cannot be pickled

    @cached_property
    def _generators(self) -> tuple[Any, ...]:
        return (
            rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS, fpSize=_SIZE),
            rdFingerprintGenerator.GetAtomPairGenerator(fpSize=_SIZE),
        )
