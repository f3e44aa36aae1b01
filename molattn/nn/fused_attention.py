"""Softmax attention over complete graphs as one step of autograd.

Ordinary autograd would store and read several tensors of all pairs and heads. Here a layer stores
one, its weights; edge terms need no tensor of all pairs and channels (see
:mod:`~molattn.nn.dense_attention`). The step has a gradient. All other derivatives, and compilers,
use ordinary operations.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional as F

from molattn._torch_compat import is_transformed
from molattn.graph.complete import CompleteGraphs, GraphBlock
from molattn.nn.dense_attention import (
    NO_EDGE,
    PairInputs,
    Pairs,
    dense_attention,
    draw,
    sum_dtype,
    working_dtype,
)

# torch's softmax on a CPU is not vectorized over narrower rows: 14 times the time per number.
_NARROWEST = 16


def fused_attention(
    graph: CompleteGraphs, inputs: PairInputs, scale: float = 1.0, dropout: float = 0.0
) -> Tensor:
    r"""Attend over all pairs of each graph: softmax of inner products.

    Half precision is calculated in single precision, and returned in half precision; bfloat16 on a
    GPU in bfloat16, whose kernels add up products and the softmax in single precision.

    .. math::
        y_r = \sum_s b_{rs} \big(v_s + \sum_m f_{rsm} V_m\big), \qquad
        b_{r\cdot} = \mathrm{softmax}_s\; c\, q_r \cdot \big(k_s + \sum_m f_{rsm} K_m\big)

    Args:
        graph: The layout.
        inputs: Queries, keys, values, and the edges :math:`f` with their bases :math:`K, V`.
        scale: :math:`c`.
        dropout: Probability with which a weight is dropped.

    Returns:
        ``[R, H, V]``; 0 for nodes without neighbors, anything finite in padding.
    """
    with without_autocast(inputs.query):
        if torch.compiler.is_compiling() or is_transformed(inputs.query):
            inputs = inputs._replace(query=inputs.query * scale)
            return dense_attention(graph, inputs, dropout).nodes
        if not torch.is_grad_enabled():
            return _attend(graph, inputs, scale, dropout)
        found = _FusedAttention.apply(graph, scale, dropout, *inputs)
        return found  # pyright: ignore[reportReturnType]


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Compute in the types of the tensors."""
    kind = x.device.type
    available = torch.amp.is_autocast_available(kind)  # pyright: ignore[reportPrivateImportUsage]
    return torch.autocast(kind, enabled=False) if available else nullcontext()


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, graph: CompleteGraphs, scale: float, dropout: float, *inputs: Any
    ) -> Tensor:
        kept: list[Tensor] = []
        out = _attend(graph, PairInputs(*inputs), scale, dropout, kept)
        ctx.graph, ctx.scale, ctx.dropout = graph, scale, dropout
        ctx.save_for_backward(*inputs, out, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with without_autocast(grad_out):
            if torch.is_grad_enabled() or is_transformed(grad_out):
                return *(None,) * 3, *_differentiable_gradients(ctx, grad_out)
            return *(None,) * 3, *_gradients(ctx, grad_out)


def _attend(
    graph: CompleteGraphs,
    inputs: PairInputs,
    scale: float,
    dropout: float,
    kept: Optional[list[Tensor]] = None,
) -> Tensor:
    """Compute attention in place where possible.

    ``kept`` is a list to which the tensors that the gradient needs are added; None = no gradient.
    """
    query, key, value, edges, edge_key, edge_value = inputs
    dtype, out = working_dtype(value), graph.empty_rows(value)
    into_key, into_value = _by_head(edge_key, dtype, scale), _by_head(edge_value, dtype)
    edges = edges if edges is None or edges.dim() == 1 else edges.to(dtype)
    for block, mask, isolated in zip(
        graph.blocks, graph.pair_masks, graph.isolated_rows, strict=True
    ):
        pairs = Pairs(block, query.size(1), edges)
        q, k, v = (_read(block, x, dtype) for x in (query, key, value))
        logits = _logits(pairs, q, k, into_key, scale)
        if not pairs.coded:
            bias = logits.new_zeros(mask.shape).masked_fill_(~mask, NO_EDGE)
            pairs.by_graph(logits).add_(bias)
        applied = weights = _softmax(logits)
        del logits
        if isolated is not None:
            pairs.by_graph(weights).masked_fill_(isolated.unsqueeze(-1), 0.0)
        drop = pooled = None
        if dropout > 0:
            drop = draw(weights, dropout)
            applied = _drop(weights, drop, dropout)
        y = torch.bmm(applied, v)
        if into_value is not None:
            pooled = pairs.pool(applied, into_value.size(1))
            pairs.by_node(y).baddbmm_(pooled, into_value)
        _write(block, y, out)
        if kept is not None:
            kept.extend(t for t in (weights, drop, pooled) if t is not None)
    return out


def _logits(pairs: Pairs, q: Tensor, k: Tensor, into_key: Optional[Tensor], scale: float) -> Tensor:
    """Logits ``[H B, N, N]`` of a block."""
    if into_key is None:
        return torch.bmm(q, k.mT).mul_(scale)
    scores = pairs.by_node(q) @ into_key.mT
    if pairs.coded:
        scores[..., -1] = NO_EDGE
    return pairs.contract(scores).baddbmm_(q, k.mT, alpha=scale)


def _gradients(ctx: Any, grad_out: Tensor) -> Any:
    """Gradients that are constants to autograd."""
    query, key, value, edges, edge_key, edge_value, out, *kept = ctx.saved_tensors
    graph, scale, dtype, saved = ctx.graph, ctx.scale, working_dtype(value), iter(kept)
    wide = sum_dtype(grad_out)
    shift = (grad_out.to(wide) * out).sum(dim=-1, keepdim=True)  # sum_s b_rs dL/db_rs
    into_key, into_value = _by_head(edge_key, dtype, scale), _by_head(edge_value, dtype)
    features = edges if edges is None or edges.dim() == 1 else edges.to(dtype)
    grad_nodes = [graph.empty_rows(x) for x in (query, key, value)]
    # Contiguous, or each head would be a product of its own.
    grad_key, grad_value = (
        None if t is None else t.new_zeros(t.shape, dtype=wide) for t in (into_key, into_value)
    )
    grad_edges = None
    if features is not None and ctx.needs_input_grad[6]:
        grad_edges = torch.empty_like(features)
    for block in graph.blocks:
        pairs = Pairs(block, query.size(1), features)
        q, k, v, u, least = (_read(block, x, dtype) for x in (query, key, value, grad_out, shift))
        weights = applied = next(saved)
        # A pair has one code: shifting the codes, of which there are few, shifts the pairs.
        shifted = pairs.coded and into_value is not None and ctx.dropout == 0
        slopes = None
        if into_value is None:
            grad = torch.bmm(u, v.mT)
        else:
            slopes = pairs.by_node(u) @ into_value.mT  # dL/db through the edges' values
            if shifted:
                slopes.sub_(pairs.by_node(least))
            grad = pairs.contract(slopes).baddbmm_(u, v.mT)
        if ctx.dropout > 0:
            drop = next(saved)
            grad, applied = (_drop(x, drop, ctx.dropout) for x in (grad, weights))
        if not shifted:
            grad.sub_(least)
        grad.mul_(weights)  # from here on of the logits
        grad_query = torch.bmm(grad, k).mul_(scale)
        if grad_value is not None:
            _add_products(grad_value, next(saved).mT, pairs.by_node(u))
        if into_key is not None and grad_key is not None:
            of_scores = pairs.pool(grad, into_key.size(1))
            pairs.by_node(grad_query).baddbmm_(of_scores, into_key)
            _add_products(grad_key, of_scores.mT, pairs.by_node(q), scale)
            if grad_edges is not None:
                part = pairs.by_pair(grad) @ pairs.by_row(pairs.by_node(q) @ into_key.mT)
                if slopes is not None:
                    part += pairs.by_pair(applied) @ pairs.by_row(slopes)
                block.pairs(grad_edges).copy_(part)
        found = (grad_query, torch.bmm(grad.mT, q).mul_(scale), torch.bmm(applied.mT, u))
        for x, rows in zip(found, grad_nodes, strict=True):
            _write(block, x, rows)
    bases = (None if t is None else t.transpose(0, 1) for t in (grad_key, grad_value))
    return *grad_nodes, grad_edges, *bases


def _differentiable_gradients(ctx: Any, grad_out: Tensor) -> Any:
    """Gradients that have gradients themselves."""
    inputs, kept = ctx.saved_tensors[:6], ctx.saved_tensors[7:]
    needs = ctx.needs_input_grad[3:]
    with torch.enable_grad():
        # Views, so that a tensor in two places has a gradient in each.
        views: list[Any] = [None if x is None else x.view_as(x) for x in inputs]
        drops = kept[1 :: len(kept) // len(ctx.graph.blocks)] if ctx.dropout > 0 else None
        scaled = PairInputs(views[0] * ctx.scale, *views[1:])
        out = dense_attention(ctx.graph, scaled, ctx.dropout, drops=drops).nodes
    needed = [view for view, need in zip(views, needs, strict=True) if need]
    create = torch.is_grad_enabled()
    found = torch.autograd.grad(out, needed, grad_out, create_graph=create, materialize_grads=True)
    grads = iter(found)
    return tuple(next(grads) if need else None for need in needs)


def _read(block: GraphBlock, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Copy the block's nodes of rows ``[R, H, C]`` to ``[H B, N, C]``, and convert them."""
    heads = block.rows(x).permute(2, 0, 1, 3)
    return heads.to(dtype, memory_format=torch.contiguous_format).flatten(0, 1)


def _write(block: GraphBlock, heads: Tensor, rows: Tensor) -> None:
    """Copy ``[H B, N, C]`` into the block's nodes of rows ``[R, H, C]``."""
    block.rows(rows).copy_(heads.unflatten(0, (-1, block.graphs)).permute(1, 2, 0, 3))


def _by_head(basis: Optional[Tensor], dtype: torch.dtype, scale: float = 1.0) -> Optional[Tensor]:
    """A basis ``[M, H, C]`` as ``[H, M, C]``."""
    return None if basis is None else (basis.to(dtype) * scale).transpose(0, 1)


def _add_products(total: Tensor, x: Tensor, y: Tensor, alpha: float = 1.0) -> None:
    """Add ``alpha x y`` to a total, which may be of a wider type."""
    if total.dtype == x.dtype:
        total.baddbmm_(x, y, alpha=alpha)
    else:
        total.add_(torch.bmm(x, y), alpha=alpha)


def _softmax(logits: Tensor) -> Tensor:
    """Softmax over the senders."""
    missing = _NARROWEST - logits.size(-1)
    if missing <= 0 or logits.device.type != "cpu":
        return torch.softmax(logits, dim=-1)
    padded = F.pad(logits, (0, missing), value=-math.inf)
    return torch.softmax(padded, dim=-1)[..., : logits.size(-1)].contiguous()


def _drop(x: Tensor, drop: Tensor, dropout: float) -> Tensor:
    return x.masked_fill(drop, 0.0).div_(1 - dropout)
