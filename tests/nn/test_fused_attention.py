"""The packed form against edge lists and numerical gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import COMBINES, EdgeAttentionConv
from molattn.nn.dense_attention import PairInputs
from molattn.nn.fused_attention import fused_attention

DOUBLE = torch.float64
SCORES = ["dot", "scaled_dot", "general", "additive", "gatv2"]
SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=6)


def code_edges(graphs, num_codes, table):
    """Random codes for the edges, as codes of pair rows and as features of edges."""
    codes = torch.randint(0, num_codes, (graphs.num_edges,))
    return CodedEdges.from_edges(graphs, codes, table), table[codes]


@given(
    sizes=SIZES,
    self_loops=st.booleans(),
    edges=st.sampled_from(["none", "features", "codes"]),
    edge_value=st.booleans(),
    some=st.booleans(),
    temperature=st.sampled_from([0.5, 1.0]),
)
def test_equals_the_edge_list_in_values_and_gradients(
    sizes, self_loops, edges, edge_value, some, temperature
):
    graphs = CompleteGraphs(sizes, self_loops=self_loops)
    if some:  # and nodes without neighbors
        graphs = graphs.with_edges(torch.rand(graphs.num_pairs) < 0.4)
    x = torch.randn(graphs.num_nodes, 4, dtype=DOUBLE, requires_grad=True)
    leaf = row_edges = list_edges = None
    if edges == "features":
        leaf = list_edges = torch.randn(graphs.num_edges, 3, dtype=DOUBLE, requires_grad=True)
        row_edges = graphs.edges_to_pairs(list_edges)
    elif edges == "codes":
        leaf = torch.randn(5, 3, dtype=DOUBLE, requires_grad=True)
        row_edges, list_edges = code_edges(graphs, 5, leaf)
    conv = EdgeAttentionConv(
        4,
        4,
        2,
        edge_dim=None if leaf is None else 3,
        edge_value=edge_value,
        gate=some,
        temperature=temperature,
    ).double()
    listed = conv(x, graphs.edge_index, list_edges)
    rows = conv(graphs.nodes_to_rows(x), graphs, row_edges)
    assert bool(rows.isfinite().all())
    packed = graphs.rows_to_nodes(rows)
    torch.testing.assert_close(packed, listed, rtol=0, atol=1e-10)
    inputs = [t for t in (x, leaf, *conv.parameters()) if t is not None]
    upstream = torch.randn_like(listed)
    for got, expected in zip(
        torch.autograd.grad((packed * upstream).sum(), inputs, materialize_grads=True),
        torch.autograd.grad((listed * upstream).sum(), inputs, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("edge_value", [True, False])
@pytest.mark.parametrize("edges", ["none", "features", "codes"])
def test_gradients_are_right(edges, edge_value):
    graphs = CompleteGraphs([2, 1], self_loops=False)  # padding and an isolated node

    def leaf(*shape):
        return torch.randn(*shape, dtype=DOUBLE, requires_grad=True)

    q, k, v = leaf(graphs.num_rows, 2, 2), leaf(graphs.num_rows, 2, 2), leaf(graphs.num_rows, 2, 1)
    if edges == "none":
        inputs = (q, k, v)
    elif edges == "features":
        inputs = (q, k, v, leaf(graphs.num_pairs, 3), leaf(3, 2, 2), leaf(3, 2, 1))
    else:
        codes = code_edges(graphs, 3, torch.zeros(3, 1))[0].codes
        inputs = (q, k, v, codes, leaf(3, 2, 2), leaf(3, 2, 1))

    def run(*inputs):
        *rest, key, value = inputs
        if edges == "codes":  # the row of pairs that are not edges is a constant
            blank = torch.nn.functional.pad
            key, value = (blank(t, (0, 0, 0, 0, 0, 1)) for t in (key, value))
        if not edge_value and edges != "none":
            return fused_attention(graphs, PairInputs(*rest, key))[graphs.row_mask]
        return fused_attention(graphs, PairInputs(*rest, key, value))[graphs.row_mask]

    assert torch.autograd.gradcheck(run, inputs)
    # Fast mode compares random projections: each number would take seconds.
    every_way = {"check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(run, inputs, check_forward_ad=True, **every_way)
    assert torch.autograd.gradgradcheck(run, inputs, check_fwd_over_rev=True, **every_way)


@settings(max_examples=40)
@given(
    score=st.sampled_from(SCORES),
    combine=st.sampled_from([*COMBINES]),
    gate=st.booleans(),
    update_edges=st.booleans(),
    coded=st.booleans(),
    some=st.booleans(),
)
def test_second_derivatives_equal_those_of_the_edge_list(
    score, combine, gate, update_edges, coded, some
):
    graphs = CompleteGraphs([3, 1, 2], self_loops=False)
    if some:
        graphs = graphs.with_edges(torch.rand(graphs.num_pairs) < 0.6)
    conv = EdgeAttentionConv(
        4, 4, 2, edge_dim=3, score=score, combine=combine, gate=gate, update_edges=update_edges
    ).double()
    x = torch.randn(graphs.num_nodes, 4, dtype=DOUBLE, requires_grad=True)
    table = torch.randn(5, 3, dtype=DOUBLE, requires_grad=True)
    codes, e = code_edges(graphs, 5, table)
    listed = conv(x, graphs.edge_index, e)
    rows = conv(graphs.nodes_to_rows(x), graphs, codes if coded else graphs.edges_to_pairs(e))
    if update_edges:
        listed = torch.cat([part.flatten() for part in listed])
        nodes, edges = graphs.rows_to_nodes(rows[0]), graphs.pairs_to_edges(rows[1])
        rows = torch.cat([nodes.flatten(), edges.flatten()])
    else:
        listed, rows = listed.flatten(), graphs.rows_to_nodes(rows).flatten()
    inputs = (x, table, *conv.parameters())
    upstream = torch.randn_like(listed)
    second = []
    for out in (rows, listed):
        # A constant upstream too: a gradient of it must not be taken for a constant.
        slopes = torch.autograd.grad(
            (out * upstream).sum(), inputs, create_graph=True, materialize_grads=True
        )
        penalty = sum(slope.square().sum() for slope in slopes)
        second.append(
            torch.autograd.grad(penalty, inputs, retain_graph=True, materialize_grads=True)
        )
    for got, expected in zip(*second, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_second_derivatives_go_through_the_very_weights_that_dropout_kept():
    graphs = CompleteGraphs([3, 4])
    q, k, v = (
        torch.randn(graphs.num_rows, 2, 3, dtype=DOUBLE, requires_grad=True) for _ in range(3)
    )

    def run(q, k, v):
        torch.manual_seed(1)
        return fused_attention(graphs, PairInputs(q, k, v), dropout=0.4)[graphs.row_mask]

    assert torch.autograd.gradgradcheck(run, (q, k, v), fast_mode=True)
    # The gradients of which there are gradients are the gradients.
    upstream = torch.randn_like(run(q, k, v))
    slopes = [
        torch.autograd.grad((run(q, k, v) * upstream).sum(), (q, k, v), create_graph=again)
        for again in (False, True)
    ]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(other, one)


def test_one_tensor_as_query_key_and_value_has_one_gradient_for_each():
    graphs = CompleteGraphs([3, 2])
    x = torch.randn(graphs.num_rows, 1, 3, dtype=DOUBLE, requires_grad=True)

    def run(x):
        return fused_attention(graphs, PairInputs(x, x, x))[graphs.row_mask]

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


def test_padding_neither_reads_nor_is_read():
    graphs = CompleteGraphs([2, 5, 4])
    assert graphs.num_rows > graphs.num_nodes
    conv = EdgeAttentionConv(4, 4, 2, edge_dim=3)
    x, e = torch.randn(graphs.num_nodes, 4), torch.randn(graphs.num_edges, 3)
    rows, pairs = graphs.nodes_to_rows(x), graphs.edges_to_pairs(e)
    expected = graphs.rows_to_nodes(conv(rows, graphs, pairs))
    rows[~graphs.row_mask] = 1e6
    is_edge = torch.cat([mask.flatten() for mask in graphs.pair_masks])
    pairs[~is_edge] = -1e6
    rows.requires_grad_()
    got = conv(rows, graphs, pairs)
    torch.testing.assert_close(graphs.rows_to_nodes(got), expected)
    graphs.rows_to_nodes(got).square().sum().backward()
    assert bool((rows.grad[~graphs.row_mask] == 0).all())
    assert bool(rows.grad.isfinite().all())


def test_dropout_drops_weights_and_keeps_the_mean():
    graphs = CompleteGraphs([40])
    q = k = torch.zeros(40, 1, 1)
    v = torch.eye(40).unsqueeze(1)  # the output is the applied weights
    torch.manual_seed(0)
    applied = fused_attention(graphs, PairInputs(q, k, v), dropout=0.25).squeeze(1)
    assert applied.unique().tolist() == pytest.approx([0, 1 / 40 / 0.75])
    assert float((applied == 0).float().mean()) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("edge_value", [True, False])
def test_gradients_go_through_the_very_weights_that_dropout_kept(edge_value):
    graphs = CompleteGraphs([3, 4])
    inputs = [torch.randn(graphs.num_rows, 2, 3, dtype=DOUBLE, requires_grad=True) for _ in "qkv"]
    codes = code_edges(graphs, 4, torch.zeros(4, 1))[0].codes
    basis = [torch.randn(4, 2, 3, dtype=DOUBLE, requires_grad=True) for _ in "kv"]

    def run(q, k, v, key, value):
        torch.manual_seed(1)
        key, value = (torch.nn.functional.pad(t, (0, 0, 0, 0, 0, 1)) for t in (key, value))
        value = value if edge_value else None
        return fused_attention(graphs, PairInputs(q, k, v, codes, key, value), dropout=0.4)[
            graphs.row_mask
        ]

    assert torch.autograd.gradcheck(run, (*inputs, *basis))


def test_huge_logits_have_finite_gradients():
    graphs = CompleteGraphs([1, 3], self_loops=False)
    q = torch.full((graphs.num_rows, 1, 1), 1e4, requires_grad=True)
    k = torch.randn(graphs.num_rows, 1, 1, requires_grad=True)
    out = fused_attention(graphs, PairInputs(q, k, k))
    out.sum().backward()
    assert bool(out.isfinite().all() and q.grad.isfinite().all() and k.grad.isfinite().all())


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
    table = torch.randn(9, 16, requires_grad=True)
    edges, _ = code_edges(graphs, 9, table)
    conv = EdgeAttentionConv(16, 16, 8, edge_dim=16)
    x = torch.randn(50, 16, requires_grad=True)
    kept, _ = saved_bytes(lambda: conv(x, graphs, edges))
    weights = 50 * 50 * 8 * 4
    codes = 50 * 50 * 8
    assert weights < kept < weights + codes + 200_000
    assert kept < saved_bytes(lambda: conv(x, graphs.edge_index, edges.dense()))[0] / 4


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("temperature", [0.0, 0.7, math.inf])
@pytest.mark.parametrize("update_edges", [False, True])
@pytest.mark.parametrize("coded, edge_value", [(False, True), (True, True), (True, False)])
def test_every_score_and_temperature_equals_the_edge_list(
    score, temperature, update_edges, coded, edge_value
):
    graphs = CompleteGraphs([2, 1, 4], self_loops=False)
    x = torch.randn(graphs.num_nodes, 4, dtype=DOUBLE, requires_grad=True)
    table = torch.randn(5, 3, dtype=DOUBLE, requires_grad=True)
    codes, e = code_edges(graphs, 5, table)
    conv = EdgeAttentionConv(
        4,
        4,
        2,
        edge_dim=3,
        score=score,
        temperature=temperature,
        edge_value=edge_value,
        update_edges=update_edges,
    ).double()
    listed = conv(x, graphs.edge_index, e)
    pairs = codes if coded else graphs.edges_to_pairs(e)
    rows = conv(graphs.nodes_to_rows(x), graphs, pairs)
    if update_edges:
        listed = torch.cat([part.flatten() for part in listed])
        nodes, edges = graphs.rows_to_nodes(rows[0]), graphs.pairs_to_edges(rows[1])
        rows = torch.cat([nodes.flatten(), edges.flatten()])
    else:
        rows = graphs.rows_to_nodes(rows)
    torch.testing.assert_close(rows, listed, rtol=0, atol=1e-10)
    upstream = torch.randn_like(listed)
    for got, expected in zip(
        torch.autograd.grad(
            (rows * upstream).sum(), (x, table), materialize_grads=True, retain_graph=True
        ),
        torch.autograd.grad((listed * upstream).sum(), (x, table), materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_replaced_and_hooked_maps_are_called():
    class Louder(torch.nn.Module):
        def __init__(self, lin):
            super().__init__()
            self.lin = lin

        def forward(self, x):
            return 3 * self.lin(x)

    graphs = CompleteGraphs([3])
    edges, _ = code_edges(graphs, 4, torch.randn(4, 3))
    x = torch.randn(3, 4)
    conv = EdgeAttentionConv(4, 4, edge_dim=3, combine="concat", root_weight=False, bias=False)
    before = conv(x, graphs, edges)
    conv.lin_value, conv.lin_edge_value = Louder(conv.lin_value), Louder(conv.lin_edge_value)
    torch.testing.assert_close(conv(x, graphs, edges), 3 * before)
    conv.lin_query.register_forward_hook(lambda module, given, out: 0 * out)
    conv.lin_key.register_forward_hook(lambda module, given, out: 0 * out)
    _, (_, alpha) = conv(x, graphs, edges, return_attention_weights=True)
    torch.testing.assert_close(alpha, torch.full_like(alpha, 1 / 3))


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("kind", ["bias", "hook", "weights"])
def test_maps_of_edges_that_are_not_linear_equal_the_edge_list(kind, coded):
    graphs = CompleteGraphs([2, 3])
    x = torch.randn(5, 4)
    edges, _ = code_edges(graphs, 4, torch.randn(4, 3))
    conv = EdgeAttentionConv(4, 4, 2, edge_dim=3)
    if kind == "hook":
        conv.lin_edge_value.register_forward_hook(lambda module, given, out: out.relu())
    elif kind == "weights":
        torch.nn.utils.parametrizations.weight_norm(conv.lin_edge_key)
    else:
        conv.lin_edge_value = torch.nn.Linear(3, 4)
    attr = edges if coded else edges.dense()
    expected = conv(x, graphs.edge_index, graphs.pairs_to_edges(edges.dense()))
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


def test_autocast_keeps_the_packed_form():
    graphs = CompleteGraphs([40])
    edges, _ = code_edges(graphs, 9, torch.randn(9, 16, requires_grad=True))
    conv = EdgeAttentionConv(16, 16, 8, edge_dim=16)
    x = torch.randn(40, 16, requires_grad=True)
    single, expected = saved_bytes(lambda: conv(x, graphs, edges))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, got = saved_bytes(lambda: conv(x, graphs, edges))
    assert mixed < 1.3 * single
    torch.testing.assert_close(got.float(), expected, rtol=0.05, atol=0.05)
    got.float().sum().backward()
    assert bool(x.grad.isfinite().all())
