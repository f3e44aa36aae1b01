"""Hashed counts of substructures and of atom pairs: few of many places, so stored by place."""

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
"""Where the counts of each kind stand among all."""
NUM_COUNTS = 2 * _SIZE


class HashedCounts(NamedTuple):
    """Counts of one molecule that are not zero.

    Args:
        places: Where, ascending, ``uint16 [k]``.
        counts: How many, at most 255, ``uint8 [k]``.
    """

    places: NDArray[np.uint16]
    counts: NDArray[np.uint8]


class SubstructureCounter:
    """Counts the atom environments and the atom pairs of a molecule, each folded to 1,024 places.

    Environments are those of Morgan's algorithm of radius 0 to 2 (Rogers and Hahn, J. Chem. Inf.
    Model. 2010, 50, 742); a pair is two atoms' types and the bonds between them (Carhart et al., J.
    Chem. Inf. Comput. Sci. 1985, 25, 64).

    Example:
        >>> SubstructureCounter()(Chem.MolFromSmiles("CC")).counts
        array([2, 1, 1], dtype=uint8)
    """

    def __call__(self, mol: Chem.Mol) -> HashedCounts:
        """Count.

        Args:
            mol: A sanitised molecule.
        """
        counts = np.concatenate(
            [generator.GetCountFingerprintAsNumPy(mol) for generator in self._generators]
        )
        places = np.flatnonzero(counts)
        most = np.iinfo(np.uint8).max
        return HashedCounts(
            places.astype(np.uint16), np.minimum(counts[places], most).astype(np.uint8)
        )

    @cached_property
    def _generators(self) -> tuple[Any, ...]:
        return (
            rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS, fpSize=_SIZE),
            rdFingerprintGenerator.GetAtomPairGenerator(fpSize=_SIZE),
        )
