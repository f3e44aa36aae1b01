"""molattn.testing catches broken layers, says where they are wrong, and passes all others."""

import re

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import softmax

from molattn.testing import (
    assert_attention_normalized,
    assert_batch_invariant,
    assert_graphs_independent,
    assert_permutation_equivariant,
    assert_permutation_invariant,
    assert_smooth,
    assert_stable,
    permute_nodes,
)


def graph(num_nodes=5, num_edges=8, width=3, dtype=torch.float32):
    return Data(
        x=torch.randn(num_nodes, width, dtype=dtype),
        edge_index=torch.randint(0, num_nodes, (2, num_edges)),
        edge_attr=torch.randn(num_edges, 2, dtype=dtype),
    )


class Function(nn.Module):
    """A module whose forward is a function of x, edge_index and edge_attr."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, edge_index, edge_attr):
        return self.function(x, edge_index, edge_attr)


def neighbor_sum(x, edge_index, edge_attr):
    return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


def test_the_worst_error_and_its_place_are_named():
    """Node 3, column 1 gets 100 wherever node 3 now is; all else is far less wrong."""

    def at_fixed_places(x, edge_index, edge_attr):
        extra = torch.zeros_like(x)
        extra[3, 1], extra[0, 0] = 100.0, 0.1
        return x + extra

    with pytest.raises(AssertionError) as caught:
        assert_permutation_equivariant(Function(at_fixed_places), graph())
    message = str(caught.value)
    assert message.startswith("Function is not permutation equivariant: worst error ")
    found = re.search(
        r"worst error (\S+) \(tolerance 1e-05\) at node (\d) of graph 0, output\[\d, 1\], "
        r"got (\S+), expected (\S+)\. Usual cause: the nodes were renumbered, ",
        message,
    )
    assert found, message
    error, _, after, expected = found.groups()
    assert abs(float(after) - float(expected)) == pytest.approx(100, rel=0.05)
    assert float(error) == pytest.approx(1, rel=0.1)  # relative to the largest output


def test_permute_nodes_relabels_indices_of_nodes():
    data = Data(
        x=torch.arange(3.0).unsqueeze(-1),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        pair_index=torch.tensor([[0, 0, 2], [1, 2, 2]]),  # as many pairs as nodes
        edge_label_index=torch.tensor([[0, 1], [1, 2]], dtype=torch.int32),  # as many as edges
        parent_index=torch.tensor([2, 0, 1]),
        edge_root_index=torch.tensor([2, 0]),
        root_index=torch.tensor(0),
        atom=torch.tensor([0, 1, 2]),
        some_batch=torch.tensor([0, 1, 2, 2]),
    )
    moved = permute_nodes(data, torch.tensor([2, 0, 1]), torch.tensor([1, 0]))
    assert moved.pair_index.tolist() == [[1, 1, 0], [2, 0, 0]]
    assert moved.edge_label_index.tolist() == [[1, 2], [2, 0]]
    assert moved.edge_label_index.dtype == torch.int32
    assert moved.parent_index.tolist() == [2, 0, 1]  # of nodes 2, 0, 1: 1, 2, 0, now 2, 0, 1
    assert moved.edge_root_index.tolist() == [1, 0]
    assert moved.root_index == 1
    assert moved.atom.tolist() == [2, 0, 1]
    assert moved.some_batch.tolist() == [0, 1, 2, 2]
    back = permute_nodes(moved, torch.tensor([1, 2, 0]), torch.tensor([1, 0]))
    assert all(torch.equal(back[key], data[key]) for key in data.to_dict())


def test_errors_are_relative_to_outputs_and_inputs():
    def faint(x, edge_index, edge_attr):
        return 1e-8 * x * torch.arange(len(x)).unsqueeze(-1)

    def zero(x, edge_index, edge_attr):
        return neighbor_sum(x, edge_index, None) - neighbor_sum(x, edge_index.flip(1), None)

    with pytest.raises(AssertionError, match="not permutation equivariant"):
        assert_permutation_equivariant(Function(faint), graph(dtype=torch.float64))
    for dtype in (torch.float32, torch.float64):
        data = graph(9, 80, dtype=dtype)
        assert zero(data.x, data.edge_index, None).abs().max() > 0  # rounding errors
        assert_permutation_equivariant(Function(zero), data)
    assert_permutation_equivariant(Function(lambda x, i, e: 0 * x), graph())


def batch_of_graphs(dtype=torch.float64):
    return Batch.from_data_list([graph(n, e, dtype=dtype) for n, e in ((4, 7), (6, 11), (3, 5))])


def batch_of_codes():
    """Three molecules whose atoms have codes, and no floating-point features."""
    graphs = [
        Data(x=torch.tensor(codes).unsqueeze(-1), edge_index=torch.zeros(2, edges).long())
        for codes, edges in (([1, 0, 1, 0], 7), ([2, 2], 1), ([0, 1, 2], 5))
    ]
    return Batch.from_data_list(graphs)


class Layer(Function):
    """A module whose forward is a function of x, edge_index and batch."""

    def forward(self, x, edge_index, batch):
        return self.function(x, edge_index, batch)


def attend(x, edge_index, groups, graph_mask=None):
    """Attention whose weights are normalized over ``groups`` of edges."""
    sender, receiver = edge_index
    alpha = softmax((x[sender] * x[receiver]).sum(-1), groups)
    nodes = torch.zeros_like(x).index_add(0, receiver, alpha.unsqueeze(-1) * x[sender])
    return nodes, (edge_index, alpha)


def own(x, edge_index, batch):
    return attend(x, edge_index, edge_index[1])


def over_all_edges(x, edge_index, batch):
    return attend(x, edge_index, torch.zeros_like(edge_index[1]))[0]


def over_all_nodes(x, edge_index, batch):
    return (x @ x.t()).softmax(-1) @ x


def over_senders(x, edge_index, batch):
    return attend(x, edge_index, edge_index[0])


def sigmoids(x, edge_index, batch):
    nodes, (_, alpha) = own(x, edge_index, batch)
    return nodes, (edge_index, alpha.sigmoid())


def straight_through(x, edge_index, batch):
    return x + x.mean(0) - x.mean(0).detach()


def mean_of_padded(x, edge_index, batch):
    return global_add_pool(x, batch) / batch.bincount().max()


def detached_weights(x, edge_index, batch):
    _, (_, alpha) = own(x, edge_index, batch)
    values = alpha.detach().unsqueeze(-1) * x[edge_index[0]]
    return torch.zeros_like(x).index_add(0, edge_index[1], values)


class Embedded(Function):
    """A function of embedded codes and batch."""

    def __init__(self, function):
        super().__init__(function)
        self.embedding = nn.Embedding(3, 4)

    def forward(self, x, batch):
        return self.function(self.embedding(x[:, 0]), batch)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class Partial(Once):
    """The gradient's own derivative with respect to x is lost without an error."""

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x.detach() ** 2 * grad


