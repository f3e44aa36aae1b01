"""Layers of pairs that see pairs: triplet attention by NumPy, and what holds for each of them."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import EdgeTransformerConv, TripletAggregate, TripletAttention
from molattn.nn.pairs import triplets
from molattn.testing import assert_smooth, check_module

from ..conftest import DOUBLE, assert_near

WIDTH, HEADS = 6, 2
SIZES = [3, 1, 5, 2, 0, 5]  # one padded block
LAYERS = {
    "attention": lambda **o: TripletAttention(WIDTH, HEADS, **o),
    "attention-ungated": lambda **o: TripletAttention(WIDTH, HEADS, gate=False, **o),
    "aggregate": lambda **o: TripletAggregate(WIDTH, HEADS, **o),
    "aggregate-ungated": lambda **o: TripletAggregate(WIDTH, HEADS, gate=False, **o),
    "edge_transformer": lambda **o: EdgeTransformerConv(WIDTH, HEADS, **o),
}
GRAPHS = {
    "all": lambda: CompleteGraphs(SIZES),
    "no_loops": lambda: CompleteGraphs(SIZES, self_loops=False),
    "some": lambda: some_edges(CompleteGraphs(SIZES)),
}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
every_graph = pytest.mark.parametrize("make_graph", GRAPHS.values(), ids=GRAPHS)


def some_edges(graph):
    return graph.with_edges(torch.rand(graph.num_pairs) < 0.5)


def linear(lin, x):
    bias = 0 if lin.bias is None else lin.bias.detach().numpy()
    return x @ lin.weight.detach().numpy().T + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def graph_by_graph(reference, layer, edges, graph):
    """Run a reference on each graph: features [N, N, C] and edges [N, N], both [i, j]."""
    count, out = len(graph.batch), np.zeros((graph.num_edges, WIDTH))
    e, mask = np.zeros((count, count, WIDTH)), np.zeros((count, count), dtype=bool)
    sender, receiver = graph.edge_index.numpy()
    e[receiver, sender], mask[receiver, sender] = edges.detach().numpy(), True
    for g in range(graph.num_graphs):
        nodes = np.flatnonzero(graph.batch.numpy() == g)
        part = reference(layer, e[np.ix_(nodes, nodes)], mask[np.ix_(nodes, nodes)])
        mine = np.isin(receiver, nodes)
        at = np.searchsorted(nodes, receiver[mine]), np.searchsorted(nodes, sender[mine])
        out[mine] = part[at]
    return out


def triplet_reference(layer, e, mask):
    n, d = len(e), WIDTH // HEADS
    if isinstance(layer, TripletAttention):
        directions = [(layer.lin_inward, layer.lin_inward_bias)]
        directions += [(layer.lin_outward, layer.lin_outward_bias)]
        projected = [[*np.split(linear(qkv, e), 3, -1), linear(b, e)] for qkv, b in directions]
    else:
        values = np.split(linear(layer.lin_value, e), 2, -1)
        terms = np.split(linear(layer.lin_bias, e), 2, -1)
        projected = [[None, None, v, t] for v, t in zip(values, terms, strict=True)]
    out = np.zeros((n, n, 2 * WIDTH))
    for inward, (query, key, value, terms) in zip((True, False), projected, strict=True):
        bias, gate = terms[..., :HEADS], sigmoid(terms[..., HEADS:])
        gate = gate if layer.gate else np.ones_like(bias)
        for i, j, h in np.ndindex(n, n, HEADS):
            part = slice(h * d, (h + 1) * d)
            weights, seen = np.zeros(n), np.zeros((n, d))
            for k in range(n):
                of_value, of_bias = ((j, k), (i, k)) if inward else ((k, j), (k, i))
                if mask[of_bias] and (query is None or mask[of_value]):
                    logit = bias[of_bias][h]
                    if query is not None:
                        logit += query[i, j, part] @ key[of_value][part] / np.sqrt(d)
                    weights[k] = np.exp(logit)
                    seen[k] = gate[of_bias][h] * value[of_value][part] * mask[of_value]
            total = weights.sum() or 1.0
            start = (0 if inward else WIDTH) + h * d
            out[i, j, start : start + d] = weights @ seen / total
    return linear(layer.lin_out, out)


@every_graph
@pytest.mark.parametrize("make", list(LAYERS.values())[:4], ids=list(LAYERS)[:4])
def test_triplets_against_numpy(make, make_graph):
    layer, graph = make().double(), make_graph()
    edges = torch.randn(graph.num_edges, WIDTH, dtype=DOUBLE)
    got = graph.pairs_to_edges(layer(graph.edges_to_pairs(edges), graph))
    expected = graph_by_graph(triplet_reference, layer, edges, graph)
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=0, atol=1e-10)


class OnEdges(nn.Module):
    """A layer of pairs on the edges of a PyG batch of complete graphs, in their order."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, edge_attr, edge_index, batch):
        graph, order = CompleteGraphs.from_edges(edge_index, batch)
        out = self.layer(graph.edges_to_pairs(edge_attr[order]), graph)
        edges = graph.pairs_to_edges(out)
        return torch.empty_like(edges).index_copy(0, order, edges)


