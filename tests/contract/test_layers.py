"""Layers: the same numbers on an edge list and on complete graphs, and what holds for any graph."""

import io

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import Sequential, global_mean_pool

from molattn import from_smiles
from molattn.graph import BondsAndDistances, CompleteGraphs
from molattn.nn import (
    LAYERS,
    EdgeAttentionConv,
    GaANConv,
    GraphNetwork,
    MATConv,
    functional,
)
from molattn.testing import (
    assert_attention_normalized,
    assert_batch_invariant,
    assert_graphs_independent,
    assert_permutation_equivariant,
    assert_permutation_invariant,
    assert_smooth,
)

WIDTH, OUT, HEADS, EDGES, GLOBALS = 5, 8, 2, 3, 4
SIZES = [3, 1, 0, 5, 2]
MAKE = {
    "plain": lambda: EdgeAttentionConv(WIDTH, OUT, HEADS),
    "edges": lambda: EdgeAttentionConv(
        WIDTH, OUT, HEADS, edge_dim=EDGES, gate=True, update_edges=True
    ),
    "additive": lambda: EdgeAttentionConv(
        WIDTH, OUT, HEADS, edge_dim=EDGES, score="additive", combine="max"
    ),
    "gatv2": lambda: EdgeAttentionConv(
        WIDTH, OUT, HEADS, edge_dim=EDGES, score="gatv2", combine="mean", edge_value=False
    ),
    "gaan": lambda: GaANConv(WIDTH, OUT, HEADS, edge_dim=EDGES),
    "mat": lambda: MATConv(WIDTH, OUT, HEADS),
    "block": lambda: GraphNetwork(
        *(WIDTH, OUT, HEADS),
        **{"edge_dim": EDGES, "global_dim": GLOBALS, "update_edges": True, "update_global": True},
    ),
}
each = pytest.mark.parametrize("name", MAKE)


@pytest.fixture
def conv(name):
    return MAKE[name]().double().eval()


def edge_features(conv, count):
    width = 2 if isinstance(conv, MATConv) else getattr(conv, "edge_dim", None)
    return None if width is None else torch.rand(count, width, dtype=torch.float64)


def inputs(conv, graphs):
    """Nodes, edges and graph features of complete graphs, by the names of PyG."""
    given = {"x": torch.randn(graphs.num_nodes, WIDTH, dtype=torch.float64)}
    if (edge_attr := edge_features(conv, graphs.num_edges)) is not None:
        given["edge_attr"] = edge_attr
    if isinstance(conv, GraphNetwork):
        given["u"] = torch.randn(graphs.num_graphs, GLOBALS, dtype=torch.float64)
    return {key: value.requires_grad_() for key, value in given.items()}


def on_list(conv, graphs, x, edge_attr=None, u=None, **more):
    more |= {} if u is None else {"u": u, "batch": graphs.batch}
    return listed(conv(x, graphs.edge_index, edge_attr, **more))


def on_rows(conv, graphs, x, edge_attr=None, u=None, **more):
    """The same on the layout, with what comes out as nodes and edges again."""
    more |= {} if u is None else {"u": u}
    pairs = None if edge_attr is None else graphs.edges_to_pairs(edge_attr)
    out = listed(conv(graphs.nodes_to_rows(x), graphs, pairs, **more))
    back = {graphs.num_rows: graphs.rows_to_nodes, graphs.num_pairs: graphs.pairs_to_edges}
    return [back.get(part.size(0), lambda same: same)(part) for part in out]


def listed(out):
    """The tensors of an output, without the graph that comes with weights."""
    if isinstance(out, torch.Tensor):
        return [out]
    return [part[1] if isinstance(part, tuple) else part for part in out]


def graph_data(conv, size=5, edges=12):
    """A graph with repeated edges and a node that receives none."""
    index = torch.randint(0, size - 1, (2, edges))
    data = Data(x=torch.randn(size, WIDTH, dtype=torch.float64), edge_index=index)
    if (edge_attr := edge_features(conv, edges)) is not None:
        data.edge_attr = edge_attr
    if isinstance(conv, GraphNetwork):
        data.u = torch.randn(1, GLOBALS, dtype=torch.float64)
    return data


def near(got, wanted, tolerance=1e-10):
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


@each
@pytest.mark.parametrize("loops", [True, False])
def test_edge_list_and_complete_graphs_agree(conv, name, loops):
    graphs = CompleteGraphs(SIZES, self_loops=loops)
    given = inputs(conv, graphs)
    results = [run(conv, graphs, **given) for run in (on_list, on_rows)]
    near(*results)
    assert results[0][0].shape == (sum(SIZES), OUT)
    torch.manual_seed(1)
    factors = [torch.randn_like(part) for part in results[0]]
    first, second = (
        torch.autograd.grad(
            sum((part * factor).sum() for part, factor in zip(out, factors, strict=True)),
            [*given.values(), *conv.parameters()],
            allow_unused=True,
            materialize_grads=True,
        )
        for out in results
    )
    near(first, second, 1e-9)


