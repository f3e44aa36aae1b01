"""Attention over all pairs of complete graphs by ordinary operations.

Edge terms are linear in a basis, one vector for each distinct code of a pair or for each feature:

    q . (sum_m f_m K_m) = sum_m f_m (q . K_m)         one number for each node and m
    sum_s b_s (sum_m f_sm V_m) = sum_m (sum_s b_s f_sm) V_m
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from molattn.graph.complete import CompleteGraphs, GraphBlock

# Logit of pairs that are not edges: finite, so that no gradient is NaN.
NO_EDGE = -1e30


class PairInputs(NamedTuple):
    """What attention over pairs reads.

    With codes, the last row of the basis is zero, and the code of pairs that are not edges.
    """

    query: Tensor  # [R, H, C]
    key: Tensor  # [R, H, C]
    value: Tensor  # [R, H, V]
    edges: Optional[Tensor] = None  # features of each pair row [P, M], or codes int64 [P]
    edge_key: Optional[Tensor] = None  # basis of the edges' keys, [M, H, C]
    edge_value: Optional[Tensor] = None  # basis of the edges' values, [M, H, V]; None = 0

    def converted(self) -> "PairInputs":
        """The same in the type in which attention is computed."""
        dtype = working_dtype(self.value)
        floats = (x if x is None or not x.is_floating_point() else x.to(dtype) for x in self)
        return PairInputs(*floats)  # pyright: ignore[reportArgumentType]


class Attended(NamedTuple):
    """The result of attention, before heads are combined."""

    nodes: Tensor  # sum of the weighted values, [N, H, V]
    alpha: Optional[Tensor] = None  # weights before dropout, [E, H], if requested
    messages: Optional[Tensor] = None  # weighted value of each edge, [E, H, V], if requested


def dense_attention(
    graph: CompleteGraphs,
    inputs: PairInputs,
    dropout: float = 0.0,
    *,
    score: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
    weigh: Optional[Callable[[Tensor, Tensor, GraphBlock], Tensor]] = None,
    drops: Optional[Sequence[Tensor]] = None,
    return_alpha: bool = False,
    return_messages: bool = False,
) -> Attended:
    """Attend over all pairs of each graph; there must be a node.

    Args:
        graph: The layout.
        inputs: Projected queries and keys, values, and the edges.
        dropout: Probability with which a weight is dropped.
        score: A function of queries and keys ``[..., H, C]`` that returns logits ``[..., H]``;
            None = inner products. Others need a tensor ``[P, H, C]``.
        weigh: A function of logits ``[H, B, N, N]``, the mask ``[B, N, N]`` and the block that
            returns weights; None = softmax over the edges of each receiver.
        drops: For each block the weights to drop, ``bool [H B, N, N]``; None = drawn here.
        return_alpha: Return the weights.
        return_messages: Return the weighted value of each pair.
    """
    dtype = inputs.value.dtype
    query, key, value, edges, edge_key, edge_value = inputs.converted()
    outs, alphas, messages = [], [], []
    for place, (block, mask) in enumerate(zip(graph.blocks, graph.pair_masks, strict=True)):
        pairs = Pairs(block, query.size(1), edges)
        v = heads_first(block, value)
        if score is None:
            q = heads_first(block, query)
            logits = q @ heads_first(block, key).mT
            if edge_key is not None:
                logits = logits + pairs.contract(pairs.by_node(q) @ edge_key.transpose(0, 1).mT)
            logits = pairs.by_graph(logits)
        else:
            k = block.rows(key).unsqueeze(1)
            k = k if edge_key is None else k + pairs.terms(edge_key)
            logits = score(block.rows(query).unsqueeze(2), k).permute(3, 0, 1, 2)
        alpha = softmax(logits, mask) if weigh is None else weigh(logits, mask, block)
        weights = alpha.flatten(0, 1)
        if dropout > 0:
            drop = drops[place] if drops is not None else draw(weights, dropout)
            weights = weights.masked_fill(drop, 0.0) / (1 - dropout)
        out = pairs.by_graph(weights @ v)
        if edge_value is not None:
            pooled = pairs.pool(weights, len(edge_value)) @ edge_value.transpose(0, 1)
            out = out + pooled.view_as(out)
        outs.append(out.permute(1, 2, 0, 3).flatten(0, 1))
        if return_alpha:
            alphas.append(alpha.permute(1, 2, 3, 0).flatten(0, 2))
        if return_messages:
            v = block.rows(value).unsqueeze(1)  # [B, 1, S, H, V]
            v = v if edge_value is None else v + pairs.terms(edge_value)
            messages.append((pairs.by_pair(weights).unsqueeze(-1) * v).flatten(0, 2))
    return Attended(
        graph.join_rows(outs, value).to(dtype),
        graph.join_pairs(alphas, value).to(dtype) if return_alpha else None,
        graph.join_pairs(messages, value).to(dtype) if return_messages else None,
    )


class Pairs:
    """The pairs of a block ``[H B, N receivers, N senders]`` and their edges."""

    def __init__(self, block: GraphBlock, heads: int, edges: Optional[Tensor]) -> None:
        self.coded = edges is not None and edges.dim() == 1
        self._graphs, self._nodes, self._heads = block.graphs, block.nodes, heads
        self._edges = None if edges is None else block.pairs(edges)  # [B, N, N] or [B, N, N, M]

    @property
    def edges(self) -> Tensor:
        """Codes ``[B, N, N]`` or features ``[B, N, N, M]``."""
        assert self._edges is not None
        return self._edges

    def by_graph(self, x: Tensor) -> Tensor:
        """``[H B, ...]`` as ``[H, B, ...]``."""
        return x.unflatten(0, (self._heads, self._graphs))

    def by_node(self, x: Tensor) -> Tensor:
        """``[H B, N, ...]`` as ``[H, B N, ...]``."""
        return self.by_graph(x).flatten(1, 2)

    def by_row(self, sums: Tensor) -> Tensor:
        """Sums over the basis ``[H, B N, M]`` as ``[B, N, H, M]``."""
        return sums.unflatten(1, (self._graphs, self._nodes)).permute(1, 2, 0, 3)

    def by_pair(self, x: Tensor) -> Tensor:
        """Pairs as ``[B, N receivers, N senders, H]``."""
        return self.by_graph(x).permute(1, 2, 3, 0)

    def terms(self, basis: Tensor) -> Tensor:
        """For each pair the sum over the basis ``[M, H, C]``, ``[B, N, N, H, C]``."""
        if self.coded:
            each = basis.index_select(0, self.edges.flatten())
            return each.view(*self.edges.shape, *basis.shape[1:])
        return torch.tensordot(self.edges, basis, 1)

    def contract(self, scores: Tensor) -> Tensor:
        """For each pair the sum over the basis of its features and its receiver's scores."""
        if self.coded:
            # Faster than torch.gather, which reads an index for each head.
            rows, size = scores.shape[1:]
            first = torch.arange(0, rows * size, size, device=scores.device)
            index = self.edges + first.view(self._graphs, self._nodes, 1)
            each = scores.flatten(1).index_select(1, index.flatten())
            return each.view(len(scores) * self._graphs, self._nodes, self._nodes)
        by_row = self.by_row(scores) @ self.edges.mT  # [B, N, H, N]
        return by_row.permute(2, 0, 1, 3).flatten(0, 1)

    def pool(self, weights: Tensor, size: int) -> Tensor:
        """For each receiver the weighted sum of its pairs' features, ``[H, B N, M]``."""
        weights = self.by_graph(weights)
        if self.coded:
            wide = weights.to(sum_dtype(weights))
            sums = wide.new_zeros(*weights.shape[:-1], size)
            index = self.edges.expand(weights.size(0), *self.edges.shape)
            return sums.scatter_add_(3, index, wide).flatten(1, 2).to(weights.dtype)
        by_row = weights.permute(1, 2, 0, 3) @ self.edges  # [B, N, H, M]
        return by_row.permute(2, 0, 1, 3).flatten(1, 2)


def softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax of logits ``[H, B, N, N]`` over the edges; 0 for nodes without neighbors."""
    return torch.softmax(logits.masked_fill(~mask, NO_EDGE), dim=-1) * mask


def draw(weights: Tensor, dropout: float) -> Tensor:
    """Draw the weights to drop."""
    return torch.rand_like(weights, dtype=sum_dtype(weights)) < dropout


def heads_first(block: GraphBlock, x: Tensor) -> Tensor:
    """The block's nodes of rows ``[R, H, C]`` as ``[H B, N, C]``."""
    return block.rows(x).permute(2, 0, 1, 3).flatten(0, 1)


def working_dtype(x: Tensor) -> torch.dtype:
    """The type in which attention is computed: on a GPU its kernels add up bfloat16 in float32."""
    return x.dtype if x.dtype is torch.bfloat16 and x.is_cuda else sum_dtype(x)


def sum_dtype(x: Tensor) -> torch.dtype:
    """Sums of half precision that no kernel widens by itself are in single precision."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
