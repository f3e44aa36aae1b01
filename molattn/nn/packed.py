"""Softmax attention over complete graphs as one step of autograd.

Ordinary autograd would keep, and pass over, several tensors of all pairs and heads. Here a layer
keeps one, its weights. Edge terms are linear in a basis (one vector for each distinct code of a
pair, or for each feature), so that no tensor of all pairs and channels is made:

    q . (sum_m f_m K_m) = sum_m f_m (q . K_m)         one number for each node and m
    sum_s b_s (sum_m f_sm V_m) = sum_m (sum_s b_s f_sm) V_m
"""

from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..graph.complete import Block, CompleteGraphs

__all__ = ["packed_attention"]

# Logit of pairs that are no edges: finite, so that no gradient is NaN.
_NO_EDGE = -1e30


def packed_attention(
    graph: CompleteGraphs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: Optional[Tensor] = None,
    edge_key: Optional[Tensor] = None,
    edge_value: Optional[Tensor] = None,
    dropout: float = 0.0,
) -> Tensor:
    r"""Attend over all pairs of each graph: softmax of inner products.

    .. math::
        y_r = \sum_s b_{rs} \big(v_s + \sum_m f_{rsm} V_m\big), \qquad
        b_{r\cdot} = \mathrm{softmax}_s\; q_r \cdot \big(k_s + \sum_m f_{rsm} K_m\big)

    Args:
        graph: The layout.
        query: Scaled queries ``[R, H, C]``.
        key: Keys ``[R, H, C]``.
        value: Values ``[R, H, V]``.
        edges: :math:`f`: features of each pair row, ``[P, M]``; or codes ``int64 [P]``, for which
            :math:`f` is 1 at the code and 0 elsewhere, ``M - 1`` where the pair is no edge.
        edge_key: :math:`K`, ``[M, H, C]``; with codes, its last row is zero.
        edge_value: :math:`V`, ``[M, H, V]``; with codes, its last row is zero.
        dropout: Probability with which a weight is dropped.

    Returns:
        ``[R, H, V]``; 0 in rows without neighbours.
    """
    return _Packed.apply(graph, query, key, value, edges, edge_key, edge_value, dropout)  # pyright: ignore[reportReturnType]


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        graph: CompleteGraphs,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        edges: Optional[Tensor],
        edge_key: Optional[Tensor],
        edge_value: Optional[Tensor],
        dropout: float,
    ) -> Tensor:
        coded = _coded(edges)
        scores = _on_basis(query, edge_key)
        if coded and scores is not None:
            scores[..., -1] = _NO_EDGE
        pooled = None if scores is None else torch.zeros_like(scores)
        out = torch.empty_like(value, memory_format=torch.contiguous_format)
        kept: list[Tensor] = []
        for block, mask, lonely in zip(
            graph.blocks, graph.pair_masks, graph.lonely_rows, strict=True
        ):
            q, k, v = (_heads(block, t) for t in (query, key, value))
            logits = _add_product(_contract(block, edges, scores), q, k.mT)
            if not coded:
                bias = logits.new_zeros(mask.shape).masked_fill_(~mask, _NO_EDGE)
                logits.unflatten(0, (-1, block.graphs)).add_(bias)
            weights = torch.softmax(logits, dim=-1)
            del logits
            if lonely is not None:
                weights.unflatten(0, (-1, block.graphs)).mul_((~lonely).unsqueeze(-1))
            kept.append(weights)
            if dropout > 0:
                drop = torch.rand_like(weights) < dropout
                kept.append(drop)
                weights = _drop(weights, drop, dropout)
            _put(block, out, weights @ v)
            if pooled is not None:
                _pool(block, edges, weights, pooled)
        if pooled is not None and edge_value is not None:
            out += _from_basis(pooled, edge_value)
        ctx.graph, ctx.dropout = graph, dropout
        ctx.save_for_backward(query, key, value, edges, edge_key, edge_value, pooled, out, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, edges, edge_key, edge_value, pooled, out, *kept = ctx.saved_tensors
        graph: CompleteGraphs = ctx.graph
        grad_out = grad_out.contiguous()
        shift = (grad_out * out).sum(dim=-1, keepdim=True)  # sum_s b_rs dL/db_rs
        slopes = _on_basis(grad_out, edge_value)  # dL/db through the edges' values
        # A pair has just one code, so shifting the codes, of which there are few, shifts the pairs.
        shifted = _coded(edges) and ctx.dropout == 0
        if shifted and slopes is not None:
            slopes.sub_(shift.transpose(0, 1))
        grad_scores = None if slopes is None else torch.zeros_like(slopes)
        grad_edges = torch.empty_like(edges) if ctx.needs_input_grad[4] else None
        scores = None if grad_edges is None else _on_basis(query, edge_key)
        grad_q, grad_k, grad_v = (
            torch.empty_like(t, memory_format=torch.contiguous_format) for t in (query, key, value)
        )
        saved = iter(kept)
        for block in graph.blocks:
            weights = next(saved)
            q, k, v, upstream = (_heads(block, t) for t in (query, key, value, grad_out))
            grad = _add_product(_contract(block, edges, slopes), upstream, v.mT)
            applied = weights
            if ctx.dropout > 0:
                drop = next(saved)
                grad, applied = _drop(grad, drop, ctx.dropout), _drop(weights, drop, ctx.dropout)
            if not shifted:
                grad.sub_(_heads(block, shift))
            grad.mul_(weights)  # from here on of the logits
            _put(block, grad_q, grad @ k)
            _put(block, grad_k, grad.mT @ q)
            _put(block, grad_v, applied.mT @ upstream)
            if grad_scores is not None:
                _pool(block, edges, grad, grad_scores)
            if grad_edges is not None and scores is not None and slopes is not None:
                part = _by_pair(block, grad) @ _by_row(block, scores)
                part += _by_pair(block, applied) @ _by_row(block, slopes)
                block.pairs(grad_edges).copy_(part)
        if grad_scores is None:
            return None, grad_q, grad_k, grad_v, None, None, None, None
        grad_q += _from_basis(grad_scores, edge_key)
        grad_key = (grad_scores.mT @ query.transpose(0, 1)).transpose(0, 1)
        grad_value = (pooled.mT @ grad_out.transpose(0, 1)).transpose(0, 1)
        return None, grad_q, grad_k, grad_v, grad_edges, grad_key, grad_value, None


def _coded(edges: Optional[Tensor]) -> bool:
    return edges is not None and edges.dim() == 1


# Layouts: nodes are [R, H, C]; sums over the basis [H, R, M]; pairs of a block [H B, N, N].


def _heads(block: Block, x: Tensor) -> Tensor:
    """A block of nodes ``[R, H, C]`` as ``[H B, N, C]``."""
    return block.rows(x).permute(2, 0, 1, 3).flatten(0, 1)


def _put(block: Block, x: Tensor, heads: Tensor) -> None:
    """Write ``[H B, N, C]`` into a block of nodes ``[R, H, C]``."""
    block.rows(x).copy_(heads.unflatten(0, (-1, block.graphs)).permute(1, 2, 0, 3))


def _on_basis(x: Tensor, basis: Optional[Tensor]) -> Optional[Tensor]:
    """Inner products of nodes ``[R, H, C]`` with the basis ``[M, H, C]``: ``[H, R, M]``."""
    return None if basis is None else x.transpose(0, 1) @ basis.permute(1, 2, 0)


def _from_basis(sums: Tensor, basis: Tensor) -> Tensor:
    """Sums over the basis, ``[H, R, M]``, with its vectors ``[M, H, C]``: ``[R, H, C]``."""
    return (sums @ basis.transpose(0, 1)).transpose(0, 1)


def _slice(block: Block, sums: Tensor) -> Tensor:
    """A block of ``[H, R, M]`` as ``[H, B, N, M]``; a view."""
    part = sums.narrow(1, block.row, block.graphs * block.nodes)
    return part.unflatten(1, (block.graphs, block.nodes))


def _by_row(block: Block, sums: Tensor) -> Tensor:
    """A block of ``[H, R, M]`` as ``[B, N, H, M]``."""
    return _slice(block, sums).permute(1, 2, 0, 3)


def _by_pair(block: Block, pairs: Tensor) -> Tensor:
    """Pairs ``[H B, N, N]`` as ``[B, N (receiver), N (sender), H]``."""
    return pairs.unflatten(0, (-1, block.graphs)).permute(1, 2, 3, 0)


def _contract(block: Block, edges: Optional[Tensor], scores: Optional[Tensor]) -> Optional[Tensor]:
    """For each pair the sum over the basis of its features and its receiver's scores."""
    if edges is None or scores is None:
        return None
    mine = block.pairs(edges)
    if _coded(edges):
        index = mine.expand(scores.size(0), *mine.shape)
        return _slice(block, scores).gather(3, index).flatten(0, 1)
    by_row = _by_row(block, scores) @ mine.mT  # [B, N, H, N]
    return by_row.permute(2, 0, 1, 3).flatten(0, 1)


def _pool(block: Block, edges: Optional[Tensor], pairs: Tensor, sums: Tensor) -> None:
    """Add to each receiver's sums over the basis the features of its pairs, weighted."""
    assert edges is not None  # or there is nothing to sum into
    mine = block.pairs(edges)
    if _coded(edges):
        index = mine.expand(sums.size(0), *mine.shape)
        _slice(block, sums).scatter_add_(3, index, pairs.unflatten(0, (-1, block.graphs)))
    else:
        by_row = pairs.unflatten(0, (-1, block.graphs)).permute(1, 2, 0, 3)  # [B, N, H, N]
        _by_row(block, sums).copy_(by_row @ mine)


def _add_product(base: Optional[Tensor], a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b) if base is None else base.baddbmm_(a, b)


def _drop(x: Tensor, drop: Tensor, dropout: float) -> Tensor:
    return x.masked_fill(drop, 0.0).div_(1 - dropout)
