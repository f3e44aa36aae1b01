"""Battaglia's full graph network block with attention as its edge update."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor, Size
from torch_geometric.utils import scatter

from molattn.graph.complete import CompleteGraphs
from molattn.nn.attention_conv import HOOKS, STEPS, check_unknown
from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.graph_inputs import (
    EdgeAttr,
    Edges,
    Globals,
    Graph,
    Nodes,
    Pair,
    read_globals,
    read_graph,
)
from molattn.nn.linear import Linear

EDGE_INPUTS = ("edge", "receiver", "sender", "global")
NODE_INPUTS = ("edges", "node", "global")
GLOBAL_INPUTS = ("edges", "nodes", "global")
REDUCERS = ("sum", "mean", "max", "min")


class GraphNetwork(MessagePassing):
    r"""The full graph network block (Battaglia et al. 2018, algorithm 1), with attention inside.

    .. math::
        e'_k &= \phi^e(e_k, x_r, x_s, u) & \bar e_i &= \rho^{e \to v}(\{e'_k\}_{k \in N(i)}) \\
        x'_i &= \phi^v(\bar e_i, x_i, u) & \bar e &= \rho^{e \to u}(\{e'_k\}), \quad
        \bar x = \rho^{v \to u}(\{x'_i\}) \\
        u' &= \phi^u(\bar e, \bar x, u)

    computed in this order. :math:`\phi^e` is the attention of :class:`EdgeAttentionConv`,
    :math:`e'_k = g_r\, b_k V_k` for each head, and heads are combined after :math:`\rho`.
    :math:`\phi^v` and :math:`\phi^u` are networks with one hidden layer. Each of the three may be
    replaced by your own function, which is called with the concatenation, in the order of the
    formula, of those inputs that are switched on. With all three replaced the block is PyG's
    ``MetaLayer``.

    An input that is switched off counts as zero in :math:`\phi`; edges are still updated by adding
    to :math:`e_k`. On :class:`~molattn.graph.CompleteGraphs` attention is computed as batched
    matrix products if edges are aggregated by ``sum``; with other aggregations, or your own edge
    function, it is computed on the list of all edges.

    Args:
        in_channels: Number of node features, or a pair (senders, receivers); -1 = inferred in the
            first call.
        out_channels: Number of channels of :math:`x'` and :math:`\bar e`.
        heads: Number of heads ``H``.
        edge_dim: Number of edge features; None = no edge features.
        global_dim: Number of graph features :math:`u`; None = no graph features.
        edge_inputs: Inputs of :math:`\phi^e`: some of ``edge``, ``receiver``, ``sender``,
            ``global``.
        node_inputs: Inputs of :math:`\phi^v`: some of ``edges``, ``node``, ``global``.
        global_inputs: Inputs of :math:`\phi^u`: some of ``edges``, ``nodes``, ``global``.
        edge_to_node: :math:`\rho^{e \to v}`: ``sum``, ``mean``, ``max`` or ``min``.
        edge_to_global: :math:`\rho^{e \to u}`.
        node_to_global: :math:`\rho^{v \to u}`.
        update_nodes: Update nodes; if False, they are returned unchanged.
        update_edges: Also return edges: :math:`e_k + W_{oe}\, \mathrm{combine}_h\, e'_k`, or the
            output of ``edge_function``.
        update_global: Also return :math:`u'`, ``[B, global_dim]``.
        edge_function: Replaces the attention, whose options (``heads`` and those from ``score`` to
            ``dropout``) are then not used.
        node_function: Replaces :math:`\phi^v`.
        global_function: Replaces :math:`\phi^u`.
        score: See :class:`EdgeAttentionConv`, which is the block's ``attention``.
        temperature: See :class:`EdgeAttentionConv`.
        combine: See :class:`EdgeAttentionConv`.
        gate: See :class:`EdgeAttentionConv`.
        edge_value: See :class:`EdgeAttentionConv`.
        dropout: See :class:`EdgeAttentionConv`.
        kwargs: ``flow`` of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **x**: ``[N, in_channels]``, or a pair ``([N_src, F_src], [N_dst, F_dst] or None: zeros)``
        - **edge_index**: ``[2, E]`` of any integer type, ``EdgeIndex``, sparse ``adj_t``, or
          ``CompleteGraphs``
        - **edge_attr**: ``[E, edge_dim]``; **u**: ``[B, global_dim]``; **batch**: ``[N]``
        - **output**: nodes ``[N_dst, out_channels]``; then edges with ``update_edges``; then
          ``u'`` with ``update_global``; with ``return_attention_weights`` then
          ``(edge_index, alpha)``: the graph as given and the weights before dropout, ``[E, H]``

    Raises:
        ValueError: An invalid option or shape, or ``return_attention_weights`` with an edge
            function, which has no weights; the message states what was expected.
        TypeError: A subclass overrides a step of message passing, such as ``message``.

    Example:
        >>> block = GraphNetwork(8, 16, 4, edge_dim=3, global_dim=5, update_global=True)
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])
        >>> x, u = block(x, edge_index, torch.randn(2, 3), u=torch.randn(1, 5))
        >>> x.shape, u.shape
        (torch.Size([3, 16]), torch.Size([1, 5]))
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if changed := STEPS & vars(cls).keys():
            raise TypeError(f"{cls.__name__} overrides {', '.join(changed)}: use edge_function")

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        global_dim: Optional[int] = None,
        edge_inputs: Sequence[str] = EDGE_INPUTS,
        node_inputs: Sequence[str] = NODE_INPUTS,
        global_inputs: Sequence[str] = GLOBAL_INPUTS,
        edge_to_node: str = "sum",
        edge_to_global: str = "sum",
        node_to_global: str = "sum",
        update_nodes: bool = True,
        update_edges: bool = False,
        update_global: bool = False,
        edge_function: Optional[nn.Module] = None,
        node_function: Optional[nn.Module] = None,
        global_function: Optional[nn.Module] = None,
        score: str = "scaled_dot",
        temperature: float = 1.0,
        combine: str = "linear",
        gate: bool = False,
        edge_value: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        check_unknown(self, kwargs.keys() - {"flow"})
        super().__init__(**kwargs)
        self.edge_inputs = _subset("edge_inputs", edge_inputs, EDGE_INPUTS)
        self.node_inputs = _subset("node_inputs", node_inputs, NODE_INPUTS)
        self.global_inputs = _subset("global_inputs", global_inputs, GLOBAL_INPUTS)
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.edge_dim, self.global_dim = edge_dim, global_dim
        self.edge_to_node = edge_to_node
        self.edge_to_global = edge_to_global
        self.node_to_global = node_to_global
        self.update_nodes = update_nodes
        self.update_edges = update_edges
        self.update_global = update_global
        self._check_options(edge_function, node_function, global_function)
        self.edge_function = edge_function
        self.attention: Optional[EdgeAttentionConv] = None
        if edge_function is None:
            self.attention = EdgeAttentionConv(
                in_channels,
                out_channels,
                heads,
                edge_dim=edge_dim,
                global_dim=global_dim,
                score=score,
                temperature=temperature,
                combine=combine,
                gate=gate,
                edge_value=edge_value,
                update_edges=update_edges,
                dropout=dropout,
                root_weight=False,
                bias=False,
                aggr=edge_to_node,
                **kwargs,
            )
            for hooks in HOOKS:  # of the block are those of its attention
                setattr(self, hooks, getattr(self.attention, hooks))
        receiver = in_channels if isinstance(in_channels, int) else in_channels[1]
        updated = out_channels if node_function is None else -1
        widths = {
            "edges": out_channels if edge_function is None else -1,
            "node": receiver,
            "nodes": updated if update_nodes else receiver,
            "global": global_dim or 0,
        }
        if update_nodes and node_function is None:
            node_function = _network([widths[name] for name in self.node_inputs], out_channels)
        if global_dim is not None and update_global and global_function is None:
            global_function = _network([widths[name] for name in self.global_inputs], global_dim)
        self.node_function = node_function
        self.global_function = global_function

    def _check_options(
        self,
        edge_function: Optional[nn.Module],
        node_function: Optional[nn.Module],
        global_function: Optional[nn.Module],
    ) -> None:
        for name in ("edge_to_node", "edge_to_global", "node_to_global"):
            if (reducer := getattr(self, name)) not in REDUCERS:
                raise ValueError(f"{name}: got {reducer!r}, expected one of {', '.join(REDUCERS)}")
        if self.update_global and (self.global_dim is None or self.global_dim < 1):
            raise ValueError(f"update_global: global_dim is {self.global_dim}, expected a number")
        for name, function, updates in (
            ("node_function", node_function, self.update_nodes),
            ("global_function", global_function, self.update_global),
        ):
            if function is not None and not updates:
                raise ValueError(f"{name}: got one, but what it updates is not updated")
        absent = {name for name in ("edge", "global") if getattr(self, f"{name}_dim") is None}
        for name in ("node_inputs", "global_inputs", *(["edge_inputs"] if edge_function else [])):
            if absent.issuperset(getattr(self, name)):
                raise ValueError(f"{name}: got {getattr(self, name)}, but the block has no such")

    def reset_parameters(self) -> None:
        """Reset all parameters of the functions that have ``reset_parameters``."""
        for part in self.children():
            _reset(part)

    def forward(
        self,
        x: Nodes,
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        return_attention_weights: Optional[bool] = False,
        *,
        u: OptTensor = None,
        batch: Union[Tensor, Pair, None] = None,
        size: Size = None,
    ) -> Any:
        """Update edges, nodes and the graph; the class describes arguments and results."""
        if return_attention_weights and self.attention is None:
            raise ValueError(
                "return_attention_weights cannot be used with edge_function, which has no weights"
            )
        nodes, edges = read_graph(
            x, edge_index, edge_attr, self.in_channels, self.edge_dim, self.flow, size
        )
        globals_ = read_globals(u, batch, nodes, self.global_dim, edges.index)
        graph = edges.index if isinstance(edges.index, CompleteGraphs) else None
        attend = self._apply_function if self.attention is None else self._attend
        to_nodes, to_pool, new_edges, alpha = attend(
            nodes, edges, globals_, bool(return_attention_weights)
        )
        # From here on nodes and edges are lists, without padding.
        node = nodes[1]
        index = None if globals_[1] is None else globals_[1].batch
        if graph is not None:
            node, index = graph.rows_to_nodes(node), graph.batch
        if self.node_function is not None:
            at_nodes = u if u is None or index is None else u[index]
            given = {"edges": to_nodes, "node": node, "global": at_nodes}
            node = self.node_function(_join(given, self.node_inputs, node.size(0)))
        result: list[Any] = [node if graph is None else graph.nodes_to_rows(node)]
        if self.update_edges:
            result.append(new_edges)
        if self.global_function is not None and u is not None:
            if index is None:
                index = torch.zeros(node.size(0), dtype=torch.long, device=node.device)
            given = {"nodes": scatter(node, index, 0, u.size(0), self.node_to_global), "global": u}
            if to_pool is not None:
                of = index if self._sums else index[edges.listed().index[1]]
                pooled = scatter(to_pool, of, 0, u.size(0), self.edge_to_global)
                combine = None if self.attention is None else self.attention.head_combine
                given["edges"] = pooled if combine is None else combine(pooled)
            result.append(self.global_function(_join(given, self.global_inputs, u.size(0))))
        if return_attention_weights:
            result.append((edge_index, alpha))
        return tuple(result) if len(result) > 1 else result[0]

    @property
    def _pools_edges(self) -> bool:
        return self.update_global and "edges" in self.global_inputs

    @property
    def _sums(self) -> bool:
        """Whether the sum over a graph's edges is that of the sums over the edges of its nodes."""
        return self.attention is not None and self.edge_to_node == self.edge_to_global == "sum"

    def _attend(
        self, x: Pair, edges: Edges, globals_: Globals, return_alpha: bool
    ) -> tuple[Tensor, OptTensor, OptTensor, OptTensor]:
        """Nodes and what is pooled to graphs, both as lists, updated edges, and weights."""
        conv = self.attention
        assert conv is not None
        on = {name: name in self.edge_inputs for name in EDGE_INPUTS}
        seen = _if(on["sender"], x[0]), _if(on["receiver"], x[1])
        attr = edges.attr if on["edge"] or edges.attr is None else torch.zeros_like(edges.features)
        if not on["global"] and globals_[0] is not None and globals_[1] is not None:
            nothing = torch.zeros_like(globals_[0].values)
            globals_ = (globals_[0]._replace(values=nothing), globals_[1]._replace(values=nothing))
        needed = self.update_edges or (self._pools_edges and not self._sums)
        heads, alpha, messages = conv.attend_heads(
            seen, Edges(edges.index, attr), globals_, return_alpha, needed
        )
        new_edges = None
        if self.update_edges and messages is not None:
            new_edges = conv.updated_edges(edges, messages)
        graph = edges.index if isinstance(edges.index, CompleteGraphs) else None
        heads = heads if graph is None else graph.rows_to_nodes(heads)
        to_pool = None
        if self._pools_edges and messages is not None and not self._sums:
            to_pool = messages if graph is None else graph.pairs_to_edges(messages)
        elif self._pools_edges:
            to_pool = heads
        return conv.head_combine(heads), to_pool, new_edges, alpha

    def _apply_function(
        self, x: Pair, edges: Edges, globals_: Globals, _: bool
    ) -> tuple[Tensor, OptTensor, OptTensor, OptTensor]:
        """The same with a function of yours, which has no weights."""
        assert self.edge_function is not None
        batch = None if globals_[1] is None else globals_[1].batch
        graph = edges.index if isinstance(edges.index, CompleteGraphs) else None
        if graph is not None:
            rows = graph.rows_to_nodes(x[1])
            x, batch = (rows, rows), graph.batch
        edges = edges.listed()
        sender, receiver = edges.index[0], edges.index[1]
        u = None if globals_[1] is None else globals_[1].values
        given = {
            "edge": edges.attr,
            "receiver": x[1][receiver],
            "sender": x[0][sender],
            "global": u if u is None or batch is None else u[batch[receiver]],
        }
        new = self.edge_function(_join(given, self.edge_inputs, receiver.numel()))
        if self.explain:  # as propagate does
            new = self.explain_message(new, x[1].size(0))
        to_nodes = scatter(new, receiver, 0, x[1].size(0), self.edge_to_node)
        new_edges = new if graph is None else graph.edges_to_pairs(new)
        return to_nodes, new if self._pools_edges else None, new_edges, None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def _subset(option: str, given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not given or not set(given) <= set(known):
        raise ValueError(f"{option}: got {given!r}, expected a subset of {', '.join(known)}")
    return tuple(name for name in known if name in given)


def _network(widths: list[int], out_channels: int) -> nn.Module:
    width = -1 if min(widths) < 0 else sum(widths)
    return nn.Sequential(Linear(width, out_channels), nn.SiLU(), Linear(out_channels, out_channels))


def _reset(function: nn.Module) -> None:
    if hasattr(function, "reset_parameters"):
        function.reset_parameters()  # pyright: ignore[reportCallIssue]
        return
    for part in function.children():
        _reset(part)


def _if(on: bool, x: Tensor) -> Tensor:
    return x if on else torch.zeros_like(x)


def _join(given: Mapping[str, Any], names: Sequence[str], rows: int) -> Tensor:
    """Concatenate those of the named inputs that are not None."""
    parts = [given.get(name) for name in names]
    return torch.cat([part.expand(rows, -1) for part in parts if part is not None], dim=-1)
