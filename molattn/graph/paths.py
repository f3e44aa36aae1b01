"""Shortest paths between all nodes of a graph."""

import torch
from torch import Tensor

__all__ = ["path_lengths"]


def path_lengths(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the number of edges on the shortest path between each two nodes.

    All nodes search at once, breadth first: step ``d`` follows the edges out of the pairs at
    distance ``d - 1``, so that a node's edges are followed once for each start.

    Args:
        edge_index: Edges, sender to receiver, ``[2, E]``.
        num_nodes: Number of nodes ``n``.

    Returns:
        ``int64 [n, n]``, row = start, column = end; -1 where there is no path.
    """
    order = edge_index[0].argsort(stable=True)
    receivers = edge_index[1][order]
    degree = torch.bincount(edge_index[0], minlength=num_nodes)
    first = degree.cumsum(0) - degree
    start = end = torch.arange(num_nodes, device=edge_index.device)
    length = edge_index.new_full((num_nodes * num_nodes,), -1)
    length[start * num_nodes + end] = 0
    step = 0
    while start.numel():
        step += 1
        out = degree[end]
        start = start.repeat_interleave(out)
        within = torch.arange(start.numel(), device=out.device)
        within -= (out.cumsum(0) - out).repeat_interleave(out)
        pair = start * num_nodes + receivers[first[end].repeat_interleave(out) + within]
        pair = pair[length[pair] < 0].unique()
        length[pair] = step
        start, end = pair // num_nodes, pair % num_nodes
    return length.view(num_nodes, num_nodes)
