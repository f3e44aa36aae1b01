"""Residual blocks of any attention layer."""

from collections.abc import Callable
from typing import Any, Optional

from torch import Tensor, nn

from molattn.nn.linear import Linear


class AttentionBlock(nn.Module):
    r"""Attention, then a feed-forward network, each normalized before and added to its input.

    .. math::
        h &= x + \mathrm{attention}(\mathrm{LN}(x), e) \\
        y &= h + \mathrm{FF}(\mathrm{LN}(h))

    (pre-norm, Xiong et al. 2020). A layer that returns edges too passes them on.

    Args:
        conv: The layer: maps ``(x, edge_index, edge_attr)`` to ``x'`` or ``(x', e')``.
        channels: Width of nodes.
        expansion: Hidden width of the feed-forward network, as a multiple of ``channels``.
        dropout: Probability with which a channel of either branch is dropped in training.
    """

    def __init__(
        self, conv: nn.Module, channels: int, *, expansion: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.conv = conv
        self.norm_conv = nn.LayerNorm(channels)
        self.norm_ff = nn.LayerNorm(channels)
        self.ff = nn.Sequential(
            Linear(channels, expansion * channels),
            nn.SiLU(),
            Linear(expansion * channels, channels),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, edge_index: Any, edge_attr: Optional[Tensor] = None
    ) -> tuple[Tensor, Optional[Tensor]]:
        """Update nodes ``[N, channels]``, and edges where the layer does."""
        update = self.conv(self.norm_conv(x), edge_index, edge_attr)
        if isinstance(update, tuple):
            update, edge_attr = update
        x = x + self.dropout(update)
        return x + self.dropout(self.ff(self.norm_ff(x))), edge_attr


class Encoder(nn.Module):
    """A stack of :class:`AttentionBlock`, followed by a layer normalization.

    Args:
        make_conv: Makes the layer of one block, ``channels`` wide.
        layers: Number of blocks.
        channels: Width of nodes.
        dropout: See :class:`AttentionBlock`.
    """

    def __init__(
        self,
        make_conv: Callable[[], nn.Module],
        layers: int,
        channels: int,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            AttentionBlock(make_conv(), channels, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, edge_index: Any, edge_attr: Optional[Tensor] = None) -> Tensor:
        """Encode nodes ``[N, channels]``."""
        for block in self.blocks:
            x, edge_attr = block(x, edge_index, edge_attr)
        return self.norm(x)
