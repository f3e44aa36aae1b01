"""Any PyG graph as a list of edges, and the errors for invalid input."""

import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_geometric import EdgeIndex
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import EdgeAttentionConv, MATConv
from molattn.nn.graph_inputs import (
    as_pair,
    at_receivers,
    check_features,
    read_complete,
    read_edges,
    read_globals,
    results_in_rows,
)

INDEX = torch.tensor([[2, 0, 2, 1], [0, 0, 1, 1]])  # three senders, two receivers
LISTED = torch.zeros(2, 0, dtype=torch.int64)
ORDERED = torch.tensor([[0, 2, 1, 2], [0, 0, 1, 1]])  # as a sparse matrix of receivers has it

# torch warns at the first sparse tensor of a process, whichever test makes it.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|invariant).*:UserWarning")


def adj_t(values):
    size = (2, 3, *values.shape[1:])
    return torch.sparse_coo_tensor(INDEX.flip(0), values, size).coalesce()


def test_a_list_of_edges_is_read_as_it_is():
    edges = read_edges(INDEX, None, 3, 2, None)
    assert edges.index is INDEX
    assert edges.attr is None
    plain = read_edges(EdgeIndex(INDEX, sparse_size=(3, 2)), None, 3, 2, None).index
    assert type(plain) is torch.Tensor
    assert torch.equal(plain, INDEX)


