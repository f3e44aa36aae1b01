r"""Attention as pure functions: score, normalise, mix.

Every layer of molattn is a reading of the three steps below, for a query :math:`q_r` of a
receiver and the keys :math:`k_s` and values :math:`v_s` of its senders:

.. math::
    a_{rs} = \mathrm{score}(q_r, k_s), \qquad
    b_{r\cdot} = \mathrm{normalise}(a_{r\cdot} / T), \qquad
    y_r = \sum_s b_{rs} v_s.

The steps work on two forms of the same graph: scattered edges (a list of pairs with the index of
their receiver, as in PyG) and dense rows (all senders of a receiver along the last dimension,
with a mask). A mask is a choice of edges, so both forms give the same numbers.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import scatter

__all__ = [
    "SCORES",
    "DenseRows",
    "ScatteredEdges",
    "attention",
    "is_bilinear",
    "normalise",
    "pair_score",
    "project_key",
    "project_query",
    "score",
]


class _ScoreRule(NamedTuple):
    bilinear: bool  # <q', k'> rather than w . act(q' + k')
    weight: bool
    vector: bool


_RULES: dict[str, _ScoreRule] = {
    "dot": _ScoreRule(bilinear=True, weight=False, vector=False),
    "scaled_dot": _ScoreRule(bilinear=True, weight=False, vector=False),
    "general": _ScoreRule(bilinear=True, weight=True, vector=False),
    "additive": _ScoreRule(bilinear=False, weight=True, vector=True),
    "gatv2": _ScoreRule(bilinear=False, weight=False, vector=True),
}
SCORES = tuple(_RULES)
_GATV2_SLOPE = 0.2


def _rule(kind: str) -> _ScoreRule:
    if kind not in _RULES:
        raise ValueError(f"score: got {kind!r}, expected one of {', '.join(SCORES)}")
    return _RULES[kind]


def is_bilinear(kind: str) -> bool:
    """Whether a score is an inner product of a projected query and a projected key.

    Raises:
        ValueError: ``kind`` is not one of ``SCORES``.
    """
    return _rule(kind).bilinear


def score_parameters(kind: str) -> tuple[bool, bool]:
    """Whether a score needs a ``weight`` and a ``vector``.

    Raises:
        ValueError: ``kind`` is not one of ``SCORES``.
    """
    return _rule(kind).weight, _rule(kind).vector


def project_query(query: Tensor, kind: str = "scaled_dot", weight: Tensor | None = None) -> Tensor:
    r"""The part of a score that depends on the query alone.

    :math:`q / \sqrt C` for ``scaled_dot``, :math:`W^\top q` for ``general``, :math:`W_q q` for
    ``additive`` with :math:`W = [W_q, W_k]`, and ``q`` otherwise.

    Args:
        query: ``[..., L, C]``.
        kind: One of ``SCORES``.
        weight: ``[..., C, C]`` for ``general``, ``[..., C, 2 C]`` for ``additive``.

    Returns:
        The projected query, ``[..., L, C]``.
    """
    if kind == "scaled_dot":
        return query / math.sqrt(query.size(-1))
    if weight is not None and kind == "general":
        return query @ weight
    if weight is not None and kind == "additive":
        return query @ weight[..., : weight.size(-1) // 2].mT
    return query


def project_key(key: Tensor, kind: str = "scaled_dot", weight: Tensor | None = None) -> Tensor:
    r"""The part of a score that depends on the key alone.

    :math:`W_k k` for ``additive`` with :math:`W = [W_q, W_k]`, and ``k`` otherwise. It is linear,
    so it may be applied to each term of a sum.

    Args:
        key: ``[..., S, C]``.
        kind: One of ``SCORES``.
        weight: ``[..., C, 2 C]`` for ``additive``, else not used.

    Returns:
        The projected key, ``[..., S, C]``.
    """
    if weight is not None and kind == "additive":
        return key @ weight[..., weight.size(-1) // 2 :].mT
    return key


def pair_score(query: Tensor, key: Tensor, kind: str, vector: Tensor | None = None) -> Tensor:
    """Rate pairs of a projected query and a projected key.

    Args:
        query: Projected queries ``[..., C]``, broadcast against ``key``.
        key: Projected keys ``[..., C]``.
        kind: One of ``SCORES``.
        vector: ``[..., C]`` for ``additive`` and ``gatv2``.

    Returns:
        Logits ``[...]``.
    """
    if vector is None:
        return (query * key).sum(dim=-1)
    total = query + key
    total = total.tanh() if kind == "additive" else F.leaky_relu(total, _GATV2_SLOPE)
    return (total * vector).sum(dim=-1)


def _check_score(kind: str, channels: int, weight: Tensor | None, vector: Tensor | None) -> None:
    rule = _rule(kind)
    columns = channels * (2 if kind == "additive" else 1)
    for name, given, wanted, tail in (
        ("weight", weight, rule.weight, (channels, columns)),
        ("vector", vector, rule.vector, (channels,)),
    ):
        if not wanted:
            if given is not None:
                raise ValueError(f"score {kind!r} takes no {name}, got one of {tuple(given.shape)}")
        elif given is None:
            raise ValueError(f"score {kind!r} needs {name} [..., {', '.join(map(str, tail))}]")
        elif tuple(given.shape[-len(tail) :]) != tail:
            raise ValueError(
                f"{name} of score {kind!r}: got shape {tuple(given.shape)}, "
                f"expected [..., {', '.join(map(str, tail))}]"
            )


def score(
    query: Tensor,
    key: Tensor,
    kind: str = "scaled_dot",
    *,
    weight: Tensor | None = None,
    vector: Tensor | None = None,
) -> Tensor:
    r"""Rate every key for every query.

    ============== =================================== ==================================
    ``kind``       :math:`a`                           source
    ============== =================================== ==================================
    ``dot``        :math:`q \cdot k`                   Luong et al. 2015
    ``scaled_dot`` :math:`q \cdot k / \sqrt C`         Vaswani et al. 2017
    ``general``    :math:`q^\top W k`                  Luong et al. 2015
    ``additive``   :math:`w^\top \tanh(W [q, k])`      Bahdanau et al. 2015
    ``gatv2``      :math:`w^\top \mathrm{LeakyReLU}    Brody et al. 2022, slope 0.2
                   (q + k)`
    ============== =================================== ==================================

    Args:
        query: ``[..., L, C]``.
        key: ``[..., S, C]``.
        kind: One of ``SCORES``.
        weight: :math:`W`, ``[..., C, C]`` for ``general``, ``[..., C, 2 C]`` for ``additive``.
        vector: :math:`w`, ``[..., C]`` for ``additive`` and ``gatv2``.

    Returns:
        Logits ``[..., L, S]``.

    Raises:
        ValueError: Unknown ``kind``; widths that differ; a parameter that is missing, unused or of
            the wrong shape.

    Example:
        >>> q = k = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> score(q, k, "dot")
        tensor([[1., 0.],
                [0., 1.]])
    """
    if query.size(-1) != key.size(-1):
        raise ValueError(
            f"query and key must have one width C: got query {tuple(query.shape)}, "
            f"key {tuple(key.shape)}"
        )
    _check_score(kind, query.size(-1), weight, vector)
    query, key = project_query(query, kind, weight), project_key(key, kind, weight)
    if is_bilinear(kind):
        return query @ key.mT
    if vector is not None:
        vector = vector[..., None, None, :]
    return pair_score(query.unsqueeze(-2), key.unsqueeze(-3), kind, vector)


class Receivers(Protocol):
    """How logits are grouped by receiver: the one thing in which the two forms differ."""

    def valid(self, weights: Tensor) -> Tensor:
        """Set the weights of pairs that are no edges to zero."""
        ...

    def max(self, logits: Tensor) -> Tensor:
        """The maximum over each receiver's edges, in a shape that broadcasts to the logits."""
        ...

    def sum(self, weights: Tensor) -> Tensor:
        """The sum over each receiver's edges, in a shape that broadcasts to the logits."""
        ...


