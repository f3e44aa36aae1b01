"""Every registered layer: all forms of a graph agree, and no graph is too odd."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.testing import assert_permutation_equivariant

from ..strategies import multigraphs

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


@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_complete_graphs_without_nodes(dense_subject, sizes):
    subject, graph = dense_subject, CompleteGraphs(sizes)
    given = subject.features(0)
    if "u" in given:
        given["u"] = torch.randn(len(sizes), 5, dtype=DOUBLE)
    out = subject.run_complete(subject.make(), subject.nodes(0), graph, given, weights=True)
    assert out["nodes"].shape == (0, 6)
    assert out["weights"].shape == (0, 2)


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


def test_isolated_receivers_depend_on_themselves_alone(subject, multigraph):
    conv, x = subject.make(), subject.nodes(9)
    nodes = subject.run(conv, x, multigraph, subject.features(20))["nodes"]
    (grad,) = torch.autograd.grad(nodes[7:].square().sum(), x, allow_unused=True)
    grad = torch.zeros_like(x) if grad is None else grad  # not even on themselves
    assert bool((grad[:7] == 0).all())


def two_graphs(subject):
    """A batch of two random graphs, and each alone."""
    sizes, counts = (4, 5), (9, 11)
    edges = [torch.randint(0, n, (2, e)) for n, e in zip(sizes, counts, strict=True)]
    batch = torch.tensor([0] * 4 + [1] * 5)
    together = torch.cat([edges[0], edges[1] + 4], dim=1)
    given = subject.features(20, batch=batch)
    alone = []
    for i, (nodes, rows) in enumerate(((slice(4), slice(9)), (slice(4, 9), slice(9, 20)))):
        part = {k: v[rows] for k, v in given.items() if k == "edge_attr"}
        part |= {k: v[i : i + 1] for k, v in given.items() if k == "u"}
        alone.append((nodes, rows, edges[i], part))
    return together, given, alone


def test_a_batch_equals_its_graphs_one_by_one(subject):
    together, given, alone = two_graphs(subject)
    conv, x = subject.make(), subject.nodes(9)
    whole = subject.run(conv, x, together, given, weights=True)
    for i, (nodes, rows, edges, features) in enumerate(alone):
        single = subject.run(conv, x[nodes], edges, features, weights=True)
        assert_near(whole["nodes"][nodes], single["nodes"])
        assert_near(whole["weights"][rows], single["weights"])
        if "edges" in whole:
            assert_near(whole["edges"][rows], single["edges"])
        if "graphs" in whole:
            assert_near(whole["graphs"][i : i + 1], single["graphs"])


def test_no_gradient_crosses_from_one_graph_to_another(subject):
    together, given, _ = two_graphs(subject)
    conv, x = subject.make(), subject.nodes(9)
    cases = [(subject.run(conv, x, together, given)["nodes"], given, 9)]
    if subject.layer.complete_graphs:
        graph = CompleteGraphs([4, 5])
        given = subject.features(graph.num_edges, batch=graph.batch)
        cases.append((subject.run_complete(conv, x, graph, given)["nodes"], given, 16))
    for nodes, given, edges_of_first in cases:
        mine = {"x": x, **given}
        mine = {k: v for k, v in mine.items() if k in ("x", "edge_attr", "u")}
        grads = torch.autograd.grad(
            nodes[:4].square().sum(), list(mine.values()), materialize_grads=True
        )
        first = {"x": 4, "edge_attr": edges_of_first, "u": 1}
        for name, grad in zip(mine, grads, strict=True):
            assert bool((grad[first[name] :] == 0).all())
            assert bool((grad[: first[name]] != 0).any())


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_permutation_equivariance(subject, multigraph, dtype):
    given = subject.features(20, dtype=dtype)
    u = given.pop("u", None)
    given.pop("batch", None)
    data = Data(x=subject.nodes(9, dtype=dtype), edge_index=multigraph, **given)
    conv = subject.make(dtype=dtype)

    class Bound(torch.nn.Module):
        """Graph features belong to no node: they stay, and updated ones are not looked at."""

        def forward(self, x, edge_index, edge_attr=None):
            given = {k: v for k, v in (("edge_attr", edge_attr), ("u", u)) if v is not None}
            out = subject.run(conv, x, edge_index, given, weights=True)
            return out["nodes"], out["weights"], out.get("edges", out["weights"])

    assert_permutation_equivariant(Bound(), data)


def test_updated_graph_features_are_invariant(subject, multigraph):
    if "update_global" not in subject.switches:
        pytest.skip("does not update graph features")
    conv, x, given = subject.make(), subject.nodes(9), subject.features(20)
    order = torch.randperm(9)
    moved = torch.argsort(order)[multigraph]
    before = subject.run(conv, x, multigraph, given)["graphs"]
    assert_near(subject.run(conv, x[order], moved, given)["graphs"], before)


def test_the_same_numbers_every_time(subject, multigraph):
    conv, x, given = subject.make(), subject.nodes(9), subject.features(20)
    first = subject.run(conv, x, multigraph, given, weights=True)
    second = subject.run(conv, x, multigraph, given, weights=True)
    for name, part in first.items():
        assert torch.equal(part, second[name])


@given(graph=multigraphs(), seed=st.integers(0, 999))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_multigraph(subject, graph, seed):
    """Weights of receivers, and freedom from the order and the number of copies of edges."""
    torch.manual_seed(seed)
    num_nodes, kept = graph
    edge_index = torch.tensor(kept, dtype=torch.long).reshape(-1, 2).t()
    conv, x = subject.make(), subject.nodes(num_nodes)
    given = subject.features(len(kept))
    out = subject.run(conv, x, edge_index, given, weights=True)
    alpha = out["weights"]
    assert bool((alpha >= 0).all())
    if subject.layer.normalized:
        total = torch.zeros(num_nodes, 2, dtype=DOUBLE).index_add(0, edge_index[1], alpha)
        receives = torch.zeros(num_nodes, dtype=DOUBLE)
        receives[edge_index[1]] = 1.0
        assert_near(total, receives.unsqueeze(-1).expand(-1, 2))
    order = torch.randperm(len(kept))
    shuffled = given | {k: v[order] for k, v in given.items() if k == "edge_attr"}
    again = subject.run(conv, x, edge_index[:, order], shuffled, weights=True)
    assert_near(again["nodes"], out["nodes"])
    assert_near(again["weights"], alpha[order])
