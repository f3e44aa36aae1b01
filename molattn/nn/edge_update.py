r"""What attention adds to the features of pairs, in blocks that stay in a CPU's caches.

.. math::
    e'_{rs} = e_{rs} + \sum_h W_h\, b_{rsh} \big(v_{sh} + \textstyle\sum_m f_{rsm} V_{mh}\big)

No tensor of all pairs and channels is made: a block is computed from the weights, and again in the
backward pass. Where a head is at least as wide as the features, :math:`W_h` is multiplied into
:math:`v` and :math:`V` first. All derivatives but the gradient are those of ordinary operations.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from molattn._torch_compat import is_transformed
from molattn.graph.complete import CodedEdges, CompleteGraphs
from molattn.nn.dense_attention import PairInputs, sum_dtype, weighted_values
from molattn.nn.fused_attention import differentiable_gradients, without_autocast
from molattn.nn.graph_inputs import EdgeAttr, edge_features
from molattn.nn.linear import product

# Numbers in a tensor of a part: 2 MB on a CPU; on a GPU as many as keep it busy.
_NUMBERS, _NUMBERS_ON_GPU = 1 << 19, 1 << 25
_LEAST_PAIRS = 1024  # of fewer the calls cost more than the operations


class PairMessages(NamedTuple):
    """The weighted values of all pairs, not yet computed."""

    graph: CompleteGraphs
    weights: Tensor  # factor of each value, [P, H]
    inputs: PairInputs

    def gated(self, gate: Tensor) -> "PairMessages":
        """Multiply by numbers of receivers and heads, ``[R, H]``."""
        parts = []
        for block in self.graph.blocks:
            of_block = block.pairs(self.weights).permute(3, 0, 1, 2)  # pairs last, as in memory
            gates = block.rows(gate).permute(2, 0, 1).unsqueeze(-1)
            parts.append((of_block * gates).flatten(1))
        return self._replace(weights=torch.cat(parts, dim=1).t())

    def __truediv__(self, number: float) -> "PairMessages":
        return self._replace(weights=self.weights / number)

    def dense(self) -> Tensor:
        """Compute all, ``[P, H, V]``."""
        return weighted_values(self.graph, self.weights, self.inputs)


def update_edges(attr: EdgeAttr, messages: PairMessages, head_map: Tensor) -> Tensor:
    """Add messages to edge features.

    Args:
        attr: Features of the layout's pairs, ``D`` wide.
        messages: Of the pairs.
        head_map: The map of each head :math:`W`, ``[D, H, V]``.

    Returns:
        Features of pair rows, ``[P, D]``.
    """
    graph, weights, given = messages
    coded = isinstance(attr, CodedEdges)
    old = attr.padded_table if coded else edge_features(attr)
    # A layer may have shown attention other edges than those that it updates.
    seen = given.edges is (attr.codes if coded else attr)
    with without_autocast(weights):
        inputs = given.converted()
        dtype, value, basis = inputs.value.dtype, inputs.value, inputs.edge_value
        last: Optional[Tensor] = head_map.to(dtype)
        if basis is None or len(head_map) <= value.size(2):
            nodes = torch.einsum("rhv,dhv->hdr", value, last)
            basis = None if basis is None else torch.einsum("mhv,dhv->mhd", basis, last)
            last = None
        else:
            nodes = value.permute(1, 2, 0)
        table = old.to(dtype) if coded and seen else None
        edges = inputs.edges if seen or basis is not None else None
        terms = _Terms(weights.to(dtype), nodes, edges, basis, table, last)
        if is_transformed(weights):
            out = _by_messages(graph, seen, terms)
        elif torch.is_grad_enabled():
            out: Any = _EdgeUpdate.apply(graph, seen, *terms)
        else:
            out = _kernel(graph, seen, terms).update()
        out = out.to(torch.promote_types(old.dtype, given.value.dtype))
        return out if seen else edge_features(attr) + out


class _Terms(NamedTuple):
    weights: Tensor  # [P, H]
    nodes: Tensor  # of senders, [H, W, R]
    edges: Optional[Tensor]  # features [P, M], or codes [P]
    basis: Optional[Tensor]  # of the edges' values, [M, H, W]; None = 0
    table: Optional[Tensor]  # features of the codes, [M, D]
    head_map: Optional[Tensor]  # [D, H, W]; None = heads are added


def _by_messages(graph: CompleteGraphs, seen: bool, terms: _Terms) -> Tensor:
    """Compute the update by ordinary operations."""
    weights, nodes, edges, basis, table, head_map = terms
    value = nodes.permute(2, 0, 1)
    inputs = PairInputs(value, value, value, edges, edge_value=basis)
    messages = weighted_values(graph, weights, inputs)
    if head_map is not None:
        messages = torch.einsum("phv,dhv->pd", messages, head_map).unsqueeze(1)
    out = messages.sum(dim=1)
    if not seen or edges is None:
        return out
    return out + (edges if table is None else table.index_select(0, edges))


class _Part(NamedTuple):
    """Some receivers of some graphs of a block; their pairs follow one another."""

    row: int  # first of the graphs' rows
    pair: int  # first of the pairs
    graphs: int
    receivers: int
    nodes: int

    def pairs(self, x: Any, dim: int = 0) -> Tensor:
        """The part's ``p`` of all pairs."""
        return x.narrow(dim, self.pair, self.graphs * self.receivers * self.nodes)

    def rows(self, x: Tensor, dim: int = 0) -> Tensor:
        """The rows of the part's graphs."""
        return x.narrow(dim, self.row, self.graphs * self.nodes)

    def split(self, x: Tensor, dim: int = 0) -> Tensor:
        """A dimension of ``p`` pairs by graph, receiver and sender."""
        return x.unflatten(dim, (self.graphs, self.receivers, self.nodes))

    def by_sender(self, x: Tensor) -> Tensor:
        """Pairs ``[p, ...]`` as ``[graphs senders, receivers, ...]``."""
        return self.split(x).transpose(1, 2).flatten(0, 1)


