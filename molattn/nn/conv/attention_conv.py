"""Base class of the attention layers: attention on lists of edges and on complete graphs."""

import inspect
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.typing import OptTensor, PairTensor, Size

from molattn._torch_compat import has_hooks
from molattn.graph.complete import Block, CodedEdges, CompleteGraphs
from molattn.nn.attention_heads import HeadGate, HeadScore, check_choice, check_widths, split_width
from molattn.nn.dense.edge_update import PairMessages
from molattn.nn.dense.fused import fused_attention, without_autocast
from molattn.nn.dense.linear import Linear, is_plain, linear_together
from molattn.nn.dense.plain import (
    Attended,
    PairInputs,
    ScoreMod,
    adjust,
    dense_attention,
    weighted_values,
)
from molattn.nn.functional import (
    DenseRows,
    Neighborhoods,
    ScatteredEdges,
    check_temperature,
    normalize,
)
from molattn.nn.graph_inputs import (
    EdgeAttr,
    Edges,
    Globals,
    Graph,
    Nodes,
    check_shape,
    edge_features,
    like_input,
    read_globals,
    read_graph,
)

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
    "concat": (
        "combine='concat' of EdgeAttentionConv, with out_channels of all heads together, "
        "or combine='mean'"
    ),
    "residual": "root_weight=True of EdgeAttentionConv",
    "beta": "gate=True of EdgeAttentionConv",
    "add_self_loops": "torch_geometric.transforms.AddSelfLoops",
    "negative_slope": "score='gatv2' of EdgeAttentionConv, with a slope of 0.2",
}


class _Terms(NamedTuple):  # see AttentionConv.attend
    attn_bias: OptTensor
    edge_gate: OptTensor
    edge_value: OptTensor
    score_mod: ScoreMod
    code_bias: OptTensor  # of each code of the edges, [H, K + 1]


