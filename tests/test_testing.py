"""molattn.testing catches what is not equivariant, and says where."""

import re

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, global_add_pool

from molattn.testing import (
    assert_permutation_equivariant,
    assert_permutation_invariant,
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


def edge_difference(x, edge_index, edge_attr):
    return x[edge_index[0]] - x[edge_index[1]]


def test_a_users_own_layer_passes():
    conv = GATConv(3, 4, heads=2, edge_dim=2).double().eval()
    error = assert_permutation_equivariant(conv, graph(dtype=torch.float64))
    assert 0 <= error < 1e-10


def test_tuples_of_nodes_edges_and_the_graph_given_pass():
    def everything(x, edge_index, edge_attr):
        nodes = neighbor_sum(x, edge_index, edge_attr)
        return nodes, (edge_index, edge_difference(x, edge_index, edge_attr)), None

    assert_permutation_equivariant(Function(everything), graph())


def test_a_module_that_takes_data_itself_passes():
    class Takes(nn.Module):
        def forward(self, data):
            return neighbor_sum(data.x, data.edge_index, None)

    assert_permutation_equivariant(Takes(), graph())


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
        r"worst error (\S+) \(allowed 1e-05\) in output\[(\d), 1\]: (\S+) after relabeling, "
        r"(\S+) expected",
        message,
    )
    assert found, message
    error, _, after, expected = found.groups()
    assert abs(float(after) - float(expected)) == pytest.approx(100, rel=0.05)
    assert float(error) == pytest.approx(1, rel=0.1)  # relative to the largest output


@pytest.mark.parametrize(
    "function",
    [
        lambda x, edge_index, edge_attr: x.cumsum(0),
        lambda x, edge_index, edge_attr: x.flip(0),
        lambda x, edge_index, edge_attr: edge_attr.cumsum(0),
        lambda x, edge_index, edge_attr: (x, edge_attr.roll(1, 0)),
        lambda x, edge_index, edge_attr: x + torch.where(edge_index[0, 0] == 0, 1.0, torch.nan),
    ],
    ids=["cumsum", "flip", "edges", "second_output", "nan"],
)
def test_what_depends_on_the_order_is_caught(function):
    torch.manual_seed(2)
    with pytest.raises(AssertionError, match="Function is not permutation equivariant: worst"):
        assert_permutation_equivariant(Function(function), graph(), trials=5)


def test_the_second_output_is_named():
    def second(x, edge_index, edge_attr):
        return x, edge_attr.cumsum(0)

    with pytest.raises(AssertionError, match=r"in output\[1\]\[\d, \d\]: "):
        assert_permutation_equivariant(Function(second), graph())


def test_nodes_that_attend_by_label_are_caught():
    """Equivariant in the order of edges, and in nothing else."""

    def by_label(x, edge_index, edge_attr):
        keep = edge_index[0] <= edge_index[1]
        return neighbor_sum(x, edge_index[:, keep], None)

    with pytest.raises(AssertionError, match="not permutation equivariant"):
        assert_permutation_equivariant(Function(by_label), graph())


def test_tolerance_is_relative_and_may_be_given():
    class Rounded(nn.Module):
        def forward(self, x):
            return 1e6 * x + 1e-2 * torch.arange(len(x)).unsqueeze(-1)

    data = graph()
    assert assert_permutation_equivariant(Rounded(), data) < 1e-5
    with pytest.raises(AssertionError, match=r"allowed 1e-12"):
        assert_permutation_equivariant(Rounded(), data, tolerance=1e-12)


def test_half_precision_has_room():
    conv = GATConv(3, 4, edge_dim=2).bfloat16().eval()
    data = graph(dtype=torch.bfloat16)
    assert assert_permutation_equivariant(conv, data) <= 2e-2


def test_sizes_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="got 5 nodes and as many edges, expected different"):
        assert_permutation_equivariant(Function(neighbor_sum), graph(num_edges=5))


def test_outputs_of_neither_nodes_nor_edges_are_refused():
    pooled = Function(lambda x, edge_index, edge_attr: x.sum(0, keepdim=True))
    with pytest.raises(ValueError, match=re.escape("output: got shape [1, 3], expected a row for")):
        assert_permutation_equivariant(pooled, graph())
    named = Function(lambda x, edge_index, edge_attr: {"x": x})
    with pytest.raises(ValueError, match="output: got dict, expected tensors"):
        assert_permutation_equivariant(named, graph())


@pytest.mark.filterwarnings("ignore:Unable to accurately infer:UserWarning")
def test_a_graph_without_nodes_features_is_refused():
    with pytest.raises(ValueError, match="without node features, expected x or num_nodes"):
        assert_permutation_invariant(Function(neighbor_sum), Data())


