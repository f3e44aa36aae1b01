"""Nodes within some number of edges of each other, in memory linear in the pairs found."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pairs_within"]


def pairs_within(
    num_nodes: int, edge_index: NDArray[np.integer], radius: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return all ordered pairs of nodes with a path of at most ``radius`` edges between them.

    Args:
        num_nodes: Number of nodes ``n``.
        edge_index: Edges in both directions, ``[2, E]``.
        radius: Longest path, at least 1.

    Returns:
        The pairs ``[2, P]``, each node with itself among them, sorted by the first node, then the
        second; and the number of edges of the shortest path of each, ``[P]``.
    """
    from scipy.sparse import csr_array  # a tenth of a second that most molecules do not need

    ones = np.ones(edge_index.shape[1], dtype=np.int32)
    steps = csr_array((ones, (edge_index[0], edge_index[1])), shape=(num_nodes, num_nodes))
    nodes = np.arange(num_nodes, dtype=np.int32)
    latest: Any = csr_array((np.ones_like(nodes), (nodes, nodes)), shape=steps.shape)
    reached: Any = latest
    pairs, distances = [np.stack([nodes, nodes])], [np.zeros_like(nodes)]
    for distance in range(1, radius + 1):
        latest = latest @ steps
        latest.data[:] = 1
        latest = latest - latest * reached
        latest.eliminate_zeros()
        if not latest.nnz:
            break
        reached = reached + latest
        pairs.append(np.stack(latest.nonzero()).astype(np.int32))
        distances.append(np.full(latest.nnz, distance, dtype=np.int32))
    found, length = np.concatenate(pairs, axis=1), np.concatenate(distances)
    order = np.lexsort(found[::-1])
    return found[:, order], length[order]
