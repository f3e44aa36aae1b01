"""Every attention layer by its name, and the check of a network's options."""

import inspect
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

import yaml
from torch import Tensor, nn

from molattn.config import LAYER_ARGUMENTS, NetworkConfig
from molattn.config.base import check_unused
from molattn.errors import InputError, check_one_of, quoted
from molattn.graph.complete import CompleteGraphs
from molattn.nn.attention_bias import DistanceSlopes, PathBias
from molattn.nn.attention_heads import COMBINES
from molattn.nn.conv.edge_attention import EdgeAttentionConv
from molattn.nn.conv.egt import EGTConv
from molattn.nn.conv.gaan import GaANConv
from molattn.nn.conv.graph_network import GraphNetwork
from molattn.nn.conv.grit import GRITConv
from molattn.nn.conv.mat import MATConv
from molattn.nn.functional import SCORES
from molattn.nn.graph_inputs import EdgeAttr, edge_features
from molattn.nn.prediction_head import PREDICTION_HEADS
from molattn.nn.readout import readout_makers
from molattn.nn.resettable import Resettable
from molattn.utils.registry import Registry


@dataclass(frozen=True)
class Layer:
    """An attention layer and what it supports.

    A layer is made as ``conv(in_channels, out_channels, heads, edge_dim=..., ...)`` and called as
    ``layer(x, edge_index, edge_attr)``, one that reads graph features with ``u=u, batch=batch``. It
    returns nodes ``[N, out_channels]``, or a tuple that begins with them, followed by edges where
    ``update_edges`` is on. With ``return_attention_weights=True``, as explanations call it, the
    tuple's last item is ``(edge_index, alpha)``.

    Args:
        conv: The class. The names in its signature (and in its ``attention_options``) are the
            options that it supports: ``update_edges``, ``global_dim`` (it reads ``u``),
            ``update_global``, ``gate``, ``score``, ``dropout`` and so on.
        summary: A description in one line.
        source: The publication.
        edge_columns: Names of the edge features, for a layer that reads fixed quantities; empty =
            ``conv`` has the argument ``edge_dim``, and edge features are arbitrary or None.
        always: Arguments of ``conv`` that networks leave at their defaults.
        splits_width: Whether ``heads`` must divide ``out_channels``, whatever ``combine`` is.
        normalized: Whether the weights of a receiver's edges sum to 1.
        bipartite: Whether senders and receivers may be two sets of nodes.
        complete_graphs: Whether it takes :class:`~molattn.graph.CompleteGraphs` in place of
            ``edge_index``. If False, :meth:`make` wraps it in a module that calls it with the list
            of their edges, which is slower.
        reads_degree: Whether it is also called with ``degree``, the number of bonds of each node.
    """

    conv: type[nn.Module]
    summary: str = ""
    source: str = ""
    edge_columns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    splits_width: bool = False
    normalized: bool = True
    bipartite: bool = True
    complete_graphs: bool = True
    reads_degree: bool = False

    def has(self, option: str) -> bool:
        """Whether the class takes an option of this name."""
        inside = getattr(self.conv, "attention_options", ())
        return option in inside or option in inspect.signature(self.conv).parameters

    def make(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        max_distance: int = 10,
        **options: Any,
    ) -> nn.Module:
        """Make the layer. An option has the same meaning for all layers that have it.

        Args:
            in_channels: Number of node features, or a pair (senders, receivers); -1 = inferred in
                the first call.
            out_channels: Number of output channels.
            heads: Number of heads.
            edge_dim: Number of edge features; None = no edge features.
            max_distance: Longest distance that slopes tell from longer ones.
            options: Keyword arguments of the class, or of another if they are off (None or False).
                ``attn_bias`` may be ``linear``, a learned linear map of the edge features, or
                ``slopes``, :class:`~molattn.nn.DistanceSlopes` of the last edge feature.
        """
        options = {name: value for name, value in options.items() if value or self.has(name)}
        if options.get("attn_bias") == "linear":
            options["attn_bias"] = PathBias(heads, edge_dim or 0)
        elif options.get("attn_bias") == "slopes":
            options["attn_bias"] = DistanceSlopes(heads, max_distance)
        if not self.edge_columns:
            options["edge_dim"] = edge_dim
        elif edge_dim != len(self.edge_columns):
            raise ValueError(
                f"edge_dim: got {edge_dim}, expected {len(self.edge_columns)}: "
                f"{self.conv.__name__} reads {', '.join(self.edge_columns)}"
            )
        conv = self.conv(in_channels, out_channels, heads, **options)
        return conv if self.complete_graphs else _OnEdgeList(conv)


