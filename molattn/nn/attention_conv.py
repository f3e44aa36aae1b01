"""Base class of the attention layers: attention on lists of edges and on complete graphs."""

import math
from collections.abc import Iterable
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor

from molattn._torch_compat import has_hooks
from molattn.graph.complete import CodedEdges, CompleteGraphs, GraphBlock
from molattn.nn.attention_heads import HeadScore, check_positive, check_width
from molattn.nn.dense_attention import Attended, PairInputs, dense_attention
from molattn.nn.functional import (
    DenseRows,
    Receivers,
    ScatteredEdges,
    check_temperature,
    normalize,
)
from molattn.nn.fused_attention import fused_attention, without_autocast
from molattn.nn.graph_inputs import Edges, Pair
from molattn.nn.linear import Linear, is_plain, linear_together

_COLDEST = 1e-6  # divided by less, logits may overflow
_SUMS = ("sum", "add")
_AGGREGATIONS = (*_SUMS, "mean", "max", "min")
STEPS = {"propagate", "edge_updater", "edge_update", "message", "aggregate", "update"}
"""Methods of ``MessagePassing`` that are the steps of a layer."""
HOOKS = tuple(
    f"_{step}_forward{kind}_hooks"
    for step in ("propagate", "message", "aggregate", "edge_update")
    for kind in ("", "_pre")
)
"""Attributes of ``MessagePassing`` that hold hooks."""
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


def check_unknown(layer: object, given: Iterable[str]) -> None:
    """Raise TypeError for options that a layer does not have; those of PyG name a substitute."""
    for name in given:
        hint = f": use {_SUBSTITUTES[name]}" if name in _SUBSTITUTES else ""
        kind = type(layer).__name__
        raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}{hint}")


