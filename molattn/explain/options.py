"""What a user can choose of a method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from molattn.errors import InputError, check_one_of

from .subject import Masking

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """Options of methods; one that a method has no use for is of no account.

    Args:
        groups: What occlusion masks together: see :func:`molattn.explain.groups.atom_groups`.
        orders: In how many orders occlusion masks atoms.
        masking: What occlusion does to a masked atom, ``remove`` or ``blank``: see
            :meth:`molattn.explain.subject.Subject.keep`.
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
