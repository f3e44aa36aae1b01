"""GraphNetwork against PyG's MetaLayer, plain NumPy and its own switches."""

import itertools

import pytest
import torch
from torch import nn
from torch_geometric.nn import MetaLayer
from torch_geometric.utils import scatter

from molattn.graph import CompleteGraphs
from molattn.nn import EdgeAttentionConv, GraphNetwork
from molattn.nn.graph_network import EDGE_INPUTS, GLOBAL_INPUTS, NODE_INPUTS

DOUBLE = torch.float64
NODE, EDGE, GLOBAL = 4, 3, 5


def assert_near(got, expected, tolerance=1e-10):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def subsets(names):
    """All of them, and all but one."""
    return [names, *itertools.combinations(names, len(names) - 1)]


def two_graphs():
    """Nodes, edges, u and batch of a batch of two graphs, a node of which receives nothing."""
    batch = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    edges = [torch.randint(0, 3, (2, 8)), torch.randint(0, 3, (2, 9)) + 3]
    tensors = [torch.randn(n, f, dtype=DOUBLE) for n, f in ((7, NODE), (17, EDGE), (2, GLOBAL))]
    x, e, u = (t.requires_grad_() for t in tensors)
    return x, torch.cat(edges, dim=1), e, u, batch


def mlp(width, out):
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, out)).double()


class MetaEdge(nn.Module):
    def __init__(self, function, inputs):
        super().__init__()
        self.function, self.inputs = function, inputs

    def forward(self, src, dst, edge_attr, u, batch):
        seen = {"edge": edge_attr, "receiver": dst, "sender": src, "global": u[batch]}
        return self.function(torch.cat([seen[name] for name in self.inputs], dim=-1))


class MetaNode(nn.Module):
    def __init__(self, function, inputs, reduce):
        super().__init__()
        self.function, self.inputs, self.reduce = function, inputs, reduce

    def forward(self, x, edge_index, edge_attr, u, batch):
        edges = scatter(edge_attr, edge_index[1], 0, x.size(0), self.reduce)
        seen = {"edges": edges, "node": x, "global": u[batch]}
        return self.function(torch.cat([seen[name] for name in self.inputs], dim=-1))


class MetaGlobal(nn.Module):
    def __init__(self, function, inputs, reduce_edges, reduce_nodes):
        super().__init__()
        self.function, self.inputs = function, inputs
        self.reduce_edges, self.reduce_nodes = reduce_edges, reduce_nodes

    def forward(self, x, edge_index, edge_attr, u, batch):
        seen = {
            "edges": scatter(edge_attr, batch[edge_index[0]], 0, u.size(0), self.reduce_edges),
            "nodes": scatter(x, batch, 0, u.size(0), self.reduce_nodes),
            "global": u,
        }
        return self.function(torch.cat([seen[name] for name in self.inputs], dim=-1))


WIDTHS = {
    "edge": EDGE, "receiver": NODE, "sender": NODE, "global": GLOBAL,
    "edges": 6, "node": NODE, "nodes": 7,
}  # fmt: skip
CASES = [
    *[(inputs, NODE_INPUTS, GLOBAL_INPUTS, ("sum",) * 3) for inputs in subsets(EDGE_INPUTS)],
    *[(EDGE_INPUTS, inputs, GLOBAL_INPUTS, ("sum",) * 3) for inputs in subsets(NODE_INPUTS)[1:]],
    *[(EDGE_INPUTS, NODE_INPUTS, inputs, ("sum",) * 3) for inputs in subsets(GLOBAL_INPUTS)[1:]],
    (EDGE_INPUTS, NODE_INPUTS, GLOBAL_INPUTS, ("mean", "max", "min")),
    (EDGE_INPUTS, NODE_INPUTS, GLOBAL_INPUTS, ("max", "mean", "mean")),
    (EDGE_INPUTS, NODE_INPUTS, GLOBAL_INPUTS, ("min", "min", "max")),
]


@pytest.mark.parametrize("edge_inputs, node_inputs, global_inputs, reducers", CASES)
def test_equals_meta_layer_when_built_from_the_same_functions(
    edge_inputs, node_inputs, global_inputs, reducers
):
    x, edge_index, e, u, batch = two_graphs()
    functions = [
        mlp(sum(WIDTHS[name] for name in inputs), out)
        for inputs, out in ((edge_inputs, 6), (node_inputs, 7), (global_inputs, GLOBAL))
    ]
    theirs = MetaLayer(
        MetaEdge(functions[0], edge_inputs),
        MetaNode(functions[1], node_inputs, reducers[0]),
        MetaGlobal(functions[2], global_inputs, *reducers[1:]),
    )
    ours = GraphNetwork(
        NODE, 7, edge_dim=EDGE, global_dim=GLOBAL,
        edge_inputs=edge_inputs, node_inputs=node_inputs, global_inputs=global_inputs,
        edge_to_node=reducers[0], edge_to_global=reducers[1], node_to_global=reducers[2],
        update_edges=True, update_global=True,
        edge_function=functions[0], node_function=functions[1], global_function=functions[2],
    )  # fmt: skip
    expected = theirs(x, edge_index, e, u, batch)
    got = ours(x, edge_index, e, u=u, batch=batch)
    inputs = [x, e, u, *(p for f in functions for p in f.parameters())]
    grads = []
    for out in (got, expected):
        total = sum((part * (1 + torch.arange(part.numel()).view_as(part))).sum() for part in out)
        grads.append(torch.autograd.grad(total, inputs, materialize_grads=True))
    for mine, other in zip(got, expected, strict=True):
        assert_near(mine, other)
    for mine, other in zip(*grads, strict=True):
        assert_near(mine, other, 1e-8)