@pytest.mark.parametrize("convert", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_a_sparse_matrix_of_receivers_gives_edges_and_their_values(convert):
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    graph = getattr(adj_t(values), convert)()
    edges = read_edges(graph, None, 3, 2, 1)
    as_dict = dict(zip(map(tuple, edges.index.T.tolist()), edges.attr[:, 0].tolist(), strict=True))
    assert as_dict == {(2, 0): 1.0, (0, 0): 2.0, (2, 1): 3.0, (1, 1): 4.0}
    if convert != "to_sparse_csc":
        assert torch.equal(edges.index, ORDERED)
    given = torch.ones(4, 1)
    assert read_edges(graph, given, 3, 2, 1).attr is given
    assert read_edges(graph, None, 3, 2, None).attr is None


def test_a_matrix_that_is_not_coalesced_stays_so():
    twice = torch.cat([INDEX, INDEX[:, :1]], dim=1).flip(0)
    graph = torch.sparse_coo_tensor(twice, torch.arange(5.0), (2, 3))
    edges = read_edges(graph, None, 3, 2, 1)
    assert torch.equal(edges.index.flip(0), twice)
    assert torch.equal(edges.attr[:, 0], torch.arange(5.0))
    assert not graph.is_coalesced()


def test_values_of_several_columns():
    values = torch.rand(4, 2)
    edges = read_edges(adj_t(values), None, 3, 2, 2)
    assert torch.equal(edges.attr, values[[1, 0, 3, 2]])


@pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch_sparse is not installed")
def test_torch_sparse():
    graph = SparseTensor(row=INDEX[1], col=INDEX[0], value=torch.ones(4), sparse_sizes=(2, 3))
    edges = read_edges(graph, None, 3, 2, 1)
    assert torch.equal(edges.index, ORDERED)
    assert edges.attr.shape == (4, 1)


def test_one_number_for_each_edge_is_one_column():
    weight = torch.rand(4)
    assert torch.equal(read_edges(INDEX, weight, 3, 2, 1).attr, weight.unsqueeze(-1))
    with pytest.raises(ValueError, match=re.escape("got shape [4, 1], expected [4, 2]")):
        read_edges(INDEX, weight, 3, 2, 2)


def test_senders_and_receivers():
    a, b = torch.ones(2, 1), torch.ones(3, 1)
    assert as_pair(a) == (a, a)
    assert as_pair((a, b)) == as_pair([a, b]) == (a, b)
    for wrong in (None, (a,), (None, b), (a, b, a), "x", {"x": a}):
        with pytest.raises(TypeError, match="expected a tensor or a pair"):
            as_pair(wrong)


@pytest.mark.parametrize("rows, error", [(5, ValueError), (1, IndexError)])
def test_codes_are_checked_with_each_table(rows, error):
    graph = CompleteGraphs([3, 1], self_loops=False)
    edges = CodedEdges.from_edges(graph, torch.tensor([0, 1, 2, 0, 1, 2]), torch.ones(3, 2))
    x = torch.ones(graph.num_rows, 4)
    read_complete((x, x), graph, edges, 2)
    with pytest.raises(error, match=r"edge_attr\.codes: "):
        read_complete((x, x), graph, CodedEdges(edges.codes, torch.ones(rows, 2)), 2)


def test_fake_tensors_have_no_codes_to_check():
    graph = CompleteGraphs([3, 1], self_loops=False)
    codes = torch.tensor([0, 1, 2, 0, 1, 2])
    with FakeTensorMode(allow_non_fake_inputs=True):
        edges = CodedEdges.from_edges(graph, codes, torch.ones(3, 2))
        x = torch.ones(graph.num_rows, 4)
        read_complete((x, x), graph, edges, 2)
    assert graph.checked_codes is None


def test_receivers_rows_for_each_edge_in_both_forms():
    graph = CompleteGraphs([1, 3], self_loops=False)
    nodes = torch.arange(4.0).unsqueeze(-1)
    flat = at_receivers(nodes, graph.edge_index)
    assert torch.equal(flat, nodes[graph.edge_index[1]])
    rows = at_receivers(graph.nodes_to_rows(nodes), graph)
    assert torch.equal(graph.pairs_to_edges(rows), flat)


def test_graph_features_of_senders_and_receivers():
    x = torch.ones(3, 1), torch.ones(2, 1)
    u = torch.tensor([[1.0], [2.0]])
    src, dst = read_globals(u, (torch.tensor([0, 1, 1]), torch.tensor([1, 0])), x, 1, LISTED)
    assert src.at_nodes(u).flatten().tolist() == [1, 2, 2]
    assert dst.at_nodes(u).flatten().tolist() == [2, 1]
    one, _ = read_globals(u[:1], None, x, 1, LISTED)
    assert (one.at_nodes(u[:1]) + torch.zeros(3, 1)).flatten().tolist() == [1, 1, 1]
    assert read_globals(None, None, x, None, LISTED) == (None, None)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda x: check_features("x", x[:, 0], 4, 3),
            ValueError,
            "x: got shape [3], expected [3, 4]",
        ),
        (lambda x: check_features("x", x, -1, 2), ValueError, "got shape [3, 4], expected [2, *]"),
        (lambda x: check_features("x", x.bool(), 4), TypeError, "x: got torch.bool, expected a fl"),
        (lambda x: check_features("x", None, 4), TypeError, "x: got NoneType, expected a tensor"),
        (
            lambda x: read_edges(torch.tensor([[0], [2]]), None, 3, 2, None),
            IndexError,
            "edge_index[1]: got indices from 2 to 2, expected 0 <= index < 2, the number of",
        ),
        (
            lambda x: read_edges(adj_t(torch.ones(4)), None, 2, 3, None),
            ValueError,
            "adj_t: got shape [2, 3], expected [3, 2] (receivers, senders)",
        ),
        (
            lambda x: read_complete((x, x), CompleteGraphs([3]), torch.ones(6, 2), 2),
            ValueError,
            "edge_attr: got shape [6, 2], expected [9, 2]",
        ),
        (
            lambda x: read_globals(torch.ones(2, 1), torch.tensor([0, 1, 2]), (x, x), 1, LISTED),
            IndexError,
            "batch: got indices from 0 to 2, expected 0 <= index < 2, the number of graphs",
        ),
        (
            lambda x: read_globals(torch.ones(2, 1), torch.tensor([0, -1, 1]), (x, x), 1, LISTED),
            IndexError,
            "batch: got indices from -1 to 1, expected 0 <= index < 2",
        ),
        (
            lambda x: read_globals(torch.ones(2, 1), torch.zeros(3), (x, x), 1, LISTED),
            TypeError,
            "batch: got torch.float32, expected integers",
        ),
        (
            lambda x: read_globals(torch.ones(2, 1), "graphs", (x, x), 1, LISTED),
            TypeError,
            "batch: got str, expected a tensor or a pair",
        ),
        (
            lambda x: read_globals(torch.ones(1, 1).long(), None, (x, x), 1, LISTED),
            TypeError,
            "u: got torch.int64, expected a floating-point tensor [*, 1]",
        ),
    ],
)
def test_what_does_not_fit_names_got_and_expected(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(torch.ones(3, 4))


def test_each_result_of_a_layer_gets_the_rows_of_its_kind():
    graph = CompleteGraphs([2, 3])
    x, edges, alpha = (torch.rand(n, 4) for n in (5, 13, 13))
    found = results_in_rows((x, edges, (graph.edge_index, alpha)), graph, edges=True, weights=True)
    assert torch.equal(found[0], graph.nodes_to_rows(x))
    assert torch.equal(found[1], graph.edges_to_pairs(edges))
    assert found[2][0] is graph
    assert torch.equal(found[2][1], graph.edges_to_pairs(alpha))
    found = results_in_rows((x, (graph.edge_index, alpha)), graph, edges=False, weights=True)
    assert torch.equal(found[0], graph.nodes_to_rows(x))
    assert found[1][0] is graph


def test_complete_graphs_have_as_many_rows_of_graph_features_as_graphs():
    graph, layer = CompleteGraphs([3, 2]), EdgeAttentionConv(4, 8, global_dim=3)
    x = graph.nodes_to_rows(torch.randn(5, 4))
    layer(x, graph, u=torch.randn(2, 3))
    for rows in (1, 5):
        with pytest.raises(ValueError, match=re.escape(f"u: got shape [{rows}, 3], expected [2,")):
            layer(x, graph, u=torch.randn(rows, 3))


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda x, e: MATConv(4, 8)(x, INDEX[:, :2], e.double()), "edge_attr"),
        (lambda x, e: EdgeAttentionConv((4, 4), 8)((x, x.double()), INDEX), "x[1] (receivers)"),
        (lambda x, e: EdgeAttentionConv(4, 8, global_dim=2)(x, INDEX, u=e[:1].double()), "u"),
    ],
)
def test_features_of_another_type_than_the_nodes_are_named(call, name):
    message = f"{name}: got torch.float64, expected torch.float32, as the nodes have"
    with pytest.raises(TypeError, match=re.escape(message)):
        call(torch.randn(3, 4), torch.rand(2, 2))
