"""Residual blocks that update nodes and edges (EGT, TGT)."""

from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch_geometric.nn.resolver import activation_resolver
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter

from molattn.graph.complete import CompleteGraphs
from molattn.nn.dense.linear import Linear
from molattn.nn.encoder import AttentionBlock, has_bias
from molattn.nn.graph_inputs import (
    EdgeAttr,
    Edges,
    Nodes,
    as_rows,
    edge_features,
    edge_list,
    like_input,
    one_set,
)
from molattn.nn.normalization import make_norm, normalize_rows


class GraphTransformerBlock(AttentionBlock):
    r"""A residual block with feed-forward networks of nodes and of edges.

    .. math::
        (a, c) &= \mathrm{attention}(\mathrm{LN}(x), \mathrm{LN}(e)), \qquad h = x + a + z \\
        x' &= h + \mathrm{FF}(\mathrm{LN}(h)) \\
        f &= e + c, \qquad g = f + \mathrm{triplet}(\mathrm{LN}(f)), \qquad
        e' = g + \mathrm{FF}(\mathrm{LN}(g))

    in the order of EGT and TGT (Hussain et al. 2022 and 2024), pre-norm; :math:`c = 0` where the
    layer does not update edges. Stack such blocks in an :class:`Encoder`.

    Args:
        conv: The layer, a function of ``(x, edge_index, edge_attr)`` that returns :math:`a` or, as
            the layers of molattn do, :math:`(a, \mathrm{LN}(e) + c)`.
        channels: Number of node features.
        edge_dim: Number of edge features.
        triplet: A layer of pairs such as :class:`TripletAttention`, on
            :class:`~molattn.graph.CompleteGraphs` alone; None = :math:`g = f`.
        update_edges: Return :math:`e'`; if False, :math:`e`, as nobody reads those of a last block.
        virtual_node: Add to each node :math:`z = \mathrm{SiLU}(W \bar x)`, where :math:`\bar x` is
            the mean of :math:`\mathrm{LN}(x)` over its graph (a virtual node, Gilmer et al. 2017,
            without a state of its own); otherwise :math:`z = 0`.
        expansion: Hidden widths of FF, as a multiple of the number of features.
        dropout: Dropout probability of each term that is added.
        drop_path: Probability with which a term is dropped for a whole graph (stochastic depth).
        norm: LN of nodes and of edges: ``layer``; ``batch``, whose statistics are of real nodes and
            edges alone; another one of PyG's, such as ``graph`` or ``instance``; None = no
            normalization.
        act: Activation of FF and of :math:`z`, by its name in torch.
        source_dropout: See :class:`AttentionBlock`.

    Example:
        >>> from molattn.nn import EGTConv, Encoder, TripletAggregate
        >>> def make_block(update_edges=True):
        ...     conv = EGTConv(16, 16, 4, edge_dim=8, update_edges=update_edges)
        ...     options = {"triplet": TripletAggregate(8, 2), "update_edges": update_edges}
        ...     return GraphTransformerBlock(conv, 16, 8, **options, drop_path=0.1)
        >>> encoder = Encoder(make_block, 3, 16, make_last=lambda: make_block(False))
        >>> encoder(torch.randn(3, 16), CompleteGraphs([3]), torch.randn(9, 8)).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        conv: nn.Module,
        channels: int,
        edge_dim: int,
        *,
        triplet: Optional[nn.Module] = None,
        update_edges: bool = True,
        virtual_node: bool = False,
        expansion: int = 2,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm: Optional[str] = "layer",
        act: str = "silu",
        source_dropout: float = 0.0,
    ) -> None:
        if not 0 <= drop_path < 1:
            raise ValueError(f"drop_path: got {drop_path}, expected a probability in [0, 1)")
        options: Any = {"expansion": expansion, "dropout": dropout, "norm": norm, "act": act}
        super().__init__(conv, channels, **options, source_dropout=source_dropout)
        self.drop_path = drop_path
        self.norm_edges = make_norm(norm, edge_dim)
        self.lin_virtual = Linear(channels, channels) if virtual_node else None
        self.triplet = triplet if update_edges else None
        self.norm_triplet = make_norm(norm if self.triplet is not None else None, edge_dim)
        self.act = activation_resolver(act)
        self.edge_ff: Optional[nn.Sequential] = None
        if update_edges:
            maps = (Linear(edge_dim, expansion * edge_dim), Linear(expansion * edge_dim, edge_dim))
            ends = make_norm(norm, edge_dim), maps[0]
            self.edge_ff = nn.Sequential(*ends, activation_resolver(act), maps[1])

    def forward(
        self,
        x: Nodes,
        edge_index: Any,
        edge_attr: EdgeAttr = None,
        batch: OptTensor = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor]:
        """Update nodes ``[N, channels]`` and edges ``[E, edge_dim]``; the layer gets the options.

        ``batch`` is the graph of each node of a list of edges, read with ``virtual_node``,
        ``drop_path``, ``source_dropout`` and norms of graphs; None = one graph.
        """
        edges, values = edge_list(edge_index)
        inputs = x
        x = as_rows(one_set(x), edges)
        graphs = _graphs(x, edges, batch)
        edge_attr = values if edge_attr is None else edge_attr
        if has_bias(self) and options.get("bias_attr") is None:
            options["bias_attr"] = edge_attr  # a distance is none once it is normalized
        e = edge_features(edge_attr)
        node = normalize_rows(self.norm_conv, x, edge_index, batch)
        edge = normalize_rows(self.norm_edges, e, edge_index, batch, of_pairs=True)
        update = self.attend(node, edge_index, edge, batch, **options)
        if isinstance(update, tuple):
            update, updated = update
            e = e if self.edge_ff is None else self._add(e, updated - edge, graphs, edges)
        x = self._add(x, update, graphs)
        if self.lin_virtual is not None:
            index, count = graphs
            nodes = edges.rows_to_nodes(node)
            graph_index = edges.rows_to_nodes(index)
            mean = scatter(nodes, graph_index, 0, count, "mean").index_select(0, index)
            x = self._add(x, self.act(self.lin_virtual(mean)), graphs)
        node = normalize_rows(self.norm_ff, x, edge_index, batch)
        x = like_input(self._add(x, self.ff(node), graphs), inputs, edges)
        if self.triplet is not None:
            pairs = normalize_rows(self.norm_triplet, e, edge_index, batch, of_pairs=True)
            e = self._add(e, self.triplet(pairs, edge_index), graphs, edges)
        if self.edge_ff is None:
            return x, e
        norm, *layers = self.edge_ff
        update = normalize_rows(norm, e, edge_index, batch, of_pairs=True)
        for layer in layers:
            update = layer(update)
        return x, self._add(e, update, graphs, edges)

    def _add(
        self, x: Tensor, update: Tensor, graphs: tuple[Tensor, int], edges: Optional[Edges] = None
    ) -> Tensor:
        """Add a term of nodes, or of ``edges``."""
        update = self.dropout(update)
        if self.drop_path and self.training:
            index, count = graphs
            keep = torch.rand(count, 1, device=x.device) >= self.drop_path
            scale = keep.index_select(0, index).to(x.dtype) / (1 - self.drop_path)
            update = update * (scale if edges is None else edges.receivers_to_pairs(scale))
        return x + update


def _graphs(x: Tensor, edges: Edges, batch: OptTensor) -> tuple[Tensor, int]:
    """The graph of each row of nodes, and the number of graphs."""
    if isinstance(edges, CompleteGraphs):
        return edges.row_graph, edges.num_graphs
    if batch is None:
        return torch.zeros(len(x), dtype=torch.long, device=x.device), 1
    return batch, int(batch.max()) + 1 if len(batch) else 0
