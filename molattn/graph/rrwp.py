"""Relative random walk probabilities (RRWP)."""

from typing import Optional

import torch
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform

from molattn.graph.transforms import GraphTransform, check_single, read_bonds, read_edges


@functional_transform("rrwp")
class RRWP(GraphTransform):
    r"""Append to each edge the probabilities of random walks on bonds between its nodes.

    Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing", section 3.1:

    .. math::
        R_{ij} = [\, I, P, P^2, \ldots, P^{K-1} \,]_{ij}, \qquad P = D^{-1} A

    for the edge from the sender :math:`j` to the receiver :math:`i`, of walks from :math:`i` to
    :math:`j`, with the adjacency :math:`A` of the bonds and their number :math:`D` at each node; a
    node without bonds ends the walk. ``rrwp`` ``[n, K]`` are
    those of nodes, :math:`R_{ii}`.

    The transform adds no edges: apply :class:`CompleteGraph` before it. Functional name: ``rrwp``.

    Args:
        walk_length: Number of probabilities :math:`K`: those of 0 to :math:`K - 1` steps.
        bond_column: See :class:`CompleteGraph`, after which it is -2.

    Example:
        >>> from molattn.graph import CompleteGraph
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = CompleteGraph(self_loops=True)(Data(edge_index=bonds, num_nodes=3))
        >>> data = RRWP(3, bond_column=-2)(data)
        >>> data.edge_index[:, 1].tolist(), data.edge_attr[1].tolist()  # bond, distance, RRWP
        ([0, 1], [1.0, 1.0, 0.0, 0.5, 0.0])
        >>> data.rrwp[0].tolist()
        [1.0, 0.0, 0.5]
    """

    def __init__(self, walk_length: int, *, bond_column: Optional[int] = None) -> None:
        self.walk_length = walk_length
        self.bond_column = bond_column

    def forward(self, data: Data) -> Data:
        """Transform a graph."""
        num_nodes = check_single(data, self)
        bonds, _ = read_bonds(data, num_nodes, self.bond_column)
        edge_index, features = read_edges(data)
        walk = torch.eye(num_nodes, dtype=torch.float64, device=edge_index.device)
        step = torch.zeros_like(walk)
        step[bonds[0], bonds[1]] = 1
        step /= step.sum(dim=1, keepdim=True).clamp_min(1)
        edges, nodes = [], []
        for length in range(self.walk_length):
            walk = walk @ step if length else walk
            edges.append(walk[edge_index[1], edge_index[0]])
            nodes.append(walk.diagonal())
        dtype = torch.get_default_dtype()
        data.edge_attr = torch.cat([features, torch.stack(edges, dim=-1).to(dtype)], dim=-1)
        data.rrwp = torch.stack(nodes, dim=-1).to(dtype)
        return data
