"""Attention over complete graphs, as batched matrix products on padded blocks."""

import math
from collections.abc import Callable
from typing import NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F

from molattn.graph.complete import CodedEdges, CompleteGraphs, GraphBlock
from molattn.nn.attention_heads import HeadScore
from molattn.nn.functional import DenseRows, normalize
from molattn.nn.fused_attention import fused_attention
from molattn.nn.graph_inputs import Edges

# Divided by less, logits may overflow.
_COLDEST = 1e-6


class EdgeMaps(NamedTuple):
    """Linear maps ``[M, D]`` to ``[M, H, C]`` of edge features, added to keys and values."""

    key: Callable[[Tensor], Tensor]
    value: Optional[Callable[[Tensor], Tensor]]  # None = edges do not enter the values

    def basis(self, attr: Union[Tensor, CodedEdges]) -> tuple[Tensor, Tensor, Optional[Tensor]]:
        """Edges, and what each of their codes or features adds to keys and values."""
        if isinstance(attr, CodedEdges):
            edges, units = attr.codes, attr.padded_table
        else:
            edges, units = attr, torch.eye(attr.size(-1), dtype=attr.dtype, device=attr.device)
        return edges, self.key(units), None if self.value is None else self.value(units)


class Prior(NamedTuple):
    """Weights that do not depend on queries and keys, added to those of attention."""

    share: Union[float, Tensor]  # factor of the weights of attention
    weights: Tensor  # of edges [E] or pair rows [P]

    def mix(self, alpha: Tensor, weights: Tensor) -> Tensor:
        """The sum, for weights in a shape that broadcasts to that of ``alpha``."""
        return self.share * alpha + weights


class Attended(NamedTuple):
    """The result of attention, before heads are combined."""

    nodes: Tensor  # sum of the weighted values, [N, H, C]
    alpha: Optional[Tensor]  # weights before dropout, [E, H], if requested
    messages: Optional[Tensor]  # weighted value of each edge, [E, H, C], if requested


def dense_attention(
    edges: Edges,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    maps: Optional[EdgeMaps],
    score: HeadScore,
    temperature: float,
    dropout: float,
    *,
    prior: Optional[Prior] = None,
    return_alpha: bool = False,
    return_messages: bool = False,
) -> Attended:
    r"""Attend over all pairs of each graph; there must be a node.

    A softmax of inner products, without a prior, is one step of autograd
    (:func:`~molattn.nn.fused_attention.fused_attention`) unless weights or messages are requested;
    other cases are ordinary batched products. Scores that are not bilinear, and messages, need a
    tensor ``[pairs, H, C]``.

    Args:
        edges: Complete graphs and the features of their pair rows.
        query: Projected queries ``[R, H, C]``.
        key: Projected keys ``[R, H, C]``.
        value: Values ``[R, H, C]``.
        maps: Linear maps of edge features; None = none are added to keys and values.
        score: The score.
        temperature: See :func:`molattn.nn.functional.normalize`.
        dropout: Probability with which a weight is dropped; 0 outside training.
        prior: Further weights, added to those of attention.
        return_alpha: Return the weights.
        return_messages: Return the weighted value of each pair.
    """
    graph: CompleteGraphs = edges.index
    softmax = _COLDEST < temperature < math.inf
    requested = return_alpha or return_messages
    if score.rule.bilinear and softmax and prior is None and not requested:
        basis = (None,) * 3 if maps is None or edges.attr is None else maps.basis(edges.attr)
        scale = score.scale / temperature  # of the logits, before their maximum is subtracted
        out = fused_attention(graph, query, key, value, *basis, scale=scale, dropout=dropout)
        return Attended(out, None, None)
    attr = edge_query = edge_key = value_basis = None
    query = query * score.scale
    if maps is not None:
        attr = edges.features
        _, key_basis, value_basis = maps.basis(attr)
        if score.rule.bilinear:
            edge_query = torch.einsum("rhc,dhc->rhd", query, key_basis)
        else:
            edge_key = maps.key(attr)
    outs, pooled, alphas, messages = [], [], [], []
    for block, mask in zip(graph.blocks, graph.pair_masks, strict=True):
        q, k, v = (block.rows(t).transpose(1, 2) for t in (query, key, value))  # [B, H, N, C]
        if score.rule.bilinear:
            logits = q @ k.mT
            if attr is not None and edge_query is not None:
                logits = logits + (block.rows(edge_query) @ block.pairs(attr).mT).transpose(1, 2)
        else:
            logits = _pairwise(block, score, q, k, edge_key)
        alpha = normalize(logits, DenseRows(mask.unsqueeze(1)), temperature)
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
    out = graph.join_rows(outs, value)
    if value_basis is not None:
        out = out + torch.einsum("rhd,dhc->rhc", graph.join_rows(pooled, value), value_basis)
    return Attended(
        out,
        graph.join_pairs(alphas, value) if return_alpha else None,
        graph.join_pairs(messages, value) if return_messages else None,
    )


def _pairwise(
    block: GraphBlock, score: HeadScore, query: Tensor, key: Tensor, edge_key: Optional[Tensor]
) -> Tensor:
    """Logits ``[B, H, N, N]`` of a score that is not bilinear."""
    query, key = query.transpose(1, 2), key.transpose(1, 2)  # [B, N, H, C]
    pair_key = key.unsqueeze(1)
    if edge_key is not None:
        pair_key = pair_key + block.pairs(edge_key)
    return score(query.unsqueeze(2), pair_key).permute(0, 3, 1, 2)
