"""GaANConv against a plain NumPy reading of the paper's equations."""

from functools import partial

import numpy as np
import pytest
import torch

from molattn.graph import CompleteGraphs
from molattn.nn import EdgeAttentionConv, GaANConv
from molattn.nn.graph_inputs import EdgeList

from ..conftest import DOUBLE, assert_near


def fully_connected(p, name, vector):
    """One linear map; those of edge features have no bias."""
    out = p[f"{name}.weight"] @ vector
    return out + p[f"{name}.bias"] if f"{name}.bias" in p else out


def numpy_gaan(p, z, x, edge_index, e, *, heads, width, query_width, authors=False, gated=True):
    """Receiver by receiver, head by head: y, w and g from the parameters ``p``."""
    y, gates = [], []
    w = np.zeros((edge_index.shape[1], heads))
    for i in range(len(x)):
        mine = np.flatnonzero(edge_index[1] == i)
        senders = z[edge_index[0][mine]]
        query = fully_connected(p, "lin_query", x[i]).reshape(heads, query_width)
        summed = np.zeros((heads, width))
        for h in range(heads):
            logits, values = [], []
            for k, zj in zip(mine, senders, strict=True):
                key = fully_connected(p, "lin_key", zj)
                value = fully_connected(p, "lin_value", zj)
                value = np.where(value > 0, value, 0.1 * value)
                if e is not None:
                    key = key + p["lin_edge_key.weight"] @ e[k]
                    if "lin_edge_value.weight" in p:
                        value = value + p["lin_edge_value.weight"] @ e[k]
                key = key.reshape(heads, query_width)[h]
                if authors:
                    logits.append(
                        np.dot(query[h] / np.sqrt(query_width), key / np.sqrt(query_width))
                    )
                else:
                    logits.append(np.dot(query[h], key))
                values.append(value.reshape(heads, width)[h])
            if logits:
                weights = np.exp(np.asarray(logits))
                w[mine, h] = weights / weights.sum()
                summed[h] = w[mine, h] @ np.asarray(values)
        g = np.ones(heads)
        if gated:
            projected = [fully_connected(p, "head_gate.lin_pool", zj) for zj in senders]
            most = np.max(projected, 0) if projected else 0 * p["head_gate.lin_pool.bias"]
            mean = np.mean(senders, 0) if len(senders) else np.zeros(z.shape[1])
            seen = [most, mean] if authors else [x[i], most, mean]
            logit = fully_connected(p, "head_gate.lin_gate", np.concatenate(seen))
            g = 1 / (1 + np.exp(-logit))
        gates.append(g)
        both = np.concatenate([x[i], (g[:, None] * summed).reshape(-1)])
        y.append(fully_connected(p, "lin_out", both))
    return np.asarray(y), w, np.asarray(gates)


def example(edge_dim=None, num_senders=6, num_receivers=5):
    """A multigraph whose last receiver is alone."""
    z = torch.randn(num_senders, 4, dtype=DOUBLE)
    x = torch.randn(num_receivers, 3, dtype=DOUBLE)
    edges = [torch.randint(0, n, (14,)) for n in (num_senders, num_receivers - 1)]
    e = None if edge_dim is None else torch.randn(14, edge_dim, dtype=DOUBLE)
    return z, x, torch.stack(edges), e


@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize(
    "options, authors, gated",
    [
        ({}, False, True),
        ({"gate": False}, False, False),
        ({"variant": "authors"}, True, False),
        ({"variant": "authors", "gate": True}, True, True),
        ({"edge_value": False}, False, True),
    ],
    ids=["paper", "paper-ungated", "authors", "authors-gated", "edges-in-key"],
)
def test_is_its_equations(options, authors, gated, edge_dim):
    z, x, edge_index, e = example(edge_dim)
    conv = GaANConv(
        (4, 3), 5, heads=3, edge_dim=edge_dim, head_channels=2, query_channels=4,
        gate_channels=7, **options,
    ).double()  # fmt: skip
    out, (_, alpha) = conv((z, x), edge_index, e, return_attention_weights=True)
    parameters = {name: value.detach().numpy() for name, value in conv.state_dict().items()}
    plain = [None if t is None else t.numpy() for t in (z, x, edge_index, e)]
    y, w, gates = numpy_gaan(
        parameters, *plain, heads=3, width=2, query_width=4, authors=authors, gated=gated
    )
    assert_near(out, torch.from_numpy(y))
    assert_near(alpha, torch.from_numpy(w))
    assert bool(((gates > 0) & (gates <= 1)).all())
    assert (conv.head_gate is None) == (not gated)


def test_the_authors_gate_does_not_see_the_receiver():
    x, edge_index = torch.randn(5, 4, dtype=DOUBLE), torch.tensor([[1, 2, 3], [0, 0, 0]])
    for variant, seen in (("paper", True), ("authors", False)):
        gate = GaANConv(4, 6, heads=2, variant=variant, gate=True).double().head_gate
        receiver = x.clone().requires_grad_()
        gates = gate(x, receiver, EdgeList(edge_index))
        assert bool(((gates > 0) & (gates < 1)).all())
        (grad,) = torch.autograd.grad(gates.sum(), receiver, materialize_grads=True)
        assert bool((grad != 0).any()) is seen


@pytest.mark.parametrize("make", [GaANConv, partial(EdgeAttentionConv, gate=True)])
def test_gates_of_a_batch_with_an_empty_graph_have_the_gradients_of_its_edges(make):
    """At large weights too, where a gate is 0 or 1."""
    conv, graph = make(4, 6, 2), CompleteGraphs([2, 0, 1])
    assert graph.blocks[0].graphs == 3  # the empty graph is one of a block
    x = torch.randn(graph.num_nodes, 4)
    with torch.no_grad():
        for weight in conv.parameters():
            weight.mul_(100)
    rows, weights = conv(graph.nodes_to_rows(x), graph), [*conv.parameters()]
    for out in (rows, graph.rows_to_nodes(rows)):  # with the padding, and without
        found = torch.autograd.grad(out.sum(), weights, retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in found)
    expected = torch.autograd.grad(conv(x, graph.edge_index).sum(), weights)
    torch.testing.assert_close(found, expected)
