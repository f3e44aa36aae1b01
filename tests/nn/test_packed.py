"""The packed form against edge lists and numerical gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import EdgeAttentionConv
from molattn.nn.packed import packed_attention

DOUBLE = torch.float64
SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=6)


def code_edges(graphs, num_codes, table):
    """Random codes for the edges, as codes of pair rows and as features of edges."""
    codes = torch.randint(0, num_codes, (graphs.num_edges,))
    rows = torch.full((graphs.num_pairs,), num_codes)
    rows[graphs.edge_row] = codes
    return CodedEdges(rows, table), table[codes]


@given(
    sizes=SIZES,
    self_loops=st.booleans(),
    edges=st.sampled_from(["none", "features", "codes"]),
    temperature=st.sampled_from([0.5, 1.0]),
)
def test_equals_the_edge_list_in_values_and_gradients(sizes, self_loops, edges, temperature):
    graphs = CompleteGraphs(sizes, self_loops=self_loops)
    x = torch.randn(graphs.num_nodes, 4, dtype=DOUBLE, requires_grad=True)
    leaf = row_edges = list_edges = None
    if edges == "features":
        leaf = list_edges = torch.randn(graphs.num_edges, 3, dtype=DOUBLE, requires_grad=True)
        row_edges = graphs.edges_to_pairs(list_edges)
    elif edges == "codes":
        leaf = torch.randn(5, 3, dtype=DOUBLE, requires_grad=True)
        row_edges, list_edges = code_edges(graphs, 5, leaf)
    conv = EdgeAttentionConv(
        4, 4, 2, edge_dim=None if leaf is None else 3, temperature=temperature
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


@pytest.mark.parametrize("edges", ["none", "features", "codes"])
def test_gradients_are_right(edges):
    graphs = CompleteGraphs([3, 1, 2], self_loops=False)  # padding and a lonely node

    def leaf(*shape):
        return torch.randn(*shape, dtype=DOUBLE, requires_grad=True)

    q, k, v = leaf(graphs.num_rows, 2, 3), leaf(graphs.num_rows, 2, 3), leaf(graphs.num_rows, 2, 2)
    if edges == "none":
        inputs = (q, k, v)
    elif edges == "features":
        inputs = (q, k, v, leaf(graphs.num_pairs, 4), leaf(4, 2, 3), leaf(4, 2, 2))
    else:
        codes = code_edges(graphs, 4, torch.zeros(4, 1))[0].codes
        inputs = (q, k, v, codes, leaf(4, 2, 3), leaf(4, 2, 2))

    def run(*inputs):
        *rest, key, value = inputs
        if edges == "codes":  # the row of pairs that are no edges is a constant
            blank = torch.nn.functional.pad
            key, value = (blank(t, (0, 0, 0, 0, 0, 1)) for t in (key, value))
        return packed_attention(graphs, *rest, key, value)

    assert torch.autograd.gradcheck(run, inputs)


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
    applied = packed_attention(graphs, q, k, v, dropout=0.25).squeeze(1)
    assert applied.unique().tolist() == pytest.approx([0, 1 / 40 / 0.75])
    assert float((applied == 0).float().mean()) == pytest.approx(0.25, abs=0.03)


def test_gradients_go_through_the_very_weights_that_dropout_kept():
    graphs = CompleteGraphs([3, 4])
    inputs = [torch.randn(graphs.num_rows, 2, 3, dtype=DOUBLE, requires_grad=True) for _ in "qkv"]
    codes = code_edges(graphs, 4, torch.zeros(4, 1))[0].codes
    basis = [torch.randn(4, 2, 3, dtype=DOUBLE, requires_grad=True) for _ in "kv"]

    def run(q, k, v, key, value):
        torch.manual_seed(1)
        key, value = (torch.nn.functional.pad(t, (0, 0, 0, 0, 0, 1)) for t in (key, value))
        return packed_attention(graphs, q, k, v, codes, key, value, dropout=0.4)

    assert torch.autograd.gradcheck(run, (*inputs, *basis))


def test_huge_logits_have_finite_gradients():
    graphs = CompleteGraphs([1, 3], self_loops=False)
    q = torch.full((graphs.num_rows, 1, 1), 1e4, requires_grad=True)
    k = torch.randn(graphs.num_rows, 1, 1, requires_grad=True)
    out = packed_attention(graphs, q, k, k)
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


def test_other_temperatures_and_scores_take_the_plain_form():
    graphs = CompleteGraphs([2, 4])
    x = torch.randn(graphs.num_nodes, 4)
    for options in ({"temperature": 0.0}, {"temperature": math.inf}, {"score": "gatv2"}):
        conv = EdgeAttentionConv(4, 4, 2, **options)
        got = graphs.rows_to_nodes(conv(graphs.nodes_to_rows(x), graphs))
        torch.testing.assert_close(got, conv(x, graphs.edge_index))