def by_label(x, edge_index, edge_attr):
    """Equivariant in the order of edges, and in nothing else."""
    keep = edge_index[0] <= edge_index[1]
    return neighbor_sum(x, edge_index[:, keep], None)


EQUIVARIANT, INVARIANT = assert_permutation_equivariant, assert_permutation_invariant
INDEPENDENT, NORMALIZED = assert_graphs_independent, assert_attention_normalized


BROKEN = {
    "cumsum": (EQUIVARIANT, lambda x, i, e: x.cumsum(0)),
    "flip": (EQUIVARIANT, lambda x, i, e: x.flip(0)),
    "edges": (EQUIVARIANT, lambda x, i, e: e.cumsum(0)),
    "second_output": (EQUIVARIANT, lambda x, i, e: (x, e.roll(1, 0))),
    "nan": (EQUIVARIANT, lambda x, i, e: x + torch.where(i[0, 0] == 0, 1.0, torch.nan)),
    "by_label": (EQUIVARIANT, by_label),
    "misaligned_weights": (EQUIVARIANT, lambda x, i, e: (x, (i.flip(1), e))),
    "weighted_by_place": (INVARIANT, lambda x, i, b: (x * torch.arange(len(x))[:, None]).sum(0)),
    "shape": (INVARIANT, lambda x, i, b: torch.ones(1 + int(i[0, 0]))),
    "attention_over_all_edges": (INDEPENDENT, over_all_edges),
    "attention_over_all_nodes": (INDEPENDENT, over_all_nodes),
    "gradient_only": (INDEPENDENT, straight_through),
    "centered_over_the_batch": (INDEPENDENT, lambda x, i, b: x - x.mean(0)),
    "batch_norm": (
        INDEPENDENT,
        lambda x, i, b: nn.functional.batch_norm(x, None, None, None, None, True),
    ),
    "normalized_over_senders": (NORMALIZED, over_senders),
    "sigmoid": (NORMALIZED, sigmoids),
    "padding": (assert_batch_invariant, mean_of_padded),
    "detached_weights": (assert_smooth, detached_weights),
    "once_differentiable": (assert_smooth, lambda x, i, b: Once.apply(x)),
    "partial_second_derivative": (assert_smooth, lambda x, i, b: Partial.apply(x)),
    "overflow_of_the_gradient": (assert_stable, lambda x, i, b: x.exp().where(x < 9, 0.0)),
}


