r"""Edge update by attention, computed in tiles that fit into a CPU's caches.

.. math::
    e'_{rs} = e_{rs} + \sum_h W_h\, b_{rsh} \big(v_{sh} + \textstyle\sum_m f_{rsm} V_{mh}\big)

No tensor of all pairs and channels is made: a tile is computed from the weights, and again in the
backward pass. Where a head is at least as wide as the features, :math:`W_h` is multiplied into
:math:`v` and :math:`V` first. All derivatives but the gradient are those of ordinary operations.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from molattn._torch_compat import is_transformed
from molattn.graph.complete import CodedEdges, CompleteGraphs
from molattn.nn.dense.fused import differentiable_gradients, without_autocast
from molattn.nn.dense.linear import add_product, product
from molattn.nn.dense.plain import PairInputs, sum_dtype, weighted_values
from molattn.nn.graph_inputs import EdgeAttr

# Numbers in a tensor of a tile: 2 MB on a CPU; on a GPU as many as keep it busy.
_NUMBERS = 1 << 19
_NUMBERS_ON_GPU = 1 << 25
_LEAST_PAIRS = 1024  # of fewer the calls cost more than the operations


class PairMessages(NamedTuple):
    """The weighted values of all pairs, not yet computed."""

    graph: CompleteGraphs
    weights: Tensor  # factor of each value, [P, H]
    inputs: PairInputs

    def __mul__(self, factor: Any) -> "PairMessages":  # pyright: ignore[reportIncompatibleMethodOverride]
        """Multiply by one number, or by a number for each pair and head, ``[P, H, 1]``."""
        factor = factor.squeeze(-1) if isinstance(factor, Tensor) else factor
        return self._replace(weights=self.weights * factor)

    def dense(self) -> Tensor:
        """Compute all, ``[P, H, V]``."""
        return weighted_values(self.graph, self.weights, self.inputs)

    def are_of(self, attr: EdgeAttr) -> bool:
        """Whether attention read these edge features."""
        return self.inputs.edges is (attr.codes if isinstance(attr, CodedEdges) else attr)


def update_edges(attr: EdgeAttr, messages: PairMessages, head_map: Tensor) -> Tensor:
    """Add messages, by the map of each head ``[D, H, V]``, to the features that attention saw.

    The result is features of pair rows, ``[P, D]``.
    """
    graph, weights, inputs = messages
    old: Any = attr.padded_table if isinstance(attr, CodedEdges) else attr
    with without_autocast(weights):
        # The type of the features, where it is wider, or they would lose digits in each block.
        dtype = torch.promote_types(inputs.converted().value.dtype, old.dtype)
        value = inputs.value.to(dtype)
        basis = inputs.edge_value
        basis = None if basis is None else basis.to(dtype)
        last: Optional[Tensor] = head_map.to(dtype)
        if basis is None or len(head_map) <= value.size(2):
            nodes = torch.einsum("rhv,dhv->hdr", value, last)
            basis = None if basis is None else torch.einsum("mhv,dhv->hdm", basis, last)
            last = None
        else:
            nodes, basis, last = (x.permute(1, 2, 0) for x in (value, basis, last))
        edges = old.to(dtype)
        table = None
        if isinstance(attr, CodedEdges):
            table = edges
            edges = attr.codes
        terms = _Terms(weights.to(dtype).t(), nodes, edges, basis, table, last)
        if is_transformed(weights) or torch.compiler.is_compiling():
            out = _by_messages(graph, terms)
        elif torch.is_grad_enabled():
            out: Any = _EdgeUpdate.apply(graph, *terms)
        else:
            out = _Update(graph, terms).compute()
        return out.to(torch.promote_types(old.dtype, inputs.value.dtype))


class _Terms(NamedTuple):
    weights: Tensor  # [H, P]
    nodes: Tensor  # values of senders, [H, W, R]
    edges: Any  # features [P, M], or codes [P]
    basis: Optional[Tensor]  # of the edges' values, [H, W, M]; None = 0
    table: Optional[Tensor]  # features of the codes, [M, D]
    head_map: Optional[Tensor]  # [H, W, D]; None = heads are added


def _by_messages(graph: CompleteGraphs, terms: _Terms) -> Tensor:
    """Compute the update by ordinary operations."""
    weights, nodes, edges, basis, table, head_map = terms
    value, basis = (None if x is None else x.permute(2, 0, 1) for x in (nodes, basis))
    assert value is not None
    inputs = PairInputs(value, value, value, edges, edge_value=basis)
    messages = weighted_values(graph, weights.t(), inputs)
    if head_map is not None:
        messages = torch.einsum("phv,hvd->pd", messages, head_map).unsqueeze(1)
    return messages.sum(dim=1) + (edges if table is None else table.index_select(0, edges))


class _EdgeUpdate(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, graph: CompleteGraphs, *terms: Any
    ) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(*terms)
        return _Update(graph, _Terms(*terms)).compute()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        terms = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:]

        def plain(*terms: Any) -> tuple[Tensor]:
            return (_by_messages(ctx.graph, _Terms(*terms)),)

        with without_autocast(grad):
            if torch.is_grad_enabled() or is_transformed(grad):
                return None, *differentiable_gradients(plain, terms, needs, (grad,))
            return None, *_Update(ctx.graph, _Terms(*terms)).gradients(grad.contiguous(), needs)


class _Tile(NamedTuple):
    """Some receivers of some graphs of a block; their pairs follow one another."""

    row: int  # first of the graphs' rows
    pair: int  # first of the pairs
    graphs: int
    receivers: int
    nodes: int

    def pairs(self, x: Tensor, dim: int = 0) -> Tensor:
        """The ``p`` pairs of the tile, of all pairs."""
        return x.narrow(dim, self.pair, self.graphs * self.receivers * self.nodes)

    def split(self, x: Tensor, dim: int = 0) -> Tensor:
        """A dimension of ``p`` pairs by graph, receiver and sender."""
        return x.unflatten(dim, (self.graphs, self.receivers, self.nodes))

    def by_sender(self, x: Tensor) -> Tensor:
        """Pairs ``[p, ...]`` as ``[graphs senders, receivers, ...]``."""
        return self.split(x).transpose(1, 2).flatten(0, 1)

    def rows(self, x: Tensor, dim: int = 0) -> Tensor:
        """The rows of the tile's graphs, of all rows."""
        return x.narrow(dim, self.row, self.graphs * self.nodes)

    def over_receivers(self, x: Tensor) -> Tensor:
        """Select the tile's graphs from nodes ``[H, W, R]``: ``[H, W, graphs, 1, senders]``."""
        return self.rows(x, 2).unflatten(2, (self.graphs, 1, self.nodes))


