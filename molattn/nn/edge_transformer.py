"""Triangular attention between pairs of nodes (Edge Transformer)."""

from torch import Tensor
from torch.nn import functional as F

from molattn.graph.complete import Block
from molattn.nn.functional import DenseRows, normalize
from molattn.nn.linear import Linear, linear_together
from molattn.nn.triplets import TripletLayer, in_chunks


class EdgeTransformerConv(TripletLayer):
    r"""Triangular attention of the Edge Transformer (Bergen et al. 2021).

    "Systematic generalization with edge transformers", section 2; on graphs, Müller et al. 2024,
    "Towards principled graph transformers". A pair of receiver :math:`i` and sender :math:`j`
    attends to the paths of two edges between them, by the node :math:`m` in the middle, for each
    head:

    .. math::
        a_{imj} &= \mathrm{softmax}_m(q_{im} \cdot k_{mj} / \sqrt d) \\
        e'_{ij} &= W_o\, \mathrm{concat}_h \sum_m a_{imj}\, (v^1_{im} \odot v^2_{mj})

    with :math:`q = W_q e`, :math:`k = W_k e`, :math:`v^1 = W_1 e` and :math:`v^2 = W_2 e`. A node
    is in the middle if :math:`(i, m)` and :math:`(m, j)` are both edges; if there is none, the sum
    is 0. A stack of it tells graphs apart as the 3-dimensional Weisfeiler-Leman test does.

    Time is :math:`O(N^3 C)` for a graph of :math:`N` nodes. Paths are computed in chunks of
    bounded size, again in the backward pass, so that memory is :math:`O(N^2 C)`.

    Args:
        channels: Number of pair features ``C``, divisible by ``heads``.
        heads: Number of heads ``H``; :math:`d = C / H`.
        dropout: Dropout probability of the weights.
        bias: Add a bias to all linear maps.

    Shapes:
        - **edge_attr**, **output**: ``[P, channels]``

    Example:
        >>> import torch
        >>> from molattn.graph import CompleteGraphs
        >>> EdgeTransformerConv(8, heads=2)(torch.randn(9, 8), CompleteGraphs([3])).shape
        torch.Size([9, 8])
    """

    def __init__(
        self, channels: int, heads: int = 1, *, dropout: float = 0.0, bias: bool = False
    ) -> None:
        super().__init__(channels, heads, gate=False, dropout=dropout, bias=bias)

    def make_maps(self, bias: bool) -> None:
        """Make the linear maps."""
        channels = self.channels
        self.lin_query = Linear(channels, channels, bias=bias)
        self.lin_key = Linear(channels, channels, bias=bias)
        self.lin_value_receiver = Linear(channels, channels, bias=bias)
        self.lin_value_sender = Linear(channels, channels, bias=bias)
        self.lin_out = Linear(channels, channels, bias=bias)

    def project(self, pairs: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, and values of receiver and sender."""
        maps = (self.lin_query, self.lin_key, self.lin_value_receiver, self.lin_value_sender)
        return linear_together(pairs, *maps)

    def attend(self, block: Block, mask: Tensor, *projected: Tensor) -> Tensor:
        """Attend in a block, ``[B, i, j, channels]``."""
        heads = (block.pairs(x).unflatten(-1, (self.heads, -1)) for x in projected)
        query, key, receiver, sender = heads  # [B, N, N, H, d]
        sliced = (query * self.head_channels**-0.5, receiver, mask)
        cost = 2 * self.channels * block.nodes**2
        return in_chunks(self._mix, sliced, (key, sender, mask), cost=cost)

    def _mix(
        self,
        query: Tensor,
        value_receiver: Tensor,
        of_receiver: Tensor,
        key: Tensor,
        value_sender: Tensor,
        of_sender: Tensor,
    ) -> Tensor:
        """Attend in a chunk of receivers, ``[B, i, j, channels]``."""
        logits = query.permute(0, 3, 2, 1, 4) @ key.permute(0, 3, 1, 4, 2)  # [B, H, m, i, j]
        mask = of_receiver.unsqueeze(2) & of_sender.mT.unsqueeze(1)  # [B, i, j, m]
        weights = normalize(logits.permute(0, 1, 3, 4, 2), DenseRows(mask.unsqueeze(1)))
        weights = F.dropout(weights, self.dropout, self.training).unsqueeze(-1)
        # [B, H, i, j, m, d]
        paths = weights * value_receiver.permute(0, 3, 1, 2, 4).unsqueeze(3)
        paths = paths * value_sender.permute(0, 3, 2, 1, 4).unsqueeze(2)
        return paths.sum(dim=-2).permute(0, 2, 3, 1, 4).flatten(-2)
