"""Softmax attention over complete graphs as one step of autograd.

Ordinary autograd would store and read several tensors of all pairs and heads. Here a layer stores
one, its weights. Edge terms are linear in a basis (one vector for each distinct code of a
pair, or for each feature), so that no tensor of all pairs and channels is made:

    q . (sum_m f_m K_m) = sum_m f_m (q . K_m)         one number for each node and m
    sum_s b_s (sum_m f_sm V_m) = sum_m (sum_s b_s f_sm) V_m

The step has a gradient. All other derivatives, and compilers, use ordinary operations.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F

from molattn.graph.complete import CompleteGraphs, GraphBlock
from molattn.nn.linear import is_transformed, side_by_side

# Logit of pairs that are not edges: finite, so that no gradient is NaN.
_NO_EDGE = -1e30
# torch's softmax on a CPU is not vectorized over narrower rows: 14 times the time per number.
_NARROWEST = 16


def fused_attention(
    graph: CompleteGraphs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: Optional[Tensor] = None,
    edge_key: Optional[Tensor] = None,
    edge_value: Optional[Tensor] = None,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor:
    r"""Attend over all pairs of each graph: softmax of inner products.

    Half precision is calculated in single precision, and returned in half precision; bfloat16 on a
    GPU in bfloat16, whose kernels add up products and the softmax in single precision.

    .. math::
        y_r = \sum_s b_{rs} \big(v_s + \sum_m f_{rsm} V_m\big), \qquad
        b_{r\cdot} = \mathrm{softmax}_s\; c\, q_r \cdot \big(k_s + \sum_m f_{rsm} K_m\big)

    Args:
        graph: The layout.
        query: ``[R, H, C]``.
        key: ``[R, H, C]``.
        value: ``[R, H, V]``.
        edges: :math:`f`: features of each pair row, ``[P, M]``; or codes ``int64 [P]``, for which
            :math:`f` is 1 at the code and 0 elsewhere, ``M - 1`` where the pair is no edge.
        edge_key: :math:`K`, ``[M, H, C]``; with codes, its last row is zero.
        edge_value: :math:`V`, ``[M, H, V]``; with codes, its last row is zero. None = 0.
        scale: :math:`c`.
        dropout: Probability with which a weight is dropped.

    Raises:
        ValueError: One of ``edges`` and ``edge_key`` without the other, or ``edge_value`` alone.

    Returns:
        ``[R, H, V]``; 0 for nodes without neighbors, anything finite in padding.
    """
    if (edges is None) != (edge_key is None) or (edges is None and edge_value is not None):
        raise ValueError(
            "edges, edge_key: got one without the other, expected both (with or without "
            "edge_value) or none of the three"
        )
    dtype = _working_dtype(value)
    if edges is not None and edges.is_floating_point():
        edges = edges.to(dtype)
    if edge_key is not None:
        edge_key = edge_key.to(dtype)
    if edge_value is not None:
        edge_value = edge_value.to(dtype)
    inputs = (query, key, value, edges, edge_key, edge_value)
    attend = _FusedAttention.apply
    if torch.compiler.is_compiling() or is_transformed(query):
        attend = _attention
    elif not torch.is_grad_enabled():
        attend = _fused
    with _without_autocast(query):
        return attend(graph, *inputs, scale, dropout)  # pyright: ignore[reportReturnType]


def _attention(
    graph: CompleteGraphs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: Optional[Tensor],
    edge_key: Optional[Tensor],
    edge_value: Optional[Tensor],
    scale: float,
    dropout: float,
    drops: Optional[Iterable[Tensor]] = None,
) -> Tensor:
    """Compute :func:`fused_attention` by ordinary operations.

    ``drops`` are the weights to drop in each block, ``bool [H B, N, N]``; None = drawn here.
    """
    dtype = value.dtype
    query, key, value = (x.to(_working_dtype(value)) for x in (query, key, value))
    into_key, into_value = _by_head(edge_key, scale), _by_head(edge_value)
    dropped = None if drops is None else iter(drops)
    parts: list[Tensor] = []
    for block, mask in zip(graph.blocks, graph.pair_masks, strict=True):
        pairs = _Pairs(block, query.size(1), edges)
        q, k, v = (block.rows(x).permute(2, 0, 1, 3).flatten(0, 1) for x in (query, key, value))
        logits = scale * (q @ k.mT)
        if into_key is not None:
            logits = logits + pairs.contract(pairs.by_node(q) @ into_key.mT)
        logits = pairs.by_graph(logits).masked_fill(~mask, _NO_EDGE)
        weights = (torch.softmax(logits, dim=-1) * mask).flatten(0, 1)
        if dropout > 0:
            drop = (
                torch.rand_like(weights, dtype=_sum_dtype(weights)) < dropout
                if dropped is None
                else next(dropped)
            )
            weights = weights.masked_fill(drop, 0.0) / (1 - dropout)
        out = pairs.by_graph(weights @ v)
        if into_value is not None:
            pooled = pairs.pool(weights, into_value.size(1)) @ into_value
            out = out + pooled.view_as(out)
        parts.append(out.permute(1, 2, 0, 3).flatten(0, 1))
    return graph.join_rows(parts, value).to(dtype)


def _fused(
    graph: CompleteGraphs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: Optional[Tensor],
    edge_key: Optional[Tensor],
    edge_value: Optional[Tensor],
    scale: float,
    dropout: float,
    kept: Optional[list[Tensor]] = None,
) -> Tensor:
    """Compute :func:`fused_attention` in place where possible.

    ``kept`` is a list to which the tensors that the gradient needs are added; None = no gradient.
    """
    nodes, out = _Nodes(query, key, value), _Nodes.like(graph, value)
    into_key, into_value = _by_head(edge_key, scale), _by_head(edge_value)
    kept = _Nothing() if kept is None else kept
    for block, mask, isolated in zip(
        graph.blocks, graph.pair_masks, graph.isolated_rows, strict=True
    ):
        pairs = _Pairs(block, query.size(1), edges)
        q, k, v = nodes.heads(block)
        if into_key is None:
            logits = torch.bmm(q, k.mT).mul_(scale)
        else:
            scores = pairs.by_node(q) @ into_key.mT
            if pairs.coded:
                scores[..., -1] = _NO_EDGE
            logits = pairs.contract(scores).baddbmm_(q, k.mT, alpha=scale)
        if not pairs.coded:
            bias = logits.new_zeros(mask.shape).masked_fill_(~mask, _NO_EDGE)
            pairs.by_graph(logits).add_(bias)
        weights = _softmax(logits)
        del logits
        if isolated is not None:
            pairs.by_graph(weights).masked_fill_(isolated.unsqueeze(-1), 0.0)
        kept.append(weights)
        if dropout > 0:
            drop = torch.rand_like(weights, dtype=_sum_dtype(weights)) < dropout
            kept.append(drop)
            weights = _drop(weights, drop, dropout)
        room = out.room(block)
        torch.bmm(weights, v, out=room[0])
        if into_value is not None:
            pooled = pairs.pool(weights, into_value.size(1))
            kept.append(pooled)
            pairs.by_node(room[0]).baddbmm_(pooled, into_value)
        out.put(block, room)
    return out.parts[0]


class _Nothing(list[Tensor]):
    """A list that keeps nothing, so that memory in the cache of the processor is used again."""

    def append(self, _: Tensor) -> None:
        pass


class _FusedAttention(torch.autograd.Function):
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
        scale: float,
        dropout: float,
    ) -> Tensor:
        kept: list[Tensor] = []
        out = _fused(graph, query, key, value, edges, edge_key, edge_value, scale, dropout, kept)
        ctx.graph, ctx.scale, ctx.dropout = graph, scale, dropout
        ctx.save_for_backward(query, key, value, edges, edge_key, edge_value, out, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with _without_autocast(grad_out):
            if torch.is_grad_enabled() or is_transformed(grad_out):
                return _differentiable_gradients(ctx, grad_out)
            return _gradients(ctx, grad_out)


def _gradients(ctx: Any, grad_out: Tensor) -> Any:
    """Gradients that are constants to autograd."""
    query, key, value, edges, edge_key, edge_value, out, *kept = ctx.saved_tensors
    graph: CompleteGraphs = ctx.graph
    scale: float = ctx.scale
    grad_out = grad_out.contiguous()
    nodes, upstream = _Nodes(query, key, value), _Nodes(grad_out)
    wide = _sum_dtype(grad_out)
    shift = (grad_out.to(wide) * out).sum(dim=-1, keepdim=True)  # sum_s b_rs dL/db_rs
    shift = _Nodes(shift)
    grad_nodes = _Nodes.like(graph, query, key, value)
    into_key, into_value = _by_head(edge_key, scale), _by_head(edge_value)
    # Contiguous, or each head would be a product of its own.
    grad_key, grad_value = (
        None if t is None else t.new_zeros(t.shape, dtype=wide) for t in (into_key, into_value)
    )
    grad_edges = torch.empty_like(edges) if ctx.needs_input_grad[4] else None
    nothing = grad_out.new_zeros((), dtype=nodes.dtype)
    saved = iter(kept)
    for block in graph.blocks:
        pairs = _Pairs(block, query.size(1), edges)
        weights = applied = next(saved)
        q, k, v = nodes.heads(block)
        (u,) = upstream.heads(block)
        (least,) = shift.heads(block)
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
            grad, applied = _drop(grad, drop, ctx.dropout), _drop(weights, drop, ctx.dropout)
        if not shifted:
            grad.sub_(least)
        grad.mul_(weights)  # from here on of the logits
        room = grad_nodes.room(block)
        torch.baddbmm(nothing, grad, k, beta=0, alpha=scale, out=room[0])
        torch.baddbmm(nothing, grad.mT, q, beta=0, alpha=scale, out=room[1])
        torch.bmm(applied.mT, u, out=room[2])
        if grad_value is not None:
            _add_products(grad_value, next(saved).mT, pairs.by_node(u))
        if into_key is not None and grad_key is not None:
            of_scores = pairs.pool(grad, into_key.size(1))
            pairs.by_node(room[0]).baddbmm_(of_scores, into_key)
            _add_products(grad_key, of_scores.mT, pairs.by_node(q), scale)
            if grad_edges is not None:
                scores = pairs.by_node(q) @ into_key.mT
                part = pairs.by_pair(grad) @ pairs.by_row(scores)
                if slopes is not None:
                    part += pairs.by_pair(applied) @ pairs.by_row(slopes)
                block.pairs(grad_edges).copy_(part)
        grad_nodes.put(block, room)
    grads = (None if t is None else t.transpose(0, 1) for t in (grad_key, grad_value))
    return None, *grad_nodes.parts, grad_edges, *grads, None, None


def _differentiable_gradients(ctx: Any, grad_out: Tensor) -> Any:
    """Gradients that have gradients themselves."""
    inputs, kept = ctx.saved_tensors[:6], ctx.saved_tensors[7:]
    with torch.enable_grad():
        # Views, so that a tensor in two places has a gradient in each.
        views: list[Any] = [None if x is None else x.view_as(x) for x in inputs]
        per_block = len(kept) // max(len(ctx.graph.blocks), 1)
        drops = kept[1::per_block] if ctx.dropout > 0 else None
        out = _attention(ctx.graph, *views, scale=ctx.scale, dropout=ctx.dropout, drops=drops)
    needed = [view for view, need in zip(views, ctx.needs_input_grad[1:], strict=False) if need]
    grads = iter(
        torch.autograd.grad(  # pyright: ignore[reportCallIssue]
            out,
            needed,  # pyright: ignore[reportArgumentType]
            grad_out,
            create_graph=torch.is_grad_enabled(),
            materialize_grads=True,
        )
    )
    return tuple(next(grads) if need else None for need in ctx.needs_input_grad)


class _Nodes:
    """Tensors of nodes ``[R, H, C]``, read and written as ``[H B, N, C]`` of a block.

    If they are the columns of one tensor, they are copied together. The blocks of tensors in half
    precision are in the type that attention is calculated in.
    """

    def __init__(self, *parts: Tensor) -> None:
        self.parts = parts
        self.dtype = _working_dtype(parts[0])
        whole = side_by_side(*parts) if len({part.shape for part in parts}) == 1 else None
        self._whole = None if whole is None else whole.view(-1, len(parts), *parts[0].shape[1:])

    @classmethod
    def like(cls, graph: CompleteGraphs, *parts: Tensor) -> "_Nodes":
        """Make tensors of these shapes; rows of blocks are not initialized."""
        if len({part.shape for part in parts}) == 1:
            rows, *shape = parts[0].shape
            made = [*parts[0].new_empty(rows, len(parts), *shape).unbind(1)]
        else:
            made = [part.new_empty(part.shape) for part in parts]
        for part in made:
            graph.clear_end(part)
        return cls(*made)

    def heads(self, block: GraphBlock) -> Sequence[Tensor]:
        """A block of each."""
        if self._whole is None:
            each = (block.rows(x).permute(2, 0, 1, 3) for x in self.parts)
            return [self._copied(x).flatten(0, 1) for x in each]
        heads = block.rows(self._whole).permute(2, 3, 0, 1, 4)
        return self._copied(heads).flatten(1, 2).unbind(0)

    def _copied(self, x: Tensor) -> Tensor:
        """Convert and copy at once."""
        return x.to(self.dtype, memory_format=torch.contiguous_format)

    def room(self, block: GraphBlock) -> Union[Tensor, Sequence[Tensor]]:
        """Make tensors for a block of each, not initialized."""
        shapes = [(x.size(1) * block.graphs, block.nodes, x.size(2)) for x in self.parts]
        if self._whole is None:
            first = self.parts[0]
            return [first.new_empty(shape, dtype=self.dtype) for shape in shapes]
        return self._whole.new_empty(len(shapes), *shapes[0], dtype=self.dtype)

    def put(self, block: GraphBlock, room: Union[Tensor, Sequence[Tensor]]) -> None:
        """Write the block of each from there."""
        if self._whole is not None and isinstance(room, Tensor):
            heads = room.unflatten(1, (-1, block.graphs)).permute(2, 3, 0, 1, 4)
            block.rows(self._whole).copy_(heads)
            return
        for x, heads in zip(self.parts, room, strict=True):
            block.rows(x).copy_(heads.unflatten(0, (-1, block.graphs)).permute(1, 2, 0, 3))


class _Pairs:
    """The pairs of a block ``[H B, N receivers, N senders]`` and their edges."""

    def __init__(self, block: GraphBlock, heads: int, edges: Optional[Tensor]) -> None:
        self.coded = edges is not None and edges.dim() == 1
        self._graphs, self._nodes, self._heads = block.graphs, block.nodes, heads
        self._edges = None if edges is None else block.pairs(edges)  # [B, N, N] or [B, N, N, M]

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
        """Pairs as ``[B, N (receiver), N (sender), H]``."""
        return self.by_graph(x).permute(1, 2, 3, 0)

    def contract(self, scores: Tensor) -> Tensor:
        """For each pair the sum over the basis of its features and its receiver's scores."""
        assert self._edges is not None
        if self.coded:
            # Faster than torch.gather, which reads an index for each head.
            rows, size = scores.shape[1:]
            first = torch.arange(0, rows * size, size, device=scores.device)
            index = self._edges + first.view(self._graphs, self._nodes, 1)
            each = scores.flatten(1).index_select(1, index.flatten())
            return each.view(len(scores) * self._graphs, self._nodes, self._nodes)
        by_row = self.by_row(scores) @ self._edges.mT  # [B, N, H, N]
        return by_row.permute(2, 0, 1, 3).flatten(0, 1)

    def pool(self, weights: Tensor, size: int) -> Tensor:
        """For each receiver the weighted sum of its pairs' features, ``[H, B N, M]``."""
        assert self._edges is not None
        weights = self.by_graph(weights)
        if self.coded:
            wide = weights.to(_sum_dtype(weights))
            sums = wide.new_zeros(*weights.shape[:-1], size)
            index = self._edges.expand(weights.size(0), *self._edges.shape)
            return sums.scatter_add_(3, index, wide).flatten(1, 2).to(weights.dtype)
        by_row = weights.permute(1, 2, 0, 3) @ self._edges  # [B, N, H, M]
        return by_row.permute(2, 0, 1, 3).flatten(1, 2)


