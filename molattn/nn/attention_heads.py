"""Attention heads: their scores, combinations and gates."""

import math
from collections.abc import Iterable
from typing import Optional

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot
from torch_geometric.utils import scatter

from molattn.graph.complete import CompleteGraphs
from molattn.nn.dense.linear import Linear
from molattn.nn.functional import SCORES
from molattn.nn.graph_inputs import Edges
from molattn.nn.resettable import Resettable
from molattn.utils.registry import Registry

_CHUNK = 16  # features of which tensors of all pairs are made at once


class HeadScore(nn.Module):
    """A score with parameters of its own for each head; see :func:`molattn.nn.functional.score`."""

    def __init__(self, kind: str, heads: int, channels: int) -> None:
        super().__init__()
        self.kind = kind
        self.rule = rule = SCORES[kind]
        self.scale = 1 / math.sqrt(channels) if rule.scaled else 1.0
        columns = rule.weight * channels
        self.weight = nn.Parameter(torch.empty(heads, channels, columns)) if columns else None
        self.vector = nn.Parameter(torch.empty(heads, channels)) if rule.vector else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters (Glorot)."""
        glorot(self.weight)
        glorot(self.vector)

    def query(self, query: Tensor) -> Tensor:
        """Project queries ``[N, H, C]``; :attr:`scale` is left to the caller."""
        if self.rule.query is None:
            return query
        return self.rule.query(query.transpose(0, 1), self.weight).transpose(0, 1)

    def key(self, key: Tensor) -> Tensor:
        """Project keys, or one term of their sum, ``[N, H, C]``."""
        if self.rule.key is None:
            return key
        return self.rule.key(key.transpose(0, 1), self.weight).transpose(0, 1)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Score pairs of projected queries and keys, ``[..., H, C]`` each -> ``[..., H]``."""
        if self.rule.pair is None:
            return (query * key).sum(dim=-1)
        return self.rule.pair(query, key, self.vector)

    def extra_repr(self) -> str:
        """Name of the score."""
        return self.kind


class HeadCombine(Resettable):
    r"""Base of the ways to combine heads ``[..., H, V]`` to ``[..., out_channels]``.

    ============ ========================================= ==============
    ``linear``   :math:`W_o\, \mathrm{concat}_h\, y^h`     ``V = out / H``
    ``concat``   :math:`\mathrm{concat}_h\, y^h`           ``V = out / H``
    ``mean``     :math:`\frac 1 H \sum_h y^h`              ``V = out``
    ``max``      :math:`\max_h y^h`, elementwise           ``V = out``
    ``weighted`` :math:`\sum_h w_h y^h`, ``w`` learned     ``V = out``
    ============ ========================================= ==============

    Subclasses registered in ``COMBINES`` are further names. ``out_channels`` must
    be divisible by heads that share it.
    """

    splits_width: bool = False
    """Whether ``V = out_channels / H``; if False, ``V = out_channels``."""

    def __init__(self, heads: int, out_channels: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_channels = split_width(heads, out_channels) if self.splits_width else out_channels

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, V]`` to ``[..., out_channels]``."""
        raise NotImplementedError

    def by_head(self, weight: Tensor) -> Optional[Tensor]:
        """Split a linear map of combined heads ``[D, out_channels]`` by head, ``[D, H, V]``.

        None if the combination is not linear, or does not say.
        """
        return None


COMBINES: Registry[type[HeadCombine]] = Registry("combine")
"""Every way to combine heads, by its name."""


@COMBINES.register("linear")
class LinearHeads(HeadCombine):
    """A learned linear map of the concatenated heads."""

    splits_width = True

    def __init__(self, heads: int, out_channels: int) -> None:
        super().__init__(heads, out_channels)
        self.lin = Linear(out_channels, out_channels, bias=False)

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, V]`` to ``[..., out_channels]``."""
        return self.lin(heads.flatten(-2))


@COMBINES.register("concat")
class ConcatHeads(HeadCombine):
    """The concatenated heads."""

    splits_width = True

    def by_head(self, weight: Tensor) -> Optional[Tensor]:
        """Split a linear map of the combined heads by head."""
        return weight.unflatten(1, (self.heads, self.head_channels))

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, V]`` to ``[..., out_channels]``."""
        return heads.flatten(-2)


@COMBINES.register("mean")
class MeanHeads(HeadCombine):
    """The mean of the heads."""

    def by_head(self, weight: Tensor) -> Optional[Tensor]:
        """Split a linear map of the combined heads by head."""
        return (weight / self.heads).unsqueeze(1).expand(-1, self.heads, -1)

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, V]`` to ``[..., out_channels]``."""
        return heads.mean(dim=-2)


@COMBINES.register("max")
class MaxHeads(HeadCombine):
    """The elementwise maximum of the heads."""

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, V]`` to ``[..., out_channels]``."""
        return heads.amax(dim=-2)


@COMBINES.register("weighted")
class WeightedHeads(HeadCombine):
    """A sum of the heads with learned weights, initially their mean."""

    def __init__(self, heads: int, out_channels: int) -> None:
        super().__init__(heads, out_channels)
        self.weight = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all weights to 1 / H, so that heads are averaged."""
        nn.init.constant_(self.weight, 1 / self.heads)

    def by_head(self, weight: Tensor) -> Optional[Tensor]:
        """Split a linear map of the combined heads by head."""
        return weight.unsqueeze(1) * self.weight.unsqueeze(-1)

    def forward(self, heads: Tensor) -> Tensor:
        """Combine ``[..., H, V]`` to ``[..., out_channels]``."""
        return (heads * self.weight.unsqueeze(-1)).sum(dim=-2)


