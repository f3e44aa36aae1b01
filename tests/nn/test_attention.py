"""Attention on complete graphs: fused, by ordinary operations, and on the list of edges."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import scatter

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import (
    COMBINES,
    SCORES,
    AttentionConv,
    DistanceSlopes,
    EdgeAttentionConv,
    EGTConv,
    GaANConv,
    GraphNetwork,
    GRITConv,
    Linear,
)
from molattn.nn.attention_heads import neighbor_max, neighbor_mean
from molattn.nn.dense.fused import fused_attention
from molattn.nn.dense.plain import PairInputs, dense_attention

from .conftest import assert_near

DOUBLE = torch.float64
SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=6)


def code_edges(graphs, num_codes, table):
    """Random codes for the edges, as codes of pair rows and as features of edges."""
    codes = torch.randint(0, num_codes, (graphs.num_edges,))
    return CodedEdges.from_edges(graphs, codes, table), table[codes]


def near(got, expected, tolerance=1e-10):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def leaf(*shape):
    return torch.randn(*shape, dtype=DOUBLE, requires_grad=True)


FORMS = {
    "none": {"edges": None},
    "features": {"edges": "features"},
    "codes": {"edges": "codes"},
    "keys_alone": {"edges": "codes", "edge_value": False},
    "bias": {"edges": "codes", "attn_bias": True},
    "code_bias": {"edges": "codes", "code_bias": True},
    "gate": {"edges": "features", "edge_gate": True},
    "gated_codes": {"edges": "codes", "edge_gate": True, "attn_bias": True},
    "score_mod": {"edges": "codes", "score_mod": torch.tanh},
    "all": {"edges": "features", "attn_bias": True, "edge_gate": True, "score_mod": torch.tanh},
}


def inputs_of(
    graphs, edges, edge_value=True, attn_bias=False, edge_gate=False, code_bias=False, **_
):
    """Leaves for each of the inputs, of which the codes are none."""
    values = dict.fromkeys(PairInputs._fields)
    for name, width in (("query", 2), ("key", 2), ("value", 1)):
        values[name] = leaf(graphs.num_rows, 2, width)
    if edges == "codes":
        values["edges"] = code_edges(graphs, 3, torch.zeros(3, 1))[0].codes
    elif edges:
        values["edges"] = leaf(graphs.num_pairs, 3)
    if edges:
        values["edge_key"] = leaf(3, 2, 2)
        values["edge_value"] = leaf(3, 2, 1) if edge_value else None
    values["attn_bias"] = leaf(graphs.num_pairs, 2) if attn_bias else None
    values["edge_gate"] = leaf(graphs.num_pairs, 2) if edge_gate else None
    values["code_bias"] = leaf(2, 3) if code_bias else None
    return values


def runner(graphs, values, score_mod, attend, return_weights):
    """A function of the leaves, and the leaves."""
    names = [name for name, x in values.items() if x is not None and x.is_floating_point()]

    def run(*leaves):
        given = values | dict(zip(names, leaves, strict=True))
        if given["edges"] is not None and given["edges"].dim() == 1:  # the last row is a constant
            for name in ("edge_key", "edge_value"):
                if given[name] is not None:
                    given[name] = torch.nn.functional.pad(given[name], (0, 0, 0, 0, 0, 1))
            if given["code_bias"] is not None:
                given["code_bias"] = torch.nn.functional.pad(given["code_bias"], (0, 1))
        returned = {"return_weights": return_weights, "return_logits": return_weights}
        out = attend(graphs, PairInputs(**given), 0.7, score_mod, **returned)
        nodes = out.nodes[graphs.row_mask]
        if not return_weights:
            return nodes
        return nodes, *(graphs.pairs_to_edges(x) for x in (out.weights, out.logits))

    return run, [values[name] for name in names]


@pytest.mark.parametrize("return_weights", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_fused_step_has_all_derivatives(form, return_weights):
    options = {"score_mod": None} | FORMS[form]
    graphs = CompleteGraphs([2, 1], self_loops=False)  # padding and an isolated node
    values = inputs_of(graphs, **options)
    plain, leaves = runner(graphs, values, options["score_mod"], dense_attention, return_weights)
    run, _ = runner(graphs, values, options["score_mod"], fused_attention, return_weights)
    torch.testing.assert_close(run(*leaves), plain(*leaves))
    with torch.no_grad():
        torch.testing.assert_close(run(*leaves), plain(*leaves))
    assert torch.autograd.gradcheck(run, leaves)
    # Fast mode compares random projections: each number would take seconds.
    every_way = {"check_batched_grad": not return_weights, "fast_mode": True}
    assert torch.autograd.gradcheck(run, leaves, check_forward_ad=True, **every_way)
    assert torch.autograd.gradgradcheck(run, leaves, check_fwd_over_rev=True, **every_way)


def test_bias_gate_and_score_mod_on_complete_graphs_equal_the_edge_list():
    graphs = CompleteGraphs([3, 1, 4], self_loops=False)
    nodes = [leaf(graphs.num_nodes, 2, 3) for _ in "qkv"]
    bias, gate = leaf(graphs.num_edges, 2), leaf(graphs.num_edges, 2)
    options = {"score_mod": lambda a: a.clamp(-0.2, 0.3), "return_weights": True}
    for temperature, score in ((1.0, "scaled_dot"), (0.5, "dot"), (1.0, "gatv2")):
        conv = EdgeAttentionConv(4, 6, 2, score=score, temperature=temperature).double()
        edges = conv.attend(nodes, as_edges(graphs), attn_bias=bias, edge_gate=gate, **options)
        rows = [graphs.nodes_to_rows(x) for x in nodes]
        extra = {"attn_bias": graphs.edges_to_pairs(bias), "edge_gate": graphs.edges_to_pairs(gate)}
        pairs = conv.attend(rows, graphs, **extra, **options)
        found = graphs.rows_to_nodes(pairs.nodes), *map(graphs.pairs_to_edges, pairs[1:3])
        for one, other in zip(found, edges, strict=False):
            near(one, other)
        (logits, weights), receiver = (edges.logits, edges.weights), graphs.edge_index[1]
        total = torch.zeros(graphs.num_nodes, 2, dtype=DOUBLE)
        powers = (logits / temperature).exp()
        near(weights, powers / total.index_add(0, receiver, powers)[receiver])


@pytest.mark.parametrize("sizes", [[3, 1, 4], [1]])
def test_a_score_mod_with_parameters_gives_them_their_gradient(sizes):
    class Scaled(EdgeAttentionConv):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.sharpness = torch.nn.Parameter(torch.tensor(1.5))

        def attend(self, *args, **options):
            return super().attend(*args, score_mod=lambda a: a * self.sharpness, **options)

    graphs, conv = CompleteGraphs(sizes), Scaled(4, 6, 2).double()
    x = torch.randn(graphs.num_nodes, 4, dtype=DOUBLE)
    of_rows = graphs.rows_to_nodes(conv(graphs.nodes_to_rows(x), graphs))
    gradients = [
        torch.autograd.grad(out.square().sum(), conv.sharpness)[0]
        for out in (of_rows, conv(x, graphs.edge_index))
    ]
    near(*gradients)


def as_edges(graphs):
    from molattn.nn.graph_inputs import EdgeList

    return EdgeList(graphs.edge_index)


@given(
    score=st.sampled_from([*SCORES]),
    combine=st.sampled_from([*COMBINES]),
    temperature=st.sampled_from([0.0, 0.5, 1.0, torch.inf]),
    gate=st.booleans(),
    update_edges=st.booleans(),
    coded=st.booleans(),
    some=st.booleans(),
    slopes=st.booleans(),
    sizes=SIZES,
)
def test_layers_equal_the_edge_list_in_values_and_derivatives(
    score, combine, temperature, gate, update_edges, coded, some, slopes, sizes
):
    graphs = CompleteGraphs(sizes, self_loops=False)
    if some:  # and nodes without neighbors
        graphs = graphs.with_edges(torch.rand(graphs.num_pairs) < 0.6)
    options = {"combine": combine, "gate": gate, "update_edges": update_edges}
    options["attn_bias"] = DistanceSlopes(2, max_distance=2) if slopes else None
    conv = EdgeAttentionConv(
        4, 4, 2, edge_dim=3, score=score, temperature=temperature, **options
    ).double()
    x, table = leaf(graphs.num_nodes, 4), leaf(5, 3)
    codes, e = code_edges(graphs, 5, table)
    listed = conv(x, graphs.edge_index, e)
    rows = conv(graphs.nodes_to_rows(x), graphs, codes if coded else graphs.edges_to_pairs(e))
    if update_edges:
        listed = torch.cat([part.flatten() for part in listed])
        nodes, edges = graphs.rows_to_nodes(rows[0]), graphs.pairs_to_edges(rows[1])
        rows = torch.cat([nodes.flatten(), edges.flatten()])
    else:
        listed, rows = listed.flatten(), graphs.rows_to_nodes(rows).flatten()
    near(rows, listed)
    inputs, upstream = (x, table, *conv.parameters()), torch.randn_like(listed)
    found = []
    for out in (rows, listed):
        # A constant upstream too: a gradient of it must not be taken for a constant.
        slopes = torch.autograd.grad(
            (out * upstream).sum(), inputs, create_graph=True, materialize_grads=True
        )
        penalty = sum(slope.square().sum() for slope in slopes)
        second = torch.autograd.grad(penalty, inputs, retain_graph=True, materialize_grads=True)
        first = torch.autograd.grad(
            (out * upstream).sum(), inputs, retain_graph=True, materialize_grads=True
        )
        found.append((*first, *slopes, *second))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def saved_bytes(run):
    """Bytes of distinct tensors that autograd keeps."""
    sizes = {}

    def pack(t):
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = run()
    return sum(sizes.values()), out


def test_keeps_one_tensor_of_pairs_and_heads():
    graphs = CompleteGraphs([50])
    edges, _ = code_edges(graphs, 9, torch.randn(9, 16, requires_grad=True))
    conv = EdgeAttentionConv(16, 16, 8, edge_dim=16)
    x = torch.randn(50, 16, requires_grad=True)
    kept, expected = saved_bytes(lambda: conv(x, graphs, edges))
    weights, codes = 50 * 50 * 8 * 4, 50 * 50 * 8
    assert weights < kept < weights + codes + 200_000
    assert kept < saved_bytes(lambda: conv(x, graphs.edge_index, edges.dense()))[0] / 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, got = saved_bytes(lambda: conv(x, graphs, edges))
    assert mixed < 1.3 * kept
    torch.testing.assert_close(got.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("kind", ["bias", "hook", "weights", "replaced", "query"])
def test_other_maps_and_their_hooks_equal_the_edge_list(kind, coded):
    class Louder(torch.nn.Module):
        def __init__(self, lin):
            super().__init__()
            self.lin = lin

        def forward(self, x):
            return 3 * self.lin(x)

    graphs, x = CompleteGraphs([2, 3]), torch.randn(5, 4)
    edges, _ = code_edges(graphs, 4, torch.randn(4, 3))
    conv = EdgeAttentionConv(4, 4, 2, edge_dim=3)
    before = conv(x, graphs.edge_index, graphs.pairs_to_edges(edges.dense()))
    if kind == "hook":
        conv.lin_edge_value.register_forward_hook(lambda module, given, out: out.relu())
    elif kind == "weights":
        torch.nn.utils.parametrizations.weight_norm(conv.lin_edge_key)
        conv.lin_edge_key.weight = 2 * conv.lin_edge_key.weight
    elif kind == "replaced":
        conv.lin_value, conv.lin_edge_value = Louder(conv.lin_value), Louder(conv.lin_edge_value)
    elif kind == "query":
        conv.lin_query.register_forward_hook(lambda module, given, out: 2 * out)
    else:
        conv.lin_edge_value = torch.nn.Linear(3, 4)
    attr = edges if coded else edges.dense()
    expected = conv(x, graphs.edge_index, graphs.pairs_to_edges(edges.dense()))
    assert not torch.allclose(expected, before)
    rows = graphs.nodes_to_rows(x)
    with_weights, _ = conv(rows, graphs, attr, return_attention_weights=True)
    for found in (conv(rows, graphs, attr), with_weights):
        torch.testing.assert_close(graphs.rows_to_nodes(found), expected)


@pytest.mark.parametrize("temperature", [1.0, 1e-7])
@pytest.mark.parametrize("score", SCORES)
def test_large_padding_reaches_no_node(score, temperature):
    graphs, x = CompleteGraphs([2, 5, 3]), torch.randn(10, 4, requires_grad=True)
    conv = EdgeAttentionConv(4, 4, 2, score=score, temperature=temperature)

    def run(padding):
        rows = torch.where(graphs.row_mask[:, None], graphs.nodes_to_rows(x), padding)
        out = graphs.rows_to_nodes(conv(rows, graphs))
        return out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])

    for found, expected in zip(run(torch.tensor(1e15)), run(torch.zeros(())), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduce, pool", [("max", neighbor_max), ("mean", neighbor_mean)])
@given(sizes=SIZES, self_loops=st.booleans(), some=st.booleans(), seed=st.integers(0, 99))
def test_pools_and_their_gradients_are_those_of_an_edge_list(
    reduce, pool, sizes, self_loops, some, seed
):
    """Also where several neighbors share the maximum."""
    generator = torch.Generator().manual_seed(seed)
    graphs = CompleteGraphs([*sizes, 2], self_loops=self_loops)
    if some:
        graphs = graphs.with_edges(torch.rand(graphs.num_pairs, generator=generator) < 1 / 3)
    # Never 0, where torch's own gradient of a scattered maximum counts the initial value as a tie.
    x = torch.randint(-1, 2, (graphs.num_nodes, 2), generator=generator).double() + 0.5
    upstream = torch.randn(x.shape, generator=generator, dtype=DOUBLE)
    sender, receiver = graphs.edge_index
    x.requires_grad_()
    listed = scatter(x[sender], receiver, dim=0, dim_size=len(x), reduce=reduce)
    rows = graphs.nodes_to_rows(x)
    rows = torch.where(graphs.row_mask.unsqueeze(-1), rows, 1e6)  # padding must not matter
    pooled = graphs.rows_to_nodes(pool(graphs, rows))
    torch.testing.assert_close(pooled, listed)
    with torch.no_grad():
        torch.testing.assert_close(graphs.rows_to_nodes(pool(graphs, rows)), listed)
    expected, got = (
        torch.autograd.grad((out * upstream).sum(), x, materialize_grads=True)
        for out in (listed, pooled)
    )
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("make", [EdgeAttentionConv, EGTConv, GaANConv, GraphNetwork, GRITConv])
def test_codes_of_pairs_that_a_mask_leaves_out_are_not_read(make):
    whole = CompleteGraphs([4, 2, 3], self_loops=False)
    coded, _ = code_edges(whole, 5, torch.randn(5, 3, dtype=DOUBLE))
    some = whole.with_edges(torch.rand(whole.num_pairs) < 0.5)
    conv, x = make(4, 4, 2, edge_dim=3).double(), torch.randn(9, 4, dtype=DOUBLE)
    listed = conv(x, some.edge_index, some.pairs_to_edges(coded.dense()))
    near(some.rows_to_nodes(conv(some.nodes_to_rows(x), some, coded)), listed)


@pytest.mark.parametrize(
    "conv", [EdgeAttentionConv(4, 4, 2, edge_dim=3), EGTConv(4, 4, edge_dim=3)]
)
def test_codes_that_are_not_embedded_are_refused(conv):
    graphs = CompleteGraphs([3])
    coded, features = code_edges(graphs, 5, torch.arange(15).view(5, 3))
    for graph, edges in ((graphs, coded), (graphs.edge_index, features)):
        with pytest.raises(
            ValueError, match=r"int64, expected floating-point numbers; embed codes"
        ):
            conv(torch.randn(3, 4), graph, edges)


class UpdatesEdges(AttentionConv):
    """A layer of one's own, whose edges are updated as the base class does it."""

    def __init__(self):
        super().__init__(4, 6, 2, edge_dim=3, score="dot")
        self.make_projections(True, True)
        self.lin_out, self.lin_edge_out = Linear(6, 6), Linear(6, 3)
        self.update_edges = True
        self.reset_parameters()


def test_the_base_class_updates_edges_on_both_forms_of_a_graph():
    conv, graph = UpdatesEdges().double(), CompleteGraphs([3, 1, 2], self_loops=False)
    x = torch.randn(graph.num_nodes, 4, dtype=DOUBLE)
    edge_attr = torch.randn(graph.num_edges, 3, dtype=DOUBLE)
    expected = conv(x, graph.edge_index, edge_attr)
    nodes, edges = conv(graph.nodes_to_rows(x), graph, graph.edges_to_pairs(edge_attr))
    assert_near(graph.rows_to_nodes(nodes), expected[0])
    assert_near(graph.pairs_to_edges(edges), expected[1])