def _without_autocast(x: Tensor) -> AbstractContextManager[object]:
    kind = x.device.type
    available = torch.amp.is_autocast_available(kind)  # pyright: ignore[reportPrivateImportUsage]
    return torch.autocast(kind, enabled=False) if available else nullcontext()


def _working_dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype is torch.bfloat16 and x.is_cuda else _sum_dtype(x)


def _sum_dtype(x: Tensor) -> torch.dtype:
    """Sums of half precision that no kernel widens by itself are in single precision."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _add_products(total: Tensor, x: Tensor, y: Tensor, alpha: float = 1.0) -> None:
    """Add ``alpha x y`` to a total, which may be of a wider type."""
    if total.dtype == x.dtype:
        total.baddbmm_(x, y, alpha=alpha)
    else:
        total.add_(torch.bmm(x, y), alpha=alpha)


def _by_head(basis: Optional[Tensor], scale: float = 1.0) -> Optional[Tensor]:
    """A basis ``[M, H, C]`` as ``[H, M, C]``."""
    return None if basis is None else (basis * scale).transpose(0, 1)


def _softmax(logits: Tensor) -> Tensor:
    """Softmax over the senders."""
    missing = _NARROWEST - logits.size(-1)
    if missing <= 0 or logits.device.type != "cpu":
        return torch.softmax(logits, dim=-1)
    padded = F.pad(logits, (0, missing), value=-math.inf)
    return torch.softmax(padded, dim=-1)[..., : logits.size(-1)].contiguous()


def _drop(x: Tensor, drop: Tensor, dropout: float) -> Tensor:
    return x.masked_fill(drop, 0.0).div_(1 - dropout)
