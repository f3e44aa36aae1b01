import inspect
import re
from pathlib import Path

import pandas as pd
import pytest
from torch_geometric.nn.conv import MessagePassing

import molattn
from molattn import nn as layers
from molattn.errors import InputError
from molattn.nn.registry import LAYERS

README = Path(__file__).parents[2] / "README.md"


def test_readme_holds_the_layer_table(layer_table):
    text = README.read_text(encoding="utf-8")
    (held,) = re.findall(r"<!-- layers:.*?-->\n(.*?)\n<!-- /layers -->", text, re.DOTALL)
    assert held == layer_table


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