class PlainMessagePassing(MessagePassing):
    """Message passing by the methods of PyG's base class.

    PyG replaces them by a module that it generates for each class, compiles when the first layer is
    made, and leaves in the temporary folder, unless a class has methods of its own.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for step in ("propagate", "edge_updater"):
            setattr(cls, step, getattr(cls, step))

    def propagate(self, edge_index: Any, size: Size = None, **kwargs: Any) -> Tensor:
        """Pass messages along edges."""
        return super().propagate(edge_index, size, **kwargs)

    def edge_updater(self, edge_index: Any, size: Size = None, **kwargs: Any) -> Tensor:
        """Compute features of edges."""
        return super().edge_updater(edge_index, size, **kwargs)


class AttentionConv(PlainMessagePassing):
    """Base class of the attention layers.

    A subclass makes the linear maps of queries, keys and values, combines the heads, and calls
    :meth:`reset_parameters` last. Edge features are added to keys by its ``lin_edge_key``, and then
    to values by its ``lin_edge_value``; both are None at first. It may override :meth:`weigh`, and
    :meth:`attend` to change logits and weights; of an ``edge_attr``, which may be
    :class:`~molattn.graph.CodedEdges`, ``molattn.nn.graph_inputs.edge_features`` are the features.

    On :class:`~molattn.graph.CompleteGraphs` there are no messages to hook. A layer runs on the
    list of their edges, which is slower, if its class overrides a step of message passing, while
    it is compiled, and if it has hooks of message passing, an edge mask, another aggregation than
    the sum, hooks on its score, or maps of edges that are not of the class that it made or have
    hooks. ``edge_update`` returns logits, ``message`` weighted values.

    Args:
        in_channels: Number of node features, or a pair (senders, receivers); -1 = inferred in the
            first call.
        out_channels: Number of output channels.
        heads: Number of heads ``H``.
        head_channels: Width of a head's value ``V``; None = ``out_channels // heads``.
        query_channels: Width of a head's query and key ``C``; None = that of the value.
        edge_dim: Number of edge features; -1 = inferred in the first call; None = no edge features.
        score: See :func:`molattn.nn.functional.score`.
        temperature: See :func:`molattn.nn.functional.normalize`.
        dropout: Dropout probability of the attention weights.
        attn_bias: A module that maps edge features ``[E, D]`` to terms of the logits ``[E, H]``,
            such as :class:`~molattn.nn.AttentionBias`. Where ``edge_dim`` is None, it alone reads
            them. It reads ``bias_attr`` in place of ``edge_attr`` if the layer is called with it.
        aggr: How messages are aggregated: ``sum``, ``mean``, ``max`` or ``min``.
        flow: See :class:`torch_geometric.nn.conv.MessagePassing`.

    Example:
        >>> from molattn.nn.graph_inputs import edge_features
        >>> class Conv(AttentionConv):
        ...     def __init__(self, width, heads, edge_dim):
        ...         super().__init__(width, width, heads, edge_dim=edge_dim, score="dot")
        ...         self.make_projections(True, True)
        ...         self.lin_bias, self.lin_gate = Linear(edge_dim, heads), Linear(edge_dim, heads)
        ...         self.reset_parameters()
        ...     def attend(self, projected, edges, edge_attr=None, **options):
        ...         e = edge_features(edge_attr)
        ...         terms = {"attn_bias": self.lin_bias(e), "edge_gate": self.lin_gate(e).sigmoid()}
        ...         terms["score_mod"] = lambda a: 5 * (a / 5).tanh()
        ...         return super().attend(projected, edges, edge_attr, **terms, **options)
        ...     def combine_heads(self, heads, x):
        ...         return x + heads.flatten(1)
        >>> edge_index, edge_attr = torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 3)
        >>> Conv(8, 2, edge_dim=3)(torch.randn(3, 8), edge_index, edge_attr).shape
        torch.Size([3, 8])
    """

    lin_query: Linear
    lin_key: Linear
    lin_value: Linear
    lin_out: Linear

    _overrides_steps = False
    _overrides_weigh = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overrides_steps = any(
            getattr(cls, step) is not getattr(AttentionConv, step) for step in STEPS
        )
        cls._overrides_weigh = cls.weigh is not AttentionConv.weigh

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int,
        *,
        head_channels: Optional[int] = None,
        query_channels: Optional[int] = None,
        edge_dim: Optional[int],
        score: str,
        temperature: float = 1.0,
        dropout: float = 0.0,
        attn_bias: Optional[Module] = None,
        aggr: str = "sum",
        flow: str = "source_to_target",
        **unknown: Any,
    ) -> None:
        check_unknown(self, unknown)
        check_choice("aggr", aggr, _AGGREGATIONS)
        super().__init__(aggr, flow=flow, node_dim=0)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        check_temperature(temperature)
        if attn_bias is not None and not isinstance(attn_bias, Module):
            raise TypeError(f"attn_bias: got {attn_bias!r}, expected a module")
        pair = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        head_channels = split_width(heads, out_channels) if head_channels is None else head_channels
        query_channels = head_channels if query_channels is None else query_channels
        check_widths(1, heads=heads, out_channels=out_channels, head_channels=head_channels)
        check_widths(1, query_channels=query_channels)
        check_widths(-1, source_channels=pair[0], target_channels=pair[1], edge_dim=edge_dim)
        self.in_channels = in_channels
        self.source_channels, self.target_channels = pair
        self.out_channels = out_channels
        self.heads = heads
        self.head_channels = head_channels
        self.query_channels = query_channels
        self.edge_dim = -1 if edge_dim is None and attn_bias is not None else edge_dim
        self.attn_bias = attn_bias
        self.score = score
        self.temperature = temperature
        self.dropout = dropout
        self.head_score = HeadScore(score, heads, query_channels)
        self.head_gate: Optional[HeadGate] = None
        self.global_dim: Optional[int] = None
        self.update_edges = False
        self.lin_edge_key: Optional[Linear] = None
        self.lin_edge_value: Optional[Linear] = None
        self.lin_edge_out: Optional[Linear] = None

    def make_projections(self, bias: bool, source_bias: bool) -> None:
        """Make the linear maps of queries, and of keys and values."""
        query = self.heads * self.query_channels
        value = self.heads * self.head_channels
        self.lin_query = Linear(self.target_channels, query, bias=bias)
        self.lin_key = Linear(self.source_channels, query, bias=source_bias)
        self.lin_value = Linear(self.source_channels, value, bias=source_bias)

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        super().reset_parameters()
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Nodes,
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        return_attention_weights: Optional[bool] = False,
        *,
        u: OptTensor = None,
        batch: Union[Tensor, PairTensor, None] = None,
        size: Size = None,
        **options: Any,
    ) -> Any:
        """Update nodes.

        Args:
            x: Nodes ``[N, in_channels]``, or a pair ``([N_src, F_src], [N_dst, F_dst])``, of which
                the second may be None: zeros.
            edge_index: ``[2, E]`` of any integer type, ``EdgeIndex``, sparse ``adj_t``, or
                :class:`~molattn.graph.CompleteGraphs`; then edges are its pair rows, and the result
                is the same, computed as batched matrix products. Nodes may be its rows or a plain
                ``[N, in_channels]``; they come back in the form given.
            edge_attr: Edge features ``[E, edge_dim]``, or
                :class:`~molattn.graph.CodedEdges` with ``CompleteGraphs``.
            return_attention_weights: Return ``(edge_index, alpha)``, too, as the last item of a
                tuple: the graph as given, and the weights before dropout, ``[E, H]``.
            u: Graph features ``[B, global_dim]``, for a layer that has a ``global_dim``.
            batch: The graph of each node ``[N]``, or a pair for a bipartite graph, if there is
                ``u``; None = one graph.
            size: Numbers of senders and receivers; for receivers without features, their number.
            options: Further arguments of :meth:`attend`, such as ``bias_attr``, or ``degree`` of
                :class:`GRITConv`.

        Returns:
            Nodes ``[N_dst, out_channels]``, or a tuple of them and what else was requested.
        """
        nodes, edges, attr = read_graph(self, x, edge_index, edge_attr, size)
        globals_ = read_globals(u, batch, nodes, edges, self.global_dim)
        requested = bool(return_attention_weights)
        returned = requested, self.update_edges
        attended = self.attend_heads(nodes, edges, attr, globals_, *returned, **options)
        updated = self.combine_heads(attended.nodes, nodes[1])
        outputs: list[Any] = [like_input(updated, x, edges)]
        if attended.messages is not None:
            outputs.append(self.updated_edges(attr, attended.messages))
        if requested:
            outputs.append((edge_index, attended.weights))
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def combine_heads(self, heads: Tensor, x: Tensor) -> Tensor:
        """Nodes of heads ``[N, H, V]`` and of receivers ``[N, F]``."""
        return self.lin_out(heads.flatten(1))

    def updated_edges(self, attr: EdgeAttr, messages: Any) -> Tensor:
        """Edges of edge features and of messages, in a layer that updates edges.

        Messages are ``[E, H, V]``, or :class:`~molattn.nn.dense.edge_update.PairMessages`, of which
        ``dense()`` is that.
        """
        assert self.lin_edge_out is not None
        messages = messages.dense() if isinstance(messages, PairMessages) else messages
        return edge_features(attr) + self.lin_edge_out(messages.flatten(1))

    def attend_heads(
        self,
        x: PairTensor,
        edges: Edges,
        attr: EdgeAttr,
        globals_: Globals,
        return_weights: bool,
        return_messages: bool,
        **options: Any,
    ) -> Attended:
        """Return the gated heads, not yet combined."""
        projected = self.project_heads(x, globals_)
        options |= {"return_weights": return_weights, "return_messages": return_messages}
        attended = self.attend(projected, edges, attr, **options)
        if self.head_gate is None:
            return attended
        gate = self.head_gate(*x, edges).unsqueeze(-1)
        messages = attended.messages
        if messages is not None:
            messages = messages * edges.receivers_to_pairs(gate)
        return attended._replace(nodes=attended.nodes * gate, messages=messages)

    def project_heads(self, x: PairTensor, globals_: Globals) -> list[Tensor]:
        """Queries and keys ``[N, H, C]``, values ``[N, H, V]``."""
        widths = (self.query_channels, self.query_channels, self.head_channels)
        projected = zip(self.project(x), widths, strict=True)
        return [rows.view(-1, self.heads, width) for rows, width in projected]

    def project(self, x: PairTensor) -> tuple[Tensor, ...]:
        """Queries of receivers, keys and values of senders, ``[N, ...]``, heads side by side."""
        if x[0] is x[1]:
            return linear_together(x[0], self.lin_query, self.lin_key, self.lin_value)
        return self.lin_query(x[1]), *linear_together(x[0], self.lin_key, self.lin_value)

    def weigh(self, logits: Tensor, receivers: Neighborhoods, features: OptTensor) -> Tensor:
        """Weights of logits.

        Args:
            logits: ``[E, H]`` of listed edges, or ``[H, B, N receivers, N senders]``.
            receivers: Which logits are of one receiver; ``per_head`` fits numbers of edges to them.
            features: Edge features, ``[E, D]`` or ``[B, N, N, D]``.
        """
        return normalize(logits, receivers, self.temperature)

    def attend(
        self,
        projected: Sequence[Tensor],
        edges: Edges,
        edge_attr: EdgeAttr = None,
        *,
        bias_attr: EdgeAttr = None,
        attn_bias: OptTensor = None,
        edge_gate: OptTensor = None,
        edge_value: OptTensor = None,
        score_mod: ScoreMod = None,
        return_weights: bool = False,
        return_messages: bool = False,
    ) -> Attended:
        """Score, weigh and mix.

        Args:
            projected: Queries ``[N_dst, H, C]``, keys ``[N_src, H, C]``, values ``[N_src, H, V]``.
            edges: From :func:`~molattn.nn.graph_inputs.read_graph`, as ``edge_attr``.
            edge_attr: Edge features.
            bias_attr: Edge features that the layer's ``attn_bias`` reads, in the order of
                ``edge_attr``; None = ``edge_attr``.
            attn_bias: Added to the logits, ``[E, H]``.
            edge_gate: What weights are multiplied by, ``[E, H]``.
            edge_value: Added to the value of each edge, ``[E, H, V]``.
            score_mod: Applied to each logit by itself, before the bias.
            return_weights: Also return the weights before gate and dropout, and the logits.
            return_messages: Also return the weighted values, after gate and dropout, of complete
                graphs as :class:`~molattn.nn.dense.edge_update.PairMessages`.
        """
        graph = self._blocks(edges)
        code_bias = None
        if self.attn_bias is not None:
            attr = edge_attr if bias_attr is None else bias_attr
            has_room = graph is not None and score_mod is None
            by_code = has_room and self._adds_by_code(attr, edge_attr)
            learned = self._learned_bias(attr, edges.num_pairs, by_code).to(projected[0].dtype)
            code_bias = learned if by_code else None
            attn_bias = attn_bias if by_code else add_terms(attn_bias, learned)
        terms = _Terms(attn_bias, edge_gate, edge_value, score_mod, code_bias)
        if graph is None:
            return self._attend_edges(projected, edges, edge_attr, terms, return_messages)
        inputs = (projected, graph, edge_attr)
        requested = (return_weights, return_messages)
        if not self.dropout or not self.training:
            return self._attend_pairs(*inputs, terms, *requested)
        # Dropout is a random gate.
        is_kept = torch.rand(self.heads, graph.num_pairs, device=graph.device).t() >= self.dropout
        terms = terms._replace(edge_gate=is_kept if edge_gate is None else edge_gate * is_kept)
        attended = self._attend_pairs(*inputs, terms, *requested)
        nodes = attended.nodes / (1 - self.dropout)
        messages = attended.messages
        if messages is not None:
            messages = messages * (1 / (1 - self.dropout))
        return attended._replace(nodes=nodes, messages=messages)

    def _blocks(self, edges: Edges) -> Optional[CompleteGraphs]:
        """Return the graphs on whose blocks the layer attends; None = on the list of edges."""
        # An empty graph has no block, and the output would have no grad_fn.
        if not isinstance(edges, CompleteGraphs) or not edges.num_rows or edges.is_listed:
            return None
        return None if self.needs_messages() else edges

    def _adds_by_code(self, attr: EdgeAttr, edge_attr: EdgeAttr) -> bool:
        """Whether the products of queries with codes have room for the layer's ``attn_bias``."""
        return (
            isinstance(attr, CodedEdges)
            and isinstance(edge_attr, CodedEdges)
            and attr.codes is edge_attr.codes
            and self.lin_edge_key is not None
            and self.head_score.rule.pair is None
            and self.temperature == 1
        )

    def _learned_bias(self, attr: Any, pairs: int, by_code: bool) -> Tensor:
        """The layer's ``attn_bias`` of pairs ``[P, H]``, or of codes ``[H, K + 1]``."""
        assert self.attn_bias is not None
        if not isinstance(attr, CodedEdges):
            learned = self.attn_bias(attr.unsqueeze(-1) if attr.dim() == 1 else attr)
            check_shape("attn_bias", learned, pairs, self.heads)
            return learned
        learned = self.attn_bias(attr.table)
        check_shape("attn_bias", learned, len(attr.table), self.heads)
        of_codes = F.pad(learned.t(), (0, 1))  # heads before pairs, as blocks read them
        return of_codes if by_code else of_codes.index_select(1, attr.codes).t()

    def needs_messages(self) -> bool:
        """Whether attention on complete graphs is computed on the list of their edges."""
        maps = (self.lin_edge_key, self.lin_edge_value)
        return (
            self._has_own_steps()
            or self.aggr not in _SUMS
            or has_hooks(self.head_score)
            or not all(lin is None or is_plain(lin) for lin in maps)
        )

    def _has_own_steps(self) -> bool:
        """Whether hooks, an explainer or a subclass take part in message passing."""
        is_hooked = any(getattr(self, hooks) for hooks in HOOKS)
        return self._overrides_steps or bool(self.explain) or is_hooked

    def _attend_pairs(
        self,
        projected: Sequence[Tensor],
        graph: CompleteGraphs,
        attr: EdgeAttr,
        terms: _Terms,
        return_weights: bool,
        return_messages: bool,
    ) -> Attended:
        """Attend on the blocks of complete graphs, as one step of autograd where possible."""
        score = self.head_score
        temperature = self.temperature
        score_mod = terms.score_mod
        bias = terms.attn_bias
        gate = terms.edge_gate
        query, key, value = projected
        pairs = (*self._basis(attr), bias, gate, terms.code_bias)
        inputs = PairInputs(score.query(query), score.key(key), value, *pairs)
        returned: Any = {"return_weights": return_weights or return_messages}
        returned["return_logits"] = return_weights
        # Logits are divided by the temperature; with a bias or a score_mod they are not a product.
        is_product = score_mod is None and bias is None and not return_weights
        tempered = temperature == 1 or (is_product and _COLDEST < temperature < math.inf)
        # The one step has no gradient of parameters of a score_mod.
        learned = score_mod is not None and score_mod(query.new_zeros(1)).requires_grad
        dot = score.rule.pair is None
        fused = terms.edge_value is None and not self._overrides_weigh
        if dot and tempered and not learned and fused:
            scale = score.scale / temperature
            attended = fused_attention(graph, inputs, scale, score_mod, **returned)
        else:
            features = edge_features(attr) if self._overrides_weigh else None
            with without_autocast(query):
                attended = dense_attention(
                    graph,
                    inputs,
                    score.scale,
                    score_mod,
                    score=None if dot else score,
                    weigh=partial(self._weigh_block, features),
                    edge_value=terms.edge_value,
                    **returned,
                )
        if return_messages:
            assert attended.weights is not None
            applied = attended.weights if gate is None else attended.weights * gate
            messages = PairMessages(graph, applied, inputs)
            if terms.edge_value is not None:
                messages = weighted_values(graph, applied, inputs, terms.edge_value)
            attended = attended._replace(messages=messages)
        return attended

    def _weigh_block(self, pairs: OptTensor, logits: Tensor, mask: Tensor, block: Block) -> Tensor:
        features = None if pairs is None else block.pairs(pairs)
        return self.weigh(logits, DenseRows(mask), features)

    def _basis(self, attr: EdgeAttr) -> tuple[OptTensor, OptTensor, OptTensor]:
        """Return the edges, with one key term and one value term for each code or feature."""
        if attr is None or self.lin_edge_key is None:
            return None, None, None
        if isinstance(attr, CodedEdges):
            return attr.codes, *self._edge_terms(attr.padded_table)
        units = torch.eye(attr.size(-1), dtype=attr.dtype, device=attr.device)
        return attr, *self._edge_terms(units)

    def _edge_terms(self, attr: Tensor) -> tuple[Tensor, OptTensor]:
        """Map edge features ``[M, D]`` to key terms ``[M, H, C]`` and value terms ``[M, H, V]``."""
        assert self.lin_edge_key is not None
        key = self.lin_edge_key(attr).view(-1, self.heads, self.query_channels)
        value = None if self.lin_edge_value is None else self.lin_edge_value(attr)
        if value is not None:
            value = value.view(-1, self.heads, self.head_channels)
        return self.head_score.key(key), value

    def _attend_edges(
        self,
        projected: Sequence[Tensor],
        edges: Edges,
        attr: EdgeAttr,
        terms: _Terms,
        return_messages: bool,
    ) -> Attended:
        """Attend on a list of edges, by message passing."""
        score = self.head_score
        graph = edges.edge_index
        query, key, value = map(edges.rows_to_nodes, projected)
        attr, bias, gate, edge_value = (
            None if x is None else edges.pairs_to_edges(x)
            for x in (edge_features(attr), *terms[:3])
        )
        query = score.query(query) * score.scale
        key = score.key(key)
        edge_key = None
        if attr is not None and self.lin_edge_key is not None:
            edge_key, attr_value = self._edge_terms(attr)
            edge_value = add_terms(edge_value, attr_value)
        senders, receivers = graph
        count = query.size(0)
        size = (key.size(0), count)
        is_direct = not self._has_own_steps()
        if self.flow == "target_to_source":
            graph = graph.flip(0)
            size = (count, key.size(0))
        if is_direct:
            ends = query.index_select(0, receivers), key.index_select(0, senders)
            logits = self.edge_update(*ends, edge_key)
        else:
            logits = self.edge_updater(graph, query=query, key=key, edge_key=edge_key, size=size)
        logits = adjust(logits, terms.score_mod, bias)
        weights = self.weigh(logits, ScatteredEdges(receivers, count), attr)
        alpha = weights if gate is None else weights * gate
        alpha = F.dropout(alpha, self.dropout, self.training) if self.dropout else alpha
        messages: Optional[list[Tensor]] = [] if return_messages else None
        if is_direct:
            passed = self.message(value.index_select(0, senders), edge_value, alpha)
            nodes = self.aggregate(passed, receivers, None, count, messages)
        else:
            nodes = self.propagate(
                graph, size, value=value, edge_value=edge_value, alpha=alpha, messages=messages
            )
        edge_outputs = (weights, logits, messages[0] if messages else None)
        pairs = (None if x is None else edges.edges_to_pairs(x) for x in edge_outputs)
        return Attended(edges.nodes_to_rows(nodes), *pairs)

    def edge_update(self, query_i: Tensor, key_j: Tensor, edge_key: OptTensor) -> Tensor:
        """Logits ``[E, H]``."""
        return self.head_score(query_i, key_j if edge_key is None else key_j + edge_key)

    def message(self, value_j: Tensor, edge_value: OptTensor, alpha: Tensor) -> Tensor:
        """Weighted values ``[E, H, V]``."""
        return alpha.unsqueeze(-1) * (value_j if edge_value is None else value_j + edge_value)

    def aggregate(
        self,
        inputs: Tensor,
        index: Tensor,
        ptr: OptTensor,
        dim_size: Optional[int],
        messages: Optional[list[Tensor]],
    ) -> Tensor:
        """Aggregate messages ``[E, H, V]`` to ``[N, H, V]``, and append them to ``messages``."""
        if messages is not None:
            messages.append(inputs)
        return super().aggregate(inputs, index, ptr, dim_size)

    def __repr__(self) -> str:
        return layer_repr(self)


