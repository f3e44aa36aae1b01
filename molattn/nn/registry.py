"""Every attention layer by its name, and the check of a network's options."""

import inspect
from dataclasses import dataclass
from typing import Any, Optional, Union

from torch import Tensor, nn

from molattn.config import NetworkConfig, layer_arguments
from molattn.config.base import check_unused
from molattn.errors import InputError, check_one_of
from molattn.graph.complete import CompleteGraphs
from molattn.nn.attention_heads import COMBINES
from molattn.nn.edge_attention import EdgeAttentionConv
from molattn.nn.functional import SCORES
from molattn.nn.gaan import GaANConv
from molattn.nn.graph_inputs import Edges
from molattn.nn.graph_network import GraphNetwork
from molattn.nn.mat import MATConv
from molattn.nn.prediction_head import HEADS
from molattn.nn.readout import check_readout
from molattn.utils.registry import Registry


@dataclass(frozen=True)
class Layer:
    """An attention layer and what it supports.

    A layer is made as ``conv(in_channels, out_channels, heads, edge_dim=..., ...)`` and called as
    ``layer(x, edge_index, edge_attr)``, one that reads graph features as
    ``layer(x, edge_index, edge_attr, u=u, batch=batch)``. It returns nodes ``[N, out_channels]``,
    or a tuple that begins with them, followed by edges where ``update_edges`` is on. With
    ``return_attention_weights=True``, as explanations call it, the tuple's last item is
    ``(edge_index, alpha)``.

    Args:
        conv: The class. The names in its signature are the options that it supports:
            ``update_edges``, ``global_dim`` (it reads ``u``), ``update_global``, ``gate``,
            ``score``, ``dropout`` and so on.
        summary: A description in one line.
        source: The publication.
        edge_columns: Names of the edge features, for a layer that reads fixed quantities; empty =
            ``conv`` has the argument ``edge_dim``, and edge features are arbitrary or None.
        always: Arguments of ``conv`` that networks leave at their defaults.
        normalized: Whether the weights of a receiver's edges sum to 1.
        bipartite: Whether senders and receivers may be two sets of nodes.
        complete_graphs: Whether it takes :class:`~molattn.graph.CompleteGraphs` in place of
            ``edge_index``, with edge features as a tensor or as
            :class:`~molattn.graph.CodedEdges`. If False, :meth:`make` wraps it in a module that
            calls it with the list of their edges, which is slower.

    Example:
        >>> from torch_geometric.nn import TransformerConv
        >>> class Transformer(TransformerConv):
        ...     def __init__(self, in_channels, out_channels, heads, *, edge_dim=None, dropout=0.0):
        ...         options = {"edge_dim": edge_dim, "dropout": dropout, "concat": False}
        ...         super().__init__(in_channels, out_channels, heads, **options)
        >>> layer = Layer(Transformer, complete_graphs=False)
        >>> LAYERS.register("transformer")(layer)  # doctest: +SKIP
    """

    conv: type[nn.Module]
    summary: str = ""
    source: str = ""
    edge_columns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    normalized: bool = True
    bipartite: bool = True
    complete_graphs: bool = True

    def has(self, option: str) -> bool:
        """Whether the class takes an option of this name."""
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
        """Make the layer. An option has the same meaning for all layers that have it.

        Args:
            in_channels: Number of node features, or a pair (senders, receivers); -1 = inferred in
                the first call.
            out_channels: Number of output channels.
            heads: Number of heads.
            edge_dim: Number of edge features; None = no edge features.
            options: Keyword arguments of the class. An option of another layer may be given if it
                is off (None or False) or the default there.

        Raises:
            ValueError: An option that the layer does not support.
        """
        for name in [name for name in options if not self.has(name)]:
            able = [other.conv for other in LAYERS.values() if other.has(name)]
            if not able:  # leave the error to the class
                continue
            value = options.pop(name)
            default = inspect.signature(able[0]).parameters[name].default
            if not (value is None or value is False or value == default):
                raise ValueError(
                    f"{name}={value!r} cannot be used with {self.conv.__name__}, only with "
                    f"{', '.join(conv.__name__ for conv in able)}"
                )
        if not self.edge_columns:
            options["edge_dim"] = edge_dim
        elif edge_dim != len(self.edge_columns):
            raise ValueError(
                f"edge_dim: got {edge_dim}, expected {len(self.edge_columns)}: "
                f"{self.conv.__name__} reads {', '.join(self.edge_columns)}"
            )
        conv = self.conv(in_channels, out_channels, heads, **options)
        if self.complete_graphs:
            return conv
        return _OnEdgeList(conv, updates_edges=bool(options.get("update_edges")))


