"""Samples of rows in which no target is forgotten."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_turn"]


def in_turn(order: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Reorder n rows so that tasks take turns: the first with each label, the second, and so on.

    Args:
        order: Order of the rows, ``[n]``.
        known: Which labels each row has, ``[n, T]``; rows without any come last.
    """
    turns = np.full(len(order), len(order) + 1)
    for of_task in known.T:
        is_known = of_task[order]
        turns = np.where(is_known, np.minimum(turns, is_known.cumsum()), turns)
    return order[np.argsort(turns, kind="stable")]