@every_layer
@pytest.mark.parametrize("self_loops", [True, False])
def test_assertions_hold(make, self_loops):
    graphs = []
    for nodes in (4, 1, 2, 3):
        pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
        pairs = pairs if self_loops else pairs[:, pairs[0] != pairs[1]]
        attr = torch.randn(pairs.size(1), WIDTH, dtype=DOUBLE)
        graphs.append(Data(edge_index=pairs, edge_attr=attr, num_nodes=nodes))
    layer, data = OnEdges(make()).double(), Batch.from_data_list(graphs)
    check_module(layer, data, skip=["direction", "isolated nodes"])  # which remove edges
    assert_smooth(layer, data)


@every_layer
@pytest.mark.parametrize("size", [1, 200])
def test_chunks_change_nothing(make, size, monkeypatch):
    graph = some_edges(CompleteGraphs(SIZES))
    layer = make().double()
    pairs = torch.randn(graph.num_pairs, WIDTH, dtype=DOUBLE, requires_grad=True)

    def derivatives():
        out = graph.pairs_to_edges(layer(pairs, graph))
        leaves = [pairs, *layer.parameters()]
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        return out, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    expected = derivatives()
    monkeypatch.setattr(triplets, "_CHUNK", size)
    for got, wanted in zip(derivatives(), expected, strict=True):
        assert_near(got, wanted)


@every_layer
def test_what_is_saved_for_the_backward_pass_grows_as_the_pairs_do(make, monkeypatch):
    monkeypatch.setattr(triplets, "_CHUNK", 1)
    layer = make()

    def saved(nodes):
        graph, memory = CompleteGraphs([nodes]), {}
        pairs = torch.randn(graph.num_pairs, WIDTH, requires_grad=True)

        def keep(x):
            storage = x.untyped_storage()
            memory[storage.data_ptr()] = storage.nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = layer(pairs, graph)
        assert out.grad_fn is not None
        return sum(memory.values())

    assert saved(32) < 4.5 * saved(16)


@every_layer
@every_graph
def test_what_is_no_edge_is_not_read(make, make_graph):
    graph, layer = make_graph(), make().double()
    edges = torch.randn(graph.num_edges, WIDTH, dtype=DOUBLE)
    expected = layer(graph.edges_to_pairs(edges), graph)
    pairs = torch.full((graph.num_pairs, WIDTH), 1e8, dtype=DOUBLE)
    pairs = pairs.index_copy(0, graph.edge_row, edges).requires_grad_()
    got = graph.pairs_to_edges(layer(pairs, graph))
    assert_near(got, graph.pairs_to_edges(expected))
    (gradient,) = torch.autograd.grad(got.square().sum(), pairs)
    none = torch.ones(graph.num_pairs, dtype=torch.bool).index_fill(0, graph.edge_row, False)
    assert not gradient[none].any()
    assert gradient.isfinite().all()


@every_layer
@pytest.mark.parametrize("sizes", [[], [0], [1], [1, 1, 4]])
@pytest.mark.parametrize("self_loops", [True, False])
def test_odd_graphs_are_finite_in_values_and_gradients(make, sizes, self_loops):
    graph, layer = CompleteGraphs(sizes, self_loops=self_loops), make()
    pairs = torch.randn(graph.num_pairs, WIDTH, requires_grad=True)
    out = layer(pairs, graph)
    assert out.shape == pairs.shape
    leaves, options = (
        [pairs, *layer.parameters()],
        {"allow_unused": True, "materialize_grads": True},
    )
    gradients = torch.autograd.grad(out.sum(), leaves, **options)
    assert all(part.isfinite().all() for part in (out, *gradients))


@every_layer
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_number_types_and_codes(make, dtype, tolerance):
    graph, layer = CompleteGraphs([1, 4, 3]), make().double()
    codes, table = torch.randint(0, 5, (graph.num_edges,)), torch.randn(5, WIDTH, dtype=DOUBLE)
    coded = CodedEdges.from_edges(graph, codes, table)
    expected = graph.pairs_to_edges(layer(coded.dense(), graph))
    narrow = CodedEdges(coded.codes, table.to(dtype))
    got = graph.pairs_to_edges(copy.deepcopy(layer).to(dtype)(narrow, graph))
    assert got.dtype == dtype
    assert_near(got.double(), expected, tolerance)


@every_layer
def test_dropout_keeps_the_mean(make):
    graph, layer = CompleteGraphs([4]), make(dropout=0.4).double()
    pairs = torch.randn(16, WIDTH, dtype=DOUBLE)
    with torch.no_grad():
        runs = layer(pairs.repeat(2048, 1), CompleteGraphs([4] * 2048)).view(2048, 16, WIDTH)
        assert_near(runs.mean(0), layer.eval()(pairs, graph), 0.1)
    assert runs.std(0).min() > 0


@every_layer
def test_wrong_inputs_are_errors(make):
    layer, graph = make(), CompleteGraphs([2])
    with pytest.raises(ValueError, match="expected CompleteGraphs"):
        layer(torch.randn(4, WIDTH), graph.edge_index)
    with pytest.raises(ValueError, match=r"edge_attr: got shape \[3, 6\], expected \[4, 6\]"):
        layer(torch.randn(3, WIDTH), graph)
    with pytest.raises(ValueError, match="dropout"):
        make(dropout=1.0)
    assert repr(layer) == f"{type(layer).__name__}(6, heads=2)"
