"""The residual block of nodes and edges: by NumPy, in a stack, and what is dropped."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from molattn.graph import CompleteGraphs
from molattn.nn import EGTConv, Encoder, GraphTransformerBlock, TripletAggregate
from molattn.testing import (
    assert_batch_invariant,
    assert_graphs_independent,
    assert_permutation_equivariant,
)

from .conftest import DOUBLE, assert_near
from .test_edge_set import linear, randomize_norms

NODES, EDGES = 6, 4


class Double(nn.Module):
    """Layers whose results are known: nodes doubled, edges and three times their inputs."""

    def forward(self, x, edge_index, edge_attr):
        return 2 * x, edge_attr + 3 * edge_attr


class Negate(nn.Module):
    def forward(self, edge_attr, graph):
        return -edge_attr


def layer_norm(norm, rows):
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + norm.eps)
    return rows * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("listed", [False, True])
def test_a_block_against_numpy(listed):
    options = {"triplet": Negate(), "virtual_node": True, "expansion": 3}
    block = GraphTransformerBlock(Double(), NODES, EDGES, **options).double()
    randomize_norms(block)
    graph = CompleteGraphs([2, 0, 3])
    x = torch.randn(graph.num_rows, NODES, dtype=DOUBLE)
    e = torch.randn(graph.num_pairs, EDGES, dtype=DOUBLE)
    if listed:
        x, e = graph.rows_to_nodes(x), graph.pairs_to_edges(e)
        got = block(x, graph.edge_index, e, graph.batch)
    else:
        got = block(x, graph, e)
        got = graph.rows_to_nodes(got[0]), graph.pairs_to_edges(got[1])
        x, e = graph.rows_to_nodes(x), graph.pairs_to_edges(e)
    x, e, of = x.numpy(), e.numpy(), graph.batch.numpy()
    seen = layer_norm(block.norm_conv, x)
    mean = np.stack([seen[of == of[node]].mean(axis=0) for node in range(5)])
    h = x + 2 * seen + silu(linear(block.lin_virtual, mean))
    hidden = silu(linear(block.ff[0], layer_norm(block.norm_ff, h)))
    f = e + 3 * layer_norm(block.norm_edges, e)
    g = f - layer_norm(block.norm_triplet, f)
    norm, first, _, last = block.edge_ff
    edges = g + linear(last, silu(linear(first, layer_norm(norm, g))))
    np.testing.assert_allclose(got[0].detach(), h + linear(block.ff[2], hidden), atol=1e-12)
    np.testing.assert_allclose(got[1].detach(), edges, atol=1e-12)


class Stack(nn.Module):
    """Blocks on a PyG batch of complete graphs."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder(self.make, 2, NODES, make_last=lambda: self.make(False)).double()

    @staticmethod
    def make(update_edges=True):
        conv = EGTConv(NODES, NODES, 2, edge_dim=EDGES, update_edges=update_edges)
        triplet = TripletAggregate(EDGES, 2) if update_edges else None
        options = {"triplet": triplet, "update_edges": update_edges, "virtual_node": True}
        return GraphTransformerBlock(conv, NODES, EDGES, **options)

    def forward(self, x, edge_index, edge_attr, batch):
        graph, order = CompleteGraphs.from_edges(edge_index, batch)
        pairs = graph.edges_to_pairs(edge_attr[order])
        return graph.rows_to_nodes(self.encoder(graph.nodes_to_rows(x), graph, pairs))


def test_a_stack_of_blocks():
    graphs = []
    for nodes in (4, 1, 3):
        pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
        x = torch.randn(nodes, NODES, dtype=DOUBLE)
        attr = torch.randn(pairs.size(1), EDGES, dtype=DOUBLE)
        graphs.append(Data(x=x, edge_index=pairs, edge_attr=attr))
    stack, data = Stack(), Batch.from_data_list(graphs)
    assert_permutation_equivariant(stack, data)
    assert_graphs_independent(stack, data)
    assert_batch_invariant(stack, data)
    stack(data.x, data.edge_index, data.edge_attr, data.batch).square().sum().backward()
    assert not [name for name, weight in stack.named_parameters() if weight.grad is None]


@pytest.mark.parametrize("listed", [False, True])
def test_a_path_is_dropped_for_whole_graphs(listed):
    graph = CompleteGraphs([3] * 400)
    block = GraphTransformerBlock(Double(), NODES, EDGES, drop_path=0.25).double()
    for last in (block.ff[2], block.edge_ff[3]):  # no other term than the layer's
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    x, e = torch.randn(1200, NODES, dtype=DOUBLE), torch.randn(3600, EDGES, dtype=DOUBLE)
    given = (graph.edge_index, e, graph.batch) if listed else (graph, e)
    nodes, edges = block(x, *given)
    for norm, factor, before, after in (
        (block.norm_conv, 2, x, nodes),
        (block.norm_edges, 3, e, edges),
    ):
        ratio = ((after - before) / (factor * norm(before))).detach().view(400, -1)
        kept = ratio[:, 0] > 0.5
        assert_near(ratio, (kept / 0.75).unsqueeze(1).expand_as(ratio).double(), 1e-6)
        assert 0.65 < kept.float().mean() < 0.85
    block.eval()
    assert_near(block(x, *given)[0], x + 2 * block.norm_conv(x))
    with pytest.raises(ValueError, match="drop_path"):
        GraphTransformerBlock(Double(), NODES, EDGES, drop_path=1.0)
