"""Every registered layer, on lists of edges and on complete graphs, passes molattn.testing."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from molattn.graph import CompleteGraphs
from molattn.testing import (
    assert_attention_normalized,
    assert_batch_invariant,
    assert_graphs_independent,
    assert_permutation_equivariant,
    assert_permutation_invariant,
    assert_smooth,
    assert_stable,
)


class Layer(nn.Module):
    """A layer that returns all that it can, and weights if it is asked to."""

    def __init__(self, subject, complete):
        super().__init__()
        self.subject, self.complete = subject, complete
        self.conv = subject.make()

    def forward(self, x, edge_index, edge_attr=None, u=None, batch=None, weights=False):
        given = {"edge_attr": edge_attr, "u": u, "batch": batch}
        if "global_dim" not in self.subject.switches:
            given.pop("batch")
        given = {name: value for name, value in given.items() if value is not None}
        if not self.complete:
            out = self.subject.run(self.conv, x, edge_index, given, weights)
            edges = edge_index
        else:
            graph, order = CompleteGraphs.from_edges(edge_index, batch)
            if edge_attr is not None:
                given["edge_attr"] = edge_attr[order]
            out = self.subject.run_complete(self.conv, x, graph, given, weights)
            edges = graph.edge_index
        of_edges = [(edges, out[name]) for name in ("edges", "weights") if name in out]
        return out["nodes"], *of_edges, *([out["graphs"]] if "graphs" in out else [])


class Pooled(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, edge_attr=None, u=None, batch=None):
        nodes, *_ = self.layer(x, edge_index, edge_attr, u, batch)
        return torch.zeros(3, nodes.size(1), dtype=nodes.dtype).index_add(0, batch, nodes)


class NoGraphs(Pooled):
    """Outputs of nodes and edges only."""

    def forward(self, x, edge_index, edge_attr=None, u=None, batch=None, weights=False):
        *out, last = self.layer(x, edge_index, edge_attr, u, batch, weights)
        return (*out, *([last] if isinstance(last, tuple) or not out else []))


@pytest.fixture(params=[False, True], ids=["edges", "complete"])
def case(request, subject):
    """A layer, and a batch of graphs that it accepts."""
    graphs = []
    for nodes in (4, 2, 3):
        pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
        edges = pairs[:, pairs[0] != pairs[1]]
        if not request.param:
            edges = torch.randint(0, nodes, (2, 2 * nodes))
        given = subject.features(edges.size(1))
        given = {name: value.detach() for name, value in given.items() if value is not None}
        graphs.append(Data(x=subject.nodes(nodes).detach(), edge_index=edges, **given))
    return Layer(subject, request.param), Batch.from_data_list(graphs)


def test_nodes_and_edges_may_be_reordered(case):
    layer, data = case
    assert_permutation_equivariant(NoGraphs(layer), data, weights=True)
    assert_permutation_invariant(Pooled(layer), data)


def test_graphs_of_a_batch_are_independent(case):
    layer, data = case
    assert_graphs_independent(layer, data)
    assert_graphs_independent(layer, data, weights=True)


def test_a_batch_gives_the_same_as_its_graphs(case):
    layer, data = case
    assert_batch_invariant(layer, data)
    assert_batch_invariant(layer, data, weights=True)


def test_weights_sum_to_1_unless_the_registry_says_otherwise(case):
    layer, data = case
    if layer.subject.layer.normalized:
        assert_attention_normalized(NoGraphs(layer), data, weights=True)
    else:
        with pytest.raises(AssertionError, match="is not normalized"):
            assert_attention_normalized(NoGraphs(layer), data, weights=True)


def test_first_and_second_derivatives_are_right(case):
    layer, data = case
    assert_smooth(layer, data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_inputs_keep_values_and_gradients_finite(case, dtype):
    layer, data = case
    floats = [name for name, value in data.to_dict().items() if value.is_floating_point()]
    data = data.apply(lambda value: value.to(dtype), *floats)
    assert_stable(layer.to(dtype), data, weights=True)
