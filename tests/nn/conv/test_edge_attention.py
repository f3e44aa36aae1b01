"""EdgeAttentionConv against torch, PyG, plain NumPy and numerical gradients."""

import math

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATv2Conv, TransformerConv

from molattn.graph import CompleteGraphs
from molattn.nn import EdgeAttentionConv

from ..conftest import DOUBLE, assert_near

SCORES = ["dot", "scaled_dot", "general", "additive", "gatv2"]
COMBINES = ["linear", "concat", "mean", "max", "weighted"]


def assert_same_gradients(ours, theirs, inputs):
    upstream = torch.randn_like(ours)
    mine = torch.autograd.grad((ours * upstream).sum(), inputs)
    others = torch.autograd.grad((theirs * upstream).sum(), inputs)
    for a, b in zip(mine, others, strict=True):
        assert_near(a, b)


def random_graph(num_nodes=7, num_edges=20, edge_dim=3):
    edge_index = torch.randint(0, num_nodes - 1, (2, num_edges))  # the last node is alone
    x = torch.randn(num_nodes, 4, dtype=DOUBLE, requires_grad=True)
    e = torch.randn(num_edges, edge_dim, dtype=DOUBLE, requires_grad=True)
    return x, edge_index, e


@pytest.mark.parametrize("heads", [1, 4])
def test_equals_multihead_attention_on_a_complete_graph(heads):
    mha = torch.nn.MultiheadAttention(8, heads, batch_first=True, dtype=DOUBLE)
    conv = EdgeAttentionConv(8, 8, heads, root_weight=False).double()
    with torch.no_grad():
        for lin, weight, bias in zip(
            (conv.lin_query, conv.lin_key, conv.lin_value),
            mha.in_proj_weight.chunk(3),
            torch.randn(24, dtype=DOUBLE).chunk(3),
            strict=True,
        ):
            lin.weight.copy_(weight)
            lin.bias.copy_(bias)
        mha.in_proj_bias.copy_(
            torch.cat([conv.lin_query.bias, conv.lin_key.bias, conv.lin_value.bias])
        )
        conv.head_combine.lin.weight.copy_(mha.out_proj.weight)
        conv.bias.copy_(mha.out_proj.bias.normal_())
    x = torch.randn(2, 5, 8, dtype=DOUBLE, requires_grad=True)
    expected, weights = mha(x, x, x, average_attn_weights=False)
    graph = CompleteGraphs([5, 5])
    got, (edge_index, alpha) = conv(
        x.flatten(0, 1), graph.edge_index, return_attention_weights=True
    )
    assert edge_index is graph.edge_index
    assert_near(got, expected.flatten(0, 1))
    assert_near(alpha, weights.permute(0, 2, 3, 1).flatten(0, 2))  # sorted by receiver, sender
    assert_same_gradients(got, expected.flatten(0, 1), [x])


@pytest.mark.parametrize("root", [True, False])
def test_equals_transformer_conv_with_its_one_edge_matrix_in_both_of_ours(root):
    x, edge_index, e = random_graph()
    theirs = TransformerConv(4, 3, heads=2, edge_dim=3, root_weight=root).double()
    ours = EdgeAttentionConv(4, 6, 2, edge_dim=3, combine="concat", root_weight=root).double()
    with torch.no_grad():
        for name in ("lin_query", "lin_key", "lin_value"):
            getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
        ours.lin_edge_key.load_state_dict(theirs.lin_edge.state_dict())
        ours.lin_edge_value.load_state_dict(theirs.lin_edge.state_dict())
        if root:
            ours.lin_root.weight.copy_(theirs.lin_skip.weight)
            ours.bias.copy_(theirs.lin_skip.bias)
    expected, (_, their_alpha) = theirs(x, edge_index, e, return_attention_weights=True)
    got, (_, alpha) = ours(x, edge_index, e, return_attention_weights=True)
    assert_near(got, expected)
    assert_near(alpha, their_alpha)
    assert_same_gradients(got, expected, [x, e])


def test_equals_gatv2_conv_with_its_key_as_value():
    """GATv2's value is its key without the edge."""
    x, edge_index, e = random_graph()
    theirs = GATv2Conv(4, 3, heads=2, edge_dim=3, add_self_loops=False).double()
    ours = EdgeAttentionConv(
        4, 6, 2, edge_dim=3, score="gatv2", combine="concat", edge_value=False, root_weight=False
    ).double()
    assert ours.lin_edge_value is None
    with torch.no_grad():
        ours.lin_query.load_state_dict(theirs.lin_r.state_dict())
        ours.lin_key.load_state_dict(theirs.lin_l.state_dict())
        ours.lin_value.load_state_dict(theirs.lin_l.state_dict())
        ours.lin_edge_key.load_state_dict(theirs.lin_edge.state_dict())
        ours.head_score.vector.copy_(theirs.att.squeeze(0))
        ours.bias.copy_(theirs.bias.normal_())
    expected, (_, their_alpha) = theirs(x, edge_index, e, return_attention_weights=True)
    got, (_, alpha) = ours(x, edge_index, e, return_attention_weights=True)
    assert_near(got, expected)
    assert_near(alpha, their_alpha)
    assert_same_gradients(got, expected, [x, e])