class _Kernel:
    """The update and its gradients, part by part, of terms that are constants to autograd."""

    def __init__(self, graph: CompleteGraphs, seen: bool, terms: _Terms) -> None:
        self.graph, self.seen, self.terms = graph, seen, terms
        self.heads, self.width, _ = terms.nodes.shape
        self.weights = terms.weights.t().contiguous()  # [H, P]
        self.grads: dict[str, Any] = dict.fromkeys(_Terms._fields)

    def parts(self) -> Iterator[_Part]:
        """All pairs, in parts of limited size."""
        numbers = _NUMBERS if self.weights.device.type == "cpu" else _NUMBERS_ON_GPU
        most = max(_LEAST_PAIRS, numbers // (self.heads * self.width))
        for block in self.graph.blocks:
            nodes = block.nodes
            graphs = max(1, most // nodes**2)
            receivers = nodes if graphs > 1 else min(nodes, max(1, most // nodes))
            for start in range(0, block.graphs, graphs):
                row, count = start * nodes, min(graphs, block.graphs - start)
                for first in range(0, nodes, receivers):
                    pair, some = (row + first) * nodes, min(receivers, nodes - first)
                    yield _Part(block.row + row, block.pair + pair, count, some, nodes)

    def update(self) -> Tensor:
        """New features ``[P, D]``; of edges that were not seen, only what is added to them."""
        _, _, edges, _, table, head_map = self.terms
        width = self.width if head_map is None else len(head_map)
        out = self.weights.new_empty(self.weights.size(1), width)
        for part in self.parts():
            added, room = self.added(part), part.split(part.pairs(out))
            if not self.seen:
                room.copy_(added)
            elif table is None:
                torch.add(part.split(part.pairs(edges)), added, out=room)
            else:
                torch.index_select(table, 0, part.pairs(edges), out=part.pairs(out))
                room.add_(added)
        return out

    def added(self, part: _Part) -> Tensor:
        """What is added to the features, ``[graphs, receivers, senders, D]``."""
        raise NotImplementedError

    def gradients(self, grad: Tensor, needs: dict[str, bool]) -> dict[str, Any]:
        """Gradients of all terms."""
        self.grads["weights"] = torch.empty_like(self.weights)
        self.grads["nodes"] = self._zeros(self.terms.nodes)
        if needs["table"]:
            self.grads["table"] = self._zeros(self.terms.table)
        for part in self.parts():
            self.add_gradients(part, part.pairs(grad))
            if needs["table"]:
                hot = self.features(part, self.terms.table)
                self.grads["table"] += hot.t() @ part.pairs(grad)
        self.grads["weights"] = self.grads["weights"].t()
        return self.grads

    def add_gradients(self, part: _Part, grad: Tensor) -> None:
        """Put the gradients of weights and edges, and add those of the other terms."""
        raise NotImplementedError

    def features(self, part: _Part, like: Any) -> Tensor:
        """Features ``[p, M]``; of codes a one among zeros."""
        edges = part.pairs(self.terms.edges)
        if edges.is_floating_point():
            return edges
        return like.new_zeros(len(edges), len(like)).scatter_(1, edges.unsqueeze(1), 1.0)

    @staticmethod
    def _zeros(x: Any) -> Tensor:
        return torch.zeros_like(x, dtype=sum_dtype(x), memory_format=torch.contiguous_format)


class _OfSenders(_Kernel):
    """Without values of edges: a product of depth ``H`` for each sender."""

    def __init__(self, graph: CompleteGraphs, seen: bool, terms: _Terms) -> None:
        super().__init__(graph, seen, terms)
        self.nodes = terms.nodes.permute(2, 0, 1).contiguous()  # [R, H, D]

    def added(self, part: _Part) -> Tensor:
        """What is added to the features, ``[graphs, receivers, senders, D]``."""
        weights = part.by_sender(part.pairs(self.weights, 1).t())  # [senders, receivers, H]
        added = torch.bmm(weights, part.rows(self.nodes))
        return added.unflatten(0, (part.graphs, part.nodes)).transpose(1, 2)

    def gradients(self, grad: Tensor, needs: dict[str, bool]) -> dict[str, Any]:
        """Gradients of all terms."""
        return super().gradients(grad, needs) | {"edges": grad if needs["edges"] else None}

    def add_gradients(self, part: _Part, grad: Tensor) -> None:
        """Put the gradient of weights, and add those of the other terms."""
        by_sender = part.by_sender(grad)  # [senders, receivers, D]
        of_weights = torch.bmm(part.rows(self.nodes), by_sender.mT)
        of_weights = of_weights.unflatten(0, (part.graphs, part.nodes)).permute(2, 0, 3, 1)
        part.split(part.pairs(self.grads["weights"], 1), 1).copy_(of_weights)
        weights = part.by_sender(part.pairs(self.weights, 1).t())
        of_nodes = torch.bmm(weights.mT, by_sender)
        part.rows(self.grads["nodes"], 2).add_(of_nodes.permute(1, 2, 0))


class _OfPairs(_Kernel):
    """Values of pairs, channels before pairs: weights ``[H, p]`` then broadcast without a copy."""

    def __init__(self, graph: CompleteGraphs, seen: bool, terms: _Terms) -> None:
        super().__init__(graph, seen, terms)
        self.nodes = terms.nodes.contiguous()
        self.basis: Any = terms.basis
        self.to_edges = self.basis.flatten(1).contiguous()  # [M, H W]
        self.to_values = self.to_edges.t().contiguous()
        last = terms.head_map
        self.head_map = None if last is None else last.flatten(1).contiguous()  # [D, H W]

    def values(self, part: _Part, features: Tensor) -> Tensor:
        """Values ``[H, W, p]``."""
        values = product(self.to_values, features).view(self.heads, self.width, -1)
        part.split(values, 2).add_(self._senders(self.nodes, part))
        return values

    def added(self, part: _Part) -> Tensor:
        """What is added to the features, ``[graphs, receivers, senders, D]``."""
        values = self.values(part, self.features(part, self.basis))
        values.mul_(part.pairs(self.weights, 1).unsqueeze(1))
        if self.head_map is None:
            return part.split(values.sum(dim=0).t())
        return part.split(product(self.head_map, values.flatten(0, 1).t()).t())

    def gradients(self, grad: Tensor, needs: dict[str, bool]) -> dict[str, Any]:
        """Gradients of all terms."""
        self.grads["basis"] = self._zeros(self.to_values)
        if needs["edges"]:
            self.grads["edges"] = grad.new_empty(len(grad), len(self.basis))
        if self.head_map is not None:
            self.from_edges = self.head_map.t().contiguous()
            self.grads["head_map"] = self._zeros(self.from_edges)
        super().gradients(grad, needs)
        self.grads["basis"] = self.grads["basis"].t().view_as(self.basis)
        if self.head_map is not None:
            of_map = self.grads["head_map"].t()
            self.grads["head_map"] = of_map.unflatten(1, (self.heads, self.width))
        return self.grads

    def add_gradients(self, part: _Part, grad: Tensor) -> None:
        """Put the gradient of weights, and add those of the other terms."""
        features = self.features(part, self.basis)
        values, weights = self.values(part, features), part.pairs(self.weights, 1).unsqueeze(1)
        of_weights = part.pairs(self.grads["weights"], 1)
        if self.head_map is None:
            upstream = grad.t().contiguous()
            torch.sum(values.mul_(upstream), dim=1, out=of_weights)
            of_values = torch.mul(upstream, weights, out=values)
        else:
            of_values = product(self.from_edges, grad).view_as(values)
            torch.sum(of_values * values, dim=1, out=of_weights)
            values.mul_(weights)
            self.grads["head_map"] += product(values.flatten(0, 1), grad.t())
            of_values.mul_(weights)
        self._senders(self.grads["nodes"], part).add_(
            part.split(of_values, 2).sum(dim=3, keepdim=True)
        )
        flat = of_values.flatten(0, 1)
        self.grads["basis"] += product(flat, features.t())
        if self.grads["edges"] is not None:
            of_edges, room = product(self.to_edges, flat.t()).t(), part.pairs(self.grads["edges"])
            torch.add(grad, of_edges, out=room) if self.seen else room.copy_(of_edges)

    @staticmethod
    def _senders(x: Tensor, part: _Part) -> Tensor:
        """The part of ``[H, W, R]`` as ``[H, W, graphs, 1, senders]``, a view."""
        return part.rows(x, 2).unflatten(2, (part.graphs, 1, part.nodes))


class _EdgeUpdate(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, graph: CompleteGraphs, seen: bool, *terms: Any
    ) -> Tensor:
        ctx.options = graph, seen
        ctx.save_for_backward(*terms)
        return _kernel(graph, seen, _Terms(*terms)).update()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        graph, seen = ctx.options
        needs = ctx.needs_input_grad[2:]

        def plain(*terms: Any) -> tuple[Tensor]:
            return (_by_messages(graph, seen, _Terms(*terms)),)

        with without_autocast(grad):
            if torch.is_grad_enabled() or is_transformed(grad):
                found = differentiable_gradients(plain, ctx.saved_tensors, needs, (grad,))
                return None, None, *found
            kernel = _kernel(graph, seen, _Terms(*ctx.saved_tensors))
            named = dict(zip(_Terms._fields, needs, strict=True))
            return None, None, *kernel.gradients(grad.contiguous(), named).values()


def _kernel(graph: CompleteGraphs, seen: bool, terms: _Terms) -> _Kernel:
    return (_OfSenders if terms.basis is None else _OfPairs)(graph, seen, terms)
