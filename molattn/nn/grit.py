"""Attention of states of pairs (GRIT)."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from molattn.nn.attention_conv import AttentionConv, edge_update_linear
from molattn.nn.attention_heads import split_width
from molattn.nn.dense_attention import Attended, sum_dtype
from molattn.nn.graph_inputs import EdgeAttr, Edges, map_edges
from molattn.nn.linear import Linear

_EPSILON = 1e-10  # the slope of the signed square root is at most 1e5


class GRITConv(AttentionConv):
    r"""Attention of the Graph Inductive bias Transformer.

    Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing", equations 2
    to 5. For receiver :math:`r`, sender :math:`s` and each head, with a state
    :math:`\hat e_{rs}` of each pair:

    .. math::
        \hat e_{rs} &= \mathrm{ReLU}\big(\rho\big((q_r + k_s) \odot W_w e_{rs}\big)
                       + W_b e_{rs}\big), \qquad \rho(z) = z / \sqrt{|z| + 10^{-10}} \\
        \alpha_{rs} &= \mathrm{softmax}_s\, \mathrm{clamp}(w_a \cdot \hat e_{rs}, -c, c) \\
        h_r &= \sum_s \alpha_{rs} (v_s + W_v \hat e_{rs}) \\
        x'_r &= W_o\, \mathrm{concat}_h\, (\theta_1 + \theta_2 \log(1 + d_r)) \odot h_r + \beta_o \\
        e'_{rs} &= e_{rs} + W_e\, \mathrm{concat}_h\, \hat e_{rs} + \beta_e

    The signed square root :math:`\rho` of the paper has an infinite slope at 0, and derivatives
    there that are not numbers; the constant bounds it, and changes no value by more than 4e-6.
    :math:`d_r` is the number of edges that the receiver has in this layer, as the authors' layer
    counts them itself. Residual connections, normalization and the feed-forward network are left
    to the network. Without edge features :math:`\hat e = \mathrm{ReLU}(q + k)` and :math:`W_v = 0`.
    :class:`molattn.graph.RRWP` computes the paper's edge features. Memory is that of all pairs and
    ``out_channels``.

    Args:
        in_channels: Number of node features, or a pair (senders, receivers); -1 = inferred in the
            first call.
        out_channels: Number of output channels, divisible by ``heads``.
        heads: Number of heads ``H``.
        edge_dim: Number of edge features; -1 = inferred in the first call; None = no edge features.
        update_edges: Also return :math:`e'`, ``edge_dim`` wide.
        clip: The bound :math:`c`.
        scale_degree: Whether there are :math:`\theta`; if False, they are 1 and 0.
        dropout: Dropout probability of the weights.
        bias: Add a bias to the linear maps, but not to those of keys and values.
        kwargs: ``attn_bias``, ``aggr`` and ``flow`` of :class:`AttentionConv`.

    Shapes:
        - **x, edge_index, edge_attr, size**: see :meth:`AttentionConv.forward`
        - **output**: ``[N_dst, out_channels]``; then edges ``[E, edge_dim]`` with
          ``update_edges``; then ``(edge_index, alpha)`` with ``return_attention_weights``

    Example:
        >>> conv = GRITConv(8, 16, heads=4, edge_dim=3, update_edges=True)
        >>> edge_index = torch.tensor([[0, 1], [1, 2]])
        >>> x, edge_attr = conv(torch.randn(3, 8), edge_index, torch.randn(2, 3))
        >>> x.shape, edge_attr.shape
        (torch.Size([3, 16]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        update_edges: bool = False,
        clip: float = 5.0,
        scale_degree: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        width = split_width(heads, out_channels)
        sizes = {"head_channels": width, "query_channels": width, "edge_dim": edge_dim}
        options = {"score": "dot", "dropout": dropout, **kwargs}
        super().__init__(in_channels, out_channels, heads, **sizes, **options)
        self.clip, self.scale_degree, self.update_edges = clip, scale_degree, update_edges
        self.lin_query = Linear(self.target_channels, out_channels, bias=bias)
        self.lin_key = Linear(self.source_channels, out_channels, bias=False)
        self.lin_value = Linear(self.source_channels, out_channels, bias=False)
        self.lin_out = Linear(out_channels, out_channels, bias=bias)
        self.vector = nn.Parameter(torch.empty(heads, width))
        self.lin_edge: Optional[Linear] = None
        self.weight_value: Optional[nn.Parameter] = None
        if edge_dim is not None:
            self.lin_edge = Linear(edge_dim, 2 * out_channels, bias=bias)
            self.weight_value = nn.Parameter(torch.empty(heads, width, width))
        self.lin_edge_out = (
            edge_update_linear(out_channels, edge_dim, bias) if update_edges else None
        )
        self.degree_weight = nn.Parameter(torch.empty(2, heads, width)) if scale_degree else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset all parameters (Glorot)."""
        super().reset_parameters()
        for parameter in (self.vector, self.weight_value, self.degree_weight):
            glorot(parameter)

    def attend(
        self,
        projected: Sequence[Tensor],
        edges: Edges,
        edge_attr: EdgeAttr = None,
        *,
        return_messages: bool = False,
        **options: Any,
    ) -> Attended:
        """See :meth:`AttentionConv.attend`; the messages are the states ``[E, H, C]``."""
        query, key, value = projected
        states = self.pair_states(edges.pairwise_sums(query, key), edge_attr)
        logits = (states * self.vector).sum(dim=-1).clamp(-self.clip, self.clip)
        if self.weight_value is not None:
            options["edge_value"] = torch.einsum("ehc,hcv->ehv", states, self.weight_value)
        nothing = query[..., :0], key[..., :0]  # inner products of no channels are 0
        found = super().attend((*nothing, value), edges, edge_attr, attn_bias=logits, **options)
        nodes = found.nodes
        if self.degree_weight is not None:
            ones = logits.new_ones((edges.num_pairs, 1, 1), dtype=sum_dtype(logits))
            log_degree = edges.pairs_to_receivers(ones, nodes.size(0)).log1p().to(nodes.dtype)
            nodes = nodes * (self.degree_weight[0] + self.degree_weight[1] * log_degree)
        return found._replace(nodes=nodes, messages=states if return_messages else None)

    def pair_states(self, sums: Tensor, edge_attr: EdgeAttr) -> Tensor:
        """The state of each pair of its query and key, added up, ``[E, H, C]``."""
        if self.lin_edge is not None:
            terms = map_edges(self.lin_edge, edge_attr).view(-1, self.heads, 2 * sums.size(-1))
            weight, bias = terms.chunk(2, dim=-1)
            sums = _signed_root(sums * weight) + bias
        return sums.relu()


def _signed_root(x: Tensor) -> Tensor:
    epsilon = max(_EPSILON, torch.finfo(x.dtype).tiny)
    return x * (x.abs() + epsilon).rsqrt()
