"""Which atoms and atom pairs of a molecule are hidden."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hidden", "hide"]

BONDED_PART = 0.5
"""Part of a hidden atom's bonds that is hidden with it."""
OTHER_PART = 0.05
"""Part of its other pairs: about as many as bonds, of the 27 atoms of a usual molecule."""


class Hidden(NamedTuple):
    """What is hidden of one molecule.

    Args:
        atoms: Which atoms, ascending ``[m]``.
        first: One atom of each hidden pair ``[p]``.
        second: The other, a larger number; a pair is hidden in both directions.
    """

    atoms: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]


def hide(is_bonded: NDArray[np.bool_], part: float, random: np.random.Generator) -> Hidden:
    """Choose what to hide.

    Args:
        is_bonded: Which pairs are bonded, ``[n, n]``.
        part: Part of the atoms; at least one.
        random: Where numbers come from.
    """
    count = len(is_bonded)
    atoms = np.sort(random.choice(count, size=max(1, round(part * count)), replace=False))
    chance = np.where(is_bonded[atoms], BONDED_PART, OTHER_PART)
    chosen = np.zeros((count, count), dtype=bool)
    chosen[atoms] = random.random((len(atoms), count)) < chance
    first, second = np.nonzero(np.triu(chosen | chosen.T, k=1))
    return Hidden(atoms, first, second)
