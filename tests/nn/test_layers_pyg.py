"""Every registered layer inside PyG: options, hooks, heterogeneous graphs, explainers."""

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import HeteroData
from torch_geometric.explain import (
    AttentionExplainer,
    Explainer,
    GNNExplainer,
)
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import (
    to_hetero,
)

from molattn.graph import CompleteGraphs

from .conftest import DOUBLE, assert_near

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")
WRITTEN = ("paper", "written_by", "author")


def test_widths_found_on_first_use(subject, multigraph):
    lazy_edges = not (subject.layer.edge_columns or "update_edges" in subject.switches)
    edge_dim = -1 if lazy_edges and subject.edge_dim else subject.edge_dim
    known = subject.make()
    x, given = subject.nodes(9), subject.features(20)
    expected = subject.run(known, x, multigraph, given)
    for in_channels in (-1, (-1, -1)):
        lazy = subject.make(in_channels, edge_dim=edge_dim)
        subject.run(lazy, x, multigraph, given)
        shapes = {name: p.shape for name, p in lazy.named_parameters()}
        assert shapes == {name: p.shape for name, p in known.named_parameters()}
        lazy.load_state_dict(known.state_dict())
        for name, part in subject.run(lazy, x, multigraph, given).items():
            assert_near(part, expected[name])
        fresh = subject.make(in_channels, edge_dim=edge_dim)
        fresh.load_state_dict(known.state_dict())  # before first use
        assert_near(subject.run(fresh, x, multigraph, given)["nodes"], expected["nodes"])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_indices_of_any_integer_type(subject, multigraph, dtype):
    conv, x = subject.make(), subject.nodes(9)
    given = subject.features(20, batch=torch.zeros(9, dtype=torch.long))
    expected = subject.run(conv, x, multigraph, given)
    if "batch" in given:
        given["batch"] = given["batch"].to(dtype)
    for name, part in subject.run(conv, x, multigraph.to(dtype), given).items():
        assert_near(part, expected[name])


@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|invariant).*:UserWarning")
def test_receivers_without_features_count_as_zeros(subject):
    edge_index, senders = torch.tensor([[0, 2, 3, 4], [0, 0, 1, 1]]), subject.nodes(5)
    conv = subject.make((4, 7))
    fixed = {k: v for k, v in subject.features(4).items() if k != "batch"}

    def run(x, receivers=3, graph=edge_index, layer=conv, **size):
        batch = (torch.zeros(5, dtype=torch.long), torch.zeros(receivers, dtype=torch.long))
        given = subject.features(4, batch=batch) | fixed | size
        return subject.run(layer, x, graph, given)["nodes"]

    expected = run((senders, torch.zeros(3, 7, dtype=DOUBLE)), size=(5, 3))
    assert expected.shape[0] == 3
    assert_near(run((senders, None), size=(5, 3)), expected)
    assert_near(run((senders, None), size=(None, 3)), expected)
    adj_t = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(4), (3, 5)).coalesce()
    assert_near(run((senders, None), graph=adj_t), expected)
    assert_near(run((senders, None), graph=EdgeIndex(edge_index, sparse_size=(5, 3))), expected)
    assert_near(run((senders, None), 5)[:3], expected)  # as many receivers as senders
    turned = subject.make((4, 7), flow="target_to_source")
    turned.load_state_dict(conv.state_dict())
    by_row = EdgeIndex(edge_index.flip(0), sparse_size=(3, 5))
    assert_near(run((senders, None), graph=by_row, layer=turned), expected)
    with pytest.raises(ValueError, match=r"size: got \(5, 4\), expected \(5, 3\), the rows of x"):
        run((senders, senders.new_zeros(3, 7)), size=(5, 4))
    with pytest.raises(ValueError, match="cannot be used with in_channels=-1"):
        run((senders, None), layer=subject.make((4, -1)))


def test_flow_from_target_to_source(subject, multigraph):
    x, given = subject.nodes(9), subject.features(20)
    conv, turned = subject.make(), subject.make(flow="target_to_source")
    turned.load_state_dict(conv.state_dict())
    expected = subject.run(conv, x, multigraph, given, weights=True)
    graph = multigraph.flip(0)
    got = subject.run(turned, x, graph, given, weights=True)
    assert got.pop("graph") is graph
    for name, part in got.items():
        assert_near(part, expected[name])
    with pytest.raises(ValueError, match="CompleteGraphs"):
        subject.run(turned, x, CompleteGraphs([9]), given)


HOOKS = [
    f"register_{step}_forward_{kind}"
    for step in ("propagate", "message", "aggregate", "edge_update")
    for kind in ("pre_hook", "hook")
]


