"""Every registered layer: all forms of a graph agree, and no graph is too odd."""

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

from molattn.graph import CodedEdges, CompleteGraphs

DOUBLE = torch.float64
SIZES = [3, 1, 5, 2, 0, 5]  # one padded block


def assert_near(got, expected, tolerance=1e-10):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def gradients(parts, inputs):
    """Of a random but fixed sum of all outputs."""
    generator = torch.Generator().manual_seed(1)
    total = sum(
        (part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum()
        for part in parts.values()
        if torch.is_tensor(part) and part.is_floating_point()
    )
    return torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)


def floats(given):
    return [v for v in given.values() if torch.is_tensor(v) and v.is_floating_point()]


def as_csr(edge_index, values, num_src, num_dst):
    coo = torch.sparse_coo_tensor(
        edge_index.flip(0), values, (num_dst, num_src), check_invariants=True
    )
    return coo.coalesce().to_sparse_csr()


def simple_graph(num_src, num_dst, num_edges):
    """Distinct edges, in the order in which a sparse matrix of receivers stores them."""
    flat = torch.randperm(num_src * num_dst)[:num_edges].sort().values
    return torch.stack([flat % num_src, flat // num_src])


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant).*:UserWarning")
def test_edge_index_adj_t_and_edge_index_class_agree(subject):
    edge_index = simple_graph(6, 6, 17)
    conv, x = subject.make(), subject.nodes(6)
    given = subject.features(17, batch=torch.zeros(6, dtype=torch.long))
    expected = subject.run(conv, x, edge_index, given, weights=True)
    inputs = [x, *floats(given), *conv.parameters()]
    expected_gradients = gradients(expected, inputs)
    assert expected["graph"] is edge_index
    adj_t = as_csr(edge_index, torch.ones(17, dtype=DOUBLE), 6, 6)
    by_column = EdgeIndex(edge_index, sparse_size=(6, 6), sort_order="col")
    by_column.fill_cache_()
    for graph in (adj_t, adj_t.to_sparse_coo(), by_column, EdgeIndex(edge_index)):
        got = subject.run(conv, x, graph, given, weights=True)
        assert got.pop("graph") is graph
        for name, part in got.items():
            assert_near(part, expected[name])
        for ours, theirs in zip(gradients(got, inputs), expected_gradients, strict=True):
            assert_near(ours, theirs)


@pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch_sparse is not installed")
def test_torch_sparse_agrees(subject):
    edge_index = simple_graph(6, 6, 17)
    conv, x = subject.make(), subject.nodes(6)
    given = subject.features(17, batch=torch.zeros(6, dtype=torch.long))
    adj_t = SparseTensor(row=edge_index[1], col=edge_index[0], sparse_sizes=(6, 6))
    expected = subject.run(conv, x, edge_index, given)
    for name, part in subject.run(conv, x, adj_t, given).items():
        assert_near(part, expected[name])


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant).*:UserWarning")
def test_edge_features_may_be_the_values_of_adj_t(plain_subject):
    if plain_subject.layer.edge_columns:
        pytest.skip("reads more than one number of an edge")
    edge_index, weight = simple_graph(5, 5, 9), torch.rand(9, dtype=DOUBLE)
    conv, x = plain_subject.make(edge_dim=1), plain_subject.nodes(5)
    expected = conv(x, edge_index, weight)  # one number for each edge needs no second dimension
    assert_near(conv(x, edge_index, weight.unsqueeze(-1)), expected)
    assert_near(conv(x, as_csr(edge_index, weight, 5, 5)), expected)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_complete_graphs_agree_with_their_edge_list(dense_subject, self_loops, weights):
    subject, graph = dense_subject, CompleteGraphs(SIZES, self_loops=self_loops)
    conv, x = subject.make(), subject.nodes(graph.num_nodes)
    given = subject.features(graph.num_edges, batch=graph.batch)
    flat = subject.run(conv, x, graph.edge_index, given, weights)
    dense = subject.run_complete(conv, x, graph, given, weights)
    assert flat.pop("graph", None) is (graph.edge_index if weights else None)
    assert dense.pop("graph", None) is (graph if weights else None)
    for name, part in dense.items():
        assert_near(part, flat[name])
    inputs = [x, *floats(given), *conv.parameters()]
    for got, expected in zip(gradients(dense, inputs), gradients(flat, inputs), strict=True):
        assert_near(got, expected)


def test_what_padding_holds_is_of_no_account(dense_subject):
    subject, graph = dense_subject, CompleteGraphs([1, 3, 4], self_loops=False)
    conv, x = subject.make(), subject.nodes(graph.num_nodes)
    given = subject.features(graph.num_edges, batch=graph.batch)
    zeros = subject.run_complete(conv, x, graph, given, weights=True)
    junk = subject.run_complete(conv, x, graph, given, weights=True, padding=1e3)
    for name in zeros.keys() - {"graph"}:
        assert_near(junk[name], zeros[name])


