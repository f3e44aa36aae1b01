"""Base class of the attention layers: attention on lists of edges and on complete graphs."""

from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.typing import OptTensor, Size

from molattn.graph.complete import CodedEdges, CompleteGraphs
from molattn.nn.attention_heads import HeadScore, check_optional_width, check_positive
from molattn.nn.dense_attention import Attended, EdgeMaps, Prior, dense_attention
from molattn.nn.functional import ScatteredEdges, check_temperature, normalize
from molattn.nn.graph_inputs import EdgeAttr, Edges, Graph, Nodes, Pair, read_graph
from molattn.nn.linear import Linear, is_linear, is_unchanged, linear_together
from molattn.nn.message_passing import MessagePassing

# Options of MessagePassing: the values that attention can have, and why no others.
_OPTIONS = {
    "aggr": (("sum", "add", "mean", "max", "min"), "each channel is aggregated by itself"),
    "aggr_kwargs": ((None, {}), "these aggregations have no arguments"),
    "flow": (("source_to_target", "target_to_source"), "there are no other directions"),
    "node_dim": ((0, -2), "nodes are the rows of x"),
    "decomposed_layers": ((1,), "attention weights depend on all channels"),
}
# Options of PyG's attention layers: what has their place here.
_SUBSTITUTES = {
    "concat": "combine='concat' or combine='mean' of EdgeAttentionConv",
    "add_self_loops": "torch_geometric.transforms.AddSelfLoops",
    "fill_value": "torch_geometric.transforms.AddSelfLoops(attr=...)",
    "negative_slope": "score='gatv2' of EdgeAttentionConv, with a slope of 0.2",
    "residual": "root_weight of EdgeAttentionConv",
    "share_weights": "separate weights, as with share_weights=False",
    "beta": "gate=True of EdgeAttentionConv",
}
HOOKS = tuple(
    f"_{step}_forward_{kind}hooks"
    for step in ("propagate", "message", "aggregate", "edge_update")
    for kind in ("", "pre_")
)
"""Attributes of ``MessagePassing`` that hold hooks."""


