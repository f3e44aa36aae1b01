"""Dropout of whole senders, for every layer and form of graph."""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter

from molattn.graph.complete import CompleteGraphs
from molattn.nn.graph_inputs import EdgeAttr, Edges, Graph, edge_features, edge_list


def attend_without_sources(
    conv: nn.Module,
    dropout: float,
    inputs: tuple[Tensor, Graph, EdgeAttr],
    batch: OptTensor,
    options: dict[str, Any],
) -> Any:
    """Call a layer on a graph without the edges of randomly dropped senders.

    All receivers and heads lose the same senders; each graph keeps at least one. Edges that the
    layer updates stay as they are where the sender is dropped.

    Args:
        conv: The layer.
        dropout: Probability with which a sender is dropped.
        inputs: Nodes ``[R, F]``, any graph, and its edges ``[P, D]``.
        batch: The graph of each node of a list of edges; None = one graph.
        options: Options of the layer.
    """
    x, graph, edge_attr = inputs
    edges, values = edge_list(graph)
    edge_attr = values if edge_attr is None else edge_attr
    row = int(getattr(conv, "flow", None) == "target_to_source")  # of senders
    is_sent = _draw_senders(edges, x, batch, dropout)[edges.edge_index[row]]
    if isinstance(edges, CompleteGraphs):
        is_sent = edges.edges_to_pairs(is_sent)
        update = conv(x, edges.with_edges(is_sent), edge_attr, **options)
        if not isinstance(update, tuple):
            return update
        return update[0], torch.where(is_sent.unsqueeze(-1), update[1], edge_features(edge_attr))
    if options.get("bias_attr") is not None:
        options = options | {"bias_attr": options["bias_attr"][is_sent]}
    attr = None if edge_attr is None else edge_features(edge_attr)[is_sent]
    update = conv(x, edges.edge_index[:, is_sent], attr, **options)
    if not isinstance(update, tuple):
        return update
    return update[0], edge_features(edge_attr).index_put((is_sent,), update[1])


def _draw_senders(edges: Edges, x: Tensor, batch: OptTensor, dropout: float) -> Tensor:
    """Draw which nodes send, ``bool [N]``."""
    nodes = edges.rows_to_nodes(x)
    index = edges.batch if batch is None else batch
    index = nodes.new_zeros(len(nodes), dtype=torch.long) if index is None else index
    draw = torch.rand(len(nodes), device=x.device)
    highest = scatter(draw, index, reduce="max")
    return (draw >= dropout) | (draw == highest[index])