class _OnEdgeList(nn.Module):
    """Makes a layer that reads ``edge_index`` accept complete graphs too."""

    def __init__(self, conv: nn.Module, *, updates_edges: bool) -> None:
        super().__init__()
        self.conv = conv
        self.updates_edges = updates_edges

    def forward(self, x: Tensor, graph: Any, edge_attr: Any = None, **options: Any) -> Any:
        """Call the layer; for complete graphs, inputs and outputs are rows."""
        if not isinstance(graph, CompleteGraphs):
            return self.conv(x, graph, edge_attr, **options)
        edges = Edges(graph, edge_attr).listed()
        out = self.conv(graph.rows_to_nodes(x), edges.index, edges.attr, **options)
        if not isinstance(out, tuple):
            return graph.nodes_to_rows(out)
        nodes, *others = out
        if options.get("return_attention_weights"):
            others[-1] = (graph, graph.edges_to_pairs(others[-1][1]))
        if self.updates_edges:
            others[0] = graph.edges_to_pairs(others[0])
        return graph.nodes_to_rows(nodes), *others


LAYERS: Registry[Layer] = Registry("layer")
"""Every attention layer by its name."""


def is_attention_layer(module: nn.Module) -> bool:
    """Return whether a module is a registered layer, which returns its weights if asked to."""
    return isinstance(module, (_OnEdgeList, *(layer.conv for layer in LAYERS.values())))


LAYERS.register("edge_attention")(
    Layer(
        EdgeAttentionConv,
        summary="Multi-head attention with edges in key and value",
        source="Battaglia et al. 2018; Vaswani et al. 2017",
    )
)
LAYERS.register("gaan")(
    Layer(
        GaANConv,
        summary="A gate for each head",
        source="Zhang et al. 2018",
        always=("gate",),
    )
)
LAYERS.register("mat")(
    Layer(
        MATConv,
        summary="Attention mixed with distances and bonds",
        source="Maziarka et al. 2020",
        edge_columns=("distance", "bond"),
        normalized=False,
    )
)
LAYERS.register("graph_network")(
    Layer(
        GraphNetwork,
        summary="Full block: edges, then nodes, then the graph",
        source="Battaglia et al. 2018",
    )
)


def check_network(network: NetworkConfig) -> None:
    """Check that all names are registered, and that the layer has all options that are set.

    Raises:
        InputError: Names the option.
    """
    check_one_of("layer", network.layer, LAYERS)
    reason = f"cannot be used with --layer {network.layer}"
    check_unused(network, (True, " ".join(unused_options(network)), reason))
    check_one_of("score", network.score, SCORES)
    check_one_of("combine", network.combine, COMBINES)
    check_one_of("head", network.head, ("auto", *HEADS))
    check_readout(network.readout)


def check_heads(network: NetworkConfig) -> None:
    """Check that the number of heads divides the width, where the heads share it.

    Raises:
        InputError: It does not.
    """
    shares = getattr(COMBINES[network.combine], "splits_width", False)
    if "combine" not in unused_options(network) and shares and network.width % network.heads:
        message = f"got {network.heads}, expected a divisor of --width ({network.width})"
        raise InputError(message, option="heads")


def unused_options(network: NetworkConfig) -> tuple[str, ...]:
    """Return the options that the network's layer does not have."""
    layer = LAYERS[network.layer]
    return tuple(
        name
        for name, argument in layer_arguments().items()
        if not layer.has(argument) or argument in layer.always
    )


def layer_options(network: NetworkConfig) -> dict[str, Any]:
    """Return the keyword arguments of the layer that are not at a network's defaults.

    ``edge_dim`` is not among them: it is the width of what the network makes of atom pairs.
    """
    values = {name: getattr(network, name) for name in layer_arguments()}
    return {
        argument: values[name]
        for name, argument in layer_arguments().items()
        if argument != "edge_dim" and values[name] != getattr(NetworkConfig, name)
    }


def layer_table() -> str:
    """All layers and what they support, as a Markdown table."""
    columns = {
        "`name`": lambda name, _: f"`{name}`",
        "Layer": lambda _, layer: f"`{layer.conv.__name__}`",
        "What it is": lambda _, layer: layer.summary,
        "Source": lambda _, layer: layer.source,
        "Edge features": lambda _, layer: ", ".join(layer.edge_columns) or "any",
        "Updates edges": lambda _, layer: _tick(layer.has("update_edges")),
        "Graph features": lambda _, layer: _tick(layer.has("global_dim")),
        "Updates graph": lambda _, layer: _tick(layer.has("update_global")),
        "Gates": lambda _, layer: _tick(layer.has("gate")),
        "Weights sum to 1": lambda _, layer: _tick(layer.normalized),
        "Bipartite": lambda _, layer: _tick(layer.bipartite),
        "`CompleteGraphs`": lambda _, layer: _tick(layer.complete_graphs),
    }
    rows = [list(columns), ["---"] * len(columns)]
    rows += [[cell(name, layer) for cell in columns.values()] for name, layer in LAYERS.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _tick(supported: bool) -> str:
    return "yes" if supported else "-"
