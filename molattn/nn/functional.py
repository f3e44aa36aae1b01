"""Attention as pure functions: score, normalize, mix.

The steps work on two forms of the same graph: scattered edges (a list of pairs with the index of
their receiver, as in PyG) and dense rows (all senders of a receiver along the last dimension,
with a mask). The mask selects the edges, so both give the same result.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import scatter, softmax

from molattn.utils.registry import Registry


@dataclass(frozen=True)
class Score:
    r"""A way to score a key :math:`k` for a query :math:`q`.

    .. math::
        a = f\big(g_q(q, W),\, g_k(k, W),\, w\big)

    with an optional matrix :math:`W` and an optional vector :math:`w` to learn. Layers have one of
    each per head. To pickle a model, use picklable functions.

    Args:
        pair: :math:`f`: logits ``[...]`` of projected queries and keys ``[..., C]``, which
            broadcast against each other, and ``w`` ``[..., C]`` (None without ``vector``).
            None = their inner product, which needs no tensor of all pairs and channels, and which
            on :class:`~molattn.graph.CompleteGraphs` is one step of autograd.
        query: :math:`g_q`: projected queries ``[..., L, C]`` of queries ``[..., L, C]`` and
            ``W`` ``[..., C, weight * C]`` (None where ``weight`` is 0). None = the query itself.
        key: :math:`g_k`, likewise. It must be linear in the key, because edge features enter keys
            as a term of a sum. None = the key itself.
        scaled: Whether the projected query is divided by :math:`\sqrt C`.
        weight: Columns of ``W``, as a multiple of ``C``; 0 = there is no ``W``.
        vector: Whether there is a ``w``.

    Example:
        >>> distance = Score(lambda query, key, _: -(query - key).square().sum(dim=-1))
        >>> SCORES.register("distance")(distance)  # doctest: +SKIP
    """

    pair: Optional[Callable[[Tensor, Tensor, Optional[Tensor]], Tensor]] = None
    query: Optional[Callable[[Tensor, Optional[Tensor]], Tensor]] = None
    key: Optional[Callable[[Tensor, Optional[Tensor]], Tensor]] = None
    scaled: bool = False
    weight: int = 0
    vector: bool = False


def _general_query(query: Tensor, weight: Any) -> Tensor:
    return query @ weight


def _additive_query(query: Tensor, weight: Any) -> Tensor:
    return query @ weight[..., : weight.size(-1) // 2].mT


def _additive_key(key: Tensor, weight: Any) -> Tensor:
    return key @ weight[..., weight.size(-1) // 2 :].mT


def _additive_pair(query: Tensor, key: Tensor, vector: Any) -> Tensor:
    return ((query + key).tanh() * vector).sum(dim=-1)


def _gatv2_pair(query: Tensor, key: Tensor, vector: Any) -> Tensor:
    return (F.leaky_relu(query + key, 0.2) * vector).sum(dim=-1)


SCORES: Registry[Score] = Registry("score")
"""Every score by its name; :func:`score` has a table of the built-in ones."""

SCORES.register("dot")(Score())
SCORES.register("scaled_dot")(Score(scaled=True))
SCORES.register("general")(Score(query=_general_query, weight=1))
SCORES.register("additive")(
    Score(_additive_pair, query=_additive_query, key=_additive_key, weight=2, vector=True)
)
SCORES.register("gatv2")(Score(_gatv2_pair, vector=True))


def score(
    query: Tensor,
    key: Tensor,
    kind: str = "scaled_dot",
    *,
    weight: Tensor | None = None,
    vector: Tensor | None = None,
) -> Tensor:
    r"""Score every key for every query.

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
        kind: A name of ``SCORES``: one of the above, or one that was registered.
        weight: :math:`W`, ``[..., C, C]`` for ``general``, ``[..., C, 2 C]`` for ``additive``.
        vector: :math:`w`, ``[..., C]`` for ``additive`` and ``gatv2``.

    Returns:
        Logits ``[..., L, S]``.
    """
    rule = SCORES[kind]
    parameters = {"weight": weight is not None, "vector": vector is not None}
    if parameters != (needed := {"weight": rule.weight > 0, "vector": rule.vector}):
        raise ValueError(f"score {kind!r}: got parameters {parameters}, expected {needed}")
    width = query.size(-1)
    if rule.query is not None:
        query = rule.query(query, weight)
    if rule.scaled:
        query = query / math.sqrt(width)
    if rule.key is not None:
        key = rule.key(key, weight)
    if rule.pair is None:
        return query @ key.mT
    if vector is not None:
        vector = vector[..., None, None, :]
    return rule.pair(query.unsqueeze(-2), key.unsqueeze(-3), vector)


@dataclass(frozen=True)
class ScatteredEdges:
    """Logits ``[E, ...]`` of a list of edges."""

    index: Tensor
    """Receiver of each edge, ``[E]``."""
    num_receivers: int

    def per_head(self, x: Tensor) -> Tensor:
        """Numbers of edges ``[E]``, to broadcast with logits whose heads are last, ``[E, 1]``."""
        return x.unsqueeze(-1)

    def masked(self, weights: Tensor) -> Tensor:
        """Return the weights: every listed pair is an edge."""
        return weights

    def max(self, logits: Tensor) -> Tensor:
        """Maximum over each receiver's edges, ``[E, ...]``."""
        maximum = scatter(logits, self.index, dim=0, dim_size=self.num_receivers, reduce="max")
        return maximum.index_select(0, self.index)

    def sum(self, weights: Tensor) -> Tensor:
        """Sum over each receiver's edges, ``[E, ...]``."""
        total = scatter(weights, self.index, dim=0, dim_size=self.num_receivers, reduce="sum")
        return total.index_select(0, self.index)

    def softmax(self, logits: Tensor) -> Tensor:
        """Softmax over the edges of the same receiver, ``[E, ...]``."""
        return softmax(logits, self.index, num_nodes=self.num_receivers)