def numpy_layer(conv, x, edge_index, e, u=None, batch=None, bias=0.0):  # noqa: C901 (every choice of the layer)
    """The equations of the class docstring, edge by edge."""
    p = {name: value.detach().numpy() for name, value in conv.state_dict().items()}
    heads, width = conv.heads, conv.head_channels

    def linear(name, vector):
        out = p[f"{name}.weight"] @ vector
        return out + p[f"{name}.bias"] if f"{name}.bias" in p else out

    def split(vector):
        return vector.reshape(heads, width)

    def of_graph(name, i):
        return 0 if u is None else linear(name, u[batch[i]])

    def rate(q, k, h):
        if conv.score in ("dot", "scaled_dot"):
            return q @ k / (math.sqrt(width) if conv.score == "scaled_dot" else 1)
        if conv.score == "general":
            return q @ p["head_score.weight"][h] @ k
        vector = p["head_score.vector"][h]
        if conv.score == "additive":
            return vector @ np.tanh(p["head_score.weight"][h] @ np.concatenate([q, k]))
        return vector @ np.where(q + k > 0, q + k, 0.2 * (q + k))

    def combine(name, per_head):
        if conv.combine in ("linear", "concat"):
            flat = per_head.reshape(-1)
            return p[f"{name}.lin.weight"] @ flat if f"{name}.lin.weight" in p else flat
        if conv.combine == "mean":
            return per_head.mean(0)
        if conv.combine == "max":
            return per_head.max(0)
        return p[f"{name}.weight"] @ per_head

    nodes, edges = len(x), edge_index.shape[1]
    logits = np.zeros((edges, heads))
    values = np.zeros((edges, heads, width))
    for k, (s, r) in enumerate(edge_index.T):
        query = split(linear("lin_query", x[r]) + of_graph("lin_global_query", r))
        key = linear("lin_key", x[s]) + linear("lin_edge_key", e[k])
        key = split(key + of_graph("lin_global_key", s))
        value = linear("lin_value", x[s])
        if conv.lin_edge_value is not None:
            value = value + linear("lin_edge_value", e[k])
        values[k] = split(value + of_graph("lin_global_value", s))
        logits[k] = [rate(query[h], key[h], h) for h in range(heads)]
    logits += bias
    out = np.zeros((nodes, conv.out_channels))
    messages = np.zeros_like(values)
    alpha = np.zeros_like(logits)
    for i in range(nodes):
        mine = np.flatnonzero(edge_index[1] == i)
        weights = np.exp(logits[mine] / conv.temperature)
        alpha[mine] = weights / weights.sum(0)
        messages[mine] = alpha[mine][:, :, None] * values[mine]
        if conv.gate:
            senders = x[edge_index[0][mine]]
            pooled = [linear("head_gate.lin_pool", z) for z in senders]
            most = np.max(pooled, 0) if len(mine) else np.zeros(conv.out_channels)
            mean = np.mean(senders, 0) if len(mine) else np.zeros(x.shape[1])
            logit = linear("head_gate.lin_gate", np.concatenate([x[i], most, mean]))
            messages[mine] *= (1 / (1 + np.exp(-logit)))[None, :, None]
        summed = messages[mine].sum(0)
        out[i] = combine("head_combine", summed) + linear("lin_root", x[i]) + p["bias"]
    new_edges = [
        e[k] + linear("lin_edge_out", combine("edge_combine", messages[k]))
        for k in range(edges * conv.update_edges)
    ]
    return out, np.asarray(new_edges), alpha


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("gate, edge_value", [(False, True), (True, True), (True, False)])
def test_is_its_equations(score, combine, gate, edge_value):
    x, edge_index, e = random_graph()
    u, batch = torch.randn(2, 5, dtype=DOUBLE), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    e = e[: edge_index.size(1)]
    conv = EdgeAttentionConv(
        4, 6, 2, edge_dim=3, global_dim=5, score=score, combine=combine, gate=gate,
        edge_value=edge_value, update_edges=True, temperature=0.7,
    ).double()  # fmt: skip
    torch.nn.init.normal_(conv.bias)
    out, new_edges, (_, alpha) = conv(x, edge_index, e, True, u=u, batch=batch)
    plain = (t.detach().numpy() for t in (x, edge_index, e, u, batch))
    expected = numpy_layer(conv, *plain)
    for got, want in zip((out, new_edges, alpha), expected, strict=True):
        assert_near(got, torch.from_numpy(want))
