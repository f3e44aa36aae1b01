"""What every method gives."""

from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scores", "at_bonds"]


class Scores(NamedTuple):
    """Scores of one molecule.

    Args:
        atoms: ``[n]``.
        bonds: One for each bond.
        baseline: What the atoms' scores count from, for a signed method.
    """

    atoms: NDArray[np.float64]
    bonds: NDArray[np.float64]
    baseline: Optional[float] = None


def at_bonds(matrix: NDArray[np.float64], bonds: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Add up a matrix ``[n, n]`` over both directions of each bond."""
    ends = np.array(bonds, dtype=np.int64).reshape(-1, 2)
    return matrix[ends[:, 0], ends[:, 1]] + matrix[ends[:, 1], ends[:, 0]]
