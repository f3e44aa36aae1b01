import inspect
import re
from pathlib import Path

import pytest
from torch_geometric.nn.conv import MessagePassing

from molattn import nn as layers
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


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_layer_is_said_to_support_is_what_its_signature_has(name):
    layer = LAYERS[name]
    has = inspect.signature(layer.conv).parameters.keys()
    reads = inspect.signature(layer.conv.forward).parameters
    for option in ("update_edges", "update_global", "gate"):
        assert (option in has) == layer.has(option)
    assert ("global_dim" in has) == ("u" in reads) == layer.has("global_dim")
    assert ("edge_dim" in has) == (not layer.edge_columns)
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