@dataclass(frozen=True)
class ScatteredEdges:
    """Logits ``[E, ...]`` of a list of edges.

    Args:
        index: Receiver of each edge, ``[E]``.
        num_receivers: Number of receivers.
    """

    index: Tensor
    num_receivers: int | None

    def valid(self, weights: Tensor) -> Tensor:
        """Every listed edge is one."""
        return weights

    def max(self, logits: Tensor) -> Tensor:
        """Maximum over the edges of the same receiver, ``[E, ...]``."""
        most = scatter(logits, self.index, dim=0, dim_size=self.num_receivers, reduce="max")
        return most.index_select(0, self.index)

    def sum(self, weights: Tensor) -> Tensor:
        """Sum over the edges of the same receiver, ``[E, ...]``."""
        total = scatter(weights, self.index, dim=0, dim_size=self.num_receivers, reduce="sum")
        return total.index_select(0, self.index)


@dataclass(frozen=True)
class DenseRows:
    """Logits ``[..., L, S]`` of all pairs, senders along the last dimension.

    Args:
        mask: True where the pair is an edge, broadcastable to the logits; None: everywhere.
    """

    mask: Tensor | None

    def valid(self, weights: Tensor) -> Tensor:
        """Zero outside the mask."""
        return weights if self.mask is None else weights.masked_fill(~self.mask, 0.0)

    def max(self, logits: Tensor) -> Tensor:
        """Row maximum inside the mask, ``[..., L, 1]``."""
        if logits.size(-1) == 0:
            return logits.new_zeros((*logits.shape[:-1], 1))
        if self.mask is not None:
            logits = logits.masked_fill(~self.mask, torch.finfo(logits.dtype).min)
        return logits.amax(dim=-1, keepdim=True)

    def sum(self, weights: Tensor) -> Tensor:
        """Row sum, ``[..., L, 1]``."""
        return weights.sum(dim=-1, keepdim=True)


