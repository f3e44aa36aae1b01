"""Every registered layer: what holds for each, on lists of edges and on complete graphs."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from molattn.graph import CodedEdges, CompleteGraphs
from molattn.testing import (
    assert_attention_normalized,
    assert_permutation_invariant,
    assert_smooth,
    check_module,
)

from .conftest import DOUBLE, OUT, SUBJECTS, assert_near

SIZES = [3, 1, 5, 2, 0, 5]  # one padded block


def floats(given):
    return [v for v in given.values() if torch.is_tensor(v) and v.is_floating_point()]


def gradients(parts, inputs):
    """Of a random but fixed sum of all outputs."""
    generator = torch.Generator().manual_seed(1)
    total = sum(
        (part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum()
        for part in floats(parts)
    )
    options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
    return torch.autograd.grad(total, inputs, **options)


class Layer(nn.Module):
    """A layer whose outputs of edges come with their ``edge_index``."""

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
        else:
            graph, order = CompleteGraphs.from_edges(edge_index, batch)
            if edge_attr is not None:
                given["edge_attr"] = edge_attr[order]
            out = self.subject.run_complete(self.conv, x, graph, given, weights)
            edge_index = graph.edge_index
        of_edges = [(edge_index, out[name]) for name in ("edges", "weights") if name in out]
        return out["nodes"], *of_edges, *([out["graphs"]] if "graphs" in out else [])


class Pooled(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, edge_attr=None, u=None, batch=None):
        nodes, *_ = self.layer(x, edge_index, edge_attr, u, batch)
        return torch.zeros(3, nodes.size(1), dtype=nodes.dtype).index_add(0, batch, nodes)


@pytest.mark.parametrize("complete", [False, True], ids=["edges", "complete"])
def test_assertions_hold(subject, complete):
    graphs = []
    for nodes in (4, 2, 3):
        pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
        edges = pairs[:, pairs[0] != pairs[1]]
        if not complete:
            edges = torch.randint(0, nodes, (2, 2 * nodes))
        given = {k: v.detach() for k, v in subject.features(edges.size(1)).items() if v is not None}
        graphs.append(Data(x=subject.nodes(nodes).detach(), edge_index=edges, **given))
    layer, data = Layer(subject, complete), Batch.from_data_list(graphs)
    assert_permutation_invariant(Pooled(layer), data)
    if subject.layer.normalized:
        assert_attention_normalized(layer, data, weights=True)
    elif subject.edge_dim is not None:  # what weights are changed by
        with pytest.raises(AssertionError):
            assert_attention_normalized(layer, data, weights=True)
    assert_smooth(layer, data)
    data.apply(lambda value: value.float() if value.is_floating_point() else value)
    skip = ["direction", "isolated nodes"] if complete else []  # which remove edges
    report = check_module(layer.float(), data, weights=True, skip=skip)
    assert [name for name, outcome in report.items() if "not applicable" in outcome] == [
        "padding",
        "rotation",
    ]


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("self_loops", [True, False])
def test_complete_graphs_agree_with_their_edge_list(dense_subject, self_loops, some):
    subject, graph = dense_subject, CompleteGraphs(SIZES, self_loops=self_loops)
    if some:  # and nodes without neighbors
        graph = graph.with_edges(torch.rand(graph.num_pairs) < 0.4)
    conv, x = subject.make(), subject.nodes(graph.num_nodes)
    given = subject.features(graph.num_edges, batch=graph.batch)
    flat = subject.run(conv, x, graph.edge_index, given, True)
    dense = subject.run_complete(conv, x, graph, given, True)
    assert flat.pop("graph") is graph.edge_index
    assert dense.pop("graph") is graph
    plain = subject.run_complete(conv, x, graph, given)
    padded = subject.run_complete(conv, x, graph, given, padding=1e3)
    inputs = [x, *floats(given), *conv.parameters()]
    for out in (dense, plain, padded):
        for name, part in out.items():
            assert_near(part, flat[name])
        expected = gradients({name: flat[name] for name in out}, inputs)
        for one, other in zip(gradients(out, inputs), expected, strict=True):
            assert_near(one, other)


@pytest.mark.parametrize("sizes", [SIZES, [2, 2], [1, 2], [3, 1], [0, 2]])
def test_nodes_of_complete_graphs_come_back_in_the_form_given(dense_subject, sizes):
    graph = CompleteGraphs(sizes)
    conv, x = dense_subject.make(), dense_subject.nodes(graph.num_nodes)
    given = dense_subject.features(graph.num_edges, batch=graph.batch)
    rows = dense_subject.run_complete(conv, x, graph, given)
    laid_out = given | {"edge_attr": graph.edges_to_pairs(given["edge_attr"])} if given else {}
    for nodes in (x, (x, x)):
        for name, part in dense_subject.run(conv, nodes, graph, laid_out).items():
            part = graph.pairs_to_edges(part) if name == "edges" else part
            assert_near(part, rows[name])
    with pytest.raises(ValueError, match=f"x: got {graph.num_rows + 1} nodes, expected"):
        dense_subject.run(conv, dense_subject.nodes(graph.num_rows + 1), graph, laid_out)


def test_codes_agree_with_features(dense_subject):
    graph = CompleteGraphs(SIZES, self_loops=False)
    x, given = dense_subject.in_rows(graph, coded=True)
    if "edge_attr" not in given:
        pytest.skip("no edge features")
    conv = dense_subject.make(dtype=torch.float32)
    coded = dense_subject.run(conv, x, graph, given, True)
    given["edge_attr"] = given["edge_attr"].dense()
    dense = dense_subject.run(conv, x, graph, given, True)
    for name in coded.keys() - {"graph", "edges"}:
        torch.testing.assert_close(coded[name], dense[name])


@pytest.mark.parametrize(
    "num_nodes, edges",
    [
        (1, []),
        (1, [(0, 0), (0, 0)]),
        (4, []),
        (0, []),
        (3, [(0, 1), (0, 1), (0, 1)]),
        (3, [(1, 1), (2, 1)]),
    ],
    ids=["atom", "loops", "no_edges", "empty", "duplicates", "isolated"],
)
def test_odd_graphs_are_finite_in_values_and_gradients(subject, num_nodes, edges):
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    conv, x = subject.make(), subject.nodes(num_nodes)
    given = subject.features(len(edges))
    out = subject.run(conv, x, edge_index, given, weights=True)
    del out["graph"]
    assert out["nodes"].shape == (num_nodes, 6)
    assert out["weights"].shape == (len(edges), 2)
    for tensor in (*out.values(), *gradients(out, [x, *floats(given), *conv.parameters()])):
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize("self_loops", [True, False])
def test_single_atoms_in_padded_blocks_stay_finite(dense_subject, self_loops):
    subject, graph = dense_subject, CompleteGraphs([1, 1, 4], self_loops=self_loops)
    conv = subject.make(dtype=torch.float32)
    x = subject.nodes(graph.num_nodes, dtype=torch.float32)
    given = subject.features(graph.num_edges, batch=graph.batch, dtype=torch.float32)
    out = subject.run_complete(conv, x, graph, given, weights=True)
    del out["graph"]
    for tensor in (*out.values(), *gradients(out, [x, *floats(given), *conv.parameters()])):
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_complete_graphs_without_nodes_have_second_derivatives(dense_subject, sizes, coded):
    subject, graph = dense_subject, CompleteGraphs(sizes)
    x, given = subject.in_rows(graph, coded)
    conv = subject.make(dtype=torch.float32)
    read = (value.table if isinstance(value, CodedEdges) else value for value in given.values())
    leaves = [x, *(value.requires_grad_() for value in read), *conv.parameters()]
    out = subject.run(conv, x, graph, given, weights=True)
    options = {"allow_unused": True, "materialize_grads": True}
    total = sum(out[name].sum() for name in ("nodes", "edges") if name in out)
    first = torch.autograd.grad(total, leaves, create_graph=True, **options)
    second = torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves, **options)
    assert not any(grad.any() for grad in (*first, *second))


def test_weights_are_of_the_edges_given_and_those_before_dropout(subject, multigraph):
    conv, x, given = subject.make(dropout=0.5), subject.nodes(9), subject.features(20)
    out = subject.run(conv, x, multigraph, given, weights=True)
    assert out["graph"] is multigraph
    assert out["weights"].shape == (20, 2)
    for edge in range(20):  # alone with the other edges of its receiver, it has the same weight
        mine = multigraph[1] == multigraph[1, edge]
        part = given | ({"edge_attr": given["edge_attr"][mine]} if "edge_attr" in given else {})
        alone = subject.run(conv, x, multigraph[:, mine], part, weights=True)
        assert_near(alone["weights"], out["weights"][mine])
    graph, runs = CompleteGraphs([6, 3]), []
    features = subject.features(graph.num_edges, batch=graph.batch)
    for train in (False, True):
        conv.train(train)
        runs.append(
            (
                subject.run(conv, x, multigraph, given, weights=True),
                subject.run_complete(conv, x, graph, features, weights=True),
            )
        )
    for expected, got in zip(*runs, strict=True):
        assert_near(got["weights"], expected["weights"])
        assert not torch.allclose(got["nodes"], expected["nodes"])


def test_dropout_keeps_the_mean_of_nodes_and_edges():
    """On complete graphs, as a random gate."""
    from molattn.nn import EdgeAttentionConv

    graph, x = CompleteGraphs([5]), torch.randn(5, 4, dtype=DOUBLE)
    options = {"edge_dim": 3, "combine": "concat", "update_edges": True, "dropout": 0.4}
    conv, attr = EdgeAttentionConv(4, 4, 2, **options).double(), torch.randn(25, 3, dtype=DOUBLE)
    with torch.no_grad():
        runs = conv(x.repeat(4096, 1), CompleteGraphs([5] * 4096), attr.repeat(4096, 1))
        expected = conv.eval()(x, graph, attr)
    for got, mean in zip(runs, expected, strict=True):
        assert_near(got.view(4096, *mean.shape).mean(0), mean, 0.1)


def test_bipartite(subject):
    flat = torch.randperm(15)[:8].sort().values
    edge_index = torch.stack([flat % 5, flat // 5])
    conv = subject.make((4, 7))
    x = subject.nodes(5), subject.nodes(3, 7)
    batch = (torch.zeros(5, dtype=torch.long), torch.zeros(3, dtype=torch.long))
    given = subject.features(8, batch=batch)
    out = subject.run(conv, x, edge_index, given, weights=True)
    assert out["nodes"].shape == (3, 6)
    # A sender without edges and the order of senders are of no account.
    order = torch.tensor([4, 2, 0, 1, 3])
    moved = torch.cat([x[0][order], torch.randn(1, 4, dtype=DOUBLE)])
    where = torch.argsort(order)[edge_index[0]]
    if "batch" in given:
        given["batch"] = (torch.zeros(6, dtype=torch.long), batch[1])
    again = subject.run(conv, (moved, x[1]), torch.stack([where, edge_index[1]]), given)
    assert_near(again["nodes"], out["nodes"])
    none = torch.empty(2, 0, dtype=torch.long)
    for senders, receivers in ((0, 3), (3, 0), (0, 0)):
        x = subject.nodes(senders), subject.nodes(receivers, 7)
        out = subject.run(conv, x, none, subject.features(0), weights=True)
        assert out["nodes"].shape == (receivers, 6)
        assert out["weights"].shape == (0, 2)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)]
)
def test_number_types(dense_subject, dtype, tolerance):
    subject, graph = dense_subject, CompleteGraphs([1, 4, 3])
    conv, x = subject.make(), subject.nodes(8)
    given = subject.features(graph.num_edges, batch=graph.batch)

    def cast(t):
        return t.to(dtype) if torch.is_tensor(t) and t.is_floating_point() else t

    expected = subject.run(conv, x, graph.edge_index, given, weights=True)
    small, narrow = {k: cast(v) for k, v in given.items()}, copy.deepcopy(conv).to(dtype)
    for got in (
        subject.run(narrow, cast(x), graph.edge_index, small, weights=True),
        subject.run_complete(narrow, cast(x), graph, small, weights=True),
    ):
        for name in got.keys() - {"graph"}:
            assert got[name].dtype == dtype
            scale = max(1.0, float(expected[name].detach().abs().max()))
            error = (got[name].double() - expected[name]).detach().abs().max()
            assert float(error) <= tolerance * scale


@pytest.mark.parametrize("name", ["gaan", "mat", "egt", "grit"])
def test_heads_of_any_width(name):
    subject, graph = next(s for s in SUBJECTS if s.name == name and s.edge_dim), CompleteGraphs([4])
    conv, x = subject.make(head_channels=2, query_channels=5), subject.nodes(4)
    given = subject.features(16)
    nodes = subject.run(conv, x, graph.edge_index, given)["nodes"]
    assert nodes.shape == (4, OUT)
    assert_near(subject.run_complete(conv, x, graph, given)["nodes"], nodes)


def test_repr_makes_the_same_layer(subject):
    conv = subject.make()
    text = repr(conv)
    assert text.startswith(f"{subject.layer.conv.__name__}(4, 6, heads=2")
    assert ("update_edges=True" in text) == subject.switches.get("update_edges", False)
    assert repr(eval(text, {subject.layer.conv.__name__: subject.layer.conv})) == text


def test_autocast_to_bfloat16(dense_subject):
    subject, graph = dense_subject, CompleteGraphs([1, 4, 3])
    conv, x = subject.make(dtype=torch.float32), subject.nodes(8, dtype=torch.float32)
    given = subject.features(graph.num_edges, batch=graph.batch, dtype=torch.float32)
    expected = subject.run(conv, x, graph.edge_index, given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = subject.run(conv, x, graph.edge_index, given)
        dense = subject.run_complete(conv, x, graph, given)
    for got in (found, dense):
        for name, part in got.items():
            torch.testing.assert_close(part.float(), expected[name], rtol=0.1, atol=0.1)
        gradients(got, [x, *conv.parameters()])
