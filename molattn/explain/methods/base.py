"""What a user can choose of a method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional, get_args

import numpy as np
from numpy.typing import NDArray

from molattn.errors import InputError, check_one_of
from molattn.explain.instance import Masking

__all__ = ["MethodOptions", "Scores", "at_bonds"]


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


@dataclass(frozen=True)
class MethodOptions:
    """MethodOptions of methods; one that a method has no use for is of no account.

    Args:
        groups: What occlusion masks together: see :func:`molattn.explain.methods.atom_groups.atom_groups`.
        orders: In how many orders occlusion masks atoms.
        masking: What occlusion does to a masked atom, ``remove`` or ``blank``: see
            :meth:`molattn.explain.instance.Instance.keep`.
        tolerance: How far scores may be from adding up, in standard deviations of the training
            targets; of a class, in log-odds.
        seed: Seed of the orders.

    Raises:
        InputError: A value that is none of these.
    """

    groups: str | Sequence[Sequence[int]] = "atoms"
    orders: int = 16
    masking: Masking = "remove"
    tolerance: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        check_one_of("masking", self.masking, get_args(Masking))
        if self.orders < 1:
            raise InputError(f"orders: got {self.orders}, expected 1 or more")
        if not self.tolerance > 0:
            raise InputError(f"tolerance: got {self.tolerance}, expected more than 0")
