"""GraphNetwork against PyG's MetaLayer of the same functions, and its own switches."""

import itertools

import pytest
import torch
from torch import nn
from torch_geometric.nn import MetaLayer
from torch_geometric.utils import scatter

from molattn.graph import CompleteGraphs
from molattn.nn import EdgeAttentionConv, GraphNetwork
from molattn.nn.conv.graph_network import EDGE_INPUTS, GLOBAL_INPUTS, NODE_INPUTS, REDUCERS

from ..conftest import DOUBLE, assert_near

NODE, EDGE, GLOBAL = 4, 3, 5


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


class Edges(nn.Module):
    """Weights times values of each edge, with weights that are tested elsewhere."""

    def __init__(self, block, edge_index):
        super().__init__()
        self.conv, self.edge_index = block.attention, edge_index

    def forward(self, src, dst, edge_attr, u, batch):
        conv = self.conv
        value = (
            conv.lin_value(src) + conv.lin_edge_value(edge_attr) + conv.lin_global_value(u)[batch]
        )
        query = conv.lin_query(dst) + conv.lin_global_query(u)[batch]
        key = conv.lin_key(src) + conv.lin_edge_key(edge_attr) + conv.lin_global_key(u)[batch]
        query, key, value = (
            part.view(-1, conv.heads, conv.head_channels) for part in (query, key, value)
        )
        powers = ((query * key).sum(-1) / conv.head_channels**0.5).exp()
        receiver = self.edge_index[1]
        alpha = powers / scatter(powers, receiver, 0, int(receiver.max()) + 1)[receiver]
        return (alpha.unsqueeze(-1) * value).flatten(1)


class Nodes(nn.Module):
    def __init__(self, block, reduce):
        super().__init__()
        self.block, self.reduce = block, reduce

    def forward(self, x, edge_index, edge_attr, u, batch):
        edges = scatter(edge_attr, edge_index[1], 0, x.size(0), self.reduce)
        seen = {"edges": edges, "node": x, "global": u[batch]}
        return self.block.node_function(torch.cat([seen[n] for n in self.block.node_inputs], -1))


class Globals(nn.Module):
    def __init__(self, block, reduce_edges, reduce_nodes):
        super().__init__()
        self.block, self.reduce_edges, self.reduce_nodes = block, reduce_edges, reduce_nodes

    def forward(self, x, edge_index, edge_attr, u, batch):
        seen = {
            "edges": scatter(edge_attr, batch[edge_index[1]], 0, u.size(0), self.reduce_edges),
            "nodes": scatter(x, batch, 0, u.size(0), self.reduce_nodes),
            "global": u,
        }
        given = torch.cat([seen[name] for name in self.block.global_inputs], -1)
        return self.block.global_function(given)


CASES = [
    *[(inputs, GLOBAL_INPUTS, ("sum",) * 3) for inputs in subsets(NODE_INPUTS)],
    *[(NODE_INPUTS, inputs, ("sum",) * 3) for inputs in subsets(GLOBAL_INPUTS)[1:]],
    (NODE_INPUTS, GLOBAL_INPUTS, ("mean", "max", "min")),
    (NODE_INPUTS, GLOBAL_INPUTS, ("max", "mean", "mean")),
    (NODE_INPUTS, GLOBAL_INPUTS, ("min", "min", "max")),
]


@pytest.mark.parametrize("node_inputs, global_inputs, reducers", CASES)
def test_equals_meta_layer_of_the_same_functions(node_inputs, global_inputs, reducers):
    x, edge_index, e, u, batch = two_graphs()
    ours = GraphNetwork(
        NODE, 6, 2, edge_dim=EDGE, global_dim=GLOBAL, combine="concat",
        node_inputs=node_inputs, global_inputs=global_inputs, edge_to_node=reducers[0],
        edge_to_global=reducers[1], node_to_global=reducers[2], update_global=True,
    ).double()  # fmt: skip
    parts = Edges(ours, edge_index), Nodes(ours, reducers[0]), Globals(ours, *reducers[1:])
    nodes, _, graphs = MetaLayer(*parts)(x, edge_index, e, u, batch)
    found = []
    for out in (ours(x, edge_index, e, u=u, batch=batch), (nodes, graphs)):
        total = sum((part * (1 + torch.arange(part.numel()).view_as(part))).sum() for part in out)
        inputs = [x, e, u, *ours.parameters()]
        found.append((*out, *torch.autograd.grad(total, inputs, materialize_grads=True)))
    for mine, other in zip(*found, strict=True):
        assert_near(mine, other, 1e-8)


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
    slopes = torch.autograd.grad(out.square().sum(), [*tensors.values()], materialize_grads=True)
    found = {name: bool((slope != 0).any()) for name, slope in zip(tensors, slopes, strict=True)}
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
    block = GraphNetwork(NODE, 6, 2, node_inputs=("edges",), **options).double()
    block.node_function = nn.Identity()
    block.attention.load_state_dict(conv.state_dict())
    expected = conv(x, edge_index, e, True, u=u, batch=batch)
    got = block(x, edge_index, e, True, u=u, batch=batch)
    for mine, other in zip((*got[:2], got[2][1]), (*expected[:2], expected[2][1]), strict=True):
        assert_near(mine, other)


@pytest.mark.parametrize("update_nodes", [True, False])
@pytest.mark.parametrize("reducers", [*itertools.product(REDUCERS, ["sum", "max"])])
def test_options_agree_on_complete_graphs(reducers, update_nodes):
    graph = CompleteGraphs([2, 4, 1], self_loops=False)
    block = GraphNetwork(
        NODE, 6, 2, edge_dim=EDGE, global_dim=GLOBAL, update_edges=True, update_global=True,
        edge_to_node=reducers[0], edge_to_global=reducers[1], node_to_global="mean",
        update_nodes=update_nodes,
    ).double()  # fmt: skip
    x, e, u = (
        torch.randn(n, f, dtype=DOUBLE, requires_grad=True)
        for n, f in ((7, NODE), (graph.num_edges, EDGE), (3, GLOBAL))
    )
    flat = block(x, graph.edge_index, e, u=u, batch=graph.batch)
    rows = block(graph.nodes_to_rows(x), graph, graph.edges_to_pairs(e), u=u)
    dense = (graph.rows_to_nodes(rows[0]), graph.pairs_to_edges(rows[1]), rows[2])
    assert (flat[0] is x) is not update_nodes
    inputs, found = [x, e, u, *block.parameters()], []
    for out in (dense, flat):
        total = sum(part.square().sum() for part in out)
        found.append((*out, *torch.autograd.grad(total, inputs, materialize_grads=True)))
    for mine, other in zip(*found, strict=True):
        assert_near(mine, other)


@pytest.mark.parametrize("step", ["message", "aggregate", "update", "edge_update", "propagate"])
def test_a_step_that_is_not_called_cannot_be_overridden(step):
    with pytest.raises(TypeError, match=step):
        type("Changed", (GraphNetwork,), {step: lambda self, inputs: inputs})
    mixin = type("Mixin", (), {step: lambda self, inputs: inputs})
    with pytest.raises(TypeError, match=step):
        type("Changed", (mixin, GraphNetwork), {})
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
