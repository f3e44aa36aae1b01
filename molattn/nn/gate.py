"""A gate for each head, after GaAN."""

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from molattn.graph.complete import CompleteGraphs
from molattn.nn.attention_heads import check_positive
from molattn.nn.linear import Linear

__all__ = ["HeadGate"]


class HeadGate(nn.Module):
    r"""A number in (0, 1) for each receiver and head (Zhang et al. 2018, GaAN).

    .. math::
        g_i = \sigma\big(W_g [\, x_i \,\Vert\, \max_{j \in N(i)} W_m z_j \,\Vert\,
        \mathrm{mean}_{j \in N(i)} z_j \,] + b_g\big)

    The maximum pools projected senders, the mean raw ones; without senders both are 0.

    Args:
        in_channels: Widths of senders' :math:`z` and receivers' :math:`x`; -1 = on first use.
        heads: Number of heads ``H``.
        channels: Width of :math:`W_m z`.
        root: Whether :math:`x_i` enters the gate (the authors' code leaves it out).

    Raises:
        ValueError: ``channels`` is not positive.
    """

    def __init__(
        self, in_channels: tuple[int, int], heads: int, channels: int, *, root: bool = True
    ) -> None:
        super().__init__()
        check_positive(gate_channels=channels)
        self.root = root
        self.lin_pool = Linear(in_channels[0], channels)
        known = in_channels[0] >= 0 and in_channels[1] >= 0
        width = in_channels[0] + channels + (in_channels[1] if root else 0)
        self.lin_gate = Linear(width if known else -1, heads)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.lin_pool.reset_parameters()
        self.lin_gate.reset_parameters()

    def forward(self, x_src: Tensor, x_dst: Tensor, graph: "Tensor | CompleteGraphs") -> Tensor:
        """Return the gates ``[N_dst, H]``.

        Args:
            x_src: Senders ``[N_src, F]``.
            x_dst: Receivers ``[N_dst, F']``.
            graph: ``edge_index`` ``[2, E]``, or complete graphs.
        """
        projected = self.lin_pool(x_src)
        if isinstance(graph, CompleteGraphs):
            most, mean = graph.neighbour_max(projected), graph.neighbour_mean(x_src)
        else:
            sender, receiver = graph[0], graph[1]
            size = x_dst.size(0)
            most = scatter(projected[sender], receiver, dim=0, dim_size=size, reduce="max")
            mean = scatter(x_src[sender], receiver, dim=0, dim_size=size, reduce="mean")
        parts = [x_dst, most, mean] if self.root else [most, mean]
        return self.lin_gate(torch.cat(parts, dim=-1)).sigmoid()
