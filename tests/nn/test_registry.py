import inspect
import re
from pathlib import Path

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