class HeadGate(Resettable):
    r"""A number in (0, 1) for each receiver and head (Zhang et al. 2018, GaAN).

    .. math::
        g_i = \sigma\big(W_g [\, x_i \,\Vert\, \max_{j \in N(i)} (W_m z_j + b_m) \,\Vert\,
        \mathrm{mean}_{j \in N(i)} z_j \,] + b_g\big)

    Without senders the maximum and the mean are 0. :math:`W_m z` is ``channels`` wide; with
    ``root=False``, as in the authors' code, the gate does not depend on :math:`x_i`.
    """

    def __init__(
        self, in_channels: tuple[int, int], heads: int, channels: int, *, root: bool = True
    ) -> None:
        super().__init__()
        check_widths(1, gate_channels=channels)
        self.root = root
        self.lin_pool = Linear(in_channels[0], channels)
        is_sized = in_channels[0] >= 0 and in_channels[1] >= 0
        width = in_channels[0] + channels + (in_channels[1] if root else 0)
        self.lin_gate = Linear(width if is_sized else -1, heads)

    def forward(self, x_src: Tensor, x_dst: Tensor, edges: Edges) -> Tensor:
        """Gate senders ``[N_src, F]`` and receivers ``[N_dst, F']``: ``[N_dst, H]``."""
        projected = self.lin_pool(x_src)
        if isinstance(edges, CompleteGraphs) and not edges.is_listed:
            most = neighbor_max(edges, projected)
            mean = neighbor_mean(edges, x_src)
        else:
            sender = edges.edge_index[0]
            receiver = edges.edge_index[1]
            size = edges.rows_to_nodes(x_dst).size(0)
            pooled = (
                scatter(edges.rows_to_nodes(x)[sender], receiver, 0, size, reduce)
                for x, reduce in ((projected, "max"), (x_src, "mean"))
            )
            most, mean = map(edges.nodes_to_rows, pooled)
        gate_inputs = [x_dst, most, mean] if self.root else [most, mean]
        return self.lin_gate(torch.cat(gate_inputs, dim=-1)).sigmoid()


def neighbor_mean(graph: CompleteGraphs, rows: Tensor) -> Tensor:
    """Mean over each row's neighbors, ``[num_rows, F]``; 0 where there are none."""
    block_means = []
    for block, mask in zip(graph.blocks, graph.pair_masks, strict=True):
        weights = mask.to(rows.dtype)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp_min(1)
        block_means.append((weights @ block.rows(rows)).flatten(0, 1))
    return graph.join_rows(block_means, rows)


def neighbor_max(graph: CompleteGraphs, rows: Tensor) -> Tensor:
    """Maximum over each row's neighbors, ``[num_rows, F]``; 0 where there are none."""
    lowest = torch.finfo(rows.dtype).min
    block_maxima = []
    for block, mask in zip(graph.blocks, graph.pair_masks, strict=True):
        x = block.rows(rows)
        if graph.self_loops and graph.kept is None:  # all nodes of a graph have the same neighbors
            node = block.rows(graph.row_mask).unsqueeze(-1)
            most = x.masked_fill(~node, lowest).amax(dim=1, keepdim=True)
            most = most.masked_fill(~node.any(dim=1, keepdim=True), 0.0).expand_as(x)
        else:
            chunk_maxima = [
                _masked_max(chunk.unsqueeze(1), mask) for chunk in x.split(_CHUNK, dim=-1)
            ]
            most = torch.cat(chunk_maxima, dim=-1)
        block_maxima.append(most.flatten(0, 1))
    return graph.join_rows(block_maxima, rows)


def _masked_max(x: Tensor, mask: Tensor) -> Tensor:
    """Maximum of senders ``[B, 1, N, F]``, ``[B, N, F]``.

    For its gradient, as the mean of those that have it: of that autograd keeps one byte for each
    pair and feature, of ``amax`` four.
    """
    mask = mask.unsqueeze(-1)
    with torch.no_grad():
        neighbors = x.masked_fill(~mask, torch.finfo(x.dtype).min)
        most = neighbors.amax(dim=2, keepdim=True)
    if not torch.is_grad_enabled():
        return most.squeeze(2).masked_fill(~mask.any(dim=2), 0.0)
    highest = (neighbors == most) & mask
    count = highest.sum(dim=2, dtype=x.dtype)
    return torch.where(highest, x, 0.0).sum(dim=2) / count.clamp_min(1)


def split_width(heads: int, out_channels: int) -> int:
    """Width of a head where heads share the output; ValueError unless they divide it."""
    if heads < 1 or out_channels % heads:
        raise ValueError(f"heads must divide out_channels: got {heads=}, {out_channels=}")
    return out_channels // heads


def check_choice(option: str, value: object, choices: Iterable[str]) -> None:
    """Raise ValueError for an option that is not among the choices."""
    choices = tuple(choices)
    if value not in choices:
        raise ValueError(f"{option}: got {value!r}, expected one of {', '.join(choices)}")


def check_widths(least: int, **options: Optional[int]) -> None:
    """Raise ValueError for the first option that is too small; -1 = inferred in the first call."""
    for name, value in options.items():
        if value is not None and value < least:
            raise ValueError(f"{name}: got {value}, expected at least {least}")
