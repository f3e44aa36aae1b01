"""Updated edges on complete graphs against the list of their edges and numerical derivatives."""

import copy

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import EdgeAttentionConv, GraphNetwork

from ..conftest import DOUBLE, assert_near

WIDTH, HEADS, CODES = 5, 2, 4
SIZES = [3, 1, 0, 5, 2]
NARROW, WIDE = 2, 7  # edges not as wide as a head of 6 / 2 channels, and wider


class ByMessages(EdgeAttentionConv):
    """The same layer, updated by the messages of all pairs."""

    def updated_edges(self, attr, messages):
        return super().updated_edges(attr, messages.dense())


def make(edge_dim, kind=EdgeAttentionConv, out_channels=6, **options):
    conv = kind(WIDTH, out_channels, HEADS, edge_dim=edge_dim, update_edges=True, **options)
    return conv.double().eval()


def random_inputs(graph, edge_dim, coded=False):
    """Nodes, and features of edges or of codes; then these as a layer takes them."""
    x = torch.randn(graph.num_nodes, WIDTH, dtype=DOUBLE, requires_grad=True)
    count = CODES if coded else graph.num_edges
    features = torch.randn(count, edge_dim, dtype=DOUBLE, requires_grad=True)
    if not coded:
        return x, features, features, graph.edges_to_pairs(features)
    codes = torch.randint(0, CODES, (graph.num_edges,))
    return x, features, features[codes], CodedEdges.from_edges(graph, codes, features)


def outputs(conv, graph, x, listed, pairs, **more):
    """Nodes and edges computed on the list of edges, and on the layout."""
    on_list = conv(x, graph.edge_index, listed, **more)
    nodes, edges = conv(graph.nodes_to_rows(x), graph, pairs, **more)
    return on_list, (graph.rows_to_nodes(nodes), graph.pairs_to_edges(edges))


def gradients(found, inputs):
    torch.manual_seed(1)
    total = sum((part * torch.randn_like(part)).sum() for part in found)
    return torch.autograd.grad(total, inputs, retain_graph=True)


def assert_same(one, other, inputs):
    for a, b in zip(one, other, strict=True):
        assert_near(a, b, 1e-12 * max(1.0, float(b.detach().abs().max())))
    for a, b in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        assert_near(a, b, 1e-12 * max(1.0, float(b.abs().max())))


@pytest.mark.parametrize("coded", [False, True], ids=["features", "codes"])
@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
@pytest.mark.parametrize(
    "options",
    [
        *({"combine": name} for name in ("linear", "concat", "mean", "max", "weighted")),
        {"gate": True},
        {"edge_value": False},
        {"edge_value": False, "combine": "weighted", "gate": True},
        {"score": "additive"},
        {"temperature": float("inf")},
    ],
    ids=str,
)
def test_equals_the_edge_list(options, edge_dim, coded):
    graph = CompleteGraphs(SIZES, self_loops=False)
    conv, (x, features, *given) = make(edge_dim, **options), random_inputs(graph, edge_dim, coded)
    listed, dense = outputs(conv, graph, x, *given)
    idle = ("query", "key") if options.get("temperature") else ()  # equal weights
    named = conv.named_parameters()
    used = [weight for name, weight in named if not any(part in name for part in idle)]
    assert_same(dense, listed, [x, features, *used])


@pytest.mark.parametrize("coded", [False, True], ids=["features", "codes"])
@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
def test_pairs_that_are_no_edges_do_not_count(edge_dim, coded):
    graph = CompleteGraphs(SIZES)
    graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.5)
    conv, (x, features, *given) = make(edge_dim), random_inputs(graph, edge_dim, coded)
    listed, dense = outputs(conv, graph, x, *given)
    assert_same(dense, listed, [x, features, *conv.parameters()])


@pytest.mark.parametrize("options", [{}, {"edge_value": False}], ids=str)
@pytest.mark.parametrize("out_channels, combine", [(512, "concat"), (256, "mean")])
def test_graphs_of_more_pairs_than_are_computed_at_once(out_channels, combine, options):
    graph, width = CompleteGraphs([40, 9, 9, 36]), 257 if combine == "concat" else 256
    options = {"out_channels": out_channels, "combine": combine, **options}
    conv, (x, features, *given) = make(width, **options), random_inputs(graph, width)
    listed, dense = outputs(conv, graph, x, *given)
    assert_same(dense, listed, [x, features, *conv.parameters()])


@pytest.mark.parametrize("coded", [False, True], ids=["features", "codes"])
@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
@pytest.mark.parametrize("options", [{}, {"edge_value": False}, {"gate": True}], ids=str)
def test_first_and_second_derivatives_are_those_of_differences(options, edge_dim, coded):
    graph = CompleteGraphs([1, 2], self_loops=False)
    conv, (x, features, _, pairs) = make(edge_dim, **options), random_inputs(graph, edge_dim, coded)
    last = conv.lin_edge_out.weight.detach().clone().requires_grad_()

    def edges(x, features, last):
        attr = graph.edges_to_pairs(features) if not coded else CodedEdges(pairs.codes, features)
        given = graph.nodes_to_rows(x), graph, attr
        out = torch.func.functional_call(conv, {"lin_edge_out.weight": last}, given)
        return graph.pairs_to_edges(out[1])

    assert gradcheck(edges, (x, features, last), fast_mode=True)
    assert gradgradcheck(edges, (x, features, last), fast_mode=True)