def layer_repr(layer: Any) -> str:
    """A layer with its sizes, and the options that are not at their defaults."""
    texts = [f"{type(layer).__name__}({layer.in_channels}, {layer.out_channels}"]
    attention = getattr(layer, "attention", None)  # of a GraphNetwork, with some of its options
    defaults = {**_options(AttentionConv), **_options(type(layer))}
    for name in () if attention is None else layer.attention_options:
        defaults[name] = _options(type(attention))[name]
    for name, default in defaults.items():
        value = getattr(layer, name, getattr(attention, name, default))
        if isinstance(default, bool):  # an option may be kept as the module that it makes
            value = value is not None and value is not False
        if value != default:
            texts.append(f"{name}={value!r}")
    return ", ".join(texts) + ")"


def _options(conv: type) -> dict[str, Any]:
    """Return the defaults of the options, without options whose None is computed from others."""
    return {
        name: option.default
        for name, option in inspect.signature(conv).parameters.items()
        if option.default is not option.empty
        and (option.default is not None or name in ("edge_dim", "global_dim"))
    }


def check_unknown(layer: object, names: Iterable[str]) -> None:
    """Raise TypeError for an option that a layer lacks, with the substitute of an option of PyG."""
    for name in names:
        hint = f": use {_SUBSTITUTES[name]}" if name in _SUBSTITUTES else ""
        kind = type(layer).__name__
        raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}{hint}")


def add_terms(x: OptTensor, y: OptTensor) -> OptTensor:
    """Add two terms, each of which may be None."""
    return y if x is None else x if y is None else x + y


def edge_update_linear(in_channels: int, edge_dim: Optional[int], bias: bool) -> Linear:
    """Return the linear map of a layer that updates edges."""
    if edge_dim is None or edge_dim < 1:
        raise ValueError(
            f"update_edges needs a known edge_dim: got {edge_dim}, expected at least 1"
        )
    return Linear(in_channels, edge_dim, bias=bias)


def optional_linear(
    in_channels: Optional[int], out_channels: int, bias: bool = False
) -> Optional[Linear]:
    """Return a linear map, or None where there are no features."""
    return None if in_channels is None else Linear(in_channels, out_channels, bias=bias)
