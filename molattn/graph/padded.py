"""A layout of complete graphs that tensors describe, so that an exported network has any sizes."""

from typing import Any

import torch
from torch import Tensor

from molattn.graph.complete import Block, CompleteGraphs


class PaddedGraphs(CompleteGraphs):
    """Graphs padded to one size, in one block, of sizes that ``torch.export`` knows as symbols.

    Rows are nodes, those of padding too, which are the nodes of a last graph of their own.

    Args:
        nodes: Which rows are nodes, ``bool [B, N]``.
        edges: Which pairs are edges, ``bool [B, N receivers, N senders]``.
    """

    def __init__(self, nodes: Tensor, edges: Tensor) -> None:
        graphs, size = nodes.shape
        self.blocks = (Block(graphs, size, 0, 0),)
        self.self_loops = True
        self.kept = edges.flatten()
        self._rows_at_end = 0
        self.num_graphs = graphs + 1
        self.num_nodes = graphs * size
        self.num_rows = graphs * size
        self.num_pairs = graphs * size * size
        number = torch.arange(graphs, device=nodes.device).unsqueeze(1)
        self.row_mask = nodes.flatten()
        self.batch = self.row_graph = torch.where(nodes, number, graphs).flatten()
        self._edge_mask = edges

    @property
    def is_listed(self) -> bool:
        """False: there is one block, whatever the sizes."""
        return False

    @property
    def pair_masks(self) -> tuple[Tensor, ...]:
        """See :class:`CompleteGraphs`."""
        return (self._edge_mask,)

    @property
    def isolated_rows(self) -> tuple[Tensor, ...]:
        """See :class:`CompleteGraphs`."""
        return (~self._edge_mask.any(dim=-1),)

    def with_edges(self, kept: Tensor) -> "PaddedGraphs":  # name: as the attribute
        """See :class:`CompleteGraphs`."""
        nodes = self.row_mask.view(self._edge_mask.shape[:2])
        return PaddedGraphs(nodes, self._edge_mask & kept.view_as(self._edge_mask))

    def rows_to_nodes(self, rows: Tensor) -> Tensor:
        """Return the rows: each row is a node."""
        return rows

    nodes_to_rows: Any = rows_to_nodes
