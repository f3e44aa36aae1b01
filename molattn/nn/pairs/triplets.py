"""Pairs of nodes that attend to pairs they share a node with (TGT, Edge Transformer)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from molattn._torch_compat import is_transformed
from molattn.graph.complete import Block, CompleteGraphs, join_pairs
from molattn.nn.attention_heads import split_width
from molattn.nn.dense.linear import Linear
from molattn.nn.functional import DenseRows, normalize
from molattn.nn.graph_inputs import EdgeAttr, check_shape, edge_features
from molattn.nn.resettable import Resettable

_CHUNK = 2**21  # numbers of triples that are in memory at once


class TripletLayer(Resettable):
    """Base class of the layers that update pairs by triples; see :class:`TripletAttention`."""

    lin_out: Linear

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        *,
        gate: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        self.channels = channels
        self.heads = heads
        self.gate = gate
        self.dropout = dropout
        self.head_channels = split_width(heads, channels)
        self.make_maps(bias)

    def make_maps(self, bias: bool) -> None:
        """Make the linear maps."""
        raise NotImplementedError

    def project(self, pairs: Tensor) -> tuple[Tensor, ...]:
        """Map pair rows ``[P, channels]`` to the inputs of :meth:`attend`, ``[P, ...]``."""
        raise NotImplementedError

    def attend(self, block: Block, mask: Tensor, *projected: Tensor) -> Tensor:
        """Attend in a block with the edges ``mask``; the input of ``lin_out``, ``[B, i, j, M]``."""
        raise NotImplementedError

    def weigh(self, logits: Tensor, mask: Tensor, gate: Optional[Tensor] = None) -> Tensor:
        """Weights of logits over the last dimension, 0 outside of ``mask``, after gate and dropout.

        The gate is a logit itself.
        """
        weights = normalize(logits, DenseRows(mask))
        weights = weights if gate is None else weights * gate.sigmoid()
        return F.dropout(weights, self.dropout, self.training)

    def forward(self, edge_attr: EdgeAttr, graph: CompleteGraphs) -> Tensor:
        """Return the update of pair rows for a residual connection, ``[P, channels]``.

        Pair rows may be :class:`~molattn.graph.CodedEdges`. Pairs that are not edges are not read.
        """
        if not isinstance(graph, CompleteGraphs):
            raise ValueError(f"graph: got {type(graph).__name__}, expected CompleteGraphs")
        pairs: Tensor = edge_features(edge_attr)
        check_shape("edge_attr", pairs, graph.num_pairs, self.channels)
        projected = self.project(pairs)
        masks = zip(graph.blocks, graph.pair_masks, strict=True)
        block_outputs = [
            self.attend(block, mask, *projected).flatten(0, 2) for block, mask in masks
        ]
        none = pairs[:0].repeat(1, self.lin_out.in_channels // self.channels)
        return self.lin_out(join_pairs(block_outputs, none))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, heads={self.heads})"


class TripletAttention(TripletLayer):
    r"""Triplet attention (Hussain et al. 2024, "Triplet interaction improves graph transformers").

    A pair attends to the pairs that share one of its nodes. For receiver :math:`i`, sender
    :math:`j`, and each head:

    .. math::
        a^{in}_{ijk} &= \mathrm{softmax}_k(q_{ij} \cdot p_{jk} / \sqrt d + b_{ik})\,
            \sigma(g_{ik}), \qquad o^{in}_{ij} = \sum_k a^{in}_{ijk} v_{jk} \\
        a^{out}_{ijk} &= \mathrm{softmax}_k(q_{ij} \cdot p_{kj} / \sqrt d + b_{ki})\,
            \sigma(g_{ki}), \qquad o^{out}_{ij} = \sum_k a^{out}_{ijk} v_{kj} \\
        e'_{ij} &= W_o\, \mathrm{concat}_h (o^{in}_{ij}, o^{out}_{ij})

    with queries :math:`q`, keys :math:`p`, values :math:`v`, biases :math:`b` and gates :math:`g`
    that are linear in the pair features, others for each direction. A third node :math:`k` takes
    part if both pairs that are read are edges; if none does, :math:`o = 0`. The authors normalize
    the pairs first.

    Time is :math:`O(N^3 C)` for a graph of :math:`N` nodes. Weights are computed in chunks of
    bounded size, again in the backward pass, so that memory is :math:`O(N^2 C)`.

    Args:
        channels: Number of pair features ``C``, divisible by ``heads``.
        heads: Number of heads ``H``; :math:`d = C / H`.
        gate: Multiply the weights by :math:`\sigma(g)`; if False, by 1.
        dropout: Dropout probability of the weights.
        bias: Add a bias to all linear maps.

    Shapes:
        - **edge_attr**, **output**: ``[P, channels]``

    Example:
        >>> from molattn.graph import CompleteGraphs
        >>> TripletAttention(8, heads=2)(torch.randn(9, 8), CompleteGraphs([3])).shape
        torch.Size([9, 8])
    """

    def make_maps(self, bias: bool) -> None:
        """Make the linear maps."""
        channels = self.channels
        terms = self.heads * (1 + self.gate)
        self.lin_inward = Linear(channels, 3 * channels, bias=bias)  # queries, keys, values
        self.lin_outward = Linear(channels, 3 * channels, bias=bias)
        self.lin_inward_bias = Linear(channels, terms, bias=bias)  # biases, gates
        self.lin_outward_bias = Linear(channels, terms, bias=bias)
        self.lin_out = Linear(2 * channels, channels, bias=bias)

    def project(self, pairs: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of both directions, then biases and gates."""
        inward = self.lin_inward(pairs)
        outward = self.lin_outward(pairs)
        return inward, outward, self.lin_inward_bias(pairs), self.lin_outward_bias(pairs)

    def attend(self, block: Block, mask: Tensor, *projected: Tensor) -> Tensor:
        """Attend in a block, inward and outward, ``[B, i, j, 2 channels]``."""
        inward, outward, inward_bias, outward_bias = projected
        both = (
            self._attend(block, inward, inward_bias, mask, inward=True),
            self._attend(block, outward, outward_bias, mask, inward=False),
        )
        return torch.cat(both, dim=-1)

    def _attend(
        self, block: Block, projected: Tensor, terms: Tensor, mask: Tensor, *, inward: bool
    ) -> Tensor:
        """One direction in a block, ``[B, i, j, channels]``."""
        heads = block.pairs(projected).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 2, 4, 1, 5)
        query, key, value = heads.unbind()  # [B, j, H, i, d], [B, j, H, k, d]
        term = block.pairs(terms).unflatten(-1, (-1, self.heads)).permute(3, 0, 4, 1, 2)
        if inward:  # pairs (j, k) and (i, k)
            key, value = (x.transpose(1, 3) for x in (key, value))
            value_mask = mask
            bias_mask = mask
        else:  # pairs (k, j) and (k, i)
            term = term.mT
            value_mask = mask.mT
            bias_mask = mask.mT
        sliced = (query * self.head_channels**-0.5, key, value, value_mask)
        cost = self.heads * block.nodes**2
        out = _in_chunks(self._mix, sliced, (bias_mask, *term), cost=cost)
        return out.permute(0, 3, 1, 2, 4).flatten(-2)

    def _mix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        value_mask: Tensor,
        bias_mask: Tensor,
        bias: Tensor,
        gate: Optional[Tensor] = None,
    ) -> Tensor:
        """Attend in a chunk of senders, ``[B, j, H, i, d]``."""
        logits = query @ key.mT + bias.unsqueeze(1)
        mask = value_mask.unsqueeze(2) & bias_mask.unsqueeze(1)  # [B, j, i, k]
        gate = None if gate is None else gate.unsqueeze(1)
        return self.weigh(logits, mask.unsqueeze(2), gate) @ value


