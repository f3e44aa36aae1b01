import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv

from molattn.graph import CompleteGraphs
from molattn.nn import AttentionBias, EdgeAttentionConv, EGTConv, GraphTransformerBlock, PathBias
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


def pair_block(last=False):
    conv = EGTConv(WIDTH, WIDTH, 2, edge_dim=3, update_edges=not last)
    return GraphTransformerBlock(conv, WIDTH, 3, update_edges=not last)


def mixed_encoder():
    layers = {"bonds": lambda: GATv2Conv(WIDTH, WIDTH, edge_dim=2), "pairs": pair_block}
    last = {"pairs": lambda: pair_block(last=True)}
    return Encoder(layers, 4, WIDTH, make_last=last).double()


@pytest.fixture
def molecules():
    """Two molecules with bonds of two features, and pairs of three."""
    graph = CompleteGraphs([4, 3])
    bonds = torch.tensor([[0, 1, 1, 2, 2, 3, 4, 5], [1, 0, 2, 1, 3, 2, 5, 4]])
    features = {"bonds": bonds.size(1), "pairs": graph.num_edges}
    edge_attr = {
        name: torch.randn(count, 2 + (name == "pairs"), dtype=torch.float64)
        for name, count in features.items()
    }
    x = torch.randn(7, WIDTH, dtype=torch.float64)
    return x, {"bonds": bonds, "pairs": graph.edge_index}, edge_attr


def test_bonds_then_pairs_equal_the_blocks_applied_by_hand(molecules):
    x, graphs, edge_attr = molecules
    encoder = mixed_encoder()
    got = encoder(x, graphs, edge_attr)
    first, second, third, last = encoder.blocks
    x, _ = first(x, graphs["bonds"], edge_attr["bonds"])
    x, pairs = second(x, graphs["pairs"], edge_attr["pairs"])
    x, _ = third(x, graphs["bonds"], edge_attr["bonds"])
    x, _ = last(x, graphs["pairs"], pairs)
    assert torch.equal(got, encoder.norm(x))
    assert second.edge_ff is not None
    assert last.edge_ff is None


def test_an_encoder_of_two_graphs_is_permutation_equivariant(molecules):
    x, graphs, edge_attr = molecules
    encoder = mixed_encoder()
    order = torch.randperm(len(x))
    renamed = {name: order.argsort()[graph] for name, graph in graphs.items()}
    shuffled = {name: torch.randperm(graph.size(1)) for name, graph in graphs.items()}
    got = encoder(
        x[order],
        {name: graph[:, shuffled[name]] for name, graph in renamed.items()},
        {name: e[shuffled[name]] for name, e in edge_attr.items()},
    )
    torch.testing.assert_close(got, encoder(x, graphs, edge_attr)[order])


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_bonds_as_a_mask_of_complete_graphs_are_read_as_their_list(norm):
    torch.manual_seed(0)
    graph = CompleteGraphs([1, 4, 3], row_multiple=4)
    bonded = graph.with_edges(torch.arange(graph.num_pairs) % 3 == 0)
    encoder = Encoder(
        lambda: EdgeAttentionConv(WIDTH, WIDTH, 2, edge_dim=3, update_edges=True),
        5,
        WIDTH,
        norm=norm,
        graphs=("bonds", "bonds", "pairs"),
    ).double()
    x = torch.randn(8, WIDTH, dtype=torch.float64)
    pairs = torch.randn(graph.num_pairs, 3, dtype=torch.float64)
    layouts = {"bonds": bonded, "pairs": graph}
    rows = encoder(graph.nodes_to_rows(x), layouts, pairs)
    listed = encoder(
        x,
        {name: layout.edge_index for name, layout in layouts.items()},
        {name: layout.pairs_to_edges(pairs) for name, layout in layouts.items()},
    )
    torch.testing.assert_close(graph.rows_to_nodes(rows), listed)
    names = [encoder.graph_of_block(index) for index in range(5)]
    assert names == ["bonds", "bonds", "pairs", "bonds", "bonds"]


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_a_list_of_bonds_and_a_layout_of_pairs_are_mixed(norm, molecules):
    x, graphs, edge_attr = molecules
    layout = CompleteGraphs([4, 3], row_multiple=4)
    layers = {
        "bonds": lambda: GATv2Conv(WIDTH, WIDTH, edge_dim=2),
        "pairs": lambda: EdgeAttentionConv(WIDTH, WIDTH, 2, edge_dim=3),
    }
    encoder = Encoder(layers, 4, WIDTH, norm=norm).double()
    expected = encoder(x, graphs, edge_attr)
    pairs = layout.edges_to_pairs(edge_attr["pairs"])
    got = encoder(x, graphs | {"pairs": layout}, edge_attr | {"pairs": pairs})
    torch.testing.assert_close(got, expected)


def test_a_graph_that_is_missing_is_named(molecules):
    x, graphs, edge_attr = molecules
    encoder = Encoder({"bonds": Neighbors, "pairs": Neighbors}, 2, WIDTH).double()
    with pytest.raises(KeyError, match="pairs"):
        encoder(x, {"bonds": graphs["bonds"]}, edge_attr)


def test_terms_of_logits_read_the_first_edges_of_their_own_graph(molecules):
    x, graphs, edge_attr = molecules
    bias = AttentionBias(PathBias(2, 1))
    layers = {
        "bonds": Neighbors,
        "pairs": lambda: EGTConv(WIDTH, WIDTH, 2, edge_dim=3, attn_bias=bias, update_edges=True),
    }
    encoder = Encoder(layers, 4, WIDTH).double()
    seen = []
    bias.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoder(x, graphs, edge_attr)
    distances = torch.randn(graphs["pairs"].size(1), 1, dtype=torch.float64)
    encoder(x, graphs, edge_attr, bias_attr={"pairs": distances})
    expected = [edge_attr["pairs"]] * 2 + [distances] * 2
    assert all(torch.equal(got, pairs) for got, pairs in zip(seen, expected, strict=True))