@pytest.mark.parametrize("assertion, function", BROKEN.values(), ids=BROKEN)
def test_broken_layers_are_caught_by_the_assertion_meant_for_them(assertion, function):
    torch.manual_seed(2)
    if assertion is EQUIVARIANT:
        layer, data = Function(function), graph()
    else:
        layer, data = Layer(function), batch_of_graphs()
    with pytest.raises(AssertionError):
        assertion(layer, data)


class SelfAttention(nn.Module):
    """Attention of torch, whose kernel for CPUs has no second derivatives."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 12)

    def forward(self, x):
        query, key, value = self.lin(x).view(1, len(x), 2, 6).transpose(1, 2).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(query, key, value)[0].transpose(0, 1)


def test_attention_of_torch_is_smooth():
    assert_smooth(SelfAttention(), Data(x=torch.randn(5, 4)))


def test_the_assertion_of_derivatives_names_the_input_in_one_line():
    layer = Layer(lambda x, i, b: x.detach() * x)
    with pytest.raises(AssertionError) as error:
        assert_smooth(layer, batch_of_graphs())
    assert "with respect to x, " in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("conv", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_weights_of_attention_of_pyg_pass(conv, dtype):
    layer, data = conv(3, 4, heads=2, edge_dim=2).to(dtype), batch_of_graphs(dtype)
    for assertion in (EQUIVARIANT, INDEPENDENT, assert_batch_invariant):
        assertion(layer, data, return_attention_weights=True)
    NORMALIZED(layer, data)
    assert_smooth(layer, data)
    assert all(parameter.dtype == dtype for parameter in layer.parameters())


@pytest.mark.parametrize(
    "call",
    [
        lambda: INDEPENDENT(Function(neighbor_sum), graph()),
        lambda: INDEPENDENT(Layer(lambda x, i, b: x.sum()), batch_of_graphs()),
        lambda: assert_batch_invariant(Function(neighbor_sum), graph()),
        lambda: assert_batch_invariant(Layer(lambda x, i, b: x.sum()), batch_of_graphs()),
        lambda: NORMALIZED(Function(neighbor_sum), graph()),
        lambda: assert_smooth(Layer(lambda x, i, b: x.detach()), batch_of_graphs()),
        lambda: EQUIVARIANT(Function(neighbor_sum), graph(num_edges=5)),
        lambda: EQUIVARIANT(Function(lambda x, i, e: x.sum(0)), graph()),
        lambda: EQUIVARIANT(Function(lambda x, i, e: {"x": x}), graph()),
        lambda: INVARIANT(Function(lambda x, i, e: x[:0]), graph()),
        lambda: EQUIVARIANT(Layer(own), graph()),
    ],
)
def test_modules_that_an_assertion_cannot_judge_are_refused(call):
    with pytest.raises(ValueError, match=r"got|needs"):
        call()


LEAKS = {
    "mean": lambda h, batch: h - h.mean(0),
    "sum_of_others": lambda h, batch: h + h.sum(0),
    "cumsum": lambda h, batch: h.cumsum(0),
}


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
def test_graphs_that_have_only_codes_must_be_independent_too(leak):
    for seed in range(5):
        with pytest.raises(AssertionError, match="graphs of a batch affect each other"):
            INDEPENDENT(Embedded(leak), batch_of_codes(), seed=seed)
    assert INDEPENDENT(Embedded(lambda h, batch: h.tanh()), batch_of_codes()) == 0
    assert INDEPENDENT(Embedded(lambda h, batch: global_add_pool(h, batch)), batch_of_codes()) == 0


def test_rounding_errors_are_those_beside_double_precision():
    cancels = Function(lambda x, i, e: x + 1e4 - 1e4)
    with pytest.raises(AssertionError, match=r"^Function is not stable: worst error "):
        assert_stable(cancels, graph())
    assert 1e-5 < assert_stable(cancels, graph(), tolerance=1e-2) < 1e-2
    assert assert_stable(cancels, graph(dtype=torch.float64)) == 0