class _Update:
    """The update of terms that are constants to autograd, tile by tile.

    Channels come before pairs, so that weights ``[H, p]`` broadcast over them.
    """

    def __init__(self, graph: CompleteGraphs, terms: _Terms) -> None:
        self.graph = graph
        dense: list[Any] = [None if x is None else x.contiguous() for x in terms]
        self.terms = _Terms(*dense)
        _, _, _, basis, _, head_map = self.terms
        if basis is None:
            self.by_row = self.terms.nodes.permute(2, 0, 1).contiguous()  # [R, H, D]
        else:
            self.to_values = basis.flatten(0, 1)  # [H W, M]
            self.to_edges = self.to_values.t().contiguous()
        if head_map is not None:
            self.from_new = head_map.flatten(0, 1)  # [H W, D]
            self.to_new = self.from_new.t().contiguous()

    def compute(self) -> Tensor:
        """New features ``[P, D]``."""
        weights, nodes, edges, basis, table, head_map = self.terms
        width = nodes.size(1) if head_map is None else head_map.size(2)
        out = weights.new_empty(weights.size(1), width)
        for tile in self._tiles():
            rows = tile.pairs(out)
            old = tile.pairs(edges)
            b = tile.pairs(weights, 1)
            if table is not None:
                old = torch.index_select(table, 0, old, out=rows)
            if basis is None:  # a product of depth H for each sender
                added = torch.bmm(tile.by_sender(b.t()), tile.rows(self.by_row))
                added = added.unflatten(0, (tile.graphs, tile.nodes)).transpose(1, 2)
                torch.add(tile.split(old), added, out=tile.split(rows))
                continue
            values = self._values(tile, self._features(tile)).mul_(b.unsqueeze(1))
            if head_map is None:
                torch.add(old, values.sum(dim=0).t(), out=rows)
            else:
                add_product(old, self.to_new, values.flatten(0, 1), out=rows)
        return out

    def gradients(self, grad: Tensor, needs: tuple[bool, ...]) -> "_Terms":
        """Gradients of the terms."""
        weights, nodes, edges, basis, table, head_map = self.terms
        zeros: Any = (
            None if x is None else x.new_zeros(x.shape, dtype=sum_dtype(x))
            for x in (nodes, basis, table, head_map)
        )
        grad_nodes, grad_basis, grad_table, grad_map = zeros
        grad_edges = None
        if needs[2]:
            grad_edges = grad if basis is None else torch.empty_like(edges)
        grads = _Terms(
            torch.empty_like(weights), grad_nodes, grad_edges, grad_basis, grad_table, grad_map
        )
        for tile in self._tiles():
            tile_grad = tile.pairs(grad)
            if grad_table is not None:
                grad_table += self._features(tile).t() @ tile_grad
            if basis is None:
                self._senders_backward(tile, tile_grad, grads)
            else:
                self._pairs_backward(tile, tile_grad, grads)
        return grads

    def _senders_backward(self, tile: _Tile, grad: Tensor, grads: _Terms) -> None:
        by_sender = tile.by_sender(grad)  # [senders, receivers, D]
        grad_weights = torch.bmm(tile.rows(self.by_row), by_sender.mT)
        grad_weights = grad_weights.unflatten(0, (tile.graphs, tile.nodes))
        room = tile.split(tile.pairs(grads.weights, 1), 1)
        room.copy_(grad_weights.permute(2, 0, 3, 1))
        weights = tile.by_sender(tile.pairs(self.terms.weights, 1).t())
        tile.rows(grads.nodes, 2).add_(torch.bmm(weights.mT, by_sender).permute(1, 2, 0))

    def _pairs_backward(self, tile: _Tile, grad: Tensor, grads: _Terms) -> None:
        features = self._features(tile)
        values = self._values(tile, features)
        weights = tile.pairs(self.terms.weights, 1)
        grad_weights = tile.pairs(grads.weights, 1)
        weights = weights.unsqueeze(1)
        if grads.head_map is None:
            grad_t = grad.t().contiguous()
            torch.sum(values.mul_(grad_t), dim=1, out=grad_weights)
            grad_values = torch.mul(grad_t, weights, out=values)
        else:
            grad_values = product(self.from_new, grad).view_as(values)
            torch.sum(grad_values * values, dim=1, out=grad_weights)
            values.mul_(weights)
            grads.head_map.flatten(0, 1).add_(product(values.flatten(0, 1), grad.t()))
            grad_values.mul_(weights)
        grad_senders = tile.split(grad_values, 2).sum(dim=3, keepdim=True)
        tile.over_receivers(grads.nodes).add_(grad_senders)
        flat = grad_values.flatten(0, 1)
        grad_basis: Any = grads.basis
        grad_basis.flatten(0, 1).add_(product(flat, features.t()))
        if grads.edges is not None:
            add_product(grad, self.to_edges, flat, out=tile.pairs(grads.edges))

    def _values(self, tile: _Tile, features: Tensor) -> Tensor:
        """Values of the pairs, ``[H, W, p]``."""
        heads, width, _ = self.terms.nodes.shape
        values = product(self.to_values, features).view(heads, width, -1)
        tile.split(values, 2).add_(tile.over_receivers(self.terms.nodes))
        return values

    def _features(self, tile: _Tile) -> Tensor:
        """Return the features of the pairs ``[p, M]``; codes are one-hot."""
        edges = tile.pairs(self.terms.edges)
        table = self.terms.table
        if table is None:
            return edges
        return table.new_zeros(len(edges), len(table)).scatter_(1, edges.unsqueeze(1), 1.0)

    def _tiles(self) -> Iterator[_Tile]:
        """All pairs, in parts of limited size."""
        heads, width, _ = self.terms.nodes.shape
        numbers = _NUMBERS if self.terms.weights.device.type == "cpu" else _NUMBERS_ON_GPU
        most = max(_LEAST_PAIRS, numbers // (heads * width))
        for block in self.graph.blocks:
            nodes = block.nodes
            graphs = max(1, most // nodes**2)
            receivers = nodes if graphs > 1 else min(nodes, max(1, most // nodes))
            for start in range(0, block.graphs, graphs):
                row = start * nodes
                tile_graphs = min(graphs, block.graphs - start)
                for first in range(0, nodes, receivers):
                    pair = (row + first) * nodes
                    tile_receivers = min(receivers, nodes - first)
                    yield _Tile(
                        block.row + row, block.pair + pair, tile_graphs, tile_receivers, nodes
                    )
