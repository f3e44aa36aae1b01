import inspect
import re
from pathlib import Path

import pytest
import torch
from torch_geometric.nn.conv import MessagePassing

from molattn import nn as layers
from molattn.graph import CompleteGraphs
from molattn.nn.attention_conv import AttentionConv
from molattn.nn.registry import LAYERS, layer_table

README = Path(__file__).parents[2] / "README.md"


def test_readme_holds_the_layer_table():
    text = README.read_text(encoding="utf-8")
    (held,) = re.findall(r"<!-- layers:.*?-->\n(.*?)\n<!-- /layers -->", text, re.DOTALL)
    assert held == layer_table()


def test_every_public_layer_is_registered():
    public = {
        thing
        for thing in vars(layers).values()
        if inspect.isclass(thing) and issubclass(thing, MessagePassing)
    }
    assert public == {layer.conv for layer in LAYERS.values()}
    assert AttentionConv not in public


def gates(conv):
    return any(isinstance(part, layers.HeadGate) for part in conv.modules())


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_layer_is_said_to_support_is_what_it_does(name):
    layer = LAYERS[name]
    x, edge_attr, u = torch.randn(3, 4), torch.rand(2, 2), torch.randn(1, 5)
    edge_index = torch.tensor([[0, 1], [1, 2]])

    def make(**options):
        return layer.make(4, 6, 2, edge_dim=2, **options).eval()

    def refuses(**options):
        with pytest.raises(ValueError, match=f"{next(iter(options))}=.* cannot be used with"):
            make(**options)

    assert isinstance(make()(x, edge_index, edge_attr), torch.Tensor)
    if layer.has("update_edges"):
        nodes, edges = make(update_edges=True)(x, edge_index, edge_attr)
        assert (nodes.shape, edges.shape) == ((3, 6), (2, 2))
    else:
        refuses(update_edges=True)
    if layer.has("global_dim"):
        conv = make(global_dim=5)
        assert not torch.equal(
            conv(x, edge_index, edge_attr, u=u), conv(x, edge_index, edge_attr, u=-u)
        )
    else:
        refuses(global_dim=5)
    if layer.has("update_global"):
        nodes, graphs = make(global_dim=5, update_global=True)(x, edge_index, edge_attr, u=u)
        assert (nodes.shape, graphs.shape) == ((3, 6), (1, 5))
    else:
        refuses(update_global=True)
    if layer.has("gate"):
        assert gates(make(gate=True))
        assert not gates(make(gate=False))
    else:
        refuses(gate=True)
        assert not gates(make())
    if layer.edge_columns:
        with pytest.raises(ValueError, match="edge_dim: got None, expected 2"):
            layer.make(4, 6, 2)
    else:
        assert layer.make(4, 6, 2)(x, edge_index).shape == (3, 6)
    assert all(layer.has(argument) for argument in layer.always)
    pair, graph = (x, torch.randn(5, 4)), CompleteGraphs([1])
    plain = layer.conv(4, 6, 2, **({} if layer.edge_columns else {"edge_dim": 2}))
    assert layer.bipartite == works(plain, pair, edge_index, edge_attr)
    assert layer.complete_graphs == works(plain, x[:1], graph, edge_attr[:1])
    _, (given, alpha) = make()(x, edge_index, edge_attr, return_attention_weights=True)
    assert given is edge_index
    assert (alpha - 1).abs().max() < 1e-6 or not layer.normalized  # one edge for each receiver


def works(conv, *inputs):
    try:
        return bool(conv(*inputs).isfinite().all())
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_called_alike(name):
    reads = inspect.signature(LAYERS[name].conv.forward).parameters
    assert list(reads)[1:4] == ["x", "edge_index", "edge_attr"]
    assert reads["return_attention_weights"].default is False


def test_switches_that_are_off_may_be_named_for_any_layer():
    for layer in LAYERS.values():
        conv = layer.make(
            4,
            8,
            2,
            edge_dim=2,
            update_edges=False,
            global_dim=None,
            update_global=False,
            root_weight=False,
            edge_value=False,
        )
        assert type(conv) is layer.conv


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LAYERS["gat"], "layer: got 'gat', expected one of edge_attention, gaan, "),
        (
            lambda: LAYERS["gaan"].make(4, 8, update_edges=True),
            "update_edges=True cannot be used with GaANConv, only with EdgeAttentionConv, "
            "GraphNetwork",
        ),
        (
            lambda: LAYERS["mat"].make(4, 8, edge_dim=2, score="gatv2"),
            "score='gatv2' cannot be used with MATConv, only with EdgeAttentionConv, GraphNetwork",
        ),
        (
            lambda: LAYERS["mat"].make(4, 8, edge_dim=3),
            "edge_dim: got 3, expected 2: MATConv reads distance, bond",
        ),
    ],
)
def test_what_is_not_supported_names_got_and_expected(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_an_option_that_no_layer_has_is_refused():
    for layer in LAYERS.values():
        with pytest.raises(TypeError, match="color"):
            layer.make(4, 8, edge_dim=2, color="red")


def test_an_option_of_another_layer_may_have_its_default():
    LAYERS["gaan"].make(8, 16, 2, temperature=1.0)
    with pytest.raises(ValueError, match="temperature=0 cannot be used with GaANConv"):
        LAYERS["gaan"].make(8, 16, 2, temperature=0)
