"""Battaglia's full graph network block with attention as its edge update."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.typing import OptTensor, Size
from torch_geometric.utils import scatter

from molattn.graph.complete import CompleteGraphs
from molattn.nn.attention_conv import HOOKS, message_passing_options
from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.graph_inputs import (
    EdgeAttr,
    Edges,
    Globals,
    Graph,
    NodeGlobals,
    Nodes,
    Pair,
    edge_list,
    read_globals,
    read_graph,
    results_in_rows,
)
from molattn.nn.linear import Linear
from molattn.nn.message_passing import MessagePassing

EDGE_INPUTS = ("edge", "receiver", "sender", "global")
NODE_INPUTS = ("edges", "node", "global")
GLOBAL_INPUTS = ("edges", "nodes", "global")
REDUCERS = ("sum", "mean", "max", "min")


class _EdgeStage(NamedTuple):
    """Results of the edge update and of its aggregations."""

    to_nodes: Tensor  # [N, ...]
    to_graphs: Optional[Tensor]  # [B, ...]
    edges: Optional[Tensor]  # [E, edge_dim]
    alpha: Optional[Tensor]  # [E, H]


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
        score: See :class:`EdgeAttentionConv`.
        temperature: See :class:`EdgeAttentionConv`.
        combine: See :class:`EdgeAttentionConv`.
        gate: See :class:`EdgeAttentionConv`.
        edge_value: See :class:`EdgeAttentionConv`.
        dropout: See :class:`EdgeAttentionConv`.
        kwargs: ``flow`` of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **x**: ``[N, in_channels]``, or a pair ``([N_src, F_src], [N_dst, F_dst])`` or
          ``([N_src, F_src], None)``
        - **edge_index**: ``[2, E]`` of any integer type, ``EdgeIndex``, sparse ``adj_t``, or
          ``CompleteGraphs``
        - **edge_attr**: ``[E, edge_dim]``; **u**: ``[B, global_dim]``; **batch**: ``[N]``
        - **output**: nodes ``[N_dst, out_channels]``; then edges with ``update_edges``; then
          ``u'`` with ``update_global``; then ``(edge_index, alpha)`` if requested

    Raises:
        ValueError: An invalid option or shape; the message states what was expected.
        TypeError: A subclass that overrides a step of message passing, such as ``message``.

    Example:
        >>> block = GraphNetwork(8, 16, 4, edge_dim=3, global_dim=5, update_global=True)
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])
        >>> x, u = block(x, edge_index, torch.randn(2, 3), torch.randn(1, 5))
        >>> x.shape, u.shape
        (torch.Size([3, 16]), torch.Size([1, 5]))
    """

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
        if "aggr" in kwargs:
            raise ValueError("aggr cannot be used with GraphNetwork: use edge_to_node")
        super().__init__(**message_passing_options(type(self).__name__, kwargs))
        changed = self.changed_steps(MessagePassing)
        if changed:
            raise TypeError(
                f"{type(self).__name__} overrides {', '.join(changed)}, which GraphNetwork does "
                "not call: use edge_function"
            )
        for name, reducer in (
            ("edge_to_node", edge_to_node),
            ("edge_to_global", edge_to_global),
            ("node_to_global", node_to_global),
        ):
            if reducer not in REDUCERS:
                raise ValueError(f"{name}: got {reducer!r}, expected one of {', '.join(REDUCERS)}")
        if update_global and (global_dim is None or global_dim < 1):
            raise ValueError(
                f"update_global needs a known global_dim: got {global_dim}, expected at least 1"
            )
        for name, function, option, updates in (
            ("node_function", node_function, "update_nodes", update_nodes),
            ("global_function", global_function, "update_global", update_global),
        ):
            if function is not None and not updates:
                raise ValueError(f"{name} cannot be used with {option}=False")
        self.edge_inputs = _chosen("edge_inputs", edge_inputs, EDGE_INPUTS)
        self.node_inputs = _chosen("node_inputs", node_inputs, NODE_INPUTS)
        self.global_inputs = _chosen("global_inputs", global_inputs, GLOBAL_INPUTS)
        for name, given in (
            ("node_inputs", self.node_inputs),
            ("global_inputs", self.global_inputs),
        ):
            if given == ("global",) and global_dim is None:
                raise ValueError(f"{name}: got only 'global', but global_dim is None")
        if edge_function is not None and (
            (global_dim is None and self.edge_inputs == ("global",))
            or (edge_dim is None and self.edge_inputs == ("edge",))
        ):
            (only,) = self.edge_inputs
            raise ValueError(f"edge_inputs: got only {only!r}, but {only}_dim is None")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.edge_dim = edge_dim
        self.global_dim = global_dim
        self.edge_to_node = edge_to_node
        self.edge_to_global = edge_to_global
        self.node_to_global = node_to_global
        self.update_nodes = update_nodes
        self.update_edges = update_edges
        self.update_global = update_global
        self._pools_edges = update_global and "edges" in self.global_inputs

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
                flow=self.flow,
            )
            for hooks in HOOKS:  # of the block are those of its attention
                setattr(self, hooks, getattr(self.attention, hooks))
        pair = (in_channels, in_channels) if isinstance(in_channels, int) else in_channels
        widths = {
            "edges": out_channels if edge_function is None else -1,
            "node": pair[1],
            "nodes": (out_channels if node_function is None else -1) if update_nodes else pair[1],
            "global": global_dim or 0,
        }
        if update_nodes and node_function is None:
            node_function = _network([widths[name] for name in self.node_inputs], out_channels)
        if update_global and global_function is None and global_dim is not None:
            global_function = _network([widths[name] for name in self.global_inputs], global_dim)
        self.node_function = node_function
        self.global_function = global_function

    @MessagePassing.explain.setter
    def explain(self, explain: Optional[bool]) -> None:
        """Whether edge masks are applied, as explainers set it."""
        MessagePassing.explain.fset(self, explain)  # pyright: ignore[reportOptionalCall]
        if self.attention is not None:
            self.attention.explain = explain

    def reset_parameters(self) -> None:
        """Reset all parameters of the functions that have ``reset_parameters``."""
        super().reset_parameters()
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
        """Update edges, then nodes, then the graph.

        Args:
            x: Node features, or a pair (senders, receivers); None for receivers without features,
                which then count as zeros.
            edge_index: The graph.
            edge_attr: Edge features.
            return_attention_weights: Also return ``edge_index`` as given and the weights of its
                edges, before dropout.
            u: Graph features.
            batch: Graph of each node.
            size: Number of senders and of receivers; needed if ``x`` does not have it.

        Returns:
            Nodes, or a tuple that begins with them; see the class.

        Raises:
            ValueError: A wrong shape, or ``return_attention_weights`` with an edge function, which
                has no weights.
            TypeError: A wrong type.
            IndexError: An edge to a node that does not exist.
        """
        if return_attention_weights and self.attention is None:
            raise ValueError(
                "return_attention_weights cannot be used with edge_function, which has no weights"
            )
        nodes, edges = read_graph(
            x, edge_index, edge_attr, self.in_channels, self.edge_dim, size, self.flow
        )
        graph = edges.index
        if isinstance(graph, CompleteGraphs) and self.attention is None:
            return self._through_edges(nodes[1], graph, edges.attr, u)
        globals_ = read_globals(u, batch, nodes, self.global_dim, graph)
        stage = self._edge_stage(nodes, edges, globals_, bool(return_attention_weights))
        node = nodes[1]
        if self.node_function is not None:
            seen = {"edges": stage.to_nodes, "node": node}
            if globals_[1] is not None:
                seen["global"] = globals_[1].at_nodes(globals_[1].values)
            node = _join(seen, self.node_inputs, node.size(0))
            if isinstance(graph, CompleteGraphs):  # it may normalize over all nodes
                node = graph.nodes_to_rows(self.node_function(graph.rows_to_nodes(node)))
            else:
                node = self.node_function(node)
        result: tuple[Any, ...] = (node,)
        if self.update_edges:
            result += (stage.edges,)
        if self.global_function is not None and globals_[1] is not None and u is not None:
            pooled = _to_graphs(node, globals_[1], graph, self.node_to_global)
            seen = {"edges": stage.to_graphs, "nodes": pooled, "global": u}
            result += (self.global_function(_join(seen, self.global_inputs, u.size(0))),)
        if return_attention_weights:
            result += ((edge_index, stage.alpha),)
        return result if len(result) > 1 else node

    def _edge_stage(
        self, x: Pair, edges: Edges, globals_: Globals, return_alpha: bool
    ) -> _EdgeStage:
        if self.attention is None:
            return self._own_edge_stage(x, edges, globals_[1])
        changed = "forward" in vars(self.attention)
        if changed or type(self.attention).forward is not EdgeAttentionConv.forward:
            raise ValueError("attention: got a changed forward, which the block does not call")
        on = {name: name in self.edge_inputs for name in EDGE_INPUTS}
        seen = (_if(on["sender"], x[0]), _if(on["receiver"], x[1]))
        attr = edges.attr if on["edge"] or edges.attr is None else torch.zeros_like(edges.features)
        if not on["global"] and globals_[0] is not None and globals_[1] is not None:
            nothing = torch.zeros_like(globals_[0].values)
            globals_ = (globals_[0]._replace(values=nothing), globals_[1]._replace(values=nothing))
        # The sum over a graph's edges is that of the sums over the edges of its nodes.
        of_nodes = self.edge_to_node == self.edge_to_global == "sum"
        heads, alpha, messages = self.attention.attend_heads(
            seen,
            Edges(edges.index, attr),
            globals_,
            return_alpha,
            self.update_edges or (self._pools_edges and not of_nodes),
        )
        combine, to_graphs = self.attention.head_combine, None
        if self._pools_edges and globals_[1] is not None:
            if of_nodes:
                to_graphs = combine(_to_graphs(heads, globals_[1], edges.index, "sum"))
            else:
                to_graphs = combine(self._edges_to_graphs(messages, edges, globals_[1]))
        new_edges = None
        if self.update_edges and messages is not None:
            new_edges = self.attention.updated_edges(edges, messages)
        return _EdgeStage(combine(heads), to_graphs, new_edges, alpha)

    def _own_edge_stage(self, x: Pair, edges: Edges, globals_: Optional[NodeGlobals]) -> _EdgeStage:
        assert self.edge_function is not None
        if any(getattr(self, hooks) for hooks in HOOKS):
            raise ValueError(
                "hooks of message passing cannot be used with edge_function: register them with "
                "edge_function.register_forward_hook"
            )
        sender, receiver = edges.index[0], edges.index[1]
        seen = {
            "edge": None if edges.attr is None else edges.features,
            "receiver": x[1][receiver],
            "sender": x[0][sender],
        }
        if globals_ is not None:
            at_nodes = globals_.at_nodes(globals_.values)
            one = globals_.batch is None
            seen["global"] = at_nodes.expand(receiver.numel(), -1) if one else at_nodes[receiver]
        new = self.edge_function(_join(seen, self.edge_inputs, receiver.numel()))
        if self.explain:  # as propagate does
            new = self.explain_message(new, x[1].size(0))
        to_nodes = scatter(new, receiver, dim=0, dim_size=x[1].size(0), reduce=self.edge_to_node)
        to_graphs = None
        if self._pools_edges and globals_ is not None:
            to_graphs = self._edges_to_graphs(new, edges, globals_)
        return _EdgeStage(to_nodes, to_graphs, new, None)

    def _edges_to_graphs(self, e: OptTensor, edges: Edges, globals_: NodeGlobals) -> Tensor:
        assert e is not None  # requested where edges are pooled
        graph, batch = edges.index, globals_.batch
        if isinstance(graph, CompleteGraphs):
            e, graph, batch = graph.pairs_to_edges(e), graph.edge_index, graph.batch
        index = torch.zeros_like(graph[1]) if batch is None else batch[graph[1]]
        return scatter(
            e, index, dim=0, dim_size=globals_.values.size(0), reduce=self.edge_to_global
        )

    def _through_edges(self, x: Tensor, graph: CompleteGraphs, attr: EdgeAttr, u: OptTensor) -> Any:
        """Call the block on the list of all edges, and convert the results to rows."""
        nodes, attr = edge_list(x, graph, attr)
        # Hooks, and a forward that a subclass has, run once.
        given = {"u": u, "batch": graph.batch}
        out = GraphNetwork.forward(self, nodes, graph.edge_index, attr, **given)
        return results_in_rows(out, graph, edges=self.update_edges, weights=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def _chosen(option: str, given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
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


def _join(seen: Mapping[str, OptTensor], names: Sequence[str], rows: int) -> Tensor:
    """Concatenate those of the named inputs that are not None."""
    parts = [seen.get(name) for name in names]
    return torch.cat([part.expand(rows, -1) for part in parts if part is not None], dim=-1)


def _to_graphs(
    nodes: Tensor, globals_: NodeGlobals, graph: Union[Tensor, CompleteGraphs], reduce: str
) -> Tensor:
    batch = globals_.batch
    if isinstance(graph, CompleteGraphs):
        nodes, batch = graph.rows_to_nodes(nodes), graph.batch
    if batch is None:
        batch = torch.zeros(nodes.size(0), dtype=torch.long, device=nodes.device)
    return scatter(nodes, batch, dim=0, dim_size=globals_.values.size(0), reduce=reduce)