@dataclass(frozen=True)
class DenseRows:
    """Logits ``[..., L, S]`` of all pairs, senders along the last dimension."""

    mask: Tensor | None
    """True where the pair is an edge, broadcastable to the logits; None = all pairs are."""

    def per_head(self, x: Tensor) -> Tensor:
        """Numbers of pairs ``[..., L, S]``, as they are: heads of logits are first."""
        return x

    def masked(self, weights: Tensor) -> Tensor:
        """Return weights that are zero outside the mask."""
        return weights if self.mask is None else weights.masked_fill(~self.mask, 0.0)

    def max(self, logits: Tensor) -> Tensor:
        """Row maximum inside the mask, ``[..., L, 1]``."""
        if logits.size(-1) == 0:
            return logits.new_zeros((*logits.shape[:-1], 1))
        return self._cut(logits).amax(dim=-1, keepdim=True)

    def sum(self, weights: Tensor) -> Tensor:
        """Row sum, ``[..., L, 1]``."""
        return weights.sum(dim=-1, keepdim=True)

    def softmax(self, logits: Tensor) -> Tensor:
        """Row softmax inside the mask; a row without edges is 0."""
        return self.masked(self._cut(logits).softmax(dim=-1))

    def _cut(self, logits: Tensor) -> Tensor:
        """Logits that are as low as possible, but finite, outside the mask."""
        lowest = torch.finfo(logits.dtype).min
        return logits if self.mask is None else logits.masked_fill(~self.mask, lowest)


Neighborhoods = Union[ScatteredEdges, DenseRows]
"""Which logits belong to the same receiver."""


def normalize(logits: Tensor, receivers: Neighborhoods, temperature: float = 1.0) -> Tensor:
    r"""Turn logits into weights that sum to 1 over the edges of each receiver.

    :math:`b = \mathrm{softmax}(a / T)`; for :math:`T = \infty` the mean over the edges, for
    :math:`T = 0` the limit :math:`T \to 0`: 1 at the maximum, and ties share equally (picking one
    of them would break permutation equivariance), as do logits that differ from the maximum by
    rounding. A receiver without edges has no weights. Half precision is normalized in float32.

    Args:
        logits: ``[E, ...]`` for scattered edges, ``[..., L, S]`` for dense rows.
        receivers: Which logits belong to the same receiver.
        temperature: :math:`T \ge 0`.
    """
    check_temperature(temperature)
    dtype = logits.dtype
    if dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature == 1:
        return receivers.softmax(logits).to(dtype)
    if torch.finfo(logits.dtype).tiny <= temperature < math.inf:
        # The difference first, or logits might overflow.
        return receivers.softmax((logits - receivers.max(logits.detach())) / temperature).to(dtype)
    weights = torch.ones_like(logits)
    if temperature != math.inf:
        most = receivers.max(logits)
        # The same inner product may be summed in another order.
        rounding = max(32 * torch.finfo(logits.dtype).eps, torch.finfo(dtype).eps)
        is_close = most - logits < rounding * most.abs()
        weights = (is_close | (logits == most)).to(logits.dtype)
    weights = receivers.masked(weights)
    return (weights / receivers.sum(weights).clamp_min(1)).to(dtype)


def check_temperature(temperature: float) -> None:
    """Raise ValueError unless the temperature is a number from 0 to infinity."""
    if not temperature >= 0:
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
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Attention of dense tensors: :math:`y = \mathrm{normalize}(\mathrm{score}(q, k) / T)\, v`.

    Args:
        query: ``[..., L, C]``.
        key: ``[..., S, C]``.
        value: ``[..., S, V]``.
        mask: Boolean, broadcastable to ``[..., L, S]``; True where the query may attend. Values
            must be finite elsewhere too.
        score: A name of ``SCORES``; see :func:`score`.
        temperature: 1 = softmax, 0 = hard (ties share equally), ``inf`` = uniform.
        weight: Parameter of ``general`` and ``additive``.
        vector: Parameter of ``additive`` and ``gatv2``.
        dropout: Probability with which a weight is dropped.
        return_weights: Also return the weights, before dropout, ``[..., L, S]``.

    Returns:
        ``[..., L, V]``, 0 for a query that may attend to nothing; with ``return_weights`` a pair
        of that and the weights.

    Example:
        >>> x = torch.eye(2)
        >>> attention(x, x, x, temperature=0.0)
        tensor([[1., 0.],
                [0., 1.]])
    """
    logits = _score(query, key, score, weight=weight, vector=vector)
    weights = normalize(logits, DenseRows(mask), temperature)
    out = (F.dropout(weights, dropout) if dropout else weights) @ value
    return (out, weights) if return_weights else out


_score = score  # `attention` has a keyword of that name
