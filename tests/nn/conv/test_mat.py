"""MATConv against a plain NumPy reading of the paper's equation 3."""

import numpy as np
import pytest
import torch

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import MATConv

from ..conftest import DOUBLE, assert_near


def numpy_mat(p, x, distance, bond, edges, *, heads, kernel, lambdas, temperature):
    """Matrices of all pairs; ``edges[r, s]`` says whether receiver r sees sender s."""

    def linear(name, rows):
        return rows @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def row_softmax(logits):
        weights = np.where(edges, np.exp(logits), 0.0)
        total = weights.sum(1, keepdims=True)
        return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)

    near = row_softmax(-distance) if kernel == "softmax" else np.where(edges, np.exp(-distance), 0)
    adjacency = np.where(edges, bond, 0.0)
    adjacency = adjacency / (adjacency.sum(1, keepdims=True) + 1e-6)
    q, k, v = (linear(f"lin_{name}", x) for name in ("query", "key", "value"))
    width = q.shape[1] // heads
    mixtures, parts = [], []
    for h in range(heads):
        mine = slice(h * width, (h + 1) * width)
        attention = row_softmax(q[:, mine] @ k[:, mine].T / np.sqrt(width) / temperature)
        mixture = lambdas[0] * attention + lambdas[1] * near + lambdas[2] * adjacency
        mixtures.append(mixture)
        parts.append(mixture @ v[:, mine])
    return linear("lin_out", np.concatenate(parts, 1)), np.stack(mixtures, -1)


def molecule(n=6):
    """A symmetric distance matrix, bonds with self loops, and a choice of edges."""
    places = torch.randn(n, 3, dtype=DOUBLE)
    distance = torch.cdist(places, places)
    bond = torch.rand(n, n) < 0.4
    bond = (bond | bond.T | torch.eye(n, dtype=torch.bool)).to(DOUBLE)
    edges = torch.rand(n, n) < 0.7
    edges[3] = False  # receives nothing
    return torch.randn(n, 4, dtype=DOUBLE), distance, bond, edges


@pytest.mark.parametrize("kernel", ["softmax", "exp"])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("shares", [(1 / 3, 1 / 3), (0.7, 0.1), (0.5, 0.25)])
def test_is_its_equation(kernel, learned, shares):
    x, distance, bond, edges = molecule()
    conv = MATConv(
        4, 6, heads=3, kernel=kernel, learn_lambdas=learned, temperature=2.0,
        lambda_attention=shares[0], lambda_distance=shares[1],
    ).double()  # fmt: skip
    lambdas = np.array([*shares, 1 - sum(shares)])
    if learned:
        with torch.no_grad():
            conv.log_lambdas.add_(torch.tensor([0.3, -0.2, 0.9]))
        lambdas = lambdas * np.exp([0.3, -0.2, 0.9])
        lambdas /= lambdas.sum()
    receiver, sender = edges.nonzero().T
    edge_attr = torch.stack([distance[receiver, sender], bond[receiver, sender]], dim=-1)
    edge_index = torch.stack([sender, receiver])
    out, (_, alpha) = conv(x, edge_index, edge_attr, return_attention_weights=True)
    expected, mixture = numpy_mat(
        {name: value.detach().numpy() for name, value in conv.state_dict().items()},
        *(t.numpy() for t in (x, distance, bond, edges)),
        heads=3, kernel=kernel, lambdas=lambdas, temperature=2.0,
    )  # fmt: skip
    # Learned shares start as float32 logarithms, whatever the layer is cast to later.
    tolerance = 1e-7 if learned else 1e-10
    assert_near(out, torch.from_numpy(expected), tolerance)
    assert_near(alpha, torch.from_numpy(mixture)[receiver, sender], tolerance)


@pytest.mark.parametrize("kernel", ["softmax", "exp"])
def test_a_dummy_node_at_the_end_of_the_world_is_finite(kernel):
    """The paper puts it 1e6 from everything, itself included, and bonds it to nothing."""
    graph = CompleteGraphs([3])
    distance, bond = torch.ones(3, 3), torch.ones(3, 3)
    distance[0], distance[:, 0] = 1e6, 1e6
    bond[0], bond[:, 0] = 0, 0
    e = torch.stack([distance, bond], dim=-1).flatten(0, 1).requires_grad_()
    x = torch.randn(3, 4, requires_grad=True)
    conv = MATConv(4, 6, heads=2, kernel=kernel, learn_lambdas=True)
    for out in (conv(x, graph.edge_index, e), conv(x, graph, e)):
        for tensor in (out, *torch.autograd.grad(out.square().sum(), [x, e, *conv.parameters()])):
            assert bool(tensor.isfinite().all())


def test_lambdas_start_where_they_were_given_and_stay_a_mixture():
    conv = MATConv(4, 6, lambda_attention=0.6, lambda_distance=0.3, learn_lambdas=True)
    torch.testing.assert_close(conv.lambdas, torch.tensor([0.6, 0.3, 0.1]))
    with torch.no_grad():
        conv.log_lambdas.normal_(std=3)
    assert float(conv.lambdas.detach().sum()) == pytest.approx(1)
    conv.reset_parameters()
    torch.testing.assert_close(conv.lambdas, torch.tensor([0.6, 0.3, 0.1]))
    assert MATConv(4, 6, lambda_attention=0.6, lambda_distance=0.4).lambdas == (0.6, 0.4, 0.0)


def test_features_of_coded_pairs_are_made_once_for_all_blocks(monkeypatch):
    made, dense = [], CodedEdges.dense
    monkeypatch.setattr(CodedEdges, "dense", lambda self: made.append(1) or dense(self))
    graphs = CompleteGraphs([2] * 64 + [40] * 8)
    assert len(graphs.blocks) > 1
    codes = torch.randint(0, 3, (graphs.num_edges,))
    edges = CodedEdges.from_edges(graphs, codes, torch.rand(3, 2))
    MATConv(4, 4)(torch.randn(graphs.num_rows, 4), graphs, edges)
    assert len(made) == 1


def test_there_are_two_edge_features():
    assert MATConv(4, 4, edge_dim=2).edge_dim == 2
    with pytest.raises(ValueError, match="edge_dim: got 3"):
        MATConv(4, 4, edge_dim=3)
