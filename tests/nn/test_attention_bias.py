"""Learned terms of the logits, in every layer."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv
from torch_geometric.utils import scatter

from molattn.graph import AddDummyNode, CodedEdges, CompleteGraph, CompleteGraphs
from molattn.nn import (
    AttentionBias,
    AttentionConv,
    DistanceBias,
    DistanceSlopes,
    EdgeAttentionConv,
    Encoder,
    GraphNetwork,
    GraphTransformerBlock,
    Layer,
    Linear,
    PathBias,
)

from .conftest import DOUBLE, HEADS, assert_near
from .conv.test_edge_attention import numpy_layer
from .test_attention import saved_bytes
from .test_layers import gradients


@pytest.fixture
def biased(dense_subject):
    if not issubclass(dense_subject.layer.conv, (AttentionConv, GraphNetwork)):
        pytest.skip("no logits of pairs")
    terms = DistanceBias(HEADS, max_distance=2, column=0), PathBias(HEADS, 2)
    return dense_subject, dense_subject.make(attn_bias=AttentionBias(*terms).double())


def test_is_a_term_of_the_logits_on_both_forms_of_a_graph(biased):
    subject, conv = biased
    graph, x = CompleteGraphs([3, 1, 5], self_loops=False), subject.nodes(9)
    table = torch.randint(-1, 4, (8, subject.edge_dim or 3)).to(DOUBLE).requires_grad_()
    codes = torch.randint(0, 8, (graph.num_edges,))
    given = {**subject.features(graph.num_edges, batch=graph.batch), "edge_attr": table[codes]}
    listed = subject.run(conv, x, graph.edge_index, given, True)
    dense = subject.run_complete(conv, x, graph, given, True)
    given.pop("batch", None)
    coded = given | {"edge_attr": CodedEdges.from_edges(graph, codes, table)}
    nodes = {"nodes": subject.run(conv, graph.nodes_to_rows(x), graph, coded)["nodes"]}
    nodes["nodes"] = graph.rows_to_nodes(nodes["nodes"])
    del listed["graph"], dense["graph"]
    inputs = [x, table, *conv.parameters()]
    for found in (dense, nodes):
        expected = {name: listed[name] for name in found}
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
        for one, other in zip(*(gradients(o, inputs) for o in (found, expected)), strict=True):
            assert_near(one, other)
    if subject.layer.normalized:
        attention = getattr(conv, "attention", conv)
        bias = attention.attn_bias(table[codes]).detach()
        with torch.no_grad():
            for parameter in attention.attn_bias.parameters():
                parameter.zero_()
        given = {**given, "edge_attr": table[codes]}
        given |= {"batch": graph.batch} if "u" in given else {}
        without = subject.run(conv, x, graph.edge_index, given, True)["weights"]
        powers = without * bias.exp()
        total = scatter(powers, graph.edge_index[1], 0, 9)[graph.edge_index[1]]
        assert_near(listed["weights"], powers / total)


def test_each_distance_has_a_number_for_each_head():
    bonds = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    data = CompleteGraph(self_loops=True)(Data(x=torch.ones(5, 1), edge_index=bonds, num_nodes=5))
    data = AddDummyNode(distance_column=-1)(data)
    term = DistanceBias(2, max_distance=2)
    found = dict(zip(map(tuple, data.edge_index.t().tolist()), term(data.edge_attr), strict=True))
    expected = {(0, 0): 0, (0, 1): 1, (0, 2): 2, (3, 0): 2, (4, 0): 3, (5, 0): 4, (4, 5): 4}
    for pair, number in expected.items():  # 3: no path, 4: the dummy node
        assert torch.equal(found[pair], term.weight[number])


def test_terms_are_added_up_and_reset():
    e = torch.randn(7, 3)
    bias = AttentionBias(PathBias(2, 3), PathBias(2, 1), DistanceBias(2, 3))
    (first, second), third = (term.weight for term in bias.terms[:2]), bias.terms[2](e)
    torch.testing.assert_close(bias(e), e @ first.T + e[:, 2:] @ second.T + third)
    with torch.no_grad():
        third = bias.terms[2].weight.fill_(9.0)
    bias.reset_parameters()
    assert float(third.detach().abs().max()) < 1


def test_a_sum_has_a_term():
    with pytest.raises(TypeError, match="term"):
        AttentionBias()


def test_slopes_are_those_of_alibi_on_a_graph():
    slopes = DistanceSlopes(8, max_distance=3, column=1).double()
    distance = torch.tensor([0.0, 1, 2, 3, 7, -1, 1e4], dtype=DOUBLE)
    edge_attr = torch.stack([torch.randn(7, dtype=DOUBLE), distance], dim=1)
    bonds_beyond_one = np.array([0.0, 0, 1, 2, 2, 3, 0])
    expected = -np.outer(bonds_beyond_one, [4, 2, 1, 0.5, 0.25, 0.125, 0, 0])
    np.testing.assert_array_equal(slopes(edge_attr).detach().numpy(), expected)
    (gradient,) = torch.autograd.grad(slopes(edge_attr).sum(), slopes.slope)
    np.testing.assert_array_equal(gradient.numpy(), [-bonds_beyond_one.sum()] * 8)
    for heads, first in ((1, [0.0]), (2, [4, 0]), (3, [4, 2, 0]), (4, [4, 2, 1, 0])):
        assert DistanceSlopes(heads, max_distance=3).slope.tolist() == first


BONDS = np.array([0.0, 1, 2, 3, 9, -1, 1e4])  # 9 counts as 3, no path as 4, the virtual node as 1
BEYOND_ONE = np.array([0, 0, 1, 2, 2, 3, 0])


@pytest.mark.parametrize("options", [{}, {"score": "gatv2"}, {"temperature": 0.5}], ids=str)
@pytest.mark.parametrize("form", ["edges", "pairs", "codes", "codes of terms", "codes of edges"])
def test_slopes_on_every_form_of_a_graph_are_the_equations(form, options):
    term = DistanceSlopes(2, max_distance=3)
    conv = EdgeAttentionConv(4, 6, 2, edge_dim=3, attn_bias=term, **options).double()
    with torch.no_grad():
        term.slope.copy_(torch.tensor([0.7, -0.2], dtype=DOUBLE))
    graph = CompleteGraphs([4, 1, 6], self_loops=False)
    graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.8)
    kinds = torch.randint(0, 7, (graph.num_edges,))
    table, distances = torch.randn(7, 3, dtype=DOUBLE), torch.from_numpy(BONDS).unsqueeze(-1)
    x = torch.randn(11, 4, dtype=DOUBLE)
    arrays = (t.detach().numpy() for t in (x, graph.edge_index, table[kinds]))
    bias = -np.outer(BEYOND_ONE[kinds.numpy()], [0.7, -0.2])
    expected = numpy_layer(conv, *arrays, bias=bias)
    attr = CodedEdges.from_edges(graph, kinds, table)
    bias_attr = CodedEdges(attr.codes, distances)
    if form == "edges":
        given = {"edge_attr": table[kinds], "bias_attr": distances[kinds, 0]}
        out, (_, alpha) = conv(x, graph.edge_index, return_attention_weights=True, **given)
    else:
        is_coded = form in ("codes", "codes of edges"), form in ("codes", "codes of terms")
        given = [
            coded if of_codes else coded.dense()
            for of_codes, coded in zip(is_coded, (attr, bias_attr), strict=True)
        ]
        rows = graph.nodes_to_rows(x)
        out = graph.rows_to_nodes(conv(rows, graph, given[0], bias_attr=given[1]))
        again, (_, alpha) = conv(rows, graph, given[0], True, bias_attr=given[1])
        assert_near(graph.rows_to_nodes(again), out)
        alpha = graph.pairs_to_edges(alpha)
    assert_near(out, torch.from_numpy(expected[0]))
    assert_near(alpha, torch.from_numpy(expected[2]))


def test_slopes_of_codes_keep_no_tensor_of_pairs():
    graph, x = CompleteGraphs([50]), torch.randn(50, 16, requires_grad=True)
    codes = torch.randint(0, 9, (graph.num_edges,))
    edges = CodedEdges.from_edges(graph, codes, torch.randn(9, 16, requires_grad=True))
    distances = CodedEdges(edges.codes, torch.arange(9.0).unsqueeze(-1))
    plain = EdgeAttentionConv(16, 16, 8, edge_dim=16)
    conv = EdgeAttentionConv(16, 16, 8, edge_dim=16, attn_bias=DistanceSlopes(8, 8))
    expected, _ = saved_bytes(lambda: plain(x, graph, edges))
    kept, out = saved_bytes(lambda: conv(x, graph, edges, bias_attr=distances))
    assert kept < expected + 5000 < expected + graph.num_pairs * 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = conv(x, graph, edges, bias_attr=distances)
    torch.testing.assert_close(mixed.float(), out, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("has_own_block", [False, True])
@pytest.mark.parametrize("form", ["edges", "features of pairs", "codes of pairs"])
def test_terms_read_edges_that_no_block_changes(form, has_own_block):
    def make():
        bias = DistanceSlopes(2, max_distance=4)
        conv = EdgeAttentionConv(6, 6, 2, edge_dim=3, attn_bias=bias, update_edges=True)
        return GraphTransformerBlock(conv, 6, 3) if has_own_block else conv

    encoder = Encoder(make, 2, 6).double()
    read = []
    for module in encoder.modules():
        if isinstance(module, DistanceSlopes):
            module.register_forward_hook(lambda _, inputs, __: read.append(inputs[0]))
    graph = CompleteGraphs([4, 2])
    table = torch.randn(5, 3, dtype=DOUBLE)
    table[:, -1] = torch.arange(5)
    codes = torch.randint(0, 5, (graph.num_edges,))
    x = torch.randn(6, 6, dtype=DOUBLE)
    edges = CodedEdges.from_edges(graph, codes, table)
    if form == "edges":
        encoder(x, graph.edge_index, table[codes])
    else:
        edges = edges if form == "codes of pairs" else edges.dense()
        encoder(graph.nodes_to_rows(x), graph, edges)
    first, second = read
    assert torch.equal(first, second)
    assert {*first[:, -1].tolist()} <= {*range(5)}


def test_a_term_reads_features_of_its_own():
    conv = EdgeAttentionConv(6, 6, heads=2, attn_bias=DistanceSlopes(2, 9), edge_dim=3).double()
    edge_index = torch.tensor([[0, 1, 2], [2, 2, 2]])
    x, e = torch.randn(3, 6, dtype=DOUBLE), torch.randn(3, 3, dtype=DOUBLE)
    distance = torch.tensor([[1.0], [5.0], [0.0]], dtype=DOUBLE)
    _, (_, far) = conv(x, edge_index, e, True, bias_attr=distance)
    _, (_, near) = conv(x, edge_index, e, True, bias_attr=distance.clamp(max=1))
    factor = torch.tensor([1, 4 * -4.0, 1], dtype=DOUBLE)  # the slope times four bonds
    expected = near[:, 0].log() + torch.where(factor == 1, 0.0, factor)
    torch.testing.assert_close(far[:, 0], expected.softmax(dim=0))
    torch.testing.assert_close(far[:, 1], near[:, 1])  # the second slope is 0


def test_other_layers_of_an_encoder_have_no_features_of_terms():
    made = iter([GINEConv(Linear(6, 6), edge_dim=1), None])

    def make():
        bias = DistanceSlopes(2, max_distance=4)
        return next(made) or EdgeAttentionConv(6, 6, 2, edge_dim=1, attn_bias=bias)

    encoder = Encoder(make, 2, 6)
    edge_index = torch.tensor([[0, 1, 2], [2, 2, 0]])
    x, distance = torch.randn(3, 6), torch.tensor([1.0, 2.0, 3.0])
    out = encoder(x, edge_index, distance.unsqueeze(-1))
    assert out.shape == (3, 6)
    conv = encoder.blocks[1].conv
    for columns in (distance, distance.unsqueeze(-1)):
        torch.testing.assert_close(
            conv(x, edge_index, distance, bias_attr=columns), conv(x, edge_index, distance)
        )


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_term_in_a_block_by_itself_reads_edges_that_are_not_normalized(is_sparse):
    bias = DistanceSlopes(2, max_distance=9)
    conv = EdgeAttentionConv(6, 6, 2, edge_dim=3, attn_bias=bias)
    read = []
    bias.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    edge_index = torch.tensor([[1, 0, 2, 1], [0, 1, 1, 2]])  # by receiver, as in a matrix
    e = torch.tensor([[0.0, 1, 1], [0, 1, 1], [1, 0, 2], [0, 1, 1]])
    graph = (edge_index, e)
    if is_sparse:
        options = {"size": (3, 3, 3), "is_coalesced": True, "check_invariants": True}
        graph = (torch.sparse_coo_tensor(edge_index.flip(0), e, **options),)
    GraphTransformerBlock(conv, 6, 3)(torch.randn(3, 6), *graph)
    assert torch.equal(read[0], e)


def test_a_wrapped_layer_reads_edges_that_no_block_changes():
    layer = Layer(EdgeAttentionConv, complete_graphs=False)
    options = {"edge_dim": 3, "attn_bias": "slopes", "update_edges": True}
    encoder = Encoder(lambda: layer.make(6, 6, 2, **options), 2, 6)
    read = []
    for module in encoder.modules():
        if isinstance(module, DistanceSlopes):
            module.register_forward_hook(lambda _, inputs, __: read.append(inputs[0]))
    graph = CompleteGraphs([3])
    encoder(torch.randn(3, 6), graph, torch.randn(9, 3))
    assert torch.equal(*read)