class AttentionConv(MessagePassing):
    """Base class of the attention layers: checks inputs, and computes attention for any graph.

    A subclass makes the linear maps below, calls :meth:`attend` and combines the heads.
    ``lin_edge_key`` is None if edge features are not added to keys, ``lin_edge_value`` if they are
    not added to values; values need keys.

    Args:
        in_channels: Number of node features, or a pair (senders, receivers); -1 = inferred in the
            first call.
        out_channels: Number of output channels.
        heads: Number of heads ``H``.
        head_channels: Width of a head's value ``C``.
        query_channels: Width of a head's query and key.
        edge_dim: Number of edge features; -1 = inferred in the first call; None = no edge features.
        score: See :func:`molattn.nn.functional.score`.
        temperature: See :func:`molattn.nn.functional.normalize`.
        dropout: Dropout probability of the attention weights.
        kwargs: ``aggr`` and ``flow`` of :class:`torch_geometric.nn.conv.MessagePassing`.

    Raises:
        ValueError: A width or number that is not positive, or an invalid temperature or dropout.
    """

    lin_query: Linear
    lin_key: Linear
    lin_value: Linear
    lin_edge_key: Optional[Linear]
    lin_edge_value: Optional[Linear]

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int,
        *,
        head_channels: int,
        query_channels: int,
        edge_dim: Optional[int],
        score: str,
        temperature: float = 1.0,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**message_passing_options(type(self).__name__, kwargs))
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        check_temperature(temperature)
        check_positive(
            heads=heads,
            out_channels=out_channels,
            head_channels=head_channels,
            query_channels=query_channels,
        )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.head_channels = head_channels
        self.query_channels = query_channels
        self.edge_dim = edge_dim
        self.score = score
        self.temperature = temperature
        self.dropout = dropout
        pair = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        if len(pair) != 2 or any(width < -1 or width == 0 for width in pair):
            raise ValueError(
                f"in_channels: got {in_channels}, expected at least 1, or -1 to infer it (a pair "
                "for senders and receivers)"
            )
        check_optional_width(edge_dim=edge_dim)
        self.source_channels, self.target_channels = pair
        self.head_score = HeadScore(score, heads, query_channels)

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        super().reset_parameters()
        for module in self.children():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def read(
        self, x: Nodes, graph: Graph, edge_attr: EdgeAttr, size: Size = None
    ) -> tuple[Pair, Edges]:
        """Check nodes, graph and edge features; see :func:`~molattn.nn.graph_inputs.read_graph`."""
        return read_graph(x, graph, edge_attr, self.in_channels, self.edge_dim, size, self.flow)

    def project(self, x: Pair) -> tuple[Tensor, ...]:
        """Queries of receivers, keys and values of senders, ``[N, ...]``, heads side by side."""
        if x[0] is x[1]:
            return linear_together(x[0], self.lin_query, self.lin_key, self.lin_value)
        return self.lin_query(x[1]), *linear_together(x[0], self.lin_key, self.lin_value)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        edges: Edges,
        *,
        prior: Optional[Prior] = None,
        return_alpha: bool = False,
        return_messages: bool = False,
    ) -> Attended:
        """Score, normalize and mix.

        Args:
            query: ``[N_dst, H, query_channels]``.
            key: ``[N_src, H, query_channels]``.
            value: ``[N_src, H, C]``.
            edges: From :meth:`read`.
            prior: Further weights, added to those of attention.
            return_alpha: Also return the weights of the edges, before dropout.
            return_messages: Also return the weighted value of each edge, after dropout.
        """
        complete = isinstance(edges.index, CompleteGraphs)
        # Without a node there is no block, and nothing that blocks could differentiate.
        if complete and (self.needs_messages() or not edges.index.num_rows):
            return self._attend_edge_list(
                (query, key, value), edges.index, edges, prior, return_alpha, return_messages
            )
        query, key = self.head_score.query(query), self.head_score.key(key)
        maps = self._edge_maps(edges)
        if complete:
            return dense_attention(
                edges,
                query,
                key,
                value,
                maps,
                self.head_score,
                self.temperature,
                self.dropout if self.training else 0.0,
                prior=prior,
                return_alpha=return_alpha,
                return_messages=return_messages,
            )
        edge_key = edge_value = None
        if maps is not None:
            edge_key = maps.key(edges.features)
            edge_value = None if maps.value is None else maps.value(edges.features)
        query = query * self.head_score.scale
        graph, size = edges.index, (key.size(0), query.size(0))
        if self.flow == "target_to_source":
            graph, size = graph.flip(0), (query.size(0), key.size(0))
        alpha = self.edge_updater(graph, query=query, key=key, edge_key=edge_key, size=size)
        if prior is not None:
            alpha = prior.mix(alpha, prior.weights.unsqueeze(-1))
        applied = F.dropout(alpha, self.dropout, self.training)
        messages: Optional[list[Tensor]] = [] if return_messages else None
        nodes = self.propagate(
            graph, value=value, edge_value=edge_value, alpha=applied, messages=messages, size=size
        )
        return Attended(nodes, alpha if return_alpha else None, messages[0] if messages else None)

    def needs_messages(self) -> bool:
        """Whether matrix products would leave out a hook, a mask, a changed step, map or score."""
        return (
            bool(self.explain)
            or self.aggr not in ("sum", "add")
            or any(getattr(self, hooks) for hooks in HOOKS)
            or bool(self.changed_steps(AttentionConv))
            or not is_unchanged(self.head_score, HeadScore.forward)
            # They apply the maps of edges to unit vectors.
            or not all(map(is_linear, (self.lin_edge_key, self.lin_edge_value)))
        )

    def _attend_edge_list(
        self,
        nodes: tuple[Tensor, Tensor, Tensor],
        graph: CompleteGraphs,
        edges: Edges,
        prior: Optional[Prior],
        return_alpha: bool,
        return_messages: bool,
    ) -> Attended:
        """Attend on the list of all edges of complete graphs, from rows to rows."""
        if prior is not None:
            prior = prior._replace(weights=graph.pairs_to_edges(prior.weights))
        attr = None if edges.attr is None else graph.pairs_to_edges(edges.features)
        query, key, value = map(graph.rows_to_nodes, nodes)
        out, *of_edges = self.attend(
            query,
            key,
            value,
            Edges(graph.edge_index, attr),
            prior=prior,
            return_alpha=return_alpha,
            return_messages=return_messages,
        )
        pairs = (None if part is None else graph.edges_to_pairs(part) for part in of_edges)
        return Attended(graph.nodes_to_rows(out), *pairs)

    def _edge_maps(self, edges: Edges) -> Optional[EdgeMaps]:
        if edges.attr is None or self.lin_edge_key is None:
            return None
        attr = edges.attr.table if isinstance(edges.attr, CodedEdges) else edges.attr
        if (
            isinstance(self.lin_edge_key, Linear)  # not a map of yours in its place
            and attr.dtype != self.lin_edge_key.weight.dtype
            and not torch.is_autocast_enabled(attr.device.type)
        ):
            raise TypeError(
                f"edge_attr: got {attr.dtype}, expected {self.lin_edge_key.weight.dtype}, that of "
                "the parameters"
            )
        key, value = self._split(self.lin_edge_key, self.query_channels), self.lin_edge_value
        return EdgeMaps(
            lambda features: self.head_score.key(key(features)),
            None if value is None else self._split(value, self.head_channels),
        )

    def _split(self, lin: Linear, channels: int) -> Callable[[Tensor], Tensor]:
        """A linear map whose result is split into heads."""
        return lambda x: lin(x).view(-1, self.heads, channels)

    def edge_update(
        self,
        query_i: Tensor,
        key_j: Tensor,
        edge_key: OptTensor,
        index: Tensor,
        dim_size: Optional[int],
    ) -> Tensor:
        """Weights ``[E, H]`` of edges."""
        logits = self.head_score(query_i, key_j if edge_key is None else key_j + edge_key)
        return normalize(logits, ScatteredEdges(index, dim_size), self.temperature)

    def message(self, value_j: Tensor, edge_value: OptTensor, alpha: Tensor) -> Tensor:
        """Weighted values ``[E, H, C]``."""
        return alpha.unsqueeze(-1) * (value_j if edge_value is None else value_j + edge_value)

    def aggregate(
        self,
        inputs: Tensor,
        index: Tensor,
        ptr: OptTensor,
        dim_size: Optional[int],
        messages: Optional[list[Tensor]],
    ) -> Tensor:
        """Aggregate messages ``[E, H, C]`` to ``[N, H, C]``, and append them to ``messages``."""
        if messages is not None:
            messages.append(inputs)
        return super().aggregate(inputs, index, ptr, dim_size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def message_passing_options(layer: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of ``MessagePassing`` that a layer was given.

    Raises:
        TypeError: An option that ``MessagePassing`` does not have.
        ValueError: A value that attention cannot have.
    """
    for name, value in given.items():
        if name not in _OPTIONS:
            hint = f": use {_SUBSTITUTES[name]}" if name in _SUBSTITUTES else ""
            raise TypeError(f"{layer} got an unexpected keyword argument {name!r}{hint}")
        allowed, reason = _OPTIONS[name]
        if value not in allowed:
            expected = " or ".join(map(repr, allowed))
            raise ValueError(f"{name}: got {value!r}, expected {expected}: {reason}")
    return {"aggr": "sum", **given, "node_dim": 0}


def optional_linear(in_channels: Optional[int], out_channels: int) -> Optional[Linear]:
    """Return a linear map without bias, or None where there are no features."""
    return None if in_channels is None else Linear(in_channels, out_channels, bias=False)
