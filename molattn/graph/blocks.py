"""Which graphs share a padded block."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["plan_blocks"]

# In pairs of equal time, by measurement on a CPU at width 128: a row of the linear maps before and
# after attention, and the kernel calls of one more block.
_ROW_COST = 40
_BLOCK_COST = 1_500


def plan_blocks(
    sizes: NDArray[np.int64], block_cost: int = _BLOCK_COST, row_cost: int = _ROW_COST
) -> list[tuple[int, int]]:
    """Cut ascending sizes into runs of least cost.

    A run of ``B`` graphs padded to ``N`` nodes costs ``B (N^2 + row_cost N) + block_cost``; the
    best partition follows by dynamic programming over the distinct sizes.

    Args:
        sizes: Numbers of nodes, ascending.
        block_cost: Price of one more block, in pairs.
        row_cost: Price of one more row of nodes, in pairs.

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
        nodes = int(values[end - 1])
        padded = nodes * (nodes + row_cost)
        cost = best[:end] + (start[end] - start[:end]) * padded + block_cost
        cut[end] = np.argmin(cost)
        best[end] = cost[cut[end]]
    ranges: list[tuple[int, int]] = []
    end = len(values)
    while end > 0:
        ranges.append((int(start[cut[end]]), int(start[end])))
        end = int(cut[end])
    return ranges[::-1]