class Pooled(nn.Module):
    """The sum over a graph's nodes of a layer's output."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, edge_index, edge_attr, batch=None):
        return global_add_pool(self.function(x, edge_index, edge_attr), batch)


def test_models_of_a_graph_and_of_a_batch_pass():
    model = Pooled(lambda x, edge_index, edge_attr: neighbor_sum(x, edge_index, None).tanh())
    assert assert_permutation_invariant(model, graph()) <= 1e-5
    batch = Batch.from_data_list([graph(4, 6), graph(5, 9), graph(1, 1)])
    assert assert_permutation_invariant(model, batch) <= 1e-5


def test_a_model_may_call_the_whole_batch_batch():
    class Model(nn.Module):
        def forward(self, batch, scale=None):
            return global_add_pool(batch.x, batch.batch)

    assert_permutation_invariant(Model(), Batch.from_data_list([graph(4, 6), graph(5, 9)]))


def test_a_model_that_depends_on_the_order_is_caught():
    model = Pooled(lambda x, edge_index, edge_attr: x * torch.arange(len(x)).unsqueeze(-1))
    with pytest.raises(AssertionError, match="Pooled is not permutation invariant: worst error"):
        assert_permutation_invariant(model, graph())
    with pytest.raises(AssertionError, match=r"in output\[\d, \d\]: "):
        assert_permutation_invariant(model, Batch.from_data_list([graph(4, 6), graph(5, 9)]))


def test_a_shape_that_changes_is_caught():
    class Counts(nn.Module):
        def forward(self, x, edge_index):
            return torch.ones(1 + int(edge_index[0, 0]))

    data = graph()
    data.edge_index[0] = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    with pytest.raises(AssertionError, match=r"shape .* after relabeling, .* before"):
        assert_permutation_invariant(Counts(), data, trials=5)


def test_equal_infinities_are_no_error():
    model = Pooled(lambda x, edge_index, edge_attr: torch.full_like(x, torch.inf))
    assert assert_permutation_invariant(model, graph()) == 0


def test_permute_nodes_relabels_all_that_is_of_nodes_and_edges():
    data = Data(
        x=torch.arange(3.0).unsqueeze(-1),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        edge_attr=torch.tensor([[1.0], [2.0]]),
        y=torch.ones(1),
        name="water",
    )
    moved = permute_nodes(data, torch.tensor([2, 0, 1]), torch.tensor([1, 0]))
    assert moved.x.flatten().tolist() == [2, 0, 1]
    assert moved.edge_index.tolist() == [[2, 1], [0, 2]]
    assert moved.edge_attr.flatten().tolist() == [2, 1]
    assert moved.y.tolist() == [1]
    assert moved.name == "water"
    assert data.edge_index.tolist() == [[0, 1], [1, 2]]
    back = permute_nodes(moved, torch.tensor([1, 2, 0]), torch.tensor([1, 0]))
    for key in ("x", "edge_index", "edge_attr"):
        assert torch.equal(back[key], data[key])


def test_small_outputs_are_held_to_their_own_scale():
    def faint(x, edge_index, edge_attr):
        return 1e-9 * x * torch.arange(len(x)).unsqueeze(-1)

    with pytest.raises(AssertionError, match="not permutation equivariant"):
        assert_permutation_equivariant(Function(faint), graph())
    assert_permutation_equivariant(Function(lambda x, i, e: 0 * x), graph())


def test_an_edge_index_that_is_not_the_one_given_is_caught():
    turned = Function(lambda x, edge_index, e: (x, (edge_index.flip(1), e)))
    with pytest.raises(
        AssertionError, match=r"output\[1\]\[0\]: got an edge_index that is not the one given"
    ):
        assert_permutation_equivariant(turned, graph())


def test_what_the_module_needs_and_data_lacks_is_named():
    class Other(nn.Module):
        def forward(self, x, edges):
            return x

    with pytest.raises(ValueError, match=r"Other\.forward needs 'edges', which data lacks: it has"):
        assert_permutation_equivariant(Other(), graph())


def test_a_sparse_adjacency_is_refused():
    data = Data(x=torch.randn(3, 2), adj_t=torch.ones(3, 3).to_sparse_coo())

    class Sparse(nn.Module):
        def forward(self, x, adj_t):
            return x

    with pytest.raises(ValueError, match=r"adj_t: got torch\.sparse_coo, expected edge_index"):
        assert_permutation_equivariant(Sparse(), data)
