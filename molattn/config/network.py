"""Options of the network."""

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Interval

from molattn.config.base import BelowOne, Fraction, Width, check_unused, checked

Pairs = Literal["all", "bonds"]
_OWN = {"from_pretrained": False}  # a run does not take it over from a pretrained model
LAYER_ARGUMENTS = {
    **{name: name for name in ("score", "combine", "gate", "edge_value", "update_edges")},
    **{"edge_width": "edge_dim", "attention_dropout": "dropout"},
}
"""Options that go to the attention layer, if it has them, each with the argument that it sets."""


@checked
class NetworkConfig:
    """The network.

    Layers, scores, combinations of heads, prediction heads and readouts are named in registries of
    :mod:`molattn.nn`, to which you can add your own; those of molattn are below.

    Args:
        width: Hidden size of atoms.
        heads: Number of attention heads; must divide the width with --combine linear or concat.
            Another value starts from random weights, unless --init-from has it.
        layers: Number of attention blocks.
        edge_width: Hidden size of atom pairs.
        layer: Attention layer: edge_attention, gaan, mat, graph_network, egt, grit.
        pairs: Which atom pairs attend to each other.
        radius: Let an atom attend only to atoms at most this many bonds away, in linear memory.
        distances: Use the topological distance between atoms that are not bonded.
        score: Attention score: dot, scaled_dot, general, additive, gatv2.
        combine: How to combine the outputs of the heads: linear, concat, mean, max, weighted.
        gate: Gate each attention head (GaAN).
        edge_value: Add pair features to the values as well as the keys.
        update_edges: Update pair features in each block but the last.
        self_loops: Let an atom attend to itself.
        dropout: Dropout rate in the attention blocks.
        head: Prediction head: mlp, fourier, both, or auto (fourier for classes alone, else both).
        head_dropout: Dropout rate in the prediction head.
        attention_dropout: Dropout rate of the attention weights.
        readout: Readout: one or more pooling functions, joined by +: mean, sum, max, min, std,
            median, softmax, variance_preserving, attentional, deep_sets, set2set, set_transformer.
        partner: How to combine a second molecule with the first.
    """

    width: Width = 128
    heads: Width = 8
    layers: Annotated[int, Interval(ge=0, le=1000)] = 4
    edge_width: Width = 16
    layer: str = "edge_attention"
    pairs: Pairs = "all"
    radius: Width | None = field(default=None, metadata=_OWN)
    distances: bool = True
    score: str = "scaled_dot"
    combine: str = "linear"
    gate: bool = False
    edge_value: bool = True
    update_edges: bool = False
    self_loops: bool = True
    dropout: Fraction = field(default=0.1, metadata=_OWN)
    head: str = field(default="auto", metadata=_OWN)
    head_dropout: Fraction = field(default=0.5, metadata=_OWN)
    attention_dropout: BelowOne = field(default=0.0, metadata=_OWN)
    readout: str = "attentional+variance_preserving"
    partner: Literal["concat", "cross_attention"] = field(default="concat", metadata=_OWN)

    def __post_init__(self) -> None:
        check_unused(self, (self.pairs == "bonds", "radius", "cannot be used with --pairs bonds"))