@pytest.mark.parametrize("self_loops", [True, False])
def test_single_atoms_in_padded_blocks_stay_finite(dense_subject, self_loops):
    subject, graph = dense_subject, CompleteGraphs([1, 1, 4], self_loops=self_loops)
    conv = subject.make(dtype=torch.float32)
    x = subject.nodes(graph.num_nodes, dtype=torch.float32)
    given = subject.features(graph.num_edges, batch=graph.batch, dtype=torch.float32)
    out = subject.run_complete(conv, x, graph, given, weights=True)
    del out["graph"]
    for tensor in (*out.values(), *gradients(out, [x, *floats(given), *conv.parameters()])):
        assert bool(tensor.isfinite().all())


def test_bipartite(subject):
    if not subject.layer.bipartite:
        pytest.skip("one set of nodes only")
    edge_index = simple_graph(5, 3, 8)
    conv = subject.make((4, 7))
    x = subject.nodes(5), subject.nodes(3, 7)
    batch = (torch.zeros(5, dtype=torch.long), torch.zeros(3, dtype=torch.long))
    given = subject.features(8, batch=batch)
    out = subject.run(conv, x, edge_index, given, weights=True)
    assert out["nodes"].shape == (3, 6)
    adj_t = as_csr(edge_index, torch.ones(8, dtype=DOUBLE), 5, 3)
    again = subject.run(conv, x, adj_t, given, weights=True)
    assert_near(again["nodes"], out["nodes"])
    assert_near(again["weights"], out["weights"])
    # A sender without edges and the order of senders are of no account.
    order = torch.tensor([4, 2, 0, 1, 3])
    moved = torch.cat([x[0][order], torch.randn(1, 4, dtype=DOUBLE)])
    where = torch.argsort(order)[edge_index[0]]
    if "batch" in given:
        given["batch"] = (torch.zeros(6, dtype=torch.long), batch[1])
    third = subject.run(conv, (moved, x[1]), torch.stack([where, edge_index[1]]), given)
    assert_near(third["nodes"], out["nodes"])


def test_no_senders_and_no_receivers(subject):
    if not subject.layer.bipartite:
        pytest.skip("one set of nodes only")
    conv = subject.make((4, 7))
    edge_index = torch.empty(2, 0, dtype=torch.long)
    for senders, receivers in ((0, 3), (3, 0), (0, 0)):
        x = subject.nodes(senders), subject.nodes(receivers, 7)
        given = subject.features(0)
        out = subject.run(conv, x, edge_index, given, weights=True)
        assert out["nodes"].shape == (receivers, 6)
        assert out["weights"].shape == (0, 2)
        assert bool(out["nodes"].isfinite().all())


@pytest.mark.parametrize(
    "num_nodes, edges",
    [
        (1, []),
        (1, [(0, 0)]),
        (1, [(0, 0), (0, 0)]),
        (4, []),
        (0, []),
        (3, [(0, 1), (0, 1), (0, 1)]),
        (3, [(1, 1), (2, 1)]),
    ],
    ids=["atom", "loop", "loops", "no_edges", "empty", "duplicates", "isolated"],
)
def test_odd_graphs_are_finite_in_values_and_gradients(subject, num_nodes, edges):
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    conv, x = subject.make(), subject.nodes(num_nodes)
    given = subject.features(len(edges))
    out = subject.run(conv, x, edge_index, given, weights=True)
    del out["graph"]
    assert out["nodes"].shape == (num_nodes, 6)
    assert out["weights"].shape == (len(edges), 2)
    for tensor in (*out.values(), *gradients(out, [x, *floats(given), *conv.parameters()])):
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_complete_graphs_without_nodes_have_second_derivatives(
    dense_subject, sizes, coded, weights
):
    subject, graph = dense_subject, CompleteGraphs(sizes)
    x, given = subject.in_rows(graph, coded)
    conv = subject.make(dtype=torch.float32)
    read = (value.table if isinstance(value, CodedEdges) else value for value in given.values())
    leaves = [x, *(value.requires_grad_() for value in read)]
    out = subject.run(conv, x, graph, given, weights)
    leaves += conv.parameters()
    options = {"allow_unused": True, "materialize_grads": True}
    total = sum(out[name].sum() for name in ("nodes", "edges") if name in out)
    first = torch.autograd.grad(total, leaves, create_graph=True, **options)
    second = torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves, **options)
    for grad in (*first, *second):
        assert not grad.any()