class AttentionConv(MessagePassing):
    """Base class of the attention layers: checks inputs, and computes attention for any graph.

    A subclass makes the linear maps below, calls :meth:`attend` and combines the heads.
    ``lin_edge_key`` is None if edge features are not added to keys, ``lin_edge_value`` if they are
    not added to values; values need keys. It may override :meth:`weigh`.

    On :class:`~molattn.graph.CompleteGraphs` there are no messages to hook. A layer runs on the
    list of their edges, which is slower, if its class overrides a step of message passing, or if it
    has hooks of message passing, an edge mask, another aggregation than the sum, hooks on its
    score, or maps of edges that are not of the class that it made or have hooks.

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
        aggr: How messages are aggregated: ``sum``, ``mean``, ``max`` or ``min``.
        flow: See :class:`torch_geometric.nn.conv.MessagePassing`.

    Raises:
        ValueError: A width or number that is not positive, or an invalid aggregation, temperature
            or dropout.
        TypeError: An option that the layer does not have.
    """

    lin_query: Linear
    lin_key: Linear
    lin_value: Linear
    lin_edge_key: Optional[Linear]
    lin_edge_value: Optional[Linear]

    _overrides_steps = False
    _overrides_weigh = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overrides_steps |= not STEPS.isdisjoint(vars(cls))
        cls._overrides_weigh |= "weigh" in vars(cls)

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
        aggr: str = "sum",
        flow: str = "source_to_target",
        **unknown: Any,
    ) -> None:
        check_unknown(self, unknown)
        if aggr not in _AGGREGATIONS:
            raise ValueError(f"aggr: got {aggr!r}, expected one of {', '.join(_AGGREGATIONS)}")
        super().__init__(aggr, flow=flow, node_dim=0)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        check_temperature(temperature)
        check_positive(
            heads=heads,
            out_channels=out_channels,
            head_channels=head_channels,
            query_channels=query_channels,
        )
        pair = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        for width in pair:
            check_width(1, in_channels=width)
        check_width(0, edge_dim=edge_dim)
        self.in_channels = in_channels
        self.source_channels, self.target_channels = pair
        self.out_channels = out_channels
        self.heads = heads
        self.head_channels = head_channels
        self.query_channels = query_channels
        self.edge_dim = edge_dim
        self.score = score
        self.temperature = temperature
        self.dropout = dropout
        self.head_score = HeadScore(score, heads, query_channels)

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        super().reset_parameters()
        for module in self.children():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # pyright: ignore[reportCallIssue]

    def project(self, x: Pair) -> tuple[Tensor, ...]:
        """Queries of receivers, keys and values of senders, ``[N, ...]``, heads side by side."""
        if x[0] is x[1]:
            return linear_together(x[0], self.lin_query, self.lin_key, self.lin_value)
        return self.lin_query(x[1]), *linear_together(x[0], self.lin_key, self.lin_value)

    def weigh(self, logits: Tensor, receivers: Receivers, features: OptTensor) -> Tensor:
        """Weights of logits.

        Args:
            logits: ``[E, H]`` of listed edges, or ``[H, B, N receivers, N senders]``.
            receivers: Which logits belong to the same receiver.
            features: Edge features, ``[E, D]`` or ``[B, N, N, D]``.
        """
        return normalize(logits, receivers, self.temperature)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        edges: Edges,
        *,
        return_alpha: bool = False,
        return_messages: bool = False,
    ) -> Attended:
        """Score, weigh and mix.

        Args:
            query: ``[N_dst, H, query_channels]``.
            key: ``[N_src, H, query_channels]``.
            value: ``[N_src, H, C]``.
            edges: From :func:`~molattn.nn.graph_inputs.read_graph`.
            return_alpha: Also return the weights of the edges, before dropout.
            return_messages: Also return the weighted value of each edge, after dropout.
        """
        graph, requested = edges.index, (return_alpha, return_messages)
        if not isinstance(graph, CompleteGraphs):
            return self._attend_edges(query, key, value, edges, *requested)
        # Without a node there is no block, and nothing that blocks could differentiate.
        if self.needs_messages() or not graph.num_rows:
            query, key, value = map(graph.rows_to_nodes, (query, key, value))
            listed = edges.listed()
            out, *of_edges = self._attend_edges(query, key, value, listed, *requested)
            pairs = (None if part is None else graph.edges_to_pairs(part) for part in of_edges)
            return Attended(graph.nodes_to_rows(out), *pairs)
        return self._attend_pairs(query, key, value, edges, *requested)

    def needs_messages(self) -> bool:
        """Whether attention on complete graphs is computed on the list of their edges."""
        maps = (self.lin_edge_key, self.lin_edge_value)
        return (
            self._overrides_steps
            or bool(self.explain)
            or self.aggr not in _SUMS
            or has_hooks(self.head_score)
            or not all(lin is None or is_plain(lin) for lin in maps)
            or any(getattr(self, hooks) for hooks in HOOKS)
        )

    def _attend_pairs(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        edges: Edges,
        return_alpha: bool,
        return_messages: bool,
    ) -> Attended:
        """Attend on the blocks of complete graphs, in one fused step where possible."""
        score, temperature = self.head_score, self.temperature
        fused = (
            score.rule.bilinear
            and _COLDEST < temperature < math.inf
            and not (self._overrides_weigh or return_alpha or return_messages)
        )
        inputs = PairInputs(score.query(query), score.key(key), value, *self._basis(edges))
        dropout = self.dropout if self.training else 0.0
        if fused:
            scale = score.scale / temperature
            return Attended(fused_attention(edges.index, inputs, scale, dropout))
        inputs = inputs._replace(query=inputs.query * score.scale)
        features = edges.features if self._overrides_weigh and edges.attr is not None else None

        def weigh(logits: Tensor, mask: Tensor, block: GraphBlock) -> Tensor:
            attr = None if features is None else block.pairs(features)
            return self.weigh(logits, DenseRows(mask), attr)

        with without_autocast(query):
            return dense_attention(
                edges.index,
                inputs,
                dropout,
                score=None if score.rule.bilinear else score,
                weigh=weigh,
                return_alpha=return_alpha,
                return_messages=return_messages,
            )

    def _basis(self, edges: Edges) -> tuple[Tensor, Tensor, OptTensor] | tuple[()]:
        """Edges, and what each of their codes or features adds to keys and values."""
        attr = edges.attr
        if attr is None or self.lin_edge_key is None:
            return ()
        if isinstance(attr, CodedEdges):
            units, attr = attr.padded_table, attr.codes
        else:
            units = torch.eye(attr.size(-1), dtype=attr.dtype, device=attr.device)
        return attr, *self._edge_terms(units)

    def _edge_terms(self, attr: Tensor) -> tuple[Tensor, OptTensor]:
        """What edge features ``[M, D]`` add to keys and values ``[M, H, C]``."""
        assert self.lin_edge_key is not None
        key = self.lin_edge_key(attr).view(-1, self.heads, self.query_channels)
        value = None if self.lin_edge_value is None else self.lin_edge_value(attr)
        if value is not None:
            value = value.view(-1, self.heads, self.head_channels)
        return self.head_score.key(key), value

    def _attend_edges(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        edges: Edges,
        return_alpha: bool,
        return_messages: bool,
    ) -> Attended:
        """Attend on a list of edges, by message passing."""
        score, graph, features = self.head_score, edges.index, edges.attr
        query, key = score.query(query) * score.scale, score.key(key)
        edge_key = edge_value = None
        if isinstance(features, Tensor) and self.lin_edge_key is not None:
            edge_key, edge_value = self._edge_terms(features)
        size = (key.size(0), query.size(0))
        if self.flow == "target_to_source":
            graph, size = graph.flip(0), (size[1], size[0])
        alpha = self.edge_updater(
            graph, query=query, key=key, edge_key=edge_key, features=features, size=size
        )
        applied = F.dropout(alpha, self.dropout, self.training) if self.dropout else alpha
        messages: Optional[list[Tensor]] = [] if return_messages else None
        nodes = self.propagate(
            graph, value=value, edge_value=edge_value, alpha=applied, messages=messages, size=size
        )
        return Attended(nodes, alpha if return_alpha else None, messages[0] if messages else None)

    def edge_update(
        self,
        query_i: Tensor,
        key_j: Tensor,
        edge_key: OptTensor,
        features: OptTensor,
        index: Tensor,
        dim_size: Optional[int],
    ) -> Tensor:
        """Weights ``[E, H]`` of edges."""
        logits = self.head_score(query_i, key_j if edge_key is None else key_j + edge_key)
        return self.weigh(logits, ScatteredEdges(index, dim_size), features)

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


def optional_linear(in_channels: Optional[int], out_channels: int) -> Optional[Linear]:
    """Return a linear map without bias, or None where there are no features."""
    return None if in_channels is None else Linear(in_channels, out_channels, bias=False)
