"""Attention of states of pairs (GRIT)."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from molattn.nn.conv.attention_conv import AttentionConv, edge_update_linear, optional_linear
from molattn.nn.dense.linear import Linear
from molattn.nn.dense.plain import Attended, sum_dtype
from molattn.nn.graph_inputs import EdgeAttr, Edges, as_rows, check_shape, map_edges


class GRITConv(AttentionConv):
    r"""Attention of the Graph Inductive bias Transformer.

    Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing", equations 2
    to 5. For receiver :math:`r`, sender :math:`s` and each head, with a state :math:`\hat e_{rs}`:

    .. math::
        \hat e_{rs} &= \mathrm{ReLU}\big(\rho\big((q_r + k_s) \odot W_w e_{rs}\big)
                       + W_b e_{rs}\big), \qquad \rho(z) = z / \sqrt{|z| + 10^{-10}} \\
        \alpha_{rs} &= \mathrm{softmax}_s\, \mathrm{clamp}(w_a \cdot \hat e_{rs}, -5, 5) \\
        h_r &= \sum_s \alpha_{rs} (v_s + W_v \hat e_{rs}) \\
        x'_r &= W_o\, \mathrm{concat}_h\, (\theta_1 + \theta_2 \log(1 + d_r)) \odot h_r + \beta_o \\
        e'_{rs} &= e_{rs} + W_e\, \mathrm{concat}_h\, \hat e_{rs} + \beta_e

    The signed square root of the paper has an infinite slope at 0: the constant in :math:`\rho`
    bounds it, and changes no value by more than 4e-6. :math:`d_r` is the receiver's number of
    bonds, ``degree`` ``[N]`` in a call; without it, its number of edges in this layer.
    :class:`molattn.graph.RRWP` computes the paper's edge features; without any,
    :math:`\hat e = \mathrm{ReLU}(q + k)` and :math:`W_v = 0`.
    Residual connections, normalization and feed-forward networks are left to the network.

    Args:
        in_channels, out_channels, heads, edge_dim, dropout, kwargs: See :class:`AttentionConv`.
        update_edges: Also return :math:`e'`, ``edge_dim`` wide.
        bias: Add a bias to the linear maps but those of keys and values.
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        update_edges: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        options = {"edge_dim": edge_dim, "dropout": dropout, **kwargs}
        super().__init__(in_channels, out_channels, heads, score="dot", **options)
        self.update_edges = update_edges
        width = self.query_channels
        self.make_projections(bias, False)
        self.lin_out = Linear(heads * self.head_channels, out_channels, bias=bias)
        if update_edges:
            self.lin_edge_out = edge_update_linear(heads * width, edge_dim, bias)
        self.vector = nn.Parameter(torch.empty(heads, width))
        self.degree_weight = nn.Parameter(torch.empty(2, heads, self.head_channels))
        self.lin_edge = optional_linear(edge_dim, 2 * heads * width, bias)
        weight = torch.empty(heads, width, self.head_channels)
        self.weight_value = None if edge_dim is None else nn.Parameter(weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        super().reset_parameters()
        for parameter in (self.vector, self.weight_value, self.degree_weight):
            glorot(parameter)

    def attend(
        self,
        projected: Sequence[Tensor],
        edges: Edges,
        edge_attr: EdgeAttr = None,
        *,
        degree: Optional[Tensor] = None,
        return_messages: bool = False,
        **options: Any,
    ) -> Attended:
        """See :meth:`AttentionConv.attend`; the messages are the states ``[E, H, C]``."""
        query, key, value = projected
        states = edges.pairwise_sums(query, key)
        if self.lin_edge is not None:
            terms = map_edges(self.lin_edge, edge_attr).view(-1, self.heads, 2 * states.size(-1))
            weight, bias = terms.chunk(2, dim=-1)
            states = _signed_root(states * weight) + bias
        states = states.relu()
        logits = (states * self.vector).sum(dim=-1).clamp(-5, 5)
        if self.weight_value is not None:
            options["edge_value"] = torch.einsum("ehc,hcv->ehv", states, self.weight_value)
        no_channels = query[..., :0], key[..., :0]  # inner products of no channels are 0
        attended = super().attend(
            (*no_channels, value), edges, edge_attr, attn_bias=logits, **options
        )
        if degree is None:
            unit_weights = logits.new_ones(edges.num_pairs, dtype=sum_dtype(logits))
            degree = edges.pairs_to_receivers(unit_weights, query.size(0))
        degree = as_rows(degree, edges)
        check_shape("degree", degree.unsqueeze(-1), query.size(0), 1)
        log_degree = degree.to(value.dtype).log1p().view(-1, 1, 1)
        nodes = attended.nodes * (self.degree_weight[0] + self.degree_weight[1] * log_degree)
        return attended._replace(nodes=nodes, messages=states if return_messages else None)


def _signed_root(x: Tensor) -> Tensor:
    epsilon = max(1e-10, torch.finfo(x.dtype).tiny)
    return x * (x.abs() + epsilon).rsqrt()
