"""Attention over complete graphs, as batched matrix products on padded blocks."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F

from molattn.graph.complete import Block, CodedEdges, CompleteGraphs
from molattn.nn.attention_heads import HeadScore
from molattn.nn.functional import DenseRows, normalise
from molattn.nn.fused_attention import fused_attention

__all__ = ["Attended", "EdgeTerms", "PairRows", "Prior", "dense_attention"]


@dataclass(frozen=True)
class PairRows:
    """Logits ``[P, ...]`` of the pair rows of complete graphs, grouped by receiver.

    Args:
        graph: The layout.
    """

    graph: CompleteGraphs

    def valid(self, weights: Tensor) -> Tensor:
        """Zero where a pair is no edge."""
        return self._rows(weights, lambda rows, mask: rows.masked_fill(~mask, 0.0))

    def max(self, logits: Tensor) -> Tensor:
        """Maximum over the edges of the same receiver, ``[P, ...]``."""
        least = torch.finfo(logits.dtype).min
        return self._rows(
            logits,
            lambda rows, mask: (
                rows.masked_fill(~mask, least).amax(dim=2, keepdim=True).expand_as(rows)
            ),
        )

    def sum(self, weights: Tensor) -> Tensor:
        """Sum over the pairs of the same receiver, ``[P, ...]``."""
        return self._rows(weights, lambda rows, mask: rows.sum(dim=2, keepdim=True).expand_as(rows))

    def _rows(self, pairs: Tensor, f: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        parts = []
        for block, mask in zip(self.graph.blocks, self.graph.pair_masks, strict=True):
            rows = block.pairs(pairs)
            parts.append(f(rows, mask.view(*mask.shape, *[1] * (rows.dim() - 3))).flatten(0, 2))
        return torch.cat(parts) if parts else pairs


class EdgeTerms(NamedTuple):
    """What edges add to keys and values.

    Args:
        attr: Features of each pair row, ``[P, D]``, or codes of them.
        key: Their linear map into the projected keys, ``[M, D]`` to ``[M, H, C]``.
        value: Their linear map into the values, ``[M, D]`` to ``[M, H, C]``; None = they do not
            enter these.
    """

    attr: Union[Tensor, CodedEdges]
    key: Callable[[Tensor], Tensor]
    value: Optional[Callable[[Tensor], Tensor]]

    @property
    def features(self) -> Tensor:
        """Features of each pair row, ``[P, D]``."""
        return self.attr.dense() if isinstance(self.attr, CodedEdges) else self.attr

    def basis(self) -> tuple[Tensor, Tensor, Optional[Tensor]]:
        """Edges, and what each of their codes or features adds to keys and values."""
        if isinstance(self.attr, CodedEdges):
            edges, units = self.attr.codes, self.attr.padded_table
        else:
            edges = self.attr
            units = torch.eye(edges.size(-1), dtype=edges.dtype, device=edges.device)
        return edges, self.key(units), None if self.value is None else self.value(units)


class Prior(NamedTuple):
    """Weights that do not come from queries and keys, mixed into those that do.

    Args:
        share: Share of attention in the mixture.
        weights: What is added, ``[E]``, already multiplied by its own share.
    """

    share: Union[float, Tensor]
    weights: Tensor

    def mix(self, alpha: Tensor, weights: Tensor) -> Tensor:
        """The mixture, for weights brought into a shape that broadcasts to ``alpha``."""
        return self.share * alpha + weights


class Attended(NamedTuple):
    """The result of attention, before heads are combined.

    Args:
        nodes: Sum of the weighted values, ``[N, H, C]``.
        alpha: Weights before dropout, ``[E, H]``, if requested.
        messages: Weighted value of each edge, ``[E, H, C]``, if requested.
    """

    nodes: Tensor
    alpha: Optional[Tensor]
    messages: Optional[Tensor]


def dense_attention(
    graph: CompleteGraphs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: Optional[EdgeTerms],
    score: HeadScore,
    temperature: float,
    dropout: float,
    *,
    prior: Optional[Prior] = None,
    return_alpha: bool = False,
    return_messages: bool = False,
) -> Attended:
    r"""Attend over all pairs of each graph.

    A softmax of inner products, without a prior, is one step of autograd
    (:func:`~molattn.nn.fused_attention.fused_attention`) unless weights or messages are requested;
    other cases are ordinary batched products. Scores that are not bilinear, and messages, need a
    tensor ``[pairs, H, C]``.

    Args:
        graph: The layout.
        query: Projected queries ``[R, H, C]``.
        key: Projected keys ``[R, H, C]``.
        value: Values ``[R, H, C]``.
        edges: What pairs add to keys and values.
        score: The score.
        temperature: See :func:`molattn.nn.functional.normalise`.
        dropout: Probability with which a weight is dropped; 0 outside training.
        prior: Weights to mix in, ``[P]``.
        return_alpha: Return the weights.
        return_messages: Return the weighted value of each pair.
    """
    softmax = 0 < temperature < math.inf
    requested = return_alpha or return_messages
    if score.bilinear and softmax and prior is None and not requested:
        basis = (None, None, None) if edges is None else edges.basis()
        inputs = (query, key, value, *basis)
        dtype = query.dtype
        if dtype in (torch.float16, torch.bfloat16):  # weights are normalised in single precision
            inputs = tuple(
                t.float() if t is not None and t.is_floating_point() else t for t in inputs
            )
        with torch.autocast(query.device.type, enabled=False):
            out = fused_attention(graph, *inputs, scale=score.scale / temperature, dropout=dropout)  # pyright: ignore[reportArgumentType]
        return Attended(out.to(dtype), None, None)
    return _by_autograd(
        graph, query, key, value, edges, score, temperature, dropout, prior,
        return_alpha, return_messages,
    )  # fmt: skip


def _by_autograd(
    graph: CompleteGraphs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: Optional[EdgeTerms],
    score: HeadScore,
    temperature: float,
    dropout: float,
    prior: Optional[Prior],
    return_alpha: bool,
    return_messages: bool,
) -> Attended:
    """The same by batched products and ordinary autograd."""
    attr = edge_query = edge_key = value_basis = None
    query = query * score.scale
    if edges is not None:
        attr = edges.features
        _, key_basis, value_basis = edges._replace(attr=attr).basis()
        if score.bilinear:
            edge_query = torch.einsum("rhc,dhc->rhd", query, key_basis)
        else:
            edge_key = edges.key(attr)
    outs, pooled, alphas, messages = [], [], [], []
    for block, mask in zip(graph.blocks, graph.pair_masks, strict=True):
        q, k, v = (block.rows(t).transpose(1, 2) for t in (query, key, value))  # [B, H, N, C]
        if score.bilinear:
            logits = q @ k.mT
            if attr is not None and edge_query is not None:
                logits = logits + (block.rows(edge_query) @ block.pairs(attr).mT).transpose(1, 2)
        else:
            logits = _pairwise(block, score, q, k, edge_key)
        alpha = normalise(logits, DenseRows(mask.unsqueeze(1)), temperature)
        if prior is not None:
            alpha = prior.mix(alpha, block.pairs(prior.weights).unsqueeze(1))
        applied = F.dropout(alpha, dropout) if dropout > 0 else alpha
        outs.append((applied @ v).transpose(1, 2).flatten(0, 1))
        by_receiver = applied.transpose(1, 2)  # [B, N, H, S]
        if attr is not None and value_basis is not None:
            pooled.append((by_receiver @ block.pairs(attr)).flatten(0, 1))
        if return_alpha:
            alphas.append(alpha.permute(0, 2, 3, 1).flatten(0, 2))
        if return_messages:
            pair_value = block.rows(value).unsqueeze(1)  # [B, 1, S, H, C]
            if attr is not None and value_basis is not None:
                pair_value = pair_value + torch.einsum(
                    "brsd,dhc->brshc", block.pairs(attr), value_basis
                )
            weighted = by_receiver.transpose(2, 3).unsqueeze(-1) * pair_value
            messages.append(weighted.flatten(0, 2))
    if not outs:
        return Attended(
            torch.zeros_like(value),
            value.new_zeros((0, value.size(1))) if return_alpha else None,
            value.new_zeros((0, *value.shape[1:])) if return_messages else None,
        )
    out = torch.cat(outs)
    if value_basis is not None:
        out = out + torch.einsum("rhd,dhc->rhc", torch.cat(pooled), value_basis)
    return Attended(
        out,
        torch.cat(alphas) if return_alpha else None,
        torch.cat(messages) if return_messages else None,
    )


def _pairwise(
    block: Block, score: HeadScore, query: Tensor, key: Tensor, edge_key: Optional[Tensor]
) -> Tensor:
    """Logits ``[B, H, N, N]`` of a score that is not bilinear."""
    query, key = query.transpose(1, 2), key.transpose(1, 2)  # [B, N, H, C]
    pair_key = key.unsqueeze(1)
    if edge_key is not None:
        pair_key = pair_key + block.pairs(edge_key)
    return score(query.unsqueeze(2), pair_key).permute(0, 3, 1, 2)
