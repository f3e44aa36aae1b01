"""Attention from the nodes of one graph to those of another."""

from torch import Tensor, nn

from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.functional import attention


class CrossAttention(nn.Module):
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
        super().__init__()
        self.conv = EdgeAttentionConv(
            (channels, channels),
            channels,
            heads,
            score=score,
            combine=combine,
            dropout=attention_dropout,
            root_weight=False,  # the residual branch carries the receiver itself
        )
        self.norm_x = nn.LayerNorm(channels)
        self.norm_y = nn.LayerNorm(channels)
        self.norm_ff = nn.LayerNorm(channels)
        self.ff = nn.Sequential(
            nn.Linear(channels, expansion * channels),
            nn.SiLU(),
            nn.Linear(expansion * channels, channels),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, y: Tensor, y_mask: Tensor | None = None) -> Tensor:
        """Update the nodes ``x`` from the nodes ``y``; see the class for the shapes."""
        channels = self.conv.out_channels
        for name, given in (("x", x), ("y", y)):
            if given.dim() != 3 or given.size(-1) != channels or given.size(0) != x.size(0):
                raise ValueError(
                    f"{name}: got {tuple(given.shape)}, expected [{x.size(0)}, nodes, {channels}]"
                )
        if y_mask is not None:
            y = y.masked_fill(~y_mask.unsqueeze(-1), 0.0)  # it may hold anything there
        x = x + self.dropout(self.attend(self.norm_x(x), self.norm_y(y), y_mask))
        return x + self.dropout(self.ff(self.norm_ff(x)))

    def attend(self, x: Tensor, y: Tensor, y_mask: Tensor | None = None) -> Tensor:
        """Compute the attention alone: ``self.conv`` on the edges of all pairs, without hooks."""
        conv, rate = self.conv, self.conv.head_score
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
        out = conv.head_combine(heads.transpose(1, 2))
        return out if conv.bias is None else out + conv.bias
