"""EGTConv against a plain NumPy reading of the paper's equations."""

import math

import numpy as np
import pytest
import torch

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import EGTConv

from ..conftest import DOUBLE, assert_near


def numpy_egt(p, x, e, edge_index, *, heads, clip, scale_degree):
    """Receiver by receiver, head by head: nodes, logits and gated weights."""

    def linear(name, rows):
        return rows @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    q, k, v = (linear(f"lin_{name}", x) for name in ("query", "key", "value"))
    edge_logit, gate = np.split(linear("lin_edge", e), 2, axis=1)
    gate, width = 1 / (1 + np.exp(-gate)), q.shape[1] // heads
    logits, weights = np.zeros((2, len(e), heads))
    mixed = np.zeros((len(x), heads, width))
    for i in range(len(x)):
        mine = np.flatnonzero(edge_index[1] == i)
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            for edge in mine:
                product = q[i, part] @ k[edge_index[0, edge], part] / np.sqrt(width)
                logits[edge, h] = min(max(product, -clip), clip) + edge_logit[edge, h]
            powers = np.exp(logits[mine, h])
            weights[mine, h] = gate[mine, h] * powers / powers.sum()
            mixed[i, h] = weights[mine, h] @ v[edge_index[0, mine]][:, part]
            if scale_degree:
                mixed[i, h] *= np.log(1 + gate[mine, h].sum())
    edges = e + linear("lin_edge_out", logits)
    return linear("lin_out", mixed.reshape(len(x), -1)), edges, weights


@pytest.mark.parametrize("scale_degree", [True, False])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("clip", [0.3, math.inf])
def test_is_its_equations_on_both_forms_of_a_graph(clip, coded, scale_degree):
    graph = CompleteGraphs([4, 1, 5], self_loops=False)  # one atom without neighbors
    graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.7)
    options = {"edge_dim": 3, "clip": clip, "scale_degree": scale_degree}
    conv = EGTConv(4, 6, heads=2, update_edges=True, **options).double()
    x, table = torch.randn(10, 4, dtype=DOUBLE), torch.randn(7, 3, dtype=DOUBLE)
    codes = torch.randint(0, 7, (graph.num_edges,))
    p = {name: value.detach().numpy() for name, value in conv.state_dict().items()}
    given = (part.numpy() for part in (x, table[codes], graph.edge_index))
    expected = numpy_egt(p, *given, heads=2, clip=clip, scale_degree=scale_degree)
    *listed, (_, alpha) = conv(x, graph.edge_index, table[codes], return_attention_weights=True)
    edges = CodedEdges.from_edges(graph, codes, table)
    edges = edges if coded else edges.dense()
    rows, *pairs, (_, weights) = conv(graph.nodes_to_rows(x), graph, edges, True)
    dense = graph.rows_to_nodes(rows), *map(graph.pairs_to_edges, (*pairs, weights))
    for found in ((*listed, alpha), dense):
        for got, of in zip(found, expected, strict=True):
            assert_near(got, torch.from_numpy(of))


def test_a_clamped_logit_has_no_gradient_to_query_and_key():
    conv, x = EGTConv(4, 4, clip=1e-9).double(), torch.randn(3, 4, dtype=DOUBLE)
    graph = CompleteGraphs([3])
    for out in (conv(x, graph.edge_index), conv(x, graph)):
        weights = conv.lin_query.weight, conv.lin_key.weight, conv.lin_value.weight
        gradients = torch.autograd.grad(out.sum(), weights)
        assert [bool(grad.any()) for grad in gradients] == [False, False, True]


def test_without_edges_the_gates_are_open():
    """Then the scaler is that of the number of neighbors."""
    conv, x = EGTConv(4, 4, bias=False).double(), torch.randn(3, 4, dtype=DOUBLE)
    edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
    plain = EGTConv(4, 4, bias=False, scale_degree=False).double()
    plain.load_state_dict(conv.state_dict())
    degree = torch.tensor([[2.0], [1.0], [0.0]], dtype=DOUBLE)
    assert_near(conv(x, edge_index), plain(x, edge_index) * (1 + degree).log())


@pytest.mark.parametrize("edge_dim", [None, -1])
def test_edges_of_unknown_width_are_not_updated(edge_dim):
    with pytest.raises(ValueError, match="update_edges needs a known edge_dim"):
        EGTConv(4, 4, edge_dim=edge_dim, update_edges=True)


def test_without_a_bound_all_logits_have_a_gradient_to_query_and_key():
    conv, x = EGTConv(4, 4, clip=math.inf).double(), 10 * torch.randn(3, 4, dtype=DOUBLE)
    for graph in (CompleteGraphs([3]), CompleteGraphs([3]).edge_index):
        conv.zero_grad()
        conv(x, graph).sum().backward()
        assert bool(conv.lin_query.weight.grad.any())


def test_a_bound_of_logits_is_above_0():
    with pytest.raises(ValueError, match="clip: got -1, expected a number above 0"):
        EGTConv(4, 4, clip=-1)
