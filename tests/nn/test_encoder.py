import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from molattn.graph import CompleteGraphs
from molattn.nn.conv.edge_attention import EdgeAttentionConv
from molattn.nn.encoder import AttentionBlock, Encoder

WIDTH = 8


class Neighbors(nn.Module):
    """Sums what senders hold; with edges, passes them on doubled."""

    def forward(self, x, edge_index, edge_attr=None):
        out = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return out if edge_attr is None else (out, 2 * edge_attr)


@pytest.fixture
def graph():
    return Data(
        x=torch.randn(4, WIDTH, dtype=torch.float64),
        edge_index=torch.tensor([[0, 1, 2, 0, 3], [1, 0, 1, 2, 3]]),
        edge_attr=torch.randn(5, 3, dtype=torch.float64),
    )


def test_a_block_against_numpy(graph):
    block = AttentionBlock(Neighbors(), WIDTH, expansion=3).double()
    for norm in (block.norm_conv, block.norm_ff):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    got, edges = block(graph.x, graph.edge_index)
    assert edges is None

    def layer_norm(norm, rows):
        rows = rows - rows.mean(axis=1, keepdims=True)
        rows = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + norm.eps)
        return rows * norm.weight.detach().numpy() + norm.bias.detach().numpy()

    def linear(layer, rows):
        return rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()

    x = graph.x.numpy()
    seen, mixed = layer_norm(block.norm_conv, x), np.zeros_like(x)
    for sender, receiver in graph.edge_index.t().tolist():
        mixed[receiver] += seen[sender]
    h = x + mixed
    hidden = linear(block.ff[0], layer_norm(block.norm_ff, h))
    expected = h + linear(block.ff[2], hidden / (1 + np.exp(-hidden)))
    np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-12)


def test_updated_edges_go_from_block_to_block(graph):
    encoder = Encoder(Neighbors, 3, WIDTH).double()
    seen = []
    for block in encoder.blocks:
        block.conv.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[2]))
    encoder(graph.x, graph.edge_index, graph.edge_attr)
    for k, edges in enumerate(seen):
        torch.testing.assert_close(edges, 2**k * graph.edge_attr)


def test_batch_norm_reads_real_atoms_alone():
    block = AttentionBlock(Neighbors(), WIDTH, norm="batch", act="relu").double()
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    none = torch.zeros(2, 0, dtype=torch.long)
    out, _ = block(x, none)
    hidden = nn.BatchNorm1d(WIDTH).double()(x)
    torch.testing.assert_close(out, x + block.ff[2](block.ff[0](hidden).relu()))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_padded_rows_is_that_of_a_list(training):
    torch.manual_seed(0)
    graph = CompleteGraphs([1, 4, 3], row_multiple=4)
    x = torch.randn(8, WIDTH, dtype=torch.float64)
    rows = torch.full((graph.num_rows, WIDTH), 1e6, dtype=torch.float64)
    rows = rows.index_copy(0, graph.node_row, x)
    encoder = Encoder(lambda: EdgeAttentionConv(WIDTH, WIDTH, 2), 2, WIDTH, norm="batch").double()
    encoder.train(training)
    expected = encoder(x, graph.edge_index)
    torch.testing.assert_close(graph.rows_to_nodes(encoder(rows, graph)), expected)
    assert encoder.norm.module.num_batches_tracked == 2 * training


def test_nodes_of_complete_graphs_come_back_in_the_form_given():
    graphs = CompleteGraphs([3, 1, 2])
    encoder = Encoder(lambda: EdgeAttentionConv(WIDTH, WIDTH, 2), 2, WIDTH, norm="batch")
    x = torch.randn(graphs.num_nodes, WIDTH)
    rows = encoder(graphs.nodes_to_rows(x), graphs)
    torch.testing.assert_close(encoder(x, graphs), graphs.rows_to_nodes(rows))
