"""Attention with an edge channel (EGT)."""

import math
from collections.abc import Sequence
from typing import Any, Optional, Union

from torch import Tensor

from molattn.nn.conv.attention_conv import AttentionConv, edge_update_linear, optional_linear
from molattn.nn.dense.linear import Linear
from molattn.nn.dense.plain import Attended, sum_dtype
from molattn.nn.graph_inputs import EdgeAttr, Edges, map_edges


class EGTConv(AttentionConv):
    r"""Attention of the Edge-augmented Graph Transformer.

    Hussain et al. 2022, "Global self-attention as a replacement for graph convolution", section
    3.2, equations 2 to 6. For receiver :math:`r`, sender :math:`s` and each head:

    .. math::
        H_{rs} &= \mathrm{clamp}\big(q_r \cdot k_s / \sqrt C, -c, c\big) + E_{rs} \\
        A_{rs} &= \sigma(G_{rs})\, \mathrm{softmax}_s\, H_{rs}, \qquad [E, G] = W_e e + \beta_e \\
        x'_r &= W_o\, \mathrm{concat}_h\, \log\big(1 + \textstyle\sum_s \sigma(G_{rs})\big)
                \sum_s A_{rs} v_s + \beta_o \\
        e'_{rs} &= e_{rs} + W_h H_{rs} + \beta_h

    Residual connections, normalization and feed-forward networks are left to the network. A clamped
    logit has no gradient to query and key. Without edge features :math:`E = 0` and :math:`\sigma(G)
    = 1`. The weights that are returned are :math:`A`.

    Args:
        in_channels, out_channels, heads, edge_dim, dropout, kwargs: See :class:`AttentionConv`.
        update_edges: Also return :math:`e'`, ``edge_dim`` wide.
        clip: The bound :math:`c`; ``math.inf`` = none, as in TGT (Hussain et al. 2024).
        scale_degree: Multiply by the logarithm.
        bias: Add a bias to the linear maps.

    Example:
        >>> import torch
        >>> conv = EGTConv(8, 16, heads=4, edge_dim=3, update_edges=True)
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
        if not clip > 0:
            raise ValueError(f"clip: got {clip}, expected a number above 0")
        options = {"edge_dim": edge_dim, "dropout": dropout, **kwargs}
        super().__init__(in_channels, out_channels, heads, score="scaled_dot", **options)
        self.update_edges = update_edges
        self.clip = clip
        self.scale_degree = scale_degree
        self.make_projections(bias, bias)
        self.lin_out = Linear(heads * self.head_channels, out_channels, bias=bias)
        self.lin_edge = optional_linear(edge_dim, 2 * heads, bias)
        if update_edges:
            self.lin_edge_out = edge_update_linear(heads, edge_dim, bias)
        self.reset_parameters()

    def attend(
        self,
        projected: Sequence[Tensor],
        edges: Edges,
        edge_attr: EdgeAttr = None,
        *,
        return_weights: bool = False,
        return_messages: bool = False,
        **options: Any,
    ) -> Attended:
        """See :meth:`AttentionConv.attend`; weights are gated, messages the logits ``[E, H]``."""
        gate = projected[0].new_ones(edges.num_pairs, self.heads)
        if self.lin_edge is not None:
            options["attn_bias"], gate = map_edges(self.lin_edge, edge_attr).chunk(2, dim=-1)
            options["edge_gate"] = gate = gate.sigmoid()
        options["return_weights"] = return_weights or return_messages
        if math.isfinite(self.clip):
            options["score_mod"] = lambda logits: logits.clamp(-self.clip, self.clip)
        attended = super().attend(projected, edges, edge_attr, **options)
        nodes = attended.nodes
        logits = attended.logits if return_messages else None
        weights = None if attended.weights is None else attended.weights * gate
        if self.scale_degree:
            total = edges.pairs_to_receivers(gate.to(sum_dtype(gate)), nodes.size(0))
            nodes = nodes * total.log1p().to(nodes.dtype).unsqueeze(-1)
        return attended._replace(nodes=nodes, weights=weights, messages=logits)