@pytest.mark.parametrize("options", [{}, {"edge_value": False}, {"gate": True}], ids=str)
@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
def test_dropout_is_that_of_the_messages(edge_dim, options):
    graph = CompleteGraphs(SIZES)
    fast = make(edge_dim, dropout=0.4, **options).train()
    slow = make(edge_dim, ByMessages, dropout=0.4, **options).train()
    slow.load_state_dict(fast.state_dict())
    x, features, _, pairs = random_inputs(graph, edge_dim)
    found = []
    for conv in (fast, slow):
        torch.manual_seed(3)
        found.append(conv(graph.nodes_to_rows(x), graph, pairs))
    assert_same(*found, [x, features])


@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
def test_weights_are_returned_beside_updated_edges(edge_dim):
    graph, conv = CompleteGraphs(SIZES), make(edge_dim)
    x, features, listed, pairs = random_inputs(graph, edge_dim)
    *first, (_, alpha) = conv(x, graph.edge_index, listed, True)
    nodes, edges, (_, weights) = conv(graph.nodes_to_rows(x), graph, pairs, True)
    second = [graph.rows_to_nodes(nodes), *map(graph.pairs_to_edges, (edges, weights))]
    assert_same(second, [*first, alpha], [x, features])


@pytest.mark.parametrize("coded", [False, True], ids=["features", "codes"])
def test_edges_that_a_block_does_not_read_are_updated(coded):
    graph = CompleteGraphs(SIZES)
    block = GraphNetwork(
        WIDTH, 6, HEADS, edge_dim=NARROW, update_edges=True, edge_inputs=["sender", "receiver"]
    ).double()
    x, features, *given = random_inputs(graph, NARROW, coded)
    listed, dense = outputs(block, graph, x, *given)
    used = [w for name, w in block.named_parameters() if "lin_edge_out" in name]
    assert_same(dense, listed, [x, features, *used])


@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
def test_autograd_keeps_no_tensor_of_all_pairs_and_channels(edge_dim):
    graph, conv = CompleteGraphs([30, 20]), make(edge_dim, out_channels=64)
    x, _, _, pairs = random_inputs(graph, edge_dim)
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    rows = graph.nodes_to_rows(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        conv(rows, graph, pairs)
    weights_and_edges = 8 * graph.num_pairs * (HEADS + edge_dim)
    nodes = 8 * graph.num_rows * 64
    assert sum(kept.values()) < 1.1 * weights_and_edges + 10 * nodes


@pytest.mark.parametrize("options", [{}, {"edge_value": False}], ids=str)
@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
def test_mixed_precision(edge_dim, options):
    graph, conv = CompleteGraphs(SIZES), make(edge_dim, **options)
    x, features, _, pairs = random_inputs(graph, edge_dim)
    expected = conv(graph.nodes_to_rows(x), graph, pairs)[1]
    single, rows, attr = copy.deepcopy(conv).float(), graph.nodes_to_rows(x).float(), pairs.float()
    with torch.autocast("cpu", torch.bfloat16):
        _, edges = single(rows, graph, attr)
    assert edges.dtype == torch.float32
    got, wanted = (gradients([out.double()], [x, features]) for out in (edges, expected))
    assert_near(edges.double(), expected, 0.05 * float(expected.detach().abs().max()))
    for a, b in zip(got, wanted, strict=True):
        assert_near(a, b, 0.05 * float(b.abs().max()))


@pytest.mark.parametrize("coded", [False, True], ids=["features", "codes"])
def test_edges_keep_their_digits_where_attention_is_in_half_precision(coded, monkeypatch):
    monkeypatch.setattr("molattn.nn.dense.plain.working_dtype", lambda x: x.dtype)  # on a GPU
    graph, conv = CompleteGraphs(SIZES), make(NARROW).float()
    torch.nn.init.zeros_(conv.lin_edge_out.weight)
    x, _, listed, pairs = random_inputs(graph, NARROW, coded)
    pairs = CodedEdges(pairs.codes, pairs.table.float()) if coded else pairs.float()
    with torch.autocast("cpu", torch.bfloat16):
        _, edges = conv(graph.nodes_to_rows(x).float(), graph, pairs)
    assert torch.equal(graph.pairs_to_edges(edges), listed.float())


@pytest.mark.parametrize("intel", [True, False])
@pytest.mark.parametrize("options", [{}, {"edge_value": False}], ids=str)
@pytest.mark.parametrize("edge_dim", [NARROW, WIDE])
def test_single_precision(edge_dim, options, intel, monkeypatch):
    """Whichever library multiplies."""
    monkeypatch.setattr("molattn.nn.dense.linear._INTEL", intel)
    graph, conv = CompleteGraphs(SIZES), make(edge_dim, **options)
    x, features, _, pairs = random_inputs(graph, edge_dim)
    expected = conv(graph.nodes_to_rows(x), graph, pairs)[1]
    single = copy.deepcopy(conv).float()
    edges = single(graph.nodes_to_rows(x).float(), graph, pairs.float())[1].double()
    assert_near(edges, expected, 1e-5)
    got, wanted = (gradients([out], [x, features]) for out in (edges, expected))
    for a, b in zip(got, wanted, strict=True):
        assert_near(a, b, 1e-4)


def test_hooks_of_the_maps_are_called():
    graph, conv = CompleteGraphs(SIZES), make(NARROW)
    x, _, _, pairs = random_inputs(graph, NARROW)
    plain = conv(graph.nodes_to_rows(x), graph, pairs)[1]
    conv.lin_edge_out.register_forward_hook(lambda _, given, out: 2 * out)
    doubled = conv(graph.nodes_to_rows(x), graph, pairs)[1]
    assert_near(doubled - pairs, 2 * (plain - pairs), 1e-12)
