"""The residual block of nodes and edges: by NumPy, in a stack, and what is dropped."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from molattn.graph import CompleteGraphs
from molattn.nn import (
    AttentionBlock,
    EGTConv,
    Encoder,
    GraphTransformerBlock,
    TripletAggregate,
)

from .conftest import DOUBLE, assert_near
from .pairs import test_edge_set as edge_set
from .pairs.test_edge_set import linear, randomize_norms

NODES, EDGES = 6, 4
norm = partial(edge_set.norm, epsilon=1e-5)


class Double(nn.Module):
    """Layers whose results are known: nodes doubled, edges and three times their inputs."""

    def forward(self, x, edge_index, edge_attr):
        return 2 * x, edge_attr + 3 * edge_attr


class Negate(nn.Module):
    def forward(self, edge_attr, graph):
        return -edge_attr


def silu(x):
    return x / (1 + np.exp(-x))


def batch_norm(module, rows):
    """By torch's own, over rows that are all real."""
    oracle = nn.BatchNorm1d(rows.shape[1]).double()
    oracle.load_state_dict(initial_statistics(module.module))
    oracle.train(module.training)
    out = oracle(torch.tensor(rows)).detach().numpy()
    if module.training:
        assert_near(module.module.running_mean, oracle.running_mean)
        assert_near(module.module.running_var, oracle.running_var)
    return out


def initial_statistics(module):
    state = module.state_dict()
    if module.training:  # once updated
        state |= {"running_mean": torch.zeros_like(state["running_mean"])}
        state |= {"running_var": torch.ones_like(state["running_var"])}
    return state


NORMS = {"layer": norm, "batch": batch_norm, None: lambda _, rows: rows}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("form", ["listed", "complete", "bonds"])
def test_a_block_against_numpy(form, kind, training):
    norm = NORMS[kind]
    options = {"triplet": Negate(), "virtual_node": True, "expansion": 3, "norm": kind}
    block = GraphTransformerBlock(Double(), NODES, EDGES, **options).double().train(training)
    randomize_norms(block)
    graph = CompleteGraphs([2, 0, 3], row_multiple=4)
    listed = form == "listed"
    if form == "bonds":
        graph = graph.with_edges(torch.arange(graph.num_pairs) % 3 > 0)
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
    seen = norm(block.norm_conv, x)
    mean = np.stack([seen[of == of[node]].mean(axis=0) for node in range(5)])
    h = x + 2 * seen + silu(linear(block.lin_virtual, mean))
    hidden = silu(linear(block.ff[0], norm(block.norm_ff, h)))
    f = e + 3 * norm(block.norm_edges, e)
    g = f - norm(block.norm_triplet, f)
    hidden_edges = silu(linear(block.edge_ff[1], norm(block.edge_ff[0], g)))
    edges = g + linear(block.edge_ff[3], hidden_edges)
    np.testing.assert_allclose(got[0].detach(), h + linear(block.ff[2], hidden), atol=1e-12)
    np.testing.assert_allclose(got[1].detach(), edges, atol=1e-12)


def make_block(update_edges=True, **options):
    conv = EGTConv(NODES, NODES, 2, edge_dim=EDGES, update_edges=update_edges)
    options |= {"triplet": TripletAggregate(EDGES, 2), "update_edges": update_edges}
    return GraphTransformerBlock(conv, NODES, EDGES, virtual_node=True, **options)


def test_a_stack_of_blocks_keeps_graphs_apart_and_trains_every_parameter():
    encoder = Encoder(make_block, 2, NODES, make_last=lambda: make_block(False)).double()
    graph, alone = CompleteGraphs([1, 4, 3]), CompleteGraphs([4])
    x = torch.randn(8, NODES, dtype=DOUBLE)
    e = torch.randn(26, EDGES, dtype=DOUBLE)
    out = encoder(graph.nodes_to_rows(x), graph, graph.edges_to_pairs(e))
    nodes = graph.rows_to_nodes(out)
    assert_near(nodes[1:5], encoder(x[1:5], alone, e[1:17]))
    nodes.square().sum().backward()
    assert not [name for name, weight in encoder.named_parameters() if weight.grad is None]


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
    for layer, factor, before, after in (
        (block.norm_conv, 2, x, nodes),
        (block.norm_edges, 3, e, edges),
    ):
        ratio = ((after - before) / (factor * layer(before))).detach().view(400, -1)
        kept = ratio[:, 0] > 0.5
        assert_near(ratio, (kept / 0.75).unsqueeze(1).expand_as(ratio).double(), 1e-6)
        assert 0.65 < kept.float().mean() < 0.85
    block.eval()
    assert_near(block(x, *given)[0], x + 2 * block.norm_conv(x))
    with pytest.raises(ValueError, match="drop_path"):
        GraphTransformerBlock(Double(), NODES, EDGES, drop_path=1.0)


