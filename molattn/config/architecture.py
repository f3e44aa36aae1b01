"""Options of the network."""

from dataclasses import dataclass
from typing import Literal, get_args

from molattn.config.checks import check_choice

__all__ = ["ArchitectureConfig"]

Score = Literal["dot", "scaled_dot", "general", "additive", "gatv2"]
Combine = Literal["linear", "concat", "mean", "max", "weighted"]

Partner = Literal["concat", "cross_attention"]


@dataclass(frozen=True)
class ArchitectureConfig:
    """The network.

    Args:
        width: Channels of an atom.
        heads: Attention heads; must divide the width.
        layers: Attention blocks.
        edge_width: Channels of an atom pair.
        score: How a receiver rates a sender.
        combine: How heads come back together.
        gate: Give each head a gate (GaAN).
        update_edges: Let blocks update the atom pairs too.
        self_loops: Let an atom attend to itself.
        dropout: Dropout in blocks and head.
        attention_dropout: Dropout of attention weights.
        readout: How atoms become a molecule: mean, sum, max, min, std, median, softmax,
            variance_preserving, attentional, deep_sets, set2set or set_transformer; a + joins some.
        partner: How a second molecule joins the first.
    """

    width: int = 128
    heads: int = 8
    layers: int = 4
    edge_width: int = 16
    score: Score = "scaled_dot"
    combine: Combine = "linear"
    gate: bool = False
    update_edges: bool = False
    self_loops: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    readout: str = "attentional+variance_preserving"
    partner: Partner = "concat"

    def __post_init__(self) -> None:
        check_choice(self, "partner", get_args(Partner))
