"""Attention between edges as a set, and pooling by attention, by NumPy and by what must hold."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch_geometric.data import Batch, Data

from molattn.graph import CompleteGraphs
from molattn.nn import PMA, EdgeSetAttention
from molattn.testing import assert_smooth, check_module

from ..conftest import DOUBLE, EDGE_DIM, HEADS, NODE_DIM, OUT, assert_near

D = OUT // HEADS
EPSILON = 1e-8  # of the authors' layer normalization


def layer(blocks="MS", **options):
    return EdgeSetAttention(NODE_DIM, OUT, HEADS, edge_dim=EDGE_DIM, blocks=blocks, **options)


@pytest.fixture
def molecules():
    """Six atoms, two, one without bonds, and four with one directed edge; bonds twice, shuffled."""
    graphs = []
    for nodes, bonds in (
        (6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 1)]),
        (2, [(0, 1)]),
        (1, []),
        (4, [(0, 1), (2, 3)]),
    ):
        pairs = [(i, j) for i, j in bonds] + [(j, i) for i, j in bonds if nodes < 4 or i < 2]
        edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
        edge_index = edge_index[:, torch.randperm(len(pairs))]
        x = torch.randn(nodes, NODE_DIM, dtype=DOUBLE)
        attr = torch.randn(len(pairs), EDGE_DIM, dtype=DOUBLE)
        graphs.append(Data(x=x, edge_index=edge_index, edge_attr=attr))
    return Batch.from_data_list(graphs)


def linear(lin, x):
    return x @ lin.weight.detach().numpy().T + (
        0 if lin.bias is None else lin.bias.detach().numpy()
    )


def norm(module, x, epsilon=EPSILON):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    return x * module.weight.detach().numpy() + module.bias.detach().numpy()


def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))


def feed_forward(block, x):
    return x + linear(block.ff[2], mish(linear(block.ff[0], norm(block.norm_ff, x))))


def attend(block, queries, elements, sees):
    """Heads side by side, before the feed-forward network."""
    out = np.zeros_like(queries)
    query, key, value = (
        linear(lin, of).reshape(len(of), HEADS, D)
        for lin, of in (
            (block.lin_query, queries),
            (block.lin_key, elements),
            (block.lin_value, elements),
        )
    )
    for k, h in np.ndindex(len(queries), HEADS):
        seen = [n for n in range(len(elements)) if sees(k, n)]
        weights = np.exp([query[k, h] @ key[n, h] / np.sqrt(D) for n in seen])
        for weight, n in zip(weights, seen, strict=True):
            out[k, h * D : (h + 1) * D] += weight / weights.sum() * value[n, h]
    return out + mish(linear(block.lin_out, out))


def randomize_norms(module):
    for part in module.modules():
        if isinstance(part, (torch.nn.LayerNorm, torch.nn.BatchNorm1d)):
            torch.nn.init.normal_(part.weight)
            torch.nn.init.normal_(part.bias)


@pytest.mark.parametrize("kinds", ["M", "S", "MSM"])
def test_edges_against_numpy(kinds, molecules):
    model, data = layer(kinds).double(), molecules
    randomize_norms(model)
    sender, receiver = data.edge_index.numpy()
    graph = data.batch.numpy()[sender]
    tokens = linear(model.lin_sender, data.x.numpy())[sender]
    tokens = tokens + linear(model.lin_receiver, data.x.numpy())[receiver]
    first = tokens = tokens + linear(model.lin_edge, data.edge_attr.numpy())

    def sees_neighbors(k, n):
        return k != n and bool({sender[k], receiver[k]} & {sender[n], receiver[n]})

    def sees_all(k, n):
        return graph[k] == graph[n]

    for kind, block in zip(kinds, model.blocks, strict=True):
        z = norm(block.norm, tokens)
        seen = attend(block, z, z, sees_neighbors if kind == "M" else sees_all)
        tokens = feed_forward(block, z + seen)
    got = model(data.x, data.edge_index, data.edge_attr, data.batch)
    np.testing.assert_allclose(got.detach().numpy(), tokens + first, rtol=0, atol=1e-10)


def test_assertions_hold(molecules):
    model = layer().double()
    check_module(model, molecules)
    assert_smooth(model, molecules)


def test_graphs_without_edges():
    model, x = EdgeSetAttention(NODE_DIM, OUT, HEADS), torch.randn(3, NODE_DIM)
    none = torch.empty(2, 0, dtype=torch.long)
    assert model(x, none).shape == (0, OUT)
    assert model(x[:0], none, batch=none[0]).shape == (0, OUT)
    assert model(x, torch.tensor([[0], [1]])).isfinite().all()  # nothing to attend to


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_number_types(molecules, dtype, tolerance):
    model, data = layer().double(), molecules
    expected = model(data.x, data.edge_index, data.edge_attr, data.batch)
    narrow = copy.deepcopy(model).to(dtype)
    got = narrow(data.x.to(dtype), data.edge_index, data.edge_attr.to(dtype), data.batch)
    assert got.dtype == dtype
    assert_near(got.double(), expected, tolerance * float(expected.detach().abs().max()))


def test_dropout_is_of_training_alone(molecules):
    model, data = layer(dropout=0.5).double(), molecules
    given = (data.x, data.edge_index, data.edge_attr, data.batch)
    assert not torch.allclose(model(*given), model(*given))
    model.eval()
    assert_near(model(*given), model(*given))


def test_wrong_options_and_inputs_are_errors(molecules):
    with pytest.raises(ValueError, match="blocks: got 'P', expected one of M, S"):
        layer("MP")
    with pytest.raises(ValueError, match="heads"):
        EdgeSetAttention(NODE_DIM, OUT, 4)
    with pytest.raises(ValueError, match="dropout"):
        layer(dropout=1)
    with pytest.raises(ValueError, match="edge_attr: got None"):
        layer()(molecules.x.float(), molecules.edge_index)
    with pytest.raises(ValueError, match=r"x: got shape \[3, 5\]"):
        layer()(torch.randn(3, 5), molecules.edge_index)
    with pytest.raises(ValueError, match="edge_index: got CompleteGraphs"):
        layer()(molecules.x.float(), CompleteGraphs([3]))
    assert repr(layer()) == f"EdgeSetAttention(4, 6, heads=2, edge_dim={EDGE_DIM}, blocks='MS')"
    assert repr(PMA(8, 2)) == "PMA(8, heads=2, num_seeds=32)"


def test_pooling_against_numpy():
    pool = PMA(OUT, HEADS, num_seeds=3).double()
    randomize_norms(pool)
    x, index = torch.randn(7, OUT, dtype=DOUBLE), torch.tensor([0, 3, 3, 0, 0, 1, 3])
    got = pool(x, index).detach().numpy()
    assert got.shape == (4, OUT)
    block, seeds = pool.block, pool.seeds.detach().numpy()
    z = norm(block.norm, x.numpy())
    for graph in range(4):
        seen = attend(block, seeds, z, lambda _, n, graph=graph: index[n] == graph)
        expected = feed_forward(block, seen).mean(axis=0)
        np.testing.assert_allclose(got[graph], expected, rtol=0, atol=1e-10)


class Pooled(nn.Module):
    """Edge set attention, and its pooling by graph."""

    def __init__(self):
        super().__init__()
        self.edges, self.pool = layer("M"), PMA(OUT, HEADS, num_seeds=1)

    def forward(self, x, edge_index, edge_attr, batch, u):
        edges = self.edges(x, edge_index, edge_attr, batch)
        return self.pool(edges, batch[edge_index[0]], dim_size=u.size(0))


def test_exported_for_all_sizes():
    def inputs(nodes, edges, graphs):
        x, u = torch.randn(nodes, NODE_DIM), torch.randn(graphs, 1)
        edge_index, attr = torch.randint(0, nodes, (2, edges)), torch.randn(edges, EDGE_DIM)
        return x, edge_index, attr, torch.randint(0, graphs, (nodes,)).sort().values, u

    model = Pooled().eval()
    nodes, edges, graphs = map(Dim, ("nodes", "edges", "graphs"))
    dims = ({0: nodes}, {1: edges}, {0: edges}, {0: nodes}, {0: graphs})
    exported = torch.export.export(model, inputs(11, 17, 5), dynamic_shapes=dims).module()
    for sizes in ((20, 60, 6), (3, 4, 2), (1, 1, 1), (4, 0, 2)):
        given = inputs(*sizes)
        torch.testing.assert_close(exported(*given), model(*given))