def influence(out, tensors):
    """Which of the tensors the output depends on, by its gradient."""
    grads = torch.autograd.grad(out.square().sum(), tensors, materialize_grads=True)
    return [bool((grad != 0).any()) for grad in grads]


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("inputs", [*subsets(EDGE_INPUTS), *((name,) for name in EDGE_INPUTS)])
def test_only_inputs_of_attention_that_are_on_have_influence(inputs, gate):
    """Senders and receivers are two sets, so that each can be told from the other."""
    senders, receivers = torch.randn(5, 4, dtype=DOUBLE), torch.randn(3, 4, dtype=DOUBLE)
    e, u = torch.randn(9, EDGE, dtype=DOUBLE), torch.randn(1, GLOBAL, dtype=DOUBLE)
    tensors = {"edge": e, "receiver": receivers, "sender": senders, "global": u}
    for tensor in tensors.values():
        tensor.requires_grad_()
    edge_index = torch.stack([torch.randint(0, 5, (9,)), torch.arange(9) % 3])
    block = GraphNetwork(
        (4, 4), 6, 2, edge_dim=EDGE, global_dim=GLOBAL, edge_inputs=inputs,
        node_inputs=("edges",), gate=gate,
    ).double()  # fmt: skip
    out = block((senders, receivers), edge_index, e, u=u)
    found = dict(zip(tensors, influence(out, list(tensors.values())), strict=True))
    expected = {name: name in inputs for name in EDGE_INPUTS}
    choice, values = {"edge", "sender"}, {"edge", "sender", "global"}
    if not (choice & set(inputs) or (gate and values & set(inputs))):
        # Keys are equal for all edges of a receiver: its query has nothing to choose from.
        expected["receiver"] = False
    assert found == expected


@pytest.mark.parametrize("combine", ["linear", "mean", "max", "weighted"])
def test_attention_is_that_of_the_layer(combine):
    x, edge_index, e, u, batch = two_graphs()
    options = {"edge_dim": EDGE, "global_dim": GLOBAL, "combine": combine, "update_edges": True}
    conv = EdgeAttentionConv(NODE, 6, 2, root_weight=False, bias=False, **options).double()
    block = GraphNetwork(
        NODE, 6, 2, node_inputs=("edges",), node_function=nn.Identity(), **options
    ).double()
    block.attention.load_state_dict(conv.state_dict())
    expected = conv(x, edge_index, e, True, u=u, batch=batch)
    got = block(x, edge_index, e, True, u=u, batch=batch)
    for mine, other in zip((*got[:2], got[2][1]), (*expected[:2], expected[2][1]), strict=True):
        assert_near(mine, other)


@pytest.mark.parametrize(
    "reducers", [("sum", "sum"), ("sum", "max"), ("max", "sum"), ("mean",) * 2]
)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("self_loops", [True, False])
def test_options_agree_on_complete_graphs(reducers, own, self_loops):
    graph = CompleteGraphs([2, 4, 1], self_loops=self_loops)
    block = GraphNetwork(
        NODE, 6, 2, edge_dim=EDGE, global_dim=GLOBAL, update_edges=True, update_global=True,
        edge_to_node=reducers[0], edge_to_global=reducers[1], node_to_global="mean",
        edge_function=mlp(2 * NODE + EDGE + GLOBAL, 5) if own else None,
    ).double()  # fmt: skip
    x, e, u = (
        torch.randn(n, f, dtype=DOUBLE, requires_grad=True)
        for n, f in ((7, NODE), (graph.num_edges, EDGE), (3, GLOBAL))
    )
    flat = block(x, graph.edge_index, e, u=u, batch=graph.batch)
    rows = block(graph.nodes_to_rows(x), graph, graph.edges_to_pairs(e), u=u)
    dense = (graph.rows_to_nodes(rows[0]), graph.pairs_to_edges(rows[1]), rows[2])
    inputs = [x, e, u, *block.parameters()]
    grads = []
    for out in (dense, flat):
        total = sum(part.square().sum() for part in out)
        grads.append(torch.autograd.grad(total, inputs, materialize_grads=True))
    for mine, other in zip(dense, flat, strict=True):
        assert_near(mine, other)
    for mine, other in zip(*grads, strict=True):
        assert_near(mine, other)


@pytest.mark.parametrize("step", ["message", "aggregate", "update", "edge_update", "propagate"])
def test_a_step_that_is_not_called_cannot_be_overridden(step):
    def own(self, inputs):
        return inputs

    own.__name__ = step
    with pytest.raises(TypeError, match=f"Changed overrides {step}: use edge_function"):
        type("Changed", (GraphNetwork,), {step: own})
    type("Unchanged", (GraphNetwork,), {})(4, 4)


@pytest.mark.parametrize(
    "options",
    [
        {"edge_to_node": "median"},
        {"update_global": True},
        {"edge_inputs": ("bond",)},
        {"node_inputs": ()},
        {"global_inputs": "edges"},
        {"update_edges": True},
        {"heads": 4},
    ],
    ids=str,
)
def test_a_wrong_option_is_refused(options):
    with pytest.raises(ValueError, match="|".join(options)):
        GraphNetwork(NODE, 6, **options)
