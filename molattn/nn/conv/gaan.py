"""Gated attention (GaAN)."""

from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.typing import PairTensor

from molattn.nn.attention_heads import HeadGate, check_choice
from molattn.nn.conv.attention_conv import AttentionConv, optional_linear
from molattn.nn.dense.linear import Linear
from molattn.nn.graph_inputs import Globals


class GaANConv(AttentionConv):
    r"""Gated attention aggregator.

    Zhang et al. 2018, "GaAN: Gated Attention Networks for Learning on Large and Spatiotemporal
    Graphs", section 3:

    .. math::
        y_i &= \mathrm{FC}_o\big( x_i \,\Vert\, \Vert_h\, g_i^h \sum_{j \in N(i)} w_{ij}^h\,
               v_{ij}^h \big) \\
        w_{ij} &= \mathrm{softmax}_j \big\langle \mathrm{FC}_{xa}(x_i),
                  \mathrm{FC}_{za}(z_j) + W_{ke} e_{ij} \big\rangle \\
        v_{ij} &= \mathrm{LeakyReLU}_{0.1}(\mathrm{FC}_v(z_j)) + W_{ve} e_{ij} \\
        g_i &= \sigma\big(\mathrm{FC}_g( x_i \,\Vert\, \max_{j \in N(i)} \mathrm{FC}_m(z_j)
               \,\Vert\, \mathrm{mean}_{j \in N(i)} z_j )\big) \in (0, 1)^H

    The paper has no edge features; here they are added to key and value if ``edge_dim`` is given.
    Without neighbors the sum, the maximum and the mean are 0. The weights that are returned are
    :math:`w`.

    Args:
        in_channels, out_channels, heads, edge_dim, dropout, kwargs: See :class:`AttentionConv`.
        query_channels: Width of a head's query and key :math:`d_a`; None = ``head_channels``.
        head_channels: Width of a head's value :math:`d_v`; None = ``out_channels // heads``, which
            must divide.
        gate_channels: Width of :math:`\mathrm{FC}_m`.
        variant: ``paper``, or ``authors`` for the formula of the authors' code: query and key are
            each divided by :math:`\sqrt{d_a}`, the gate does not depend on :math:`x_i`, and heads
            are not gated by default.
        gate: Whether heads are gated; None = as in the variant.
        edge_value: Add edge features to values too; if False, to keys only.
        bias: Add a bias to query, key, value and output; the maps of the gate always have one.

    Example:
        >>> conv = GaANConv(8, 16, heads=4)
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        query_channels: Optional[int] = None,
        head_channels: Optional[int] = None,
        gate_channels: int = 64,
        variant: str = "paper",
        gate: Optional[bool] = None,
        edge_value: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        check_choice("variant", variant, ("paper", "authors"))
        widths = {"head_channels": head_channels, "query_channels": query_channels}
        options: Any = {"edge_dim": edge_dim, "dropout": dropout, **widths, **kwargs}
        super().__init__(in_channels, out_channels, heads, score="dot", **options)
        self.variant = variant
        self.edge_value = edge_value
        self.gate = variant == "paper" if gate is None else gate
        source = self.source_channels
        target = self.target_channels
        width = heads * self.head_channels
        self.make_projections(bias, bias)
        self.lin_edge_key = optional_linear(edge_dim, heads * self.query_channels)
        self.lin_edge_value = optional_linear(edge_dim if edge_value else None, width)
        root = variant == "paper"
        ends = (source, target)
        self.head_gate = HeadGate(ends, heads, gate_channels, root=root) if self.gate else None
        self.lin_out = Linear(-1 if target < 0 else target + width, out_channels, bias=bias)
        self.reset_parameters()

    def project_heads(self, x: PairTensor, globals_: Globals) -> list[Tensor]:
        """Queries and keys ``[N, H, C]``, values ``[N, H, V]``."""
        query, key, value = super().project_heads(x, globals_)
        if self.variant == "authors":
            query = query / self.query_channels  # both by its root
        return [query, key, F.leaky_relu(value, 0.1)]

    def combine_heads(self, heads: Tensor, x: Tensor) -> Tensor:
        """Nodes of heads ``[N, H, V]`` and of receivers ``[N, F]``."""
        return self.lin_out(torch.cat([x, heads.flatten(1)], dim=-1))
