"""A layer, a score, a combination of heads, a readout and a head from outside the package."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATv2Conv, aggr

import molattn
from molattn import MolAttn, MolAttnConfig
from molattn import nn as parts
from molattn.cli.program import main
from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.explain import explain
from molattn.graph import CompleteGraphs

REGISTRIES = (parts.LAYERS, parts.SCORES, parts.COMBINES, parts.READOUTS, parts.PREDICTION_HEADS)
SMALL = {"width": 8, "heads": 2, "layers": 1}
SMILES = ["CCO", "c1ccccc1CC.Cl", "C", "CC(=O)N"]


class GATv2(GATv2Conv):
    """A layer of PyG's, which knows nothing of complete graphs, gates, scores and the like."""

    def __init__(self, in_channels, out_channels, heads=1, *, edge_dim=None):
        super().__init__(
            in_channels, out_channels, heads, concat=False, edge_dim=edge_dim, add_self_loops=False
        )


def negative_distance(query, key, _):
    return -(query - key).square().sum(dim=-1)


def low_rank_query(query, weight):
    return query @ weight[..., : weight.size(-1) // 2]


def low_rank_key(key, weight):
    return key @ weight[..., weight.size(-1) // 2 :]


class Median(parts.HeadCombine):
    def forward(self, heads):
        return heads.median(dim=-2).values


class LinearHead(nn.Module):
    def __init__(self, channels, numbers, width, out, dropout):
        super().__init__()
        self.lin = nn.Linear(channels + numbers, out)

    def forward(self, molecules, numbers=None):
        return self.lin(molecules if numbers is None else torch.cat([molecules, numbers], dim=-1))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register one of each; the registries are as before after the test."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "data", dict(registry))
    parts.LAYERS.register("pyg")(parts.Layer(GATv2, complete_graphs=False))
    parts.SCORES.register("distance")(parts.Score(negative_distance))
    parts.SCORES.register("low_rank")(
        parts.Score(query=low_rank_query, key=low_rank_key, scaled=True, weight=2)
    )
    parts.COMBINES.register("median")(Median)
    parts.READOUTS.register("sharp")(lambda _: aggr.SoftmaxAggregation(t=0.5))
    parts.PREDICTION_HEADS.register("linear")(LinearHead)


EXTENDED = [
    {"layer": "pyg"},
    {"score": "distance"},
    {"score": "low_rank", "layer": "graph_network"},
    {"combine": "median"},
    {"readout": "sharp+mean"},
    {"head": "linear"},
    {"score": "distance", "combine": "median", "readout": "sharp", "head": "linear"},
]


@pytest.mark.parametrize("options", EXTENDED, ids=str)
def test_it_trains_predicts_is_saved_and_loaded(options, tmp_path):
    frame = pd.DataFrame({"smiles": ["C" * n + "O" for n in range(1, 21)]})
    frame["y"] = frame["smiles"].str.len() * 0.5
    options = {**SMALL, **options}
    run = molattn.train(
        frame, "y", epochs=1, predictor="network", baselines=False, device="cpu", **options
    )
    run.model.save_pretrained(tmp_path)
    loaded = MolAttn.from_pretrained(tmp_path)
    for name, value in options.items():
        assert getattr(loaded.config.network, name) == value
    np.testing.assert_array_equal(loaded.predict(SMILES), run.model.predict(SMILES))
    plain = MolAttn(replace(loaded.config, network=NetworkConfig(**SMALL)))
    if shapes(plain) == shapes(loaded):  # the same parameters, another formula
        plain.load_state_dict(loaded.state_dict())
        assert not np.allclose(plain.predict(SMILES), loaded.predict(SMILES))


def shapes(model):
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def test_an_explanation_has_the_weights_of_a_layer_from_outside():
    model = MolAttn(MolAttnConfig(("y",), NetworkConfig(**SMALL, layer="pyg"))).eval()
    explanation = explain(model, "CCO", method="attention")
    weights = torch.as_tensor(np.asarray(explanation.attention))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]).to(weights))


@pytest.mark.parametrize("option", ["layer", "score", "combine", "head"])
def test_an_unknown_name_is_one_line_before_the_table_is_read(option, tmp_path, capsys):
    table = str(tmp_path / "without_rows.csv")
    Path(table).write_text("smiles,y\n")
    assert main(["train", table, "--target-columns", "y", f"--{option}", "foo"]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"error: --{option}: got 'foo', expected one of .*\n", error)
    assert "linear" in error or option in ("layer", "score")
    with pytest.raises(InputError, match=f"^{option}: got 'foo', expected one of"):
        molattn.train(table, "y", **{option: "foo"})


@pytest.mark.parametrize("score", ["distance", "low_rank"])
@pytest.mark.parametrize("combine", ["linear", "median"])
def test_a_score_gives_the_same_on_both_forms_of_a_graph(score, combine):
    conv = parts.EdgeAttentionConv(4, 6, 2, edge_dim=3, score=score, combine=combine).double()
    graph = CompleteGraphs([3, 1, 5], self_loops=False)
    x = torch.randn(graph.num_nodes, 4, dtype=torch.double, requires_grad=True)
    edge_attr = torch.randn(graph.num_edges, 3, dtype=torch.double)
    rows, pairs = graph.nodes_to_rows(x), graph.edges_to_pairs(edge_attr)
    found = [conv(x, graph.edge_index, edge_attr), graph.rows_to_nodes(conv(rows, graph, pairs))]
    upstream = torch.randn_like(found[0])
    gradients = [
        torch.autograd.grad((out * upstream).sum(), [x, *conv.parameters()]) for out in found
    ]
    torch.testing.assert_close(*found)
    torch.testing.assert_close(*gradients)


class Doubled:
    """A mixin that knows nothing of attention."""

    def update(self, inputs):
        return 2 * inputs


class EvenWeights:
    """A mixin that gives every edge of a receiver the same weight."""

    def weigh(self, logits, receivers, features):
        return super().weigh(0 * logits, receivers, features)


@pytest.mark.parametrize("mixin", [Doubled, EvenWeights])
def test_a_mixin_overrides_a_layer_as_the_class_itself_does(mixin):
    own = type("Own", (parts.EdgeAttentionConv,), {})
    mixed = type("Mixed", (mixin, parts.EdgeAttentionConv), {})
    later = type("Later", (mixed,), {})
    conv = own(4, 6, 2, edge_dim=3).double()
    graph = CompleteGraphs([3, 1, 5])
    x = torch.randn(graph.num_nodes, 4, dtype=torch.double)
    edge_attr = torch.randn(graph.num_edges, 3, dtype=torch.double)
    pairs = graph.nodes_to_rows(x), graph, graph.edges_to_pairs(edge_attr)
    plain = conv(x, graph.edge_index, edge_attr)
    for layer in (mixed, later):
        changed = layer(4, 6, 2, edge_dim=3).double()
        changed.load_state_dict(conv.state_dict())
        flat = changed(x, graph.edge_index, edge_attr)
        assert not torch.allclose(flat, plain)
        torch.testing.assert_close(graph.rows_to_nodes(changed(*pairs)), flat)