@pytest.mark.parametrize("training", [False, True])
def test_sparse_matrices_and_pairs_of_one_set_of_nodes_are_read_as_the_list_of_edges(training):
    options = {"virtual_node": True, "drop_path": 0.5}
    conv = EGTConv(NODES, NODES, 2, edge_dim=EDGES, update_edges=True)
    block = GraphTransformerBlock(conv, NODES, EDGES, **options).double().train(training)
    edge_index = torch.tensor([[1, 0, 2, 1], [0, 1, 1, 2]])  # by receiver, as in a matrix
    x, e = torch.randn(3, NODES, dtype=DOUBLE), torch.randn(4, EDGES, dtype=DOUBLE)
    ends, size = edge_index.flip(0), (3, 3, EDGES)
    adj_t = torch.sparse_coo_tensor(ends, e, size, check_invariants=True, is_coalesced=True)
    batch = torch.tensor([0, 0, 0])
    calls = [(x, edge_index, e), (x, adj_t, e), (x, adj_t), ((x, x), edge_index, e)]
    found = []
    for call in calls:
        torch.manual_seed(1)
        found.append(block(*call, batch=batch))
    for nodes, edges in found[1:]:
        assert_near(nodes, found[0][0])
        assert_near(edges, found[0][1])


@pytest.mark.parametrize("kind", ["graph", "instance", "pair_norm"])
def test_norms_of_graphs_read_the_nodes_and_edges_of_one_graph(kind):
    encoder = Encoder(lambda: make_block(norm=kind), 2, NODES, norm=kind).double()
    graph, alone = CompleteGraphs([2, 4, 3]), CompleteGraphs([4])
    x = torch.randn(9, NODES, dtype=DOUBLE)
    e = torch.randn(29, EDGES, dtype=DOUBLE)
    out = encoder(graph.nodes_to_rows(x), graph, graph.edges_to_pairs(e))
    assert_near(graph.rows_to_nodes(out)[2:6], encoder(x[2:6], alone, e[4:20]))
    block = GraphTransformerBlock(Double(), NODES, EDGES, norm=kind).double()
    rows, pairs = block(graph.nodes_to_rows(x), graph, graph.edges_to_pairs(e))
    nodes, edges = block(x, graph.edge_index, e, graph.batch)
    assert_near(graph.rows_to_nodes(rows), nodes)
    assert_near(graph.pairs_to_edges(pairs), edges)


def test_an_unknown_norm_or_activation_is_refused():
    for options in ({"norm": "none such"}, {"act": "none such"}):
        with pytest.raises(ValueError, match="none such"):
            GraphTransformerBlock(Double(), NODES, EDGES, **options)


def test_all_activations_of_a_block_are_exchanged():
    block = GraphTransformerBlock(Double(), NODES, EDGES, virtual_node=True, act="relu")
    kinds = [type(part) for part in block.modules() if isinstance(part, (nn.SiLU, nn.ReLU))]
    assert kinds == [nn.ReLU] * 3


def test_batches_of_one_atom_and_no_edges_pass_batch_norm():
    block = GraphTransformerBlock(Double(), NODES, EDGES, norm="batch")
    empty = torch.zeros(2, 0, dtype=torch.long)
    nodes, _ = block(torch.ones(1, NODES), empty, torch.zeros(0, EDGES))
    assert nodes.isfinite().all()


@pytest.mark.parametrize("block", [AttentionBlock, GraphTransformerBlock])
def test_a_residual_block_has_one_set_of_nodes(block):
    sizes = (NODES, EDGES)[: 1 + (block is GraphTransformerBlock)]
    made = block(EGTConv(NODES, NODES, edge_dim=EDGES), *sizes)
    edge_index = torch.tensor([[0], [1]])
    x, edge_attr = torch.randn(2, NODES), torch.randn(1, EDGES)
    torch.testing.assert_close(made((x, x), edge_index, edge_attr), made(x, edge_index, edge_attr))
    with pytest.raises(ValueError, match="x: got senders and receivers"):
        made((x, x.clone()), edge_index, edge_attr)


@pytest.mark.parametrize("norm, dropout", [("layer", 0.0), ("batch", 0.0), ("layer", 0.5)])
@pytest.mark.parametrize("has_edges", [False, True])
def test_a_block_on_complete_graphs_takes_nodes_in_the_form_of_pyg(norm, dropout, has_edges):
    graph = CompleteGraphs([1, 4, 3])
    options = {"norm": norm, "source_dropout": dropout}
    block = AttentionBlock(EGTConv(NODES, NODES, 2, edge_dim=EDGES), NODES, **options)
    if has_edges:
        conv = EGTConv(NODES, NODES, 2, edge_dim=EDGES, update_edges=True)
        options |= {"virtual_node": True, "drop_path": dropout}
        block = GraphTransformerBlock(conv, NODES, EDGES, **options)
    x, e = torch.randn(8, NODES), torch.randn(graph.num_pairs, EDGES)
    torch.manual_seed(1)
    of_rows = block(graph.nodes_to_rows(x), graph, e)
    torch.manual_seed(1)
    nodes, edges = block(x, graph, e)
    torch.testing.assert_close(nodes, graph.rows_to_nodes(of_rows[0]))
    torch.testing.assert_close(graph.pairs_to_edges(edges), graph.pairs_to_edges(of_rows[1]))
