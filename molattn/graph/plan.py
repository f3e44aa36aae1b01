"""The plan of a layout: which graphs are padded to one size."""

import numpy as np
from numpy.typing import NDArray

# Costs as a number of pairs that take the same time, measured on a CPU at width 128: a row of the
# linear maps before and after attention, and the calls of one more block (4,000 is level, too).
_ROW_COST = 40
_BLOCK_COST = 2_500
# On a GPU an estimate: some 40 kernels of 5 us each, against less than 1 ns for a pair of 8 heads.
_BLOCK_COST_ON_GPU = 250_000


def plan_blocks(
    sizes: NDArray[np.int64], block_cost: int = _BLOCK_COST, row_cost: int = _ROW_COST
) -> list[tuple[int, int]]:
    """Partition ascending sizes into runs of least total cost, as half-open index ranges.

    A run of ``B`` graphs padded to ``N`` nodes costs ``B (N^2 + row_cost N) + block_cost`` pairs;
    the best partition follows by dynamic programming over the distinct sizes.
    """
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


def plan_layout(
    count: NDArray[np.int64], order: NDArray[np.int64], on_cpu: bool
) -> list[tuple[int, int, int]]:
    """Plan blocks of graphs of ``count`` nodes: a range of ``order``, and the padded size of each.

    If the rows would be the nodes in another order, a block gets one more row per graph, so that
    node features are never taken for rows: there are more rows than nodes, or they are the same.
    """
    ranges = plan_blocks(count[order], _BLOCK_COST if on_cpu else _BLOCK_COST_ON_GPU)
    blocks = [(first, last, int(count[order[last - 1]])) for first, last in ranges]
    blocks = [block for block in blocks if block[2]]  # graphs without nodes have no rows
    rows = sum((last - first) * nodes for first, last, nodes in blocks)
    if rows == count.sum() and (np.diff(count[count > 0]) < 0).any():
        costs = [(last - first) * (2 * nodes + 1) for first, last, nodes in blocks]
        cheapest = int(np.argmin(costs))
        first, last, nodes = blocks[cheapest]
        blocks[cheapest] = (first, last, nodes + 1)
    return blocks
