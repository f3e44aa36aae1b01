"""Battaglia's edge update read as multi-head attention."""

from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.typing import PairTensor

from molattn._torch_compat import has_hooks
from molattn.nn.attention_heads import COMBINES, HeadCombine, HeadGate, check_widths
from molattn.nn.conv.attention_conv import AttentionConv, edge_update_linear, optional_linear
from molattn.nn.dense.edge_update import PairMessages, update_edges
from molattn.nn.dense.linear import Linear, is_plain
from molattn.nn.graph_inputs import EdgeAttr, Globals, edge_features


class EdgeAttentionConv(AttentionConv):
    r"""Multi-head attention in which edge features are added to keys and values.

    Battaglia et al. 2018 ("Relational inductive biases, deep learning, and graph networks",
    section 3.2) with attention as the edge update. For edge :math:`k` from sender :math:`s` to
    receiver :math:`r`, and each head:

    .. math::
        q_k &= W_q x_r + W_{qu} u \\
        K_k &= W_k x_s + W_{ke} e_k + W_{ku} u \\
        V_k &= W_v x_s + W_{ve} e_k + W_{vu} u \\
        b_k &= \mathrm{normalize}_{k \in N(r)}\, \mathrm{score}(q_k, K_k) \\
        e'_k &= g_r\, b_k V_k \\
        x'_i &= W_r x_i + \mathrm{combine}_h \sum_{k \in N(i)} e'_k + \beta

    with :math:`g = 1`, or GaAN's gate of each head (Zhang et al. 2018). For a node that receives no
    edges, :math:`x'_i = W_r x_i + \beta`.

    Args:
        in_channels, edge_dim, dropout, kwargs: See :class:`AttentionConv`.
        out_channels: Number of output channels. A head is ``out_channels // heads`` wide for
            ``combine`` ``linear`` and ``concat``, ``out_channels`` wide otherwise.
        heads: Number of heads ``H``.
        global_dim: Number of graph features ``u``; -1 = inferred in the first call; None = no graph
            features.
        score: ``dot``, ``scaled_dot``, ``general``, ``additive`` or ``gatv2``; see
            :func:`molattn.nn.functional.score`.
        temperature: Logits are divided by it; 0 = all weight on the maximum (shared equally among
            ties), ``inf`` = equal weights.
        combine: How the heads are combined: ``linear``, ``concat``, ``mean``, ``max`` or
            ``weighted``; see :class:`molattn.nn.HeadCombine`.
        gate: Multiply each head by a gate, which depends on the receiver and its senders.
        edge_value: Add edge features to values too; if False (:math:`W_{ve} = 0`), to keys only, as
            in PyG's ``GATv2Conv``.
        update_edges: Also return :math:`e_k + W_{oe}\, \mathrm{combine}_h\, e'_k`, ``edge_dim``
            wide (the heads are concatenated where ``combine`` is ``linear``).
        root_weight: Add :math:`W_r x_i`.
        bias: Add a bias to queries, keys, values and output.

    Shapes:
        - **x, edge_index, edge_attr, size**: see :meth:`AttentionConv.forward`
        - **u**: ``[B, global_dim]``
        - **batch**: ``[N]``, or a pair for a bipartite graph; None = one graph
        - **output**: ``[N_dst, out_channels]``; then edges ``[E, edge_dim]`` with
          ``update_edges``; then ``(edge_index, alpha)`` with ``return_attention_weights``

    Example:
        >>> conv = EdgeAttentionConv(8, 16, heads=4, edge_dim=3)
        >>> x, edge_attr = torch.randn(3, 8), torch.randn(2, 3)
        >>> edge_index = torch.tensor([[0, 1], [1, 2]])
        >>> conv(x, edge_index, edge_attr).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        global_dim: Optional[int] = None,
        score: str = "scaled_dot",
        temperature: float = 1.0,
        combine: str = "linear",
        gate: bool = False,
        edge_value: bool = True,
        update_edges: bool = False,
        dropout: float = 0.0,
        root_weight: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        combined = COMBINES[combine](heads, out_channels)
        widths = dict.fromkeys(("head_channels", "query_channels"), combined.head_channels)
        options: Any = {"score": score, "temperature": temperature, "dropout": dropout, **kwargs}
        super().__init__(in_channels, out_channels, heads, edge_dim=edge_dim, **widths, **options)
        check_widths(-1, global_dim=global_dim)
        self.global_dim = global_dim
        self.combine = combine
        self.gate = gate
        self.edge_value = edge_value
        self.update_edges = update_edges
        self.root_weight = root_weight

        source = self.source_channels
        target = self.target_channels
        width = heads * self.head_channels
        self.head_combine = combined
        self.make_projections(bias, bias)
        self.lin_edge_key = optional_linear(edge_dim, width)
        self.lin_edge_value = optional_linear(edge_dim if edge_value else None, width)
        self.lin_global_query = optional_linear(global_dim, width)
        self.lin_global_key = optional_linear(global_dim, width)
        self.lin_global_value = optional_linear(global_dim, width)
        self.head_gate = HeadGate((source, target), heads, out_channels) if gate else None
        self.edge_combine: Optional[HeadCombine] = None
        if update_edges:
            self.lin_edge_out = edge_update_linear(out_channels, edge_dim, bias=False)
            kind = "concat" if combine == "linear" else combine
            self.edge_combine = COMBINES[kind](heads, out_channels)
        self.lin_root = Linear(target, out_channels, bias=False) if root_weight else None
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        super().reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def combine_heads(self, heads: Tensor, x: Tensor) -> Tensor:
        """Nodes of heads ``[N, H, V]`` and of receivers ``[N, F]``."""
        out = self.head_combine(heads)
        if self.lin_root is not None:
            out = out + self.lin_root(x)
        return out if self.bias is None else out + self.bias

    def updated_edges(self, attr: EdgeAttr, messages: Any) -> Tensor:
        """Add the combined messages to the edge features, ``[E, edge_dim]``."""
        assert self.edge_combine is not None  # made with update_edges
        assert self.lin_edge_out is not None
        if isinstance(messages, PairMessages):
            plain = is_plain(self.lin_edge_out) and not has_hooks(self.edge_combine)
            by_head = self.edge_combine.by_head(self.lin_edge_out.weight) if plain else None
            if by_head is not None and messages.are_of(attr):
                return update_edges(attr, messages, by_head)
            messages = messages.dense()
        return edge_features(attr) + self.lin_edge_out(self.edge_combine(messages))

    def project_heads(self, x: PairTensor, globals_: Globals) -> list[Tensor]:
        """Queries and keys ``[N, H, C]``, values ``[N, H, V]``."""
        terms = super().project_heads(x, globals_)
        if globals_ is None:
            return terms
        senders, receivers = globals_
        lins: Any = (self.lin_global_query, self.lin_global_key, self.lin_global_value)
        inputs = zip(terms, lins, (receivers, senders, senders), strict=True)
        shape = (-1, self.heads, self.head_channels)
        return [term + ends.at_rows(lin(ends.values)).view(shape) for term, lin, ends in inputs]
