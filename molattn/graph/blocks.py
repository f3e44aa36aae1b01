"""Which graphs share a padded block."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["plan_blocks"]

# What a block costs besides its pairs (a dozen kernel calls), in pairs of equal time.
_BLOCK_COST = 2_000


def plan_blocks(sizes: NDArray[np.int64], block_cost: int = _BLOCK_COST) -> list[tuple[int, int]]:
    """Cut ascending sizes into runs of least cost.

    A run of ``B`` graphs padded to ``N`` nodes costs ``B N^2 + block_cost``; the best partition
    follows by dynamic programming over the distinct sizes.

    Args:
        sizes: Numbers of nodes, ascending.
        block_cost: Price of one more block, in pairs.

    Returns:
        Half-open index ranges that cover ``sizes`` in order.
    """
    if sizes.size == 0:
        return []
    values, first = np.unique(sizes, return_index=True)
    start = np.append(first, sizes.size)  # run i..j-1 of values covers start[i] .. start[j]
    best = np.zeros(len(values) + 1)
    cut = np.zeros(len(values) + 1, dtype=np.int64)
    for end in range(1, len(values) + 1):
        padded = int(values[end - 1]) ** 2
        cost = best[:end] + (start[end] - start[:end]) * padded + block_cost
        cut[end] = np.argmin(cost)
        best[end] = cost[cut[end]]
    ranges: list[tuple[int, int]] = []
    end = len(values)
    while end > 0:
        ranges.append((int(start[cut[end]]), int(start[end])))
        end = int(cut[end])
    return ranges[::-1]
