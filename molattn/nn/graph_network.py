"""Battaglia's full graph network block with attention as its edge update."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor, Size
from torch_geometric.utils import scatter

from molattn.errors import check_one_of
from molattn.nn.attention_conv import HOOKS, STEPS, check_unknown
from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.graph_inputs import (
    EdgeAttr,
    Edges,
    Globals,
    Graph,
    Nodes,
    Pair,
    edge_features,
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
    ``MetaLayer``. An input that is switched off counts as zero in :math:`\phi`; edges are still
    updated by adding to :math:`e_k`.

    On :class:`~molattn.graph.CompleteGraphs` your own edge function, and attention whose edges are
    not aggregated by ``sum``, are computed on the list of all edges. Hooks of message passing are
    those of the attention; a subclass that overrides a step, such as ``message``, is a TypeError.

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
        edge_function: Replaces the attention, whose options and ``heads`` are then not used.
        node_function: Replaces :math:`\phi^v`.
        global_function: Replaces :math:`\phi^u`.
        kwargs: Options of the :class:`EdgeAttentionConv` that is the block's ``attention``:
            ``score``, ``temperature``, ``combine``, ``gate``, ``edge_value`` and ``dropout``; and
            ``flow`` of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **x, edge_index, edge_attr, size**: see :meth:`AttentionConv.forward`
        - **u**: ``[B, global_dim]``; **batch**: ``[N]``; None = one graph
        - **output**: nodes ``[N_dst, out_channels]``; then edges with ``update_edges``; then
          ``u'`` with ``update_global``; then ``(edge_index, alpha)`` with
          ``return_attention_weights``, which an edge function does not have

    Example:
        >>> block = GraphNetwork(8, 16, 4, edge_dim=3, global_dim=5, update_global=True)
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])
        >>> x, u = block(x, edge_index, torch.randn(2, 3), u=torch.randn(1, 5))
        >>> x.shape, u.shape
        (torch.Size([3, 16]), torch.Size([1, 5]))
    """

    attention_options = ("score", "temperature", "combine", "gate", "edge_value", "dropout")
    """Options of the attention."""

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
        **kwargs: Any,
    ) -> None:
        check_unknown(self, kwargs.keys() - {"flow", *self.attention_options})
        super().__init__(flow=kwargs.get("flow", "source_to_target"))
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.edge_dim, self.global_dim = edge_dim, global_dim
        self.edge_inputs = _subset("edge_inputs", edge_inputs, EDGE_INPUTS)
        self.node_inputs = _subset("node_inputs", node_inputs, NODE_INPUTS)
        self.global_inputs = _subset("global_inputs", global_inputs, GLOBAL_INPUTS)
        for name, reducer in (
            ("edge_to_node", edge_to_node),
            ("edge_to_global", edge_to_global),
            ("node_to_global", node_to_global),
        ):
            check_one_of(name, reducer, REDUCERS)
            setattr(self, name, reducer)
        if update_global and not global_dim:
            raise ValueError(f"update_global: global_dim is {global_dim}, expected a number")
        self.update_nodes, self.update_edges = update_nodes, update_edges
        self.update_global = update_global
        self.edge_function, self.node_function = edge_function, node_function
        self.global_function = global_function
        # Whether the sum over a graph's edges is that of the sums over the edges of its nodes.
        self._sums = edge_function is None and edge_to_node == edge_to_global == "sum"
        self.attention: Optional[EdgeAttentionConv] = None
        if edge_function is None:
            self._make_attention(kwargs)
        self._make_functions()

    def _make_attention(self, options: Mapping[str, Any]) -> None:
        self.attention = EdgeAttentionConv(
            self.in_channels,
            self.out_channels,
            self.heads,
            edge_dim=self.edge_dim,
            global_dim=self.global_dim,
            update_edges=self.update_edges,
            root_weight=False,
            bias=False,
            aggr=self.edge_to_node,
            **options,
        )
        for hooks in HOOKS:  # of the block are those of its attention
            setattr(self, hooks, getattr(self.attention, hooks))

    def _make_functions(self) -> None:
        """Make the networks that update nodes and the graph, unless they are replaced."""
        receiver = self.in_channels if isinstance(self.in_channels, int) else self.in_channels[1]
        updated = self.out_channels if self.node_function is None else -1
        widths = {
            "edges": self.out_channels if self.edge_function is None else -1,
            "node": receiver,
            "nodes": updated if self.update_nodes else receiver,
            "global": self.global_dim or 0,
        }
        if self.update_nodes and self.node_function is None:
            seen = [widths[name] for name in self.node_inputs]
            self.node_function = _network(seen, self.out_channels)
        if self.update_global and self.global_function is None:
            seen = [widths[name] for name in self.global_inputs]
            self.global_function = _network(seen, widths["global"])

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
        """See :meth:`AttentionConv.forward`, and the class for ``u`` and ``batch``."""
        requested = bool(return_attention_weights)
        if requested and self.attention is None:
            raise ValueError(
                "return_attention_weights cannot be used with edge_function, which has no weights"
            )
        nodes, edges, attr = read_graph(self, x, edge_index, edge_attr, size)
        globals_ = read_globals(u, batch, nodes, edges, self.global_dim)
        update = self._apply_function if self.attention is None else self._attend
        updated = update(nodes, edges, attr, globals_, requested)
        # From here on nodes are a list, without padding.
        node = edges.rows_to_nodes(nodes[1])
        index = None if globals_ is None else globals_[1].batch
        index = None if index is None else edges.rows_to_nodes(index)
        if self.node_function is not None:
            at_nodes = u if u is None or index is None else u[index]
            given = {"edges": updated.to_nodes, "node": node, "global": at_nodes}
            node = self.node_function(_join(given, self.node_inputs, node.size(0)))
        result: list[Any] = [edges.nodes_to_rows(node)]
        if self.update_edges:
            result.append(updated.edges)
        if self.global_function is not None and u is not None:
            if index is None:
                index = torch.zeros(node.size(0), dtype=torch.long, device=node.device)
            given = {"nodes": scatter(node, index, 0, u.size(0), self.node_to_global), "global": u}
            if "edges" in self.global_inputs:
                of = index if self._sums else index[edges.edge_index[1]]
                pooled = scatter(updated.to_pool, of, 0, u.size(0), self.edge_to_global)
                given["edges"] = self.attention.head_combine(pooled) if self.attention else pooled
            result.append(self.global_function(_join(given, self.global_inputs, u.size(0))))
        if requested:
            result.append((edge_index, updated.weights))
        return tuple(result) if len(result) > 1 else result[0]

    def _attend(
        self, x: Pair, edges: Edges, attr: EdgeAttr, globals_: Globals, requested: bool
    ) -> "_Updated":
        """Update edges by attention."""
        conv, on = self.attention, {name: name in self.edge_inputs for name in EDGE_INPUTS}
        assert conv is not None
        seen = _if(on["sender"], x[0]), _if(on["receiver"], x[1])
        seen_attr = attr if on["edge"] or attr is None else torch.zeros_like(edge_features(attr))
        if globals_ is not None:
            senders, receivers = (
                of._replace(values=_if(on["global"], of.values)) for of in globals_
            )
            globals_ = senders, receivers
        pools_messages = self.global_function is not None and "edges" in self.global_inputs
        pools_messages = pools_messages and not self._sums
        needed = self.update_edges or pools_messages
        found = conv.attend_heads(seen, edges, seen_attr, globals_, requested, needed)
        new_edges = None
        if self.update_edges and found.messages is not None:
            new_edges = conv.updated_edges(attr, found.messages)
        heads = to_pool = edges.rows_to_nodes(found.nodes)
        if pools_messages and found.messages is not None:
            to_pool = edges.pairs_to_edges(found.messages)
        return _Updated(conv.head_combine(heads), to_pool, new_edges, found.weights)

    def _apply_function(
        self, x: Pair, edges: Edges, attr: EdgeAttr, globals_: Globals, requested: bool
    ) -> "_Updated":
        """Update edges by a function of yours."""
        assert self.edge_function is not None
        sender, receiver = edges.edge_index[0], edges.edge_index[1]
        attr = edge_features(attr)
        senders, receivers = (edges.rows_to_nodes(part) for part in x)
        at_edges = None
        if globals_ is not None:
            at_edges, batch = globals_[1]
            if batch is not None:
                at_edges = at_edges[edges.rows_to_nodes(batch)[receiver]]
        given = {
            "edge": None if attr is None else edges.pairs_to_edges(attr),
            "receiver": receivers[receiver],
            "sender": senders[sender],
            "global": at_edges,
        }
        new = self.edge_function(_join(given, self.edge_inputs, receiver.numel()))
        if self.explain:  # as propagate does
            new = self.explain_message(new, receivers.size(0))
        to_nodes = scatter(new, receiver, 0, receivers.size(0), self.edge_to_node)
        return _Updated(to_nodes, new, edges.edges_to_pairs(new), None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


class _Updated(NamedTuple):
    """What the update of edges gives."""

    to_nodes: Tensor  # aggregated, [N, out_channels]
    to_pool: Tensor  # what is pooled to graphs: of nodes if sums of sums are enough, else of edges
    edges: OptTensor  # updated, in the form in which they were given
    weights: OptTensor


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
