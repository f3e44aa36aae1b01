"""Dropout of senders: who is dropped, in every form of graph."""

import pytest
import torch
from torch import nn

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.nn import (
    LAYERS,
    AttentionBlock,
    EdgeAttentionConv,
    EGTConv,
    Encoder,
    GraphTransformerBlock,
)

from .conftest import DOUBLE, assert_near

NODES, EDGES = 6, 4


class Senders(nn.Module):
    """Adds up senders, so that one-hot atoms tell who was heard; edges are doubled."""

    def forward(self, x, edge_index, edge_attr=None):
        heard = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return heard if edge_attr is None else (heard, 2 * edge_attr)


def without_feed_forward(block):
    nn.init.zeros_(block.ff[2].weight)
    nn.init.zeros_(block.ff[2].bias)
    return block


def test_all_receivers_of_a_molecule_lose_the_same_senders_and_one_remains():
    graph = CompleteGraphs([1] * 100 + [4] * 300)
    block = AttentionBlock(Senders(), 1300, norm=None, source_dropout=0.6)
    block = without_feed_forward(block)
    x = torch.eye(1300)
    heard = block.attend(x, graph.edge_index, None, graph.batch)
    same = graph.batch[:, None] == graph.batch
    is_sent = heard.amax(dim=0) > 0
    torch.testing.assert_close(heard, (same & is_sent).float())
    assert is_sent[:100].all()
    sizes = is_sent[100:].view(300, 4).sum(dim=1)
    assert sizes.min() == 1
    assert 1.5 < sizes.float().mean() < 1.95  # 4 * 0.4 + 0.6**4 = 1.73
    torch.testing.assert_close(block.eval().attend(x, graph.edge_index, None, None), same.float())


def test_a_dropped_sender_is_no_edge_and_its_edges_are_not_updated():
    conv = EGTConv(NODES, NODES, 2, edge_dim=EDGES, update_edges=True)
    block = GraphTransformerBlock(conv, NODES, EDGES, source_dropout=0.5).double()
    calls = []
    conv.register_forward_pre_hook(lambda _, inputs: calls.append(inputs))
    graph = CompleteGraphs([3, 5])
    x, e = torch.randn(8, NODES, dtype=DOUBLE), torch.randn(34, EDGES, dtype=DOUBLE)
    nodes, edges = block(x, graph.edge_index, e, graph.batch)
    _, remaining, _ = calls[0]
    assert 0 < remaining.size(1) < 34
    is_sent = torch.isin(graph.edge_index[0], remaining[0])
    block.eval()
    expected, updated = block(x, graph.edge_index[:, is_sent], e[is_sent], graph.batch)
    assert_near(nodes, expected)
    assert_near(edges[is_sent], updated)
    assert_near(edges[~is_sent], e[~is_sent] + block.edge_ff(e[~is_sent]))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("coded, only_some", [(False, False), (True, False), (True, True)])
def test_all_forms_of_a_graph_lose_the_same_senders(name, coded, only_some):
    layer = LAYERS[name]
    options = {"update_edges": layer.has("update_edges"), "edge_dim": len(layer.edge_columns) or 4}
    options["attn_bias"] = None if layer.edge_columns else "linear"
    torch.manual_seed(0)
    graph = CompleteGraphs([1, 4, 3], row_multiple=4)
    if only_some:
        graph = graph.with_edges(torch.arange(graph.num_pairs) % 4 > 0)
    width = options["edge_dim"]
    codes, table = torch.randint(0, 5, (graph.num_edges,)), torch.rand(5, width, dtype=DOUBLE)
    pairs = CodedEdges.from_edges(graph, codes, table)
    encoder = Encoder(
        lambda: layer.make(NODES, NODES, 2, **options), 2, NODES, source_dropout=0.5
    ).double()
    x = torch.randn(8, NODES, dtype=DOUBLE)
    reads = {"degree": torch.ones(8, dtype=DOUBLE)} if layer.reads_degree else {}
    torch.manual_seed(1)
    listed = encoder(x, graph.edge_index, table[codes], batch=graph.batch, **reads)
    reads = {name: graph.nodes_to_rows(rows) for name, rows in reads.items()}
    torch.manual_seed(1)
    attr = pairs if coded else pairs.dense()
    rows = encoder(graph.nodes_to_rows(x), graph, attr, **reads)
    assert_near(graph.rows_to_nodes(rows), listed)


def test_a_layer_that_sends_from_the_second_row_loses_those_senders():
    forward = EdgeAttentionConv(NODES, NODES, 2, edge_dim=EDGES)
    backward = EdgeAttentionConv(NODES, NODES, 2, edge_dim=EDGES, flow="target_to_source")
    backward.load_state_dict(forward.state_dict())
    graph = CompleteGraphs([3, 5]).edge_index[:, ::3]
    x, e = torch.randn(8, NODES), torch.randn(graph.size(1), EDGES)
    outputs = []
    for conv, edge_index in ((forward, graph), (backward, graph.flip(0))):
        torch.manual_seed(1)
        block = AttentionBlock(conv, NODES, source_dropout=0.5)
        outputs.append(block.attend(x, edge_index, e, None))
    torch.testing.assert_close(*outputs)


def test_a_sparse_matrix_loses_the_senders_of_its_list():
    conv = EGTConv(NODES, NODES, 2, edge_dim=EDGES, update_edges=True)
    block = GraphTransformerBlock(conv, NODES, EDGES, source_dropout=0.5).double()
    edge_index = torch.tensor([[1, 0, 2, 1], [0, 1, 1, 2]])  # by receiver, as in a matrix
    x, e = torch.randn(3, NODES, dtype=DOUBLE), torch.randn(4, EDGES, dtype=DOUBLE)
    size = (3, 3, EDGES)
    adj_t = torch.sparse_coo_tensor(
        edge_index.flip(0), e, size, check_invariants=True, is_coalesced=True
    )
    torch.manual_seed(1)
    nodes, edges = block(x, edge_index, e)
    torch.manual_seed(1)
    of_matrix = block(x, adj_t)
    assert_near(of_matrix[0], nodes)
    assert_near(of_matrix[1], edges)


def test_a_probability_of_one_is_refused():
    with pytest.raises(ValueError, match="source_dropout"):
        Encoder(Senders, 1, NODES, source_dropout=1.0)
