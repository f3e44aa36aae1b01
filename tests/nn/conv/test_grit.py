"""GRITConv against a plain NumPy reading of the paper's equations."""

import numpy as np
import pytest
import torch

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import GRITConv

from ..conftest import DOUBLE, assert_near


def numpy_grit(p, x, e, edge_index, degree=None, *, heads, clip=5, epsilon=1e-10):
    """Receiver by receiver, edge by edge: nodes, edges and weights."""

    def linear(name, rows):
        out = rows @ p[f"{name}.weight"].T
        return out + p[f"{name}.bias"] if f"{name}.bias" in p else out

    q, k, v = (
        linear(f"lin_{name}", x).reshape(len(x), heads, -1) for name in ("query", "key", "value")
    )
    width = q.shape[2]
    factor, term = np.split(linear("lin_edge", e).reshape(len(e), heads, 2 * width), 2, axis=2)
    states, weights = np.zeros((len(e), heads, width)), np.zeros((len(e), heads))
    mixed = np.zeros((len(x), heads, width))
    for i in range(len(x)):
        mine = np.flatnonzero(edge_index[1] == i)
        log_degree = np.log(1 + (len(mine) if degree is None else degree[i]))
        for h in range(heads):
            for edge in mine:
                z = (q[i, h] + k[edge_index[0, edge], h]) * factor[edge, h]
                root = np.sign(z) * np.abs(z) / np.sqrt(np.abs(z) + epsilon)
                states[edge, h] = np.maximum(root + term[edge, h], 0)
            powers = np.exp(np.clip(states[mine, h] @ p["vector"][h], -clip, clip))
            weights[mine, h] = powers / powers.sum()
            for edge in mine:
                value = v[edge_index[0, edge], h] + states[edge, h] @ p["weight_value"][h]
                mixed[i, h] += weights[edge, h] * value
            once, by_degree = p["degree_weight"][:, h]
            mixed[i, h] *= once + by_degree * log_degree
    edges = e + linear("lin_edge_out", states.reshape(len(e), -1))
    return linear("lin_out", mixed.reshape(len(x), -1)), edges, weights


@pytest.mark.parametrize("given_degree", [False, True])
@pytest.mark.parametrize("coded", [False, True])
def test_is_its_equations_on_both_forms_of_a_graph(coded, given_degree):
    graph = CompleteGraphs([4, 1, 5], self_loops=False)  # one atom without neighbors
    graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.7)
    conv = GRITConv(4, 6, heads=2, edge_dim=3, update_edges=True).double()
    with torch.no_grad():
        conv.vector.mul_(20)  # many logits are clamped
    x, table = torch.randn(10, 4, dtype=DOUBLE), torch.randn(7, 3, dtype=DOUBLE)
    codes = torch.randint(0, 7, (graph.num_edges,))
    p = {name: value.detach().numpy() for name, value in conv.state_dict().items()}
    given = (part.numpy() for part in (x, table[codes], graph.edge_index))
    degree = torch.randint(0, 5, (10,)) if given_degree else None
    numbers = None if degree is None else degree.tolist()
    expected = numpy_grit(p, *given, numbers, heads=2)
    *listed, (_, alpha) = conv(x, graph.edge_index, table[codes], True, degree=degree)
    edges = CodedEdges.from_edges(graph, codes, table)
    edges = edges if coded else edges.dense()
    of_rows = None if degree is None else graph.nodes_to_rows(degree)
    rows, *pairs, (_, weights) = conv(graph.nodes_to_rows(x), graph, edges, True, degree=of_rows)
    assert_near(conv(x, graph, edges, degree=degree)[0], listed[0])  # nodes of any form
    dense = graph.rows_to_nodes(rows), *map(graph.pairs_to_edges, (*pairs, weights))
    for found in ((*listed, alpha), dense):
        for got, of in zip(found, expected, strict=True):
            assert_near(got, torch.from_numpy(of))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, DOUBLE])
def test_both_derivatives_are_finite_where_the_root_is_of_zero(dtype):
    graph, conv = CompleteGraphs([3, 1]), GRITConv(4, 6, heads=2, edge_dim=3).to(dtype)
    with torch.no_grad():
        conv.lin_query.bias.zero_()
        conv.lin_edge.bias.fill_(0.5)
    e = torch.randn(graph.num_edges, 3).to(dtype).requires_grad_()
    x = torch.zeros(4, 4, dtype=dtype, requires_grad=True)
    pairs = graph.edges_to_pairs(e)
    for out in (conv(x, graph.edge_index, e), conv(graph.nodes_to_rows(x), graph, pairs)):
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        second = torch.autograd.grad(first.sum(), [x, e], materialize_grads=True)
        assert bool(first.any())
        assert all(bool(grad.isfinite().all()) for grad in (first, *second))


def test_the_root_is_that_of_the_paper():
    """The constant that bounds its slope changes it by at most 4e-6."""
    conv = GRITConv(1, 1, edge_dim=1, update_edges=True).double()
    with torch.no_grad():
        for name, value in conv.named_parameters():
            value.fill_(1.0 if "weight" in name else 0.0)
        conv.lin_key.weight.zero_()
        conv.lin_edge.bias.copy_(torch.tensor([1.0, 0.0]))  # the factor 1 for edges of 0
    x = torch.logspace(-16, 4, 200, dtype=DOUBLE).unsqueeze(-1)
    loops = torch.arange(200).repeat(2, 1)
    _, root = conv(x, loops, torch.zeros(200, 1, dtype=DOUBLE))
    assert_near(root, x.sqrt(), 4e-6)
