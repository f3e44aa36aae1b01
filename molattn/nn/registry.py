"""Every attention layer, what it supports, and one way to make any of them by name."""

import inspect
from dataclasses import dataclass
from typing import Any, Optional, Union

from torch import nn

from molattn.errors import check_one_of
from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.gaan import GaANConv
from molattn.nn.graph_network import GraphNetwork
from molattn.nn.mat import MATConv

__all__ = ["LAYERS", "Layer", "find_layer", "table"]


@dataclass(frozen=True)
class Layer:
    """An attention layer and what it supports.

    All layers are called as ``layer(x, edge_index, edge_attr)``, those that read graph features
    as ``layer(x, edge_index, edge_attr, u, batch)``, and return updated nodes, or a tuple that
    begins with them.

    Args:
        conv: The class.
        summary: What it is, in one line.
        source: Where it was published.
        edge_columns: Names of the columns that edge features must have, for a layer that reads
            fixed quantities; empty = edge features are optional and may be anything.
        edge_updates: Whether it has ``update_edges``.
        graph_features: Whether it has ``global_dim`` and reads ``u``.
        graph_updates: Whether it has ``update_global``.
        gates: Whether it has ``gate``.
        normalised: Whether the weights of a receiver's edges sum to 1.
        bipartite: Whether senders and receivers may be two sets of nodes.
        complete_graphs: Whether it takes ``CompleteGraphs`` in place of ``edge_index``.
    """

    conv: type[nn.Module]
    summary: str
    source: str
    edge_columns: tuple[str, ...] = ()
    edge_updates: bool = False
    graph_features: bool = False
    graph_updates: bool = False
    gates: bool = False
    normalised: bool = True
    bipartite: bool = True
    complete_graphs: bool = True

    def has(self, option: str) -> bool:
        """Whether :meth:`make` takes an option of this name."""
        return option in inspect.signature(self.conv).parameters

    def make(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        **options: Any,
    ) -> nn.Module:
        """Make the layer; options mean the same for every layer that has them.

        Args:
            in_channels: Width of nodes, or a pair (senders, receivers); -1 = on first use.
            out_channels: Width of what comes out.
            heads: Number of heads.
            edge_dim: Width of edge features; None = there are none.
            options: Keyword arguments of the class. A switch that is off (None or False) may be
                named for a layer that does not have it.

        Raises:
            ValueError: An option that the layer does not support.
        """
        for option in [name for name in options if not self.has(name)]:
            able = [other.conv.__name__ for other in LAYERS.values() if other.has(option)]
            if not able:  # as the class says itself
                continue
            value = options.pop(option)
            if value is not None and value is not False:
                raise ValueError(
                    f"{option}: got {value!r} for {self.conv.__name__}, which has no such option; "
                    f"expected one of {', '.join(able)}"
                )
        if not self.edge_columns:
            options["edge_dim"] = edge_dim
        elif edge_dim != len(self.edge_columns):
            raise ValueError(
                f"edge_dim: got {edge_dim}, expected {len(self.edge_columns)}: "
                f"{self.conv.__name__} reads {', '.join(self.edge_columns)}"
            )
        return self.conv(in_channels, out_channels, heads, **options)


LAYERS: dict[str, Layer] = {
    "edge_attention": Layer(
        EdgeAttentionConv,
        summary="Multi-head attention with edges in key and value",
        source="Battaglia et al. 2018; Vaswani et al. 2017",
        edge_updates=True,
        graph_features=True,
        gates=True,
    ),
    "gaan": Layer(
        GaANConv,
        summary="A gate for each head",
        source="Zhang et al. 2018",
        gates=True,
    ),
    "mat": Layer(
        MATConv,
        summary="Attention mixed with distances and bonds",
        source="Maziarka et al. 2020",
        edge_columns=("distance", "bond"),
        normalised=False,
    ),
    "graph_network": Layer(
        GraphNetwork,
        summary="Full block: edges, then nodes, then the graph",
        source="Battaglia et al. 2018",
        edge_updates=True,
        graph_features=True,
        graph_updates=True,
        gates=True,
    ),
}


def find_layer(name: str) -> Layer:
    """Return the layer of that name.

    Raises:
        InputError: There is none.
    """
    check_one_of("layer", name, LAYERS)
    return LAYERS[name]


def table() -> str:
    """All layers and what they support, as a Markdown table."""
    columns = {
        "`name`": lambda name, _: f"`{name}`",
        "Layer": lambda _, layer: f"`{layer.conv.__name__}`",
        "What it is": lambda _, layer: layer.summary,
        "Source": lambda _, layer: layer.source,
        "Edge features": lambda _, layer: ", ".join(layer.edge_columns) or "any",
        "Updates edges": lambda _, layer: _tick(layer.edge_updates),
        "Graph features": lambda _, layer: _tick(layer.graph_features),
        "Updates graph": lambda _, layer: _tick(layer.graph_updates),
        "Gates": lambda _, layer: _tick(layer.gates),
        "Weights sum to 1": lambda _, layer: _tick(layer.normalised),
        "Bipartite": lambda _, layer: _tick(layer.bipartite),
        "`CompleteGraphs`": lambda _, layer: _tick(layer.complete_graphs),
    }
    rows = [list(columns), ["---"] * len(columns)]
    rows += [[cell(name, layer) for cell in columns.values()] for name, layer in LAYERS.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _tick(supported: bool) -> str:
    return "yes" if supported else "-"