@pytest.mark.parametrize("register", HOOKS)
def test_hooks_are_called_on_any_graph(dense_subject, register):
    graph, conv = CompleteGraphs([2, 4]), dense_subject.make()
    x, given = dense_subject.nodes(6), dense_subject.features(20, batch=graph.batch)
    expected = dense_subject.run_complete(conv, x, graph, given, weights=True)
    calls = []
    handle = getattr(conv, register)(lambda *args: calls.append(args))
    dense_subject.run(conv, x, graph.edge_index, given)
    assert len(calls) == 1
    got = dense_subject.run_complete(conv, x, graph, given, weights=True)
    assert len(calls) == 2
    for name in got.keys() - {"graph"}:
        assert_near(got[name], expected[name])
    handle.remove()
    dense_subject.run_complete(conv, x, graph, given)
    assert len(calls) == 2


def test_edge_masks_have_their_effect_on_complete_graphs(dense_subject):
    graph, conv = CompleteGraphs([2, 4]), dense_subject.make()
    x, given = dense_subject.nodes(6), dense_subject.features(20, batch=graph.batch)
    before = dense_subject.run_complete(conv, x, graph, given)
    mask = torch.randn(20, dtype=DOUBLE)
    set_masks(conv, mask, graph.edge_index)
    masked = dense_subject.run_complete(conv, x, graph, given)
    assert not torch.allclose(masked["nodes"], before["nodes"])
    for name, part in dense_subject.run(conv, x, graph.edge_index, given).items():
        assert_near(masked[name], part)
    clear_masks(conv)
    assert_near(dense_subject.run_complete(conv, x, graph, given)["nodes"], before["nodes"])


class TwoLayers(torch.nn.Module):
    def __init__(self, subject, edge_dim):
        super().__init__()
        self.first = subject.layer.make((-1, -1), 6, 2, edge_dim=edge_dim)
        self.second = subject.layer.make((-1, -1), 6, 2, edge_dim=edge_dim)

    def forward(self, x, edge_index, edge_attr):
        x = self.first(x, edge_index, edge_attr).relu()
        return self.second(x, edge_index, edge_attr)


def library(edge_dim):
    """Authors, papers, and three kinds of edges."""
    data = HeteroData()
    data["author"].x = torch.randn(4, 3)
    data["paper"].x = torch.randn(6, 5)
    for kind, count in ((WRITES, 7), (CITES, 9), (WRITTEN, 7)):
        rows = [data[kind[i]].num_nodes for i in (0, 2)]
        data[kind].edge_index = torch.stack([torch.randint(0, n, (count,)) for n in rows])
        data[kind].edge_attr = torch.rand(count, edge_dim)
    return data


def test_to_hetero(plain_subject):
    edge_dim = plain_subject.edge_dim or 2
    data = library(edge_dim)
    model = to_hetero(TwoLayers(plain_subject, edge_dim), data.metadata(), aggr="sum").eval()
    given = (data.x_dict, data.edge_index_dict, data.edge_attr_dict)
    out = model(*given)
    assert {kind: x.shape for kind, x in out.items()} == {"author": (4, 6), "paper": (6, 6)}


class Classifier(torch.nn.Module):
    """One layer and log-probabilities of two classes for each node."""

    def __init__(self, subject):
        super().__init__()
        self.subject = subject
        self.conv = subject.make(dtype=torch.float32)
        self.lin = torch.nn.Linear(6, 2)

    def forward(self, x, edge_index, edge_attr=None, u=None):
        given = {k: v for k, v in (("edge_attr", edge_attr), ("u", u)) if v is not None}
        nodes = self.subject.run(self.conv, x, edge_index, given)["nodes"]
        return self.lin(nodes).log_softmax(-1)


@pytest.mark.parametrize("algorithm", [AttentionExplainer(reduce="mean"), GNNExplainer(epochs=3)])
def test_explainers(subject, multigraph, algorithm):
    model = Classifier(subject).eval()
    features = subject.features(20, dtype=torch.float32)
    given = {k: v.detach() for k, v in features.items() if v is not None}
    masked = {"node_mask_type": "attributes"} if isinstance(algorithm, GNNExplainer) else {}
    explainer = Explainer(
        model,
        algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "log_probs",
        },
        **masked,
    )
    x = torch.randn(9, 4)
    found = explainer(x, multigraph, **given)
    assert bool((found.edge_mask > 0).any())
    if not masked:
        out = subject.run(model.conv, x, multigraph, given, weights=True)
        torch.testing.assert_close(found.edge_mask, out["weights"].mean(-1))