@each
def test_weights_have_a_row_for_each_edge(conv, name):
    graphs = CompleteGraphs(SIZES)
    given = inputs(conv, graphs)
    plain = on_list(conv, graphs, **given)
    *out, alpha = on_list(conv, graphs, **given, return_attention_weights=True)
    near(out, plain)
    assert alpha.shape == (graphs.num_edges, HEADS)
    *_, dense = on_rows(conv, graphs, **given, return_attention_weights=True)
    near([dense], [alpha])
    if not isinstance(conv, MATConv):
        assert_attention_normalized(conv, graph_data(conv))
        total = torch.zeros(graphs.num_nodes, HEADS, dtype=torch.float64)
        total.index_add_(0, graphs.edge_index[1], alpha.detach())
        near([total], [torch.ones_like(total)])


@each
def test_order_does_not_matter_and_graphs_of_a_batch_are_independent(conv, name):
    data = graph_data(conv)
    assert_permutation_equivariant(nodes_and_edges(conv), data)
    batch = [data, graph_data(conv, 3, 4), graph_data(conv, 6, 9)]
    assert_graphs_independent(conv, batch)
    assert_batch_invariant(conv, batch)


def nodes_and_edges(conv):
    """A layer without the output of the whole graph."""
    if not isinstance(conv, GraphNetwork):
        return conv

    class Part(nn.Module):
        def forward(self, x, edge_index, edge_attr, u):
            return conv(x, edge_index, edge_attr, u=u)[:2]

    return Part()


@each
def test_second_derivatives(conv, name):
    assert_smooth(conv, graph_data(conv, 4, 7))
    graphs = CompleteGraphs([2, 0, 3])
    given = inputs(conv, graphs)
    results = []
    for run in (on_list, on_rows):
        energy = sum(part.tanh().sum() for part in run(conv, graphs, **given))
        (force,) = torch.autograd.grad(energy, given["x"], create_graph=True)
        weights = [p for p in conv.parameters() if p.requires_grad]
        loss = force.square().sum()
        results.append(
            torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        )
    near(*results, 1e-9)


@each
def test_single_atoms_and_empty_graphs(conv, name):
    for sizes in ([1], [0], [0, 0], [1, 1, 1], []):
        graphs = CompleteGraphs(sizes)
        given = inputs(conv, graphs)
        near(on_rows(conv, graphs, **given), on_list(conv, graphs, **given))
        no_edges = torch.zeros(2, 0, dtype=torch.long)
        more = {"u": given["u"], "batch": graphs.batch} if "u" in given else {}
        (out, *_) = listed(conv(given["x"], no_edges, edge_features(conv, 0), **more))
        assert out.shape == (sum(sizes), OUT)
        assert out.isfinite().all()


