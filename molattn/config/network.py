"""Options of the network."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from molattn.config.validation import check, check_choice, option
from molattn.errors import InputError, quoted

__all__ = ["NetworkConfig"]

LayerName = Literal["edge_attention", "gaan", "mat", "graph_network"]

Score = Literal["dot", "scaled_dot", "general", "additive", "gatv2"]
Combine = Literal["linear", "concat", "mean", "max", "weighted"]
Pairs = Literal["all", "bonds"]
Partner = Literal["concat", "cross_attention"]
Head = Literal["auto", "mlp", "fourier", "both"]

_LAYER_OPTIONS = ("score", "combine", "gate", "edge_value", "update_edges")
# What a layer has not, or has without being asked: GaAN's heads always have their gates.
_WITHOUT = {
    "gaan": ("score", "combine", "gate", "update_edges"),
    "mat": ("edge_width", *_LAYER_OPTIONS),
}


# Declared for options that a run does not take over from a pretrained model.
_OWN = {"from_pretrained": False}


@dataclass(frozen=True)
class NetworkConfig:
    """The network.

    The head is by default one of Fourier features where all targets are classes, and that and an
    MLP, added, where any is a number.

    Args:
        width: Channels of an atom.
        heads: Attention heads; must divide the width.
        layers: Attention blocks.
        edge_width: Channels of an atom pair.
        layer: The attention layer.
        pairs: Which atoms see each other.
        distances: Read distances of unbonded pairs.
        score: How a receiver rates a sender.
        combine: How heads come back together.
        gate: Give each head a gate (GaAN).
        edge_value: Put pairs into values too.
        update_edges: Let blocks update the atom pairs too.
        self_loops: Let an atom attend to itself.
        dropout: Dropout in blocks.
        head: auto goes by targets.
        head_dropout: Dropout in the head.
        attention_dropout: Dropout of attention weights.
        readout: Pools of atoms, joined by +: mean, sum, max, min, std, median, softmax,
            variance_preserving, attentional, deep_sets, set2set, set_transformer.
        partner: Joins a second molecule.
    """

    width: int = 128
    heads: int = 8
    layers: int = 4
    edge_width: int = 16
    layer: LayerName = "edge_attention"
    pairs: Pairs = "all"
    distances: bool = True
    score: Score = "scaled_dot"
    combine: Combine = "linear"
    gate: bool = False
    edge_value: bool = True
    update_edges: bool = False
    self_loops: bool = True
    dropout: float = field(default=0.1, metadata=_OWN)
    head: Head = field(default="auto", metadata=_OWN)
    head_dropout: float = field(default=0.5, metadata=_OWN)
    attention_dropout: float = field(default=0.0, metadata=_OWN)
    readout: str = "attentional+variance_preserving"
    partner: Partner = field(default="concat", metadata=_OWN)

    def __post_init__(self) -> None:
        for name, choices in (
            ("layer", LayerName),
            ("pairs", Pairs),
            ("partner", Partner),
            ("head", Head),
        ):
            check_choice(self, name, get_args(choices))
        for name in ("dropout", "head_dropout", "attention_dropout"):
            check(self, name, lambda part: 0.0 <= part <= 1.0, "a number from 0 to 1")
        for name in self.unused:
            value, default = getattr(self, name), _default(name)
            if value != default:
                raise InputError(
                    f"{option(name)}: got {quoted(value)}, which --layer {self.layer} does not "
                    f"take; expected the default, {quoted(default)}"
                )

    @property
    def unused(self) -> tuple[str, ...]:
        """Options that the layer does not take."""
        return _WITHOUT.get(self.layer, ())

    @property
    def layer_options(self) -> dict[str, Any]:
        """Options of the layer itself that are not at their default."""
        values = {name: getattr(self, name) for name in _LAYER_OPTIONS}
        return {name: value for name, value in values.items() if value != _default(name)}


def _default(name: str) -> Any:
    return next(known.default for known in fields(NetworkConfig) if known.name == name)
