"""Battaglia's full graph network block with attention as its edge update."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.typing import OptTensor, PairTensor, Size
from torch_geometric.utils import scatter

from molattn.nn.attention_heads import check_choice
from molattn.nn.conv.attention_conv import (
    HOOKS,
    STEPS,
    PlainMessagePassing,
    check_unknown,
    layer_repr,
)
from molattn.nn.conv.edge_attention import EdgeAttentionConv
from molattn.nn.dense.edge_update import PairMessages
from molattn.nn.dense.linear import Linear
from molattn.nn.dense.plain import Attended
from molattn.nn.graph_inputs import (
    EdgeAttr,
    Edges,
    Globals,
    Graph,
    Nodes,
    edge_features,
    like_input,
    read_globals,
    read_graph,
)
from molattn.nn.resettable import Resettable

EDGE_INPUTS = ("edge", "receiver", "sender", "global")
NODE_INPUTS = ("edges", "node", "global")
GLOBAL_INPUTS = ("edges", "nodes", "global")
REDUCERS = ("sum", "mean", "max", "min")


class GraphNetwork(Resettable, PlainMessagePassing):
    r"""The full graph network block (Battaglia et al. 2018, algorithm 1), with attention inside.

    .. math::
        e'_k &= \phi^e(e_k, x_r, x_s, u) & \bar e_i &= \rho^{e \to v}(\{e'_k\}_{k \in N(i)}) \\
        x'_i &= \phi^v(\bar e_i, x_i, u) & \bar e &= \rho^{e \to u}(\{e'_k\}), \quad
        \bar x = \rho^{v \to u}(\{x'_i\}) \\
        u' &= \phi^u(\bar e, \bar x, u)

    computed in this order. :math:`\phi^e` is the attention of :class:`EdgeAttentionConv`,
    :math:`e'_k = g_r\, b_k V_k` for each head, and heads are combined after :math:`\rho`.
    :math:`\phi^v` and :math:`\phi^u` are networks with one hidden layer. PyG's ``MetaLayer`` is the
    block of functions of your own.

    An input that is switched off counts as zero in :math:`\phi`; edges are still updated by adding
    to :math:`e_k`. On :class:`~molattn.graph.CompleteGraphs` attention whose edges are not
    aggregated by ``sum`` is computed on the list of all edges. Hooks of message passing are those
    of the attention; a subclass that overrides a step, such as ``message``, is a TypeError.

    Args:
        in_channels, heads: See :class:`AttentionConv`.
        out_channels: Number of channels of :math:`x'` and :math:`\bar e`.
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
        update_edges: Also return edges: :math:`e_k + W_{oe}\, \mathrm{combine}_h\, e'_k`, with the
            heads concatenated where ``combine`` is ``linear``.
        update_global: Also return :math:`u'`, ``[B, global_dim]``.
        kwargs: Options of the :class:`EdgeAttentionConv` that is the block's ``attention``:
            ``score``, ``temperature``, ``combine``, ``gate``, ``edge_value``, ``dropout`` and
            ``attn_bias``; and ``flow`` of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **output**: nodes ``[N_dst, out_channels]``; then edges with ``update_edges``; then
          ``u'`` with ``update_global``; then ``(edge_index, alpha)`` with
          ``return_attention_weights``

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
        if changed := [
            step for step in STEPS if getattr(cls, step) is not getattr(GraphNetwork, step)
        ]:
            raise TypeError(f"{cls.__name__} overrides {', '.join(changed)} of GraphNetwork")
        super().__init_subclass__(**kwargs)

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
        **kwargs: Any,
    ) -> None:
        check_unknown(self, kwargs.keys() - {"attn_bias", "flow", *self.attention_options})
        super().__init__(flow=kwargs.get("flow", "source_to_target"))
        check_choice("edge_to_node", edge_to_node, REDUCERS)
        check_choice("edge_to_global", edge_to_global, REDUCERS)
        check_choice("node_to_global", node_to_global, REDUCERS)
        if update_global and not global_dim:
            raise ValueError(f"update_global: global_dim is {global_dim}, expected a number")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.edge_dim = edge_dim
        self.global_dim = global_dim
        self.edge_inputs = _subset("edge_inputs", edge_inputs, EDGE_INPUTS)
        self.node_inputs = _subset("node_inputs", node_inputs, NODE_INPUTS)
        self.global_inputs = _subset("global_inputs", global_inputs, GLOBAL_INPUTS)
        self.edge_to_global = edge_to_global
        self.node_to_global = node_to_global
        self.update_nodes = update_nodes
        self.update_edges = update_edges
        self.update_global = update_global
        self.edge_to_node = edge_to_node
        options: Any = {"edge_dim": edge_dim, "global_dim": global_dim, "aggr": edge_to_node}
        options |= {"update_edges": update_edges, "root_weight": False, "bias": False, **kwargs}
        self.attention = EdgeAttentionConv(in_channels, out_channels, heads, **options)
        for hooks in HOOKS:  # of the block are those of its attention
            setattr(self, hooks, getattr(self.attention, hooks))
        self._make_functions()

    def _make_functions(self) -> None:
        """Make the networks that update nodes and graphs."""
        receiver = self.attention.target_channels
        widths = {"edges": self.out_channels, "node": receiver, "global": self.global_dim or 0}
        widths["nodes"] = self.out_channels if self.update_nodes else receiver
        self.node_function: Optional[nn.Module] = None
        self.global_function: Optional[nn.Module] = None
        if self.update_nodes:
            self.node_function = _network(widths, self.node_inputs, self.out_channels)
        if self.update_global:
            self.global_function = _network(widths, self.global_inputs, widths["global"])

    @property
    def _pools_messages(self) -> bool:
        """Whether the messages of a graph are pooled, and not the sums of its nodes.

        Both are the same if sums are pooled by a sum.
        """
        is_sum = self.edge_to_node == self.edge_to_global == "sum"
        return self.update_global and "edges" in self.global_inputs and not is_sum

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
        bias_attr: EdgeAttr = None,
    ) -> Any:
        """See :meth:`AttentionConv.forward`, and ``bias_attr`` of :meth:`AttentionConv.attend`."""
        requested = bool(return_attention_weights)
        nodes, edges, attr = read_graph(self.attention, x, edge_index, edge_attr, size)
        globals_ = read_globals(u, batch, nodes, edges, self.global_dim)
        attended = self._attend(nodes, edges, attr, bias_attr, globals_, requested)
        # From here on nodes are a list, without padding.
        node = edges.rows_to_nodes(nodes[1])
        heads = edges.rows_to_nodes(attended.nodes)
        index = None if globals_ is None else globals_[1].batch
        index = None if index is None else edges.rows_to_nodes(index)
        if self.node_function is not None:
            node_globals = u if u is None or index is None else u[index]
            inputs = {
                "edges": self.attention.head_combine(heads),
                "node": node,
                "global": None if node_globals is None else node_globals.expand(node.size(0), -1),
            }
            node = self.node_function(_join(inputs, self.node_inputs))
        outputs: list[Any] = [like_input(edges.nodes_to_rows(node), x, edges)]
        if self.update_edges and attended.messages is not None:
            outputs.append(self.attention.updated_edges(attr, attended.messages))
        if self.global_function is not None and u is not None:
            if index is None:
                index = torch.zeros(node.size(0), dtype=torch.long, device=node.device)
            pooled = self._pool(heads, attended.messages, edges, index, u.size(0))
            inputs = {
                "edges": self.attention.head_combine(pooled),
                "nodes": scatter(node, index, 0, u.size(0), self.node_to_global),
                "global": u,
            }
            outputs.append(self.global_function(_join(inputs, self.global_inputs)))
        if requested:
            outputs.append((edge_index, attended.weights))
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    def _pool(
        self, heads: Tensor, messages: Any, edges: Edges, index: Tensor, num_graphs: int
    ) -> Tensor:
        """Pool the heads of the nodes of each graph, or its messages, ``[B, H, V]``."""
        if self._pools_messages and messages is not None:
            if isinstance(messages, PairMessages):
                messages = messages.dense()
            heads = edges.pairs_to_edges(messages)
            index = index[edges.edge_index[1]]
        return scatter(heads, index, 0, num_graphs, self.edge_to_global)

    def _attend(
        self,
        x: PairTensor,
        edges: Edges,
        attr: EdgeAttr,
        bias_attr: EdgeAttr,
        globals_: Globals,
        requested: bool,
    ) -> Attended:
        """Attend with zeros in place of inputs that are switched off."""
        on = {name: name in self.edge_inputs for name in EDGE_INPUTS}
        nodes = _or_zeros(on["sender"], x[0]), _or_zeros(on["receiver"], x[1])
        if attr is not None and not on["edge"]:
            attr = torch.zeros_like(edge_features(attr))
        if globals_ is not None and not on["global"]:
            zeros = [ends._replace(values=torch.zeros_like(ends.values)) for ends in globals_]
            globals_ = zeros[0], zeros[1]
        needed = self.update_edges or self._pools_messages
        inputs = (nodes, edges, attr, globals_)
        return self.attention.attend_heads(*inputs, requested, needed, bias_attr=bias_attr)

    def __repr__(self) -> str:
        return layer_repr(self)


def _subset(option: str, names: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not names or not set(names) <= set(allowed):
        raise ValueError(f"{option}: got {names!r}, expected a subset of {', '.join(allowed)}")
    return tuple(name for name in allowed if name in names)


def _network(widths: dict[str, int], inputs: Sequence[str], out_channels: int) -> nn.Module:
    input_widths = [widths[name] for name in inputs]
    width = -1 if min(input_widths) < 0 else sum(input_widths)
    return nn.Sequential(Linear(width, out_channels), nn.SiLU(), Linear(out_channels, out_channels))


def _or_zeros(on: bool, x: Tensor) -> Tensor:
    return x if on else torch.zeros_like(x)


def _join(inputs: dict[str, Any], names: Sequence[str]) -> Tensor:
    """Concatenate the named inputs, without None."""
    tensors = [inputs[name] for name in names]
    return torch.cat([x for x in tensors if x is not None], dim=-1)