@each
def test_a_saved_layer_is_the_same_layer(conv, name):
    graphs = CompleteGraphs(SIZES)
    given = inputs(conv, graphs)
    wanted = on_list(conv, graphs, **given)
    other = MAKE[name]().double().eval()
    other.load_state_dict(conv.state_dict())
    near(on_list(other, graphs, **given), wanted, 0)
    file = io.BytesIO()
    torch.save(conv, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    near(on_list(loaded, graphs, **given), wanted, 0)
    assert loaded.__class__ is conv.__class__
    conv.reset_parameters()
    assert any((a != b).any() for a, b in zip(on_list(conv, graphs, **given), wanted, strict=True))


def attention_by_hand(query, key, value, scaled=True, temperature=1.0):
    """Attention of one head, ``[L, C]`` and ``[L, S, C]``, receiver by receiver in NumPy."""
    out, weights = [], []
    for q, keys, values in zip(query, key, value, strict=True):
        logits = keys @ q / (np.sqrt(q.size) if scaled else 1.0)
        powers = np.exp((logits - logits.max(initial=-np.inf)) / temperature)
        weights.append(powers / powers.sum())
        out.append(weights[-1] @ values if len(values) else np.zeros(values.shape[1]))
    return np.array(out), weights


@pytest.mark.parametrize("kind", ["dot", "scaled_dot"])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_attention_is_that_of_the_formula(kind, temperature):
    query, key, value = (torch.randn(n, 6, dtype=torch.float64) for n in (4, 7, 7))
    every = np.broadcast_to(key.numpy(), (4, 7, 6)), np.broadcast_to(value.numpy(), (4, 7, 6))
    scaled = kind == "scaled_dot"
    wanted, _ = attention_by_hand(query.numpy(), *every, scaled, temperature)
    got = functional.attention(query, key, value, score=kind, temperature=temperature)
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    logits = functional.score(query, key, kind) / temperature
    np.testing.assert_allclose(logits.softmax(-1) @ value, wanted, atol=1e-12)


def test_edge_attention_is_that_of_the_formula():
    conv = EdgeAttentionConv(WIDTH, OUT, HEADS, edge_dim=EDGES).double()
    nn.init.normal_(conv.bias)
    part = {name: value.detach().numpy() for name, value in conv.named_parameters()}
    data = graph_data(conv)
    x, edges = data.x.numpy(), data.edge_attr.numpy()
    sender, receiver = data.edge_index.numpy()
    query, key, value = (
        x @ part[f"lin_{name}.weight"].T + part[f"lin_{name}.bias"]
        for name in ("query", "key", "value")
    )
    key, value = (
        rows[sender] + edges @ part[f"lin_edge_{name}.weight"].T
        for name, rows in (("key", key), ("value", value))
    )
    heads, alpha = [], np.zeros((len(edges), HEADS))
    into = [np.flatnonzero(receiver == node) for node in range(len(x))]
    for head, channels in enumerate(np.split(np.arange(OUT), HEADS)):
        keys, values = ([rows[edge][:, channels] for edge in into] for rows in (key, value))
        mixed, weights = attention_by_hand(query[:, channels], keys, values)
        heads.append(mixed)
        for edge, weight in zip(into, weights, strict=True):
            alpha[edge, head] = weight
    wanted = np.hstack(heads) @ part["head_combine.lin.weight"].T + x @ part["lin_root.weight"].T
    out, (_, got) = conv(data.x, data.edge_index, data.edge_attr, return_attention_weights=True)
    np.testing.assert_allclose(out.detach(), wanted + part["bias"], atol=1e-12)
    np.testing.assert_allclose(got.detach(), alpha, atol=1e-12)


def test_a_layer_in_a_model_of_pyg_learns():
    smiles = ["CCO", "c1ccccc1", "CC(=O)N", "C", "ClCCl"]
    batch = Batch.from_data_list([from_smiles(text) for text in smiles])
    x, edges = batch.x.float(), batch.edge_attr.float()
    y = torch.tensor([[3.0], [6.0], [4.0], [1.0], [3.0]])
    model = Sequential(
        "x, edge_index, edge_attr, batch",
        [
            (EdgeAttentionConv(-1, 16, heads=4, edge_dim=-1), "x, edge_index, edge_attr -> x"),
            nn.ReLU(),
            (GaANConv(16, 16, heads=2, edge_dim=edges.size(1)), "x, edge_index, edge_attr -> x"),
            (global_mean_pool, "x, batch -> x"),
            nn.Linear(16, 1),
        ],
    )
    losses = []
    model(x, batch.edge_index, edges, batch.batch)  # widths are inferred
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        loss = (model(x, batch.edge_index, edges, batch.batch) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_graphs_of_molecules_have_the_names_of_pyg():
    data = from_smiles("CC(=O)[O-].[Na+]")
    assert isinstance(data, Data)
    assert (data.num_nodes, data.smiles) == (5, "CC(=O)[O-].[Na+]")
    assert data.x.dtype == data.edge_attr.dtype == data.edge_index.dtype == torch.int64
    assert data.validate()
    pairs = BondsAndDistances()(Data(x=data.x.float(), edge_index=data.edge_index[:, :0]))
    assert pairs.edge_attr.shape[1] == 2


def test_assertions_find_a_layer_that_is_wrong():
    class First(nn.Module):
        def forward(self, x, edge_index):
            return x + x[:1]

    data = Data(x=torch.randn(5, WIDTH), edge_index=torch.randint(0, 5, (2, 12)))
    for check in (assert_permutation_equivariant, assert_permutation_invariant):
        with pytest.raises(AssertionError):
            check(First(), data)
    with pytest.raises(AssertionError):
        assert_graphs_independent(First(), [data, data.clone()])


@pytest.mark.parametrize(
    "make, option",
    [
        (lambda: EdgeAttentionConv(4, 8, heads=3), "heads"),
        (lambda: EdgeAttentionConv(4, 8, score="guess"), "score"),
        (lambda: GaANConv(4, 8, variant="guess"), "variant"),
        (lambda: MATConv(4, 8, kernel="guess"), "kernel"),
        (lambda: GraphNetwork(4, 8, edge_to_node="guess"), "edge_to_node"),
    ],
)
def test_a_wrong_option_of_a_layer_is_named(make, option):
    with pytest.raises(ValueError, match=option):
        make()


def test_layers_are_found_by_their_names():
    wanted = {"edge_attention": EdgeAttentionConv, "gaan": GaANConv, "mat": MATConv}
    wanted["graph_network"] = GraphNetwork
    for name, kind in wanted.items():
        assert isinstance(LAYERS[name].make(4, 8, 2, edge_dim=2), kind)
