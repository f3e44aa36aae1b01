import inspect

import pandas as pd
import pytest
import torch
from torch_geometric.nn.conv import MessagePassing

import molattn
from molattn import MolAttn, MolAttnConfig
from molattn import nn as layers
from molattn.config import NetworkConfig, TrainConfig
from molattn.errors import InputError
from molattn.nn.registry import LAYERS, check_network, layer_options
from molattn.task import Task


@pytest.mark.parametrize(
    "layer, options, term",
    [
        ("edge_attention", {}, "slopes"),
        ("edge_attention", {"layer_options": ()}, None),
        ("edge_attention", {"layer_options": ("attn_bias=null",)}, None),
        ("egt", {}, None),
        ("egt", {"layer_options": ("attn_bias=slopes",)}, "slopes"),
    ],
)
def test_new_networks_of_edge_attention_have_slopes(layer, options, term):
    network = NetworkConfig(layer=layer, **options)
    check_network(network)
    assert layer_options(network).get("attn_bias") == term


def test_every_public_layer_is_registered():
    public = {
        thing
        for thing in vars(layers).values()
        if inspect.isclass(thing) and issubclass(thing, MessagePassing)
    }
    assert public == {layers.AttentionConv, *(layer.conv for layer in LAYERS.values())}


@pytest.mark.parametrize("layer", LAYERS)
def test_heads_that_do_not_divide_the_width_are_refused_before_anything_is_trained(layer):
    frame = pd.DataFrame({"smiles": ["C" * n for n in range(1, 21)], "y": range(20)})
    with pytest.raises(InputError, match=r"^heads: got 3, expected a divisor of width \(8\)"):
        molattn.train(frame, "y", layer=layer, width=8, heads=3, device="cpu")


def test_arguments_of_a_layer_reach_it():
    network = NetworkConfig(layer="egt", layer_options=("clip=3", "scale_degree=false"))
    check_network(network)
    modules = MolAttn(MolAttnConfig((Task("y"),), network)).modules()
    conv = next(module for module in modules if isinstance(module, layers.EGTConv))
    assert (conv.clip, conv.scale_degree) == (3, False)
    given = TrainConfig.from_options("t.csv", {"layer_options": {"clip": 3, "scale_degree": False}})
    assert layer_options(given.network) == layer_options(network)
    with pytest.raises(InputError, match=r"^target_units: got "):  # units are not by name
        TrainConfig.from_options("t.csv", {"target_units": {"y": "mol/L"}})


@pytest.mark.parametrize("layer", ["edge_attention", "egt", "grit", "mat", "graph_network"])
def test_a_linear_bias_of_the_pairs_is_an_option_of_each_layer(layer):
    network = NetworkConfig(layer=layer, layer_options=("attn_bias=linear",), layers=2)
    check_network(network)
    model = MolAttn(MolAttnConfig((Task("y"),), network))
    biases = [m.attn_bias for m in model.modules() if isinstance(m, layers.AttentionConv)]
    assert len(set(biases)) == 2  # each block has its own
    data = molattn.from_smiles("CCO", self_loops=True)
    before = model(data)
    torch.nn.init.normal_(biases[0].weight)
    assert not torch.allclose(model(data), before)


@pytest.mark.parametrize(
    "text",
    [
        "clip",
        "clip=x",
        "clip=: [",
        "unknown=1",
        "edge_dim=2",
        "heads=2",
        "attn_bias=3",
        "attn_bias=distance",
        "flow=target_to_source",
    ],
)
def test_wrong_arguments_of_a_layer_are_refused(text):
    with pytest.raises(InputError) as error:
        check_network(NetworkConfig(layer="egt", layer_options=(text,)))
    assert error.value.option == "layer_options"