class TripletAggregate(TripletLayer):
    r"""Triplet aggregation of Hussain et al. 2024, cheaper than :class:`TripletAttention`.

    The weight of a third node does not depend on the sender. For receiver :math:`i`, sender
    :math:`j`, and each head:

    .. math::
        a^{in}_{ik} &= \mathrm{softmax}_k(b_{ik})\, \sigma(g_{ik}), \qquad
            o^{in}_{ij} = \sum_k a^{in}_{ik} v_{jk} \\
        a^{out}_{ik} &= \mathrm{softmax}_k(b_{ki})\, \sigma(g_{ki}), \qquad
            o^{out}_{ij} = \sum_k a^{out}_{ik} v_{kj} \\
        e'_{ij} &= W_o\, \mathrm{concat}_h (o^{in}_{ij}, o^{out}_{ij})

    The softmax is over the edges of node :math:`i`; values of pairs that are not edges are 0. The
    authors' code masks padding in the inward direction only. Time is :math:`O(N^3 C)`, as a few
    matrix products, and memory :math:`O(N^2 C)`. Arguments and shapes are those of
    :class:`TripletAttention`.

    Example:
        >>> from molattn.graph import CompleteGraphs
        >>> TripletAggregate(8, heads=2)(torch.randn(9, 8), CompleteGraphs([3])).shape
        torch.Size([9, 8])
    """

    def make_maps(self, bias: bool) -> None:
        """Make the linear maps."""
        channels = self.channels
        terms = self.heads * (1 + self.gate)
        self.lin_value = Linear(channels, 2 * channels, bias=bias)  # inward, outward
        self.lin_bias = Linear(channels, 2 * terms, bias=bias)  # biases and gates of each
        self.lin_out = Linear(2 * channels, channels, bias=bias)

    def project(self, pairs: Tensor) -> tuple[Tensor, ...]:
        """Values of both directions, then biases and gates."""
        return self.lin_value(pairs), self.lin_bias(pairs)

    def attend(self, block: Block, mask: Tensor, *projected: Tensor) -> Tensor:
        """Attend in a block, inward and outward, ``[B, i, j, 2 channels]``."""
        values, terms = (block.pairs(x) for x in projected)
        values = values.masked_fill(~mask.unsqueeze(-1), 0.0)
        value = values.unflatten(-1, (2, self.heads, -1)).permute(3, 0, 4, 1, 2, 5)
        term = terms.unflatten(-1, (2, -1, self.heads)).permute(3, 4, 0, 5, 1, 2)
        # Of directions: terms [B, H, i, k], values [B, H, k, j, d].
        inward = self._mix(term[0], value[0].transpose(2, 3), mask)
        return torch.cat([inward, self._mix(term[1].mT, value[1], mask.mT)], dim=-1)

    def _mix(self, terms: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """One direction in a block, ``[B, i, j, channels]``."""
        weights = self.weigh(terms[0], mask.unsqueeze(1), terms[1] if self.gate else None)
        out = weights @ value.flatten(3)
        return out.unflatten(-1, value.shape[3:]).permute(0, 2, 3, 1, 4).flatten(-2)


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

    Time, memory, arguments and shapes are those of :class:`TripletAttention`.

    Example:
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
        self.lin_in = Linear(self.channels, 4 * self.channels, bias=bias)
        self.lin_out = Linear(self.channels, self.channels, bias=bias)

    def project(self, pairs: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, and values of receiver and sender."""
        return self.lin_in(pairs).chunk(4, dim=-1)

    def attend(self, block: Block, mask: Tensor, *projected: Tensor) -> Tensor:
        """Attend in a block, ``[B, i, j, channels]``."""
        heads = (block.pairs(x).unflatten(-1, (self.heads, -1)) for x in projected)
        query, key, receiver, sender = heads  # [B, N, N, H, d]
        sliced = (query * self.head_channels**-0.5, receiver, mask)
        cost = 2 * self.channels * block.nodes**2
        return _in_chunks(self._mix, sliced, (key, sender, mask), cost=cost)

    def _mix(
        self,
        query: Tensor,
        value_receiver: Tensor,
        receiver_mask: Tensor,
        key: Tensor,
        value_sender: Tensor,
        sender_mask: Tensor,
    ) -> Tensor:
        """Attend in a chunk of receivers, ``[B, i, j, channels]``."""
        logits = query.permute(0, 3, 2, 1, 4) @ key.permute(0, 3, 1, 4, 2)  # [B, H, m, i, j]
        mask = receiver_mask.unsqueeze(2) & sender_mask.mT.unsqueeze(1)  # [B, i, j, m]
        weights = self.weigh(logits.permute(0, 1, 3, 4, 2), mask.unsqueeze(1))
        # [B, H, i, j, m, d]
        paths = weights.unsqueeze(-1) * value_receiver.permute(0, 3, 1, 2, 4).unsqueeze(3)
        paths = paths * value_sender.permute(0, 3, 2, 1, 4).unsqueeze(2)
        return paths.sum(dim=-2).permute(0, 2, 3, 1, 4).flatten(-2)


def _in_chunks(
    step: Callable[..., Tensor], sliced: Sequence[Tensor], whole: Sequence[Tensor], *, cost: int
) -> Tensor:
    """Apply a step to a few nodes of a few graphs at a time, ``[B, N, ...]``.

    The step gets parts of ``sliced`` ``[B, N, ...]`` and ``whole`` ``[B, ...]``, and makes ``cost``
    numbers for each node. Several chunks are computed again in the backward pass, for which their
    inputs alone are saved.
    """
    graphs, nodes = sliced[0].shape[:2]
    size = min(nodes, max(1, _CHUNK // cost))
    count = max(1, _CHUNK // (cost * nodes)) if size == nodes else 1
    if size == nodes and count >= graphs:
        return step(*sliced, *whole)
    if torch.is_grad_enabled() and not is_transformed(sliced[0]):
        step = partial(checkpoint, step, use_reentrant=False)  # pyright: ignore[reportAssignmentType]
    outputs = []
    for graph_chunk in zip(*(x.split(count) for x in (*sliced, *whole)), strict=True):
        chunks = zip(*(x.split(size, dim=1) for x in graph_chunk[: len(sliced)]), strict=True)
        outputs.append(
            torch.cat([step(*chunk, *graph_chunk[len(sliced) :]) for chunk in chunks], dim=1)
        )
    return torch.cat(outputs)
