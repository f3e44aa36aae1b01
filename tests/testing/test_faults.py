"""Each check of molattn.testing catches the fault that it is made for, and says what it is."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import scatter, softmax

from molattn import testing
from molattn.testing import check_module

from .molecules import random_molecules

WIDTH = 4
SEVERAL = random_molecules(WIDTH, 2, sizes=(4, 1, 3))


class Layer(nn.Module):
    """A sound layer: the mean of messages of senders and edges, and a function of the node."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.lin_edge = nn.Linear(2, WIDTH)

    def forward(self, x, edge_index, edge_attr, batch):
        message = self.lin(x)[edge_index[0]] + self.lin_edge(edge_attr)
        return x.tanh() + scatter(message, edge_index[1], dim_size=len(x), reduce="mean")


class NumbersNodes(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        out = super().forward(x, edge_index, edge_attr, batch)
        return out + torch.arange(len(x)).to(x).unsqueeze(1)


class SortsEdgeFeaturesAlone(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        by_receiver = edge_index[1].argsort(stable=True)
        return super().forward(x, edge_index, edge_attr[by_receiver], batch)


class ReadsOutByPosition(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        first = batch.diff(prepend=batch.new_tensor([-1])) != 0
        return super().forward(x, edge_index, edge_attr, batch)[first]


class AttendsToTheBatch(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        return super().forward(x.softmax(0) * x, edge_index, edge_attr, batch)


class DividesByTheLargestGraph(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        return super().forward(x, edge_index, edge_attr, batch) / batch.bincount().max()


class Swaps(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        return super().forward(x, edge_index.flip(0), edge_attr, batch)


class MessagesOfTheReceiver(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        message = self.lin(x)[edge_index[1]] + self.lin_edge(edge_attr)
        return x.tanh() + scatter(message, edge_index[1], dim_size=len(x), reduce="mean")


class SumsOverBoth(Layer):
    flow = "source_to_target"

    def forward(self, x, edge_index, edge_attr, batch):
        first = super().forward(x, edge_index, edge_attr, batch)
        return first + super().forward(x, edge_index.flip(0), edge_attr, batch)


class ReadsCoordinates(Layer):
    def forward(self, x, edge_index, edge_attr, batch, pos):
        difference = pos[edge_index[0]] - pos[edge_index[1]]
        length = difference.abs().sum(1, keepdim=True)  # not turned with the positions
        return super().forward(x, edge_index, edge_attr * length, batch)


class MeasuresFromTheOrigin(Layer):
    def forward(self, x, edge_index, edge_attr, batch, pos):
        distance = pos.square().sum(1, keepdim=True)
        return super().forward(x + distance.sin(), edge_index, edge_attr, batch)


class Detaches(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        message = self.lin(x[edge_index[0]]) + self.lin_edge(edge_attr).detach()
        return x.tanh() + scatter(message, edge_index[1], dim_size=len(x), reduce="mean")


class AttendsWithDetachedWeights(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        values = self.lin(x)[edge_index[0]] + self.lin_edge(edge_attr)
        alpha = softmax(values.sum(1), edge_index[1], num_nodes=len(x)).detach()
        return x.tanh() + scatter(alpha.unsqueeze(1) * values, edge_index[1], dim_size=len(x))


class DifferentiatesARootAtZero(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        out = super().forward(x, edge_index, edge_attr, batch)
        return out + (x - x).square().sum(1, keepdim=True).sqrt()


class DividesByTheDegree(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        message = self.lin(x)[edge_index[0]] + self.lin_edge(edge_attr)
        degree = scatter(torch.ones_like(message), edge_index[1], dim_size=len(x))
        mean = scatter(message, edge_index[1], dim_size=len(x)) / degree
        return x.tanh() + mean


class CountsNodesOfEdges(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        size = int(edge_index.max()) + 1 if edge_index.numel() else 0
        return super().forward(x[:size], edge_index, edge_attr, batch)


class Overflows(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        power = self.lin(x).exp()
        return super().forward(power / power.sum(1, keepdim=True), edge_index, edge_attr, batch)


class Cancels(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        return super().forward(x, edge_index, edge_attr, batch) + 1e4 - 1e4


class Dense(nn.Module):
    """A dense layer that divides a sum by the number of rows, or by the number of nodes."""

    def __init__(self, sound):
        super().__init__()
        self.sound = sound
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        count = mask.sum(1, keepdim=True) if self.sound else x.new_tensor([[x.size(1)]])
        total = (self.lin(x) * mask.unsqueeze(-1)).sum(1, keepdim=True)
        return x + total / count.unsqueeze(-1)


NODE = r"worst error \S+ \(tolerance 1e-10\) at node \d of graph \d, output\[\d, \d\]"
FAULTS = [
    (
        NumbersNodes,
        {"permutation", "batching"},
        rf"permutation: .*{NODE}.* cause: the nodes were renumbered",
    ),
    (
        SortsEdgeFeaturesAlone,
        {"permutation"},
        "permutation: .*the columns of edge_index were reordered",
    ),
    (
        ReadsOutByPosition,
        {"permutation"},
        r"permutation: .* at graph \d.* cause: a readout by position",
    ),
    (
        AttendsToTheBatch,
        {"independence", "batching"},
        rf"independence: .*{NODE} with new features in graph \d, .* cause: a softmax, norm",
    ),
    (DividesByTheLargestGraph, {"batching"}, rf"batching: .*{NODE}.* cause: padding that"),
    (
        Swaps,
        {"direction"},
        r"direction: .* the output of node \d changes with .* node \d, by .* cause: sender and",
    ),
    (MessagesOfTheReceiver, {"direction"}, "no output .* cause: .* the receiver's own features"),
    (SumsOverBoth, {"direction"}, "direction: .* cause: edges are made undirected"),
    (
        ReadsCoordinates,
        {"rotation"},
        rf"rotation: .*{NODE} with positions .* turned .* coordinates",
    ),
    (
        MeasuresFromTheOrigin,
        {"rotation"},
        rf"rotation: .*{NODE} with moved positions.*a difference",
    ),
    (
        Detaches,
        {"gradients"},
        r"gradients: .* without a gradient: lin_edge\.weight, lin_edge\.bias\. Usual cause: the",
    ),
    (
        AttendsWithDetachedWeights,
        {"gradients"},
        r"gradients: first derivatives .* with respect to (x|edge_attr|lin\.weight), .*detach\(\)",
    ),
    (
        DifferentiatesARootAtZero,
        {"independence", "gradients", "isolated nodes", "stability"},
        r"gradients: .* node 0 of graph 0, gradient of x\[0, 0\] is nan .* cause: sqrt",
    ),
    (
        CountsNodesOfEdges,
        {"batching", "isolated nodes"},
        "output has 3 rows for a graph whose last node is isolated, expected 4",
    ),
    (Overflows, {"stability"}, r"stability: .* is nan for inputs times 10000\. .* cause: exp of"),
    (Cancels, {"stability"}, r"stability: .* at node \d.* beside float64, .* cause: a difference"),
]


@pytest.mark.parametrize(
    "make, checks, message", FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)
def test_a_planted_fault_fails_the_checks_made_for_it(make, checks, message):
    with pytest.raises(AssertionError, match=message) as failure:
        check_module(make(), SEVERAL)
    _, *lines = str(failure.value).splitlines()
    assert {line.partition(":")[0] for line in lines} == checks, failure.value


def test_a_sound_layer_passes_all_checks_that_apply():
    report = check_module(Layer(), SEVERAL)
    assert {name for name, outcome in report.items() if outcome != "passed"} == {
        "padding",
        "rotation",
    }
    assert report["padding"] == "not applicable: Layer.forward has no mask"


def test_outputs_that_are_not_finite_are_reported_before_all_else():
    at_once = r"^Div\w+ has outputs that are not finite: node 4 of graph 1, output\[4, 0\] is nan"
    with pytest.raises(AssertionError, match=at_once):
        check_module(DividesByTheDegree(), SEVERAL)
    isolated = r"isolated nodes: node \d of graph 0, output\[\d, 0\] is nan for a graph whose last"
    with pytest.raises(AssertionError, match=isolated):
        testing.assert_isolated_nodes(DividesByTheDegree(), SEVERAL)


class Normalizes(Layer):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x, edge_index, edge_attr, batch):
        return super().forward(self.norm(x), edge_index, edge_attr, batch)


def test_a_batch_norm_in_training_mode_is_told_apart():
    """check_module does not see it: it runs in eval()."""
    layer = Normalizes()
    for check in (testing.assert_graphs_independent, testing.assert_batch_invariant):
        with pytest.raises(AssertionError, match=r"norm is a BatchNorm in training mode .* eval"):
            check(layer, random_molecules(WIDTH, 2, sizes=(4, 2, 3)))
    assert check_module(layer, SEVERAL)["independence"] == "passed"
    assert layer.training


def test_padding_that_counts_is_caught():
    assert check_module(Dense(sound=True), SEVERAL)["padding"] == "passed"
    with pytest.raises(
        AssertionError, match=r"graph \d.* with 3 more padded rows, .* `mask` is not applied"
    ):
        testing.assert_padding_invariant(Dense(sound=False), SEVERAL)


class KeepsASpare(Layer):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


def test_checks_are_skipped_and_get_options_by_their_names():
    layer = KeepsASpare()
    assert check_module(layer, SEVERAL, skip=["gradients"])["gradients"] == "skipped"
    options = {"gradients": {"unused": ["spare.*"]}}
    assert check_module(layer, SEVERAL, options=options)["gradients"] == "passed"
    with pytest.raises(AssertionError, match=r"without a gradient: spare\.weight, spare\.bias\."):
        check_module(layer, SEVERAL)
    with pytest.raises(ValueError, match=r"got \['gradient'\], expected among"):
        check_module(layer, SEVERAL, skip=["gradient"])


class NeedsFourNodes(Layer):
    def forward(self, x, edge_index, edge_attr, batch):
        x[3]
        return super().forward(x, edge_index, edge_attr, batch)


def test_a_layer_that_raises_is_named_with_the_check_that_it_raised_in():
    with pytest.raises(IndexError) as error:
        check_module(NeedsFourNodes(), SEVERAL)
    assert (
        "raised in the check 'batching' (in float64); skip=['batching']" in error.value.__notes__[0]
    )
    with pytest.raises(AssertionError, match="IndexError for a single node: index 3 is out"):
        testing.assert_isolated_nodes(NeedsFourNodes(), SEVERAL)


def test_as_many_edges_of_one_direction_as_nodes_are_no_obstacle():
    triangle = torch.tensor([[1, 0, 0, 2, 2, 1], [2, 2, 1, 1, 0, 0]])
    data = Data(x=torch.randn(3, WIDTH), edge_index=triangle, edge_attr=torch.randn(6, 2))
    testing.assert_edge_direction(Layer(), Batch.from_data_list([data]))


class Handed(Layer):
    def forward(self, x, edge_index, edge_attr, batch, pos):
        volume = torch.linalg.det(pos[1:4] - pos[0])
        return super().forward(x + volume, edge_index, edge_attr, batch)


def test_a_layer_that_tells_left_from_right_fails_for_reflections_alone():
    molecule = random_molecules(WIDTH, 2, sizes=[5], dtype=torch.float64)
    testing.assert_rotation_equivariant(Handed().double(), molecule)
    with pytest.raises(AssertionError, match="not equivariant"):
        testing.assert_rotation_equivariant(Handed().double(), molecule, reflections=True)


class Cloud(nn.Module):
    """Sound, of distances alone."""

    def forward(self, x, pos, batch=None):
        batch = batch if batch is not None else torch.zeros(len(x), dtype=torch.long)
        distance = (pos.unsqueeze(0) - pos.unsqueeze(1)).square().sum(dim=-1)
        return (-distance).exp() * (batch.unsqueeze(0) == batch.unsqueeze(1)) @ x


def test_graphs_without_edges_are_checked():
    clouds = [Data(x=torch.randn(n, WIDTH), pos=torch.randn(n, 3)) for n in (4, 1, 3)]
    report = check_module(Cloud(), Batch.from_data_list(clouds))
    skipped = {name for name, outcome in report.items() if outcome != "passed"}
    assert skipped == {"padding", "direction", "isolated nodes"}


class Pairs(Layer):
    def forward(self, x, edge_index, edge_attr, batch, pair_index):
        far = x[pair_index[0]]
        return super().forward(x, edge_index, edge_attr, batch).index_add(0, pair_index[1], far)


def test_a_layer_that_reads_other_pairs_than_edges_passes():
    molecules = SEVERAL.to_data_list()
    for data in molecules:
        data.pair_index = torch.ones(data.num_nodes, data.num_nodes).nonzero().t()
    assert check_module(Pairs(), Batch.from_data_list(molecules))["isolated nodes"] == "passed"
