"""Residual blocks around attention layers."""

from collections.abc import Callable
from typing import Any, Optional

from torch import Tensor, nn

from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.functional import attention
from molattn.nn.linear import Linear


class AttentionBlock(nn.Module):
    r"""Attention and a feed-forward network, with layer normalization and residual connections.

    .. math::
        h &= x + \mathrm{attention}(\mathrm{LN}(x), e) \\
        y &= h + \mathrm{FF}(\mathrm{LN}(h))

    (pre-norm, Xiong et al. 2020). Edges that the layer updates are returned too.

    Args:
        conv: The layer, a function of ``(x, edge_index, edge_attr)`` that returns ``x'`` or
            ``(x', e')``.
        channels: Number of node features.
        expansion: Hidden width of the feed-forward network, as a multiple of ``channels``.
        dropout: Dropout probability of the output of attention and of the feed-forward network.
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
        make_conv: Returns the layer of a block, with ``channels`` inputs and outputs, or a whole
            block, such as :class:`GraphTransformerBlock`.
        layers: Number of blocks.
        channels: Number of node features.
        dropout: See :class:`AttentionBlock`.
        make_last: Returns the layer of the last block, whose updated edges nobody would read; None
            = ``make_conv``.
    """

    def __init__(
        self,
        make_conv: Callable[[], nn.Module],
        layers: int,
        channels: int,
        *,
        dropout: float = 0.0,
        make_last: Optional[Callable[[], nn.Module]] = None,
    ) -> None:
        super().__init__()
        makers = [make_conv] * (layers - 1) + [make_last or make_conv] * (layers > 0)
        self.blocks = nn.ModuleList(make() for make in makers)
        for index, conv in enumerate(self.blocks):
            if not isinstance(conv, AttentionBlock):
                self.blocks[index] = AttentionBlock(conv, channels, dropout=dropout)
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, edge_index: Any, edge_attr: Optional[Tensor] = None) -> Tensor:
        """Encode nodes ``[N, channels]``."""
        for block in self.blocks:
            x, edge_attr = block(x, edge_index, edge_attr)
        return self.norm(x)


class CrossAttention(AttentionBlock):
    r"""A residual block in which each node attends to all nodes of another graph.

    .. math::
        h &= x + \mathrm{attention}(\mathrm{LN}_x(x), \mathrm{LN}_y(y)) \\
        x' &= h + \mathrm{FF}(\mathrm{LN}(h))

    (pre-norm, Xiong et al. 2020; between two sequences, Vaswani et al. 2017, section 3.2.3). The
    attention is that of :class:`~molattn.nn.EdgeAttentionConv` on the bipartite graph of all pairs,
    computed densely.

    Args:
        channels: Number of node features of both graphs.
        heads: Number of heads.
        score: See :func:`molattn.nn.functional.score`.
        combine: See :class:`molattn.nn.HeadCombine`.
        expansion: Hidden width of the feed-forward network, as a multiple of ``channels``.
        dropout: Dropout probability of the output of attention and of the feed-forward network.
        attention_dropout: Dropout probability of the attention weights.

    Shapes:
        - **x**: ``[B, L, channels]``, receivers
        - **y**: ``[B, S, channels]``, senders
        - **y_mask**: ``bool [B, S]``, False for padding; None = no padding
        - **output**: ``[B, L, channels]``

    Example:
        >>> import torch
        >>> CrossAttention(8, 2)(torch.randn(1, 3, 8), torch.randn(1, 5, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        *,
        score: str = "scaled_dot",
        combine: str = "linear",
        expansion: int = 2,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        conv = EdgeAttentionConv(
            (channels, channels),
            channels,
            heads,
            score=score,
            combine=combine,
            dropout=attention_dropout,
            root_weight=False,  # the residual branch carries the receiver itself
        )
        super().__init__(conv, channels, expansion=expansion, dropout=dropout)
        self.norm_senders = nn.LayerNorm(channels)

    def forward(self, x: Tensor, y: Tensor, y_mask: Optional[Tensor] = None) -> Tensor:
        """Update the nodes ``x`` from the nodes ``y``; see the class for the shapes."""
        if y_mask is not None:
            y = y.masked_fill(~y_mask.unsqueeze(-1), 0.0)  # it may hold anything there
        x = x + self.dropout(self.attend(self.norm_conv(x), self.norm_senders(y), y_mask))
        return x + self.dropout(self.ff(self.norm_ff(x)))

    def attend(self, x: Tensor, y: Tensor, y_mask: Optional[Tensor] = None) -> Tensor:
        """Compute the attention alone: ``self.conv`` on the edges of all pairs, without hooks."""
        conv: Any = self.conv
        rate = conv.head_score
        query, key, value = (
            part.unflatten(-1, (conv.heads, -1)).transpose(1, 2)  # [B, H, nodes, C]
            for part in conv.project((y, x))
        )
        heads = attention(
            query,
            key,
            value,
            None if y_mask is None else y_mask[:, None, None, :],
            score=conv.score,
            temperature=conv.temperature,
            weight=rate.weight,
            vector=rate.vector,
            dropout=conv.dropout if self.training else 0.0,
        )
        assert isinstance(heads, Tensor)
        return conv.combine_heads(heads.transpose(1, 2), x)
