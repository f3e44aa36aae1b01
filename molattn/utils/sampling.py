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
    turns = np.where(known[order], known[order].cumsum(axis=0), len(order) + 1).min(axis=1)
    return order[np.argsort(turns, kind="stable")]
