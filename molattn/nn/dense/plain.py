"""Attention over all pairs of complete graphs by ordinary operations.

Edge terms are linear in a basis, one vector for each distinct code of a pair or for each feature:

    q . (sum_m f_m K_m) = sum_m f_m (q . K_m)         one number for each node and m
    sum_s b_s (sum_m f_sm V_m) = sum_m (sum_s b_s f_sm) V_m
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.nn import functional as F

from molattn._torch_compat import is_transformed
from molattn.graph.complete import Block, CompleteGraphs, join_pairs

ScoreMod = Optional[Callable[[Tensor], Tensor]]

# Logit of pairs that are not edges: finite, so that no gradient is NaN.
_NO_EDGE = -1e30
# torch's softmax on a CPU is not vectorized over narrower rows: 14 times the time per number.
_NARROWEST = 16
# A product with at most this many columns is twice as fast on a CPU if computed transposed.
_FEW_COLUMNS = 10


class PairInputs(NamedTuple):
    """Inputs of attention over pairs.

    With codes, the last row of the basis is zero, and the code of pairs that are not edges.
    """

    query: Tensor  # [R, H, C]
    key: Tensor  # [R, H, C]
    value: Tensor  # [R, H, V]
    edges: Optional[Tensor] = None  # features of each pair row [P, M], or codes int64 [P]
    edge_key: Optional[Tensor] = None  # basis of the edges' keys, [M, H, C]
    edge_value: Optional[Tensor] = None  # basis of the edges' values, [M, H, V]; None = 0
    attn_bias: Optional[Tensor] = None  # term of each logit, [P, H]
    edge_gate: Optional[Tensor] = None  # factor of each weight, [P, H]
    code_bias: Optional[Tensor] = None  # term of each code's logits, [H, M]; needs edge_key

    def converted(self) -> "PairInputs":
        """The same in the type in which attention is computed."""
        dtype = working_dtype(self.value)
        floats = (x if x is None or not x.is_floating_point() else x.to(dtype) for x in self)
        return PairInputs(*floats)  # pyright: ignore[reportArgumentType]


class Attended(NamedTuple):
    """The result of attention, before heads are combined."""

    nodes: Tensor  # sum of the weighted values, [N, H, V]
    weights: Optional[Tensor] = None  # before the edge gate and dropout, [E, H], if requested
    logits: Optional[Tensor] = None  # of which the weights are made, [E, H], if requested
    messages: Any = None  # what updates the edges: weighted values [E, H, V], PairMessages, ...


def dense_attention(
    graph: CompleteGraphs,
    inputs: PairInputs,
    scale: float = 1.0,
    score_mod: ScoreMod = None,
    *,
    score: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
    weigh: Optional[Callable[[Tensor, Tensor, Block], Tensor]] = None,
    edge_value: Optional[Tensor] = None,
    return_weights: bool = False,
    return_logits: bool = False,
    saved: Optional[list[Tensor]] = None,
) -> Attended:
    r"""Attend over all pairs of each graph.

    .. math::
        a_{rs} = \phi\big(c\, q_r \cdot (k_s + \textstyle\sum_m f_{rsm} K_m)\big) + d_{rs}, \qquad
        b_{r\cdot} = \mathrm{softmax}_s\, a_{r\cdot}, \qquad
        y_r = \sum_s g_{rs} b_{rs} \big(v_s + \textstyle\sum_m f_{rsm} V_m\big)

    Half precision is calculated in single precision, and returned in half precision; bfloat16 on a
    GPU in bfloat16, whose kernels add up products and the softmax in single precision. (All steps
    of a block are in one function, as each frees what the one before it made.)

    Args:
        graph: The layout.
        inputs: Queries, keys, values, the edges :math:`f` with their bases :math:`K, V`, the bias
            :math:`d` and the gate :math:`g`; a bias of codes is added before :math:`\phi`.
        scale: :math:`c`.
        score_mod: :math:`\phi`, of each number by itself.
        score: A function of queries and keys ``[..., H, C]`` that returns logits ``[..., H]``, with
            a tensor ``[P, H, C]``; None = inner products.
        weigh: A function of logits ``[H, B, N, N]``, the mask ``[B, N, N]`` and the block that
            returns weights; None = softmax over the edges of each receiver.
        edge_value: Added to the value of each pair, ``[P, H, V]``.
        return_weights: Return the weights :math:`b` too, ``[P, H]``, heads before pairs in memory.
        return_logits: Return the logits :math:`a` too, likewise.
        saved: A list to which the tensors are added that the backward pass needs, but for weights
            that are returned.
    """
    dtype = inputs.value.dtype
    inputs = inputs.converted()
    out = graph.empty_rows(inputs.value)
    collected = ([], [])
    mixed = []
    masks = zip(graph.blocks, graph.pair_masks, graph.isolated_rows, strict=True)
    for block, mask, isolated in masks:
        pairs = BlockView(block, inputs)
        coded = pairs.coded and score_mod is weigh is score is None
        logits = pairs.products(scale, coded) if score is None else pairs.rate(scale, score)
        logits = adjust(logits, score_mod, pairs.by_head(inputs.attn_bias))
        if weigh is not None:
            weights = weigh(pairs.by_graph(logits), mask, block).flatten(0, 1)
        else:
            if not coded:  # pairs that are not edges have no code of their own
                logits = _cut(pairs, logits, mask, score_mod)
            weights = _edge_softmax(pairs, logits, isolated)
        if return_weights:
            collected[0].append(pairs.by_graph(weights).flatten(1))
        if return_logits:
            collected[1].append(pairs.by_graph(logits).masked_fill(~mask, 0.0).flatten(1))
        del logits
        applied = weights if inputs.edge_gate is None else weights * pairs.by_head(inputs.edge_gate)
        y = narrow_product(applied, pairs.read(inputs.value))
        pooled = None
        if inputs.edge_value is not None:
            pooled = pairs.pool(applied, len(inputs.edge_value))
            pairs.add_basis(y, pooled, inputs.edge_value)
        if edge_value is not None:
            mixed.append(pairs.by_pair(applied).flatten(0, 2))
        pairs.write(y, out)
        if saved is not None:
            saved_weights = None if return_weights else weights
            saved.extend(x for x in (saved_weights, pooled) if x is not None)
    pair_outputs = (_join_blocks(blocks, dtype) for blocks in collected)
    if edge_value is not None and mixed:
        out = out + graph.pairs_to_receivers(torch.cat(mixed).unsqueeze(-1) * edge_value)
    return Attended(out.to(dtype), *pair_outputs)


def adjust(logits: Tensor, score_mod: ScoreMod, attn_bias: Optional[Tensor]) -> Tensor:
    """Apply a function to the logits, and add a bias."""
    logits = logits if score_mod is None else score_mod(logits)
    return logits if attn_bias is None else logits + attn_bias


def weighted_values(
    graph: CompleteGraphs, weights: Tensor, inputs: PairInputs, edge_value: Optional[Tensor] = None
) -> Tensor:
    """The value of each pair, multiplied by its weight ``[P, H]``: ``[P, H, V]``."""
    dtype = inputs.value.dtype
    inputs = inputs.converted()
    block_values = []
    for block in graph.blocks:
        value = block.rows(inputs.value).unsqueeze(1)
        if inputs.edge_value is not None:
            value = value + BlockView(block, inputs).terms(inputs.edge_value)
        if edge_value is not None:
            value = value + block.pairs(edge_value)
        block_values.append((block.pairs(weights).unsqueeze(-1) * value).flatten(0, 2))
    return join_pairs(block_values, inputs.value).to(dtype)


class BlockView:
    """View of the inputs of attention in one block, ``[H B, N receivers, N senders]``."""

    def __init__(self, block: Block, inputs: PairInputs) -> None:
        self.block = block
        self.inputs = inputs
        self._heads = inputs.query.size(1)
        self.coded = inputs.edges is not None and inputs.edges.dim() == 1
        self._edges = None if inputs.edges is None else block.pairs(inputs.edges)

    @property
    def edges(self) -> Tensor:
        """Codes ``[B, N, N]`` or features ``[B, N, N, M]``."""
        assert self._edges is not None
        return self._edges

    def by_graph(self, x: Tensor) -> Tensor:
        """``[H B, ...]`` as ``[H, B, ...]``."""
        return x.unflatten(0, (self._heads, self.block.graphs))

    def by_node(self, x: Tensor) -> Tensor:
        """``[H B, N, ...]`` as ``[H, B N, ...]``."""
        return self.by_graph(x).flatten(1, 2)

    def by_row(self, sums: Tensor) -> Tensor:
        """Sums over the basis ``[H, B N, M]`` as ``[B, N, H, M]``."""
        return sums.unflatten(1, (self.block.graphs, self.block.nodes)).permute(1, 2, 0, 3)

    def by_pair(self, x: Tensor) -> Tensor:
        """``[H B, N, N]`` as ``[B, N receivers, N senders, H]``."""
        return self.by_graph(x).permute(1, 2, 3, 0)

    def by_head(self, pairs: Optional[Tensor]) -> Any:
        """The block's part of pair rows ``[P, H]`` as ``[H B, N, N]``."""
        return None if pairs is None else self.block.pairs(pairs).permute(3, 0, 1, 2).flatten(0, 1)

    def read(self, x: Tensor) -> Tensor:
        """Copy the block's nodes of rows ``[R, H, C]`` to ``[H B, N, C]``."""
        heads = self.block.rows(x).permute(2, 0, 1, 3)
        return heads.clone(memory_format=torch.contiguous_format).flatten(0, 1)

    def write(self, heads: Tensor, rows: Tensor) -> None:
        """Copy ``[H B, N, C]`` into the block's nodes of rows ``[R, H, C]``."""
        self.block.rows(rows).copy_(self.by_graph(heads).permute(1, 2, 0, 3))

    def add_basis(self, total: Tensor, sums: Tensor, basis: Tensor) -> None:
        """Add sums ``[H, B N, M]`` of a basis ``[M, H, C]`` to a narrow product, in place."""
        if total.size(2) > _FEW_COLUMNS:
            add_product(self.by_node(total), sums, basis.transpose(0, 1))
            return
        by_graph = basis.permute(1, 2, 0).unsqueeze(1).expand(-1, self.block.graphs, -1, -1)
        of_nodes = sums.unflatten(1, (self.block.graphs, self.block.nodes)).flatten(0, 1)
        add_product(total.mT, by_graph.flatten(0, 1), of_nodes.mT)

    def products(self, scale: float, coded: bool) -> Tensor:
        """Inner products ``[H B, N, N]``; with ``coded`` pairs that are not edges are cut."""
        q = self.read(self.inputs.query).mul_(scale)
        k = self.read(self.inputs.key)
        if self.inputs.edge_key is None:
            return torch.bmm(q, k.mT)
        basis = self.inputs.edge_key.transpose(0, 1).mT
        if self.inputs.code_bias is None:
            scores = self.by_node(q) @ basis
        else:
            code_bias = self.inputs.code_bias.unsqueeze(1)
            scores = torch.baddbmm(code_bias, self.by_node(q), basis)
        if coded:
            scores[..., -1] = _NO_EDGE
        return add_product(self.contract(scores), q, k.mT)

    def rate(self, scale: float, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Logits of any score, ``[H B, N, N]``."""
        key = self.block.rows(self.inputs.key).unsqueeze(1)
        if self.inputs.edge_key is not None:
            key = key + self.terms(self.inputs.edge_key)
        query = self.block.rows(self.inputs.query).unsqueeze(2) * scale
        return score(query, key).permute(3, 0, 1, 2).flatten(0, 1)

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
            index = self.edges + first.view(self.block.graphs, self.block.nodes, 1)
            each = scores.flatten(1).index_select(1, index.flatten())
            return each.view(-1, self.block.nodes, self.block.nodes)
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


def narrow_product(x: Tensor, y: Tensor) -> Tensor:
    """Multiply ``[b, N, K]`` with ``[b, K, C]``, transposed if there are few columns."""
    return torch.bmm(x, y) if y.size(2) > _FEW_COLUMNS else torch.bmm(y.mT, x.mT).mT


def narrow_zeros(like: Tensor, batch: int, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Return zeros ``[batch, rows, columns]`` with the memory layout of :func:`narrow_product`."""
    if columns > _FEW_COLUMNS:
        return like.new_zeros(batch, rows, columns, dtype=dtype)
    return like.new_zeros(batch, columns, rows, dtype=dtype).mT


def add_product(total: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Add ``x y`` to a total, which may be of a wider type, in place."""
    if total.dtype != x.dtype or is_transformed(total):  # vmap has no rule for baddbmm_
        return total.add_(torch.bmm(x, y))
    return total.baddbmm_(x, y)


def _cut(pairs: BlockView, logits: Tensor, mask: Tensor, score_mod: ScoreMod) -> Tensor:
    """Make the logits of pairs that are not edges as low as possible, in place where possible."""
    if score_mod is not None:  # whose output autograd may read
        logits = logits.clone()
    pairs.by_graph(logits).add_(logits.new_zeros(mask.shape).masked_fill_(~mask, _NO_EDGE))
    return logits


def _join_blocks(blocks: list[Tensor], dtype: torch.dtype) -> Optional[Tensor]:
    """Join numbers of blocks ``[H, p]`` to pair rows ``[P, H]``; None if there are no blocks."""
    return torch.cat(blocks, dim=1).t().to(dtype) if blocks else None


def _edge_softmax(pairs: BlockView, logits: Tensor, isolated: Optional[Tensor]) -> Tensor:
    """Softmax of each row; 0 in ``isolated`` rows, which have no edges."""
    weights = _softmax(logits)
    if isolated is not None:
        if torch.is_grad_enabled():  # autograd reads the result of softmax again
            weights = weights.clone()
        pairs.by_graph(weights).masked_fill_(isolated.unsqueeze(-1), 0.0)
    return weights


def _softmax(logits: Tensor) -> Tensor:
    """Softmax over the senders."""
    if torch.compiler.is_compiling():  # of a size that is not known
        return torch.softmax(logits, dim=-1)
    missing = _NARROWEST - logits.size(-1)
    if missing <= 0 or logits.device.type != "cpu":
        return torch.softmax(logits, dim=-1)
    padded = F.pad(logits, (0, missing), value=-math.inf)
    return torch.softmax(padded, dim=-1)[..., : logits.size(-1)].contiguous()


def working_dtype(x: Tensor) -> torch.dtype:
    """The type in which attention is computed: on a GPU its kernels add up bfloat16 in float32."""
    return x.dtype if x.dtype is torch.bfloat16 and x.is_cuda else sum_dtype(x)


def sum_dtype(x: Tensor) -> torch.dtype:
    """Sums of half precision that no kernel widens by itself are in single precision."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
