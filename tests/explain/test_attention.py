"""Attention is recorded as it is applied, and methods make of it what their papers say."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from molattn.config import NetworkConfig
from molattn.explain import METHODS, explain
from molattn.explain.explainer import read_instances
from molattn.nn import EdgeAttentionConv

from .conftest import SMALL, make

SMILES = "CC(=O)NCCO"


def instance_of(model):
    return next(read_instances(model, [SMILES]))


@pytest.fixture(scope="module")
def instance():
    return instance_of(make(network=replace(SMALL, graphs=("pairs",))))


@pytest.mark.parametrize("gate", [False, True])
def test_scores_are_those_of_the_attention_that_is_shown(gate):
    model = make(network=NetworkConfig(16, 2, 2, 8, gate=gate))
    raw = explain(model, SMILES, "attention")
    applied = raw.attention.astype(float)
    assert (raw.gates is not None) is gate
    applied = applied * raw.gates[..., None] if gate else applied
    mean = applied.mean(axis=(0, 1))
    np.testing.assert_allclose(raw.atom_scores, mean.mean(axis=0), rtol=1e-5)
    i, j = raw.bonds[2]
    assert raw.bond_scores[2] == pytest.approx(mean[i, j] + mean[j, i], rel=1e-5)


def test_weights_that_are_shown_are_those_applied(instance):
    # The output follows from them: heads' sums of values by the recorded weights are what the
    # layer gave, whatever path it took.
    found = instance.attention
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1, rtol=1e-6)
    conv, batch, seen = (
        instance.model.nets[0].encoder.blocks[0].conv,
        instance.batch([instance.record]),
        {},
    )

    def keep(_, args, output):
        seen.update(args=args, output=output)

    handle = conv.register_forward_hook(keep)
    with torch.no_grad():
        instance.model(batch)  # the fast path: asks for no weights
        handle.remove()
        x, _, edges = seen["args"]
        value = conv.lin_value(x).view(-1, 2, 8)
        edge_value = conv.lin_edge_value(edges.dense()).view(7, 7, 2, 8)
        weights = torch.from_numpy(found.weights[0, 0]).float()  # [H, n, n]
        heads = torch.einsum("hrs,rshc->rhc", weights, value.unsqueeze(0) + edge_value)
        expected = conv.head_combine(heads) + conv.bias
        torch.testing.assert_close(seen["output"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"layer": "gaan"},
        {"layer": "mat"},
        {"layer": "graph_network", "gate": True},
        {"radius": 1, "gate": True},
        {"radius": 1, "layer": "gaan", "self_loops": False},
        {"score": "gatv2", "self_loops": False},
        {"layer_options": ("attn_bias=slopes",), "update_edges": True},
        {"graphs": ("pairs",)},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_other_networks_show_what_they_apply(options):
    model = make(network=NetworkConfig(width=16, heads=2, layers=2, **options)).double()
    instance = instance_of(model)
    found = instance.attention
    assert found.weights.shape == (1, 2, 2, 7, 7)
    has_gates = options.get("gate", options.get("layer") == "gaan")
    assert (found.gates is not None) is has_gates
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1, rtol=1e-5)
    edges = np.ones((2, 1, 7, 7), dtype=bool)  # of each layer
    bonds = np.zeros((7, 7), dtype=bool)
    for i, j in instance.bonds:
        bonds[i, j] = bonds[j, i] = True
    if "radius" in options:
        edges[:] = bonds | np.eye(7, dtype=bool)
    if model.nets[0].encoder.graphs == ("bonds", "pairs"):
        edges[0] = bonds
    edges &= ~np.eye(7, dtype=bool) | options.get("self_loops", True)
    assert ((found.weights > 0) == edges).all()
    for method in METHODS:
        scores = explain(model, SMILES, method)
        assert np.isfinite(scores.atom_scores).all()
        assert scores.adds_up in (True, None)
        assert scores.prediction == pytest.approx(model.predict([SMILES])[0, 0], abs=1e-5)


class Layers(nn.Module):
    """A custom encoder of layers, some of which may be the same."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, edge_index, edge_attr):
        for layer in self.layers:
            x = x + layer(x, edge_index, edge_attr)
        return x


@pytest.mark.parametrize("nested", [False, True])
def test_a_layer_that_occurs_three_times_shows_three_weights_and_stays_as_it_is(nested):
    model = make()
    conv = EdgeAttentionConv(16, 16, 2, edge_dim=8)
    layers = {
        "tied": [conv, conv, conv],
        "equal": [conv, copy.deepcopy(conv), copy.deepcopy(conv)],
    }
    shown = {}
    for name, several in layers.items():
        model.nets[0].encoder = Layers([Layers([one]) for one in several] if nested else several)
        shown[name] = explain(model, SMILES, "attention").attention
        assert not any(module._forward_hooks for module in model.modules())
    assert len(shown["tied"]) == 3
    np.testing.assert_allclose(shown["tied"], shown["equal"], rtol=1e-6)


def test_an_encoder_with_weight_norm_shows_the_attention_of_its_weights():
    model = make()
    model.nets[0].encoder = Layers([EdgeAttentionConv(16, 16, 2, edge_dim=8)])
    before = explain(model, SMILES, "attention").attention
    normed = weight_norm(model.nets[0].encoder.layers[0].lin_query)
    after = explain(model, SMILES, "attention").attention
    np.testing.assert_allclose(after, before, rtol=1e-4)  # the same weight, by its norm
    with torch.no_grad():
        normed.parametrizations.weight.original0 *= 9
    assert np.abs(explain(model, SMILES, "attention").attention - before).max() > 1e-3