def normalise(logits: Tensor, receivers: Receivers, temperature: float = 1.0) -> Tensor:
    r"""Turn logits into weights that sum to 1 over the edges of each receiver.

    :math:`b = \mathrm{softmax}(a / T)`; for :math:`T = \infty` the mean over the edges, for
    :math:`T = 0` the limit :math:`T \to 0`: 1 at the maximum, and ties share equally (picking one
    of them would break permutation equivariance). A receiver without edges has no weights. Half
    precision is normalised in float32.

    Args:
        logits: ``[E, ...]`` for scattered edges, ``[..., L, S]`` for dense rows.
        receivers: Which logits belong to the same receiver.
        temperature: :math:`T \ge 0`.

    Returns:
        Weights of the shape and type of the logits; zero where there is no edge.

    Raises:
        ValueError: The temperature is negative or NaN.
    """
    check_temperature(temperature)
    dtype = logits.dtype
    if dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature == math.inf:
        weights = torch.ones_like(logits)
    elif temperature == 0:
        weights = (logits == receivers.max(logits)).to(logits.dtype)
    else:
        shifted = logits - receivers.max(logits.detach())
        # Pairs that are no edges may lie above the maximum: cut them before exp can overflow.
        weights = (shifted.clamp(max=0.0) / temperature).exp()
    weights = receivers.valid(weights)
    return (weights / receivers.sum(weights).clamp_min(torch.finfo(weights.dtype).tiny)).to(dtype)


def check_temperature(temperature: float) -> None:
    """Raise ValueError unless the temperature is a number from 0 to infinity."""
    if not isinstance(temperature, (int, float)) or not temperature >= 0:
        raise ValueError(f"temperature: got {temperature!r}, expected a number from 0 to inf")


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    score: str = "scaled_dot",
    temperature: float = 1.0,
    weight: Tensor | None = None,
    vector: Tensor | None = None,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Attention of dense tensors: :math:`y = \mathrm{normalise}(\mathrm{score}(q, k) / T)\, v`.

    Args:
        query: ``[..., L, C]``.
        key: ``[..., S, C]``.
        value: ``[..., S, V]``.
        mask: Boolean, broadcastable to ``[..., L, S]``; True where the query may attend.
        score: One of ``SCORES``, see :func:`score`.
        temperature: 1 = softmax, 0 = hard (ties share equally), ``inf`` = uniform.
        weight: Parameter of ``general`` and ``additive``.
        vector: Parameter of ``additive`` and ``gatv2``.
        return_weights: Also return the weights ``[..., L, S]``.

    Returns:
        ``[..., L, V]``, 0 for a query that may attend to nothing; with ``return_weights`` a pair
        of that and the weights.

    Raises:
        ValueError: Shapes that do not fit, an unknown score or a negative temperature.
        TypeError: The mask is not boolean, or the types of the others are not one floating type.

    Example:
        >>> x = torch.eye(2)
        >>> attention(x, x, x, temperature=0.0)
        tensor([[1., 0.],
                [0., 1.]])
    """
    if key.size(-2) != value.size(-2):
        raise ValueError(
            f"key and value must have one length S: got key {tuple(key.shape)}, "
            f"value {tuple(value.shape)}"
        )
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask: got {mask.dtype}, expected torch.bool (True = may attend)")
    kinds = {name: t.dtype for name, t in (("query", query), ("key", key), ("value", value))}
    if len(set(kinds.values())) > 1 or not query.is_floating_point():
        shown = ", ".join(f"{name} {dtype}" for name, dtype in kinds.items())
        raise TypeError(f"got {shown}, expected one floating-point type")
    logits = _score(query, key, score, weight=weight, vector=vector)
    if mask is not None and not _broadcasts(mask, logits):
        raise ValueError(
            f"mask: got shape {tuple(mask.shape)}, expected one that broadcasts to "
            f"{tuple(logits.shape)}"
        )
    weights = normalise(logits, DenseRows(mask), temperature)
    out = weights @ value
    return (out, weights) if return_weights else out


def _broadcasts(mask: Tensor, logits: Tensor) -> bool:
    pairs = zip(reversed(mask.shape), reversed(logits.shape), strict=False)
    return mask.dim() <= logits.dim() and all(size in (1, wanted) for size, wanted in pairs)


_score = score  # `attention` has a keyword of that name