class _OnEdgeList(Resettable):
    """Makes a layer that reads ``edge_index`` accept complete graphs too."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, graph: Any, edge_attr: EdgeAttr = None, **options: Any) -> Any:
        """Call the layer; for complete graphs, inputs and outputs are rows."""
        if not isinstance(graph, CompleteGraphs):
            return self.conv(x, graph, edge_attr, **options)
        pairs = edge_features(edge_attr)
        listed = None if pairs is None else graph.pairs_to_edges(pairs)
        if "degree" in options:
            options["degree"] = graph.rows_to_nodes(options["degree"])
        if options.get("bias_attr") is not None:
            options["bias_attr"] = graph.pairs_to_edges(edge_features(options["bias_attr"]))
        out = self.conv(graph.rows_to_nodes(x), graph.edge_index, listed, **options)
        if isinstance(out, Tensor):
            return graph.nodes_to_rows(out)
        nodes, *of_edges = out  # updated edges, and weights with their graph
        return graph.nodes_to_rows(nodes), *(
            (graph, graph.edges_to_pairs(edge_output[1]))
            if isinstance(edge_output, tuple)
            else graph.edges_to_pairs(edge_output)
            for edge_output in of_edges
        )


LAYERS: Registry[Layer] = Registry("layer")
"""Every attention layer by its name."""


def is_attention_layer(module: nn.Module) -> bool:
    """Return whether a module is a registered layer, which returns its weights if asked to."""
    return isinstance(module, (_OnEdgeList, *(layer.conv for layer in LAYERS.values())))


LAYERS |= {
    "edge_attention": Layer(
        EdgeAttentionConv,
        "Multi-head attention with edges in key and value",
        "Battaglia et al. 2018; Vaswani et al. 2017",
    ),
    "gaan": Layer(
        GaANConv, "A gate for each head", "Zhang et al. 2018", always=("gate",), splits_width=True
    ),
    "mat": Layer(
        MATConv,
        "Attention mixed with distances and bonds",
        "Maziarka et al. 2020",
        edge_columns=("distance", "bond"),
        splits_width=True,
        normalized=False,
    ),
    "graph_network": Layer(
        GraphNetwork, "Full block: edges, then nodes, then the graph", "Battaglia et al. 2018"
    ),
    "egt": Layer(
        EGTConv,
        "Logits and gates from edges, which the logits update",
        "Hussain et al. 2022",
        splits_width=True,
        normalized=False,
    ),
    "grit": Layer(
        GRITConv,
        "Logits, values and edges from a state of each pair",
        "Ma et al. 2023",
        splits_width=True,
        reads_degree=True,
    ),
}


def check_network(network: NetworkConfig) -> None:
    """Check that all names are registered, and that the layer has all options that are set."""
    check_one_of("layer", network.layer, LAYERS)
    if network.graphs != NetworkConfig.graphs and (
        "auto" in network.graphs or not 1 <= len(network.graphs) <= max(1, network.layers)
    ):
        message = f"got {' '.join(network.graphs)}, expected auto, or bonds and pairs, at least "
        message += f"one and at most as many as --layers ({network.layers})"
        raise InputError(message, option="graphs")
    reason = f"cannot be used with --layer {network.layer}"
    check_unused(network, (True, " ".join(unused_options(network)), reason))
    check_one_of("score", network.score, SCORES)
    check_one_of("combine", network.combine, COMBINES)
    check_one_of("head", network.head, ("auto", *PREDICTION_HEADS))
    readout_makers(network.readout)
    if network.layer_options not in ((), NetworkConfig.layer_options):
        _check_layer_options(network)


_SET_BY_NETWORKS = ("in_channels", "out_channels", "heads", "edge_dim", "root_weight", "flow")


def _check_layer_options(network: NetworkConfig) -> None:
    """Check arguments of the layer's class by making one."""
    layer = LAYERS[network.layer]
    parameters = inspect.signature(layer.conv).parameters
    try:
        options = layer_options(network)
        for text in network.layer_options:
            name, equals, _ = text.partition("=")
            if name in _SET_BY_NETWORKS:
                raise ValueError(f"got {quoted(text)}, expected no {name}: networks set it")
            default = parameters[name].default if name in parameters else None
            if not equals or (
                isinstance(default, (bool, float)) and not isinstance(options[name], (int, float))
            ):
                raise ValueError(f"got {quoted(text)}, expected NAME=VALUE, such as clip=3")
        edges = len(layer.edge_columns) or network.edge_width
        sizes = network.width, network.width, network.heads
        layer.make(*sizes, edge_dim=edges, root_weight=False, **options)
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(" ".join(str(error).split()), option="layer_options") from None


def check_head_width(network: NetworkConfig) -> None:
    """Raise InputError where the width must be divisible by the heads, and is not."""
    splits = LAYERS[network.layer].splits_width
    if "combine" not in unused_options(network):
        splits |= getattr(COMBINES[network.combine], "splits_width", False)
    if splits and network.width % network.heads:
        message = f"got {network.heads}, expected a divisor of --width ({network.width})"
        raise InputError(message, option="heads")


def unused_options(network: NetworkConfig) -> tuple[str, ...]:
    """Return the options that the network's layer does not have."""
    layer = LAYERS[network.layer]
    arguments = LAYER_ARGUMENTS.items()
    return tuple(
        name for name, argument in arguments if not layer.has(argument) or argument in layer.always
    )


def network_graphs(network: NetworkConfig) -> tuple[str, ...]:
    """Return the names of the graphs that the blocks read in turn, ``bonds`` and ``pairs``."""
    if "auto" not in network.graphs:
        return network.graphs
    # Edges of pairs that every block updates tell more of bonds (docs/atoms.md).
    has_turns = network.layers > 1 and not network.update_edges
    is_default = network.layer == NetworkConfig.layer
    return ("bonds", "pairs") if is_default and has_turns else ("pairs",)


def resolved(network: NetworkConfig) -> NetworkConfig:
    """Return a network with the graphs and the norm for which ``auto`` stands."""
    graphs = network_graphs(network)
    norm = network.norm
    if norm == "auto":
        norm = "batch" if len(graphs) > 1 else "layer"
    return replace(network, graphs=graphs, norm=norm)


def layer_options(network: NetworkConfig) -> dict[str, Any]:
    """Return the keyword arguments of the layer that are not at a network's defaults.

    ``edge_dim`` is not among them: it is the width of what the network makes of atom pairs.
    """
    pairs = (text.partition("=") for text in network.layer_options)
    more = {name: yaml.safe_load(value) for name, _, value in pairs}
    if more.get("attn_bias") == "auto":
        more["attn_bias"] = "slopes" if network.layer == NetworkConfig.layer else None
    return {
        argument: getattr(network, name)
        for name, argument in LAYER_ARGUMENTS.items()
        if argument != "edge_dim" and getattr(network, name) != getattr(NetworkConfig, name)
    } | more
