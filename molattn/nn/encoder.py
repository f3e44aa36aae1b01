"""Residual blocks around attention layers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from torch import Tensor, nn
from torch_geometric.nn.resolver import activation_resolver
from torch_geometric.typing import OptTensor

from molattn.nn.dense.linear import Linear
from molattn.nn.graph_inputs import EdgeAttr, Nodes, as_rows, like_input, one_set
from molattn.nn.normalization import make_norm, normalize_rows
from molattn.nn.resettable import Resettable
from molattn.nn.source_dropout import attend_without_sources

Makers = Union[Callable[[], nn.Module], Mapping[str, Callable[[], nn.Module]]]


class AttentionBlock(Resettable):
    r"""Attention and a feed-forward network, with normalization and residual connections.

    .. math::
        h &= x + \mathrm{attention}(\mathrm{LN}(x), e) \\
        y &= h + \mathrm{FF}(\mathrm{LN}(h))

    (pre-norm, Xiong et al. 2020). Edges that the layer updates are returned too.

    Norms of whole graphs, such as ``graph``, and ``source_dropout`` need the ``batch`` of a list of
    edges, which the layer gets, too.

    Args:
        conv: The layer, a function of ``(x, edge_index, edge_attr)`` that returns ``x'`` or
            ``(x', e')``.
        channels: Number of node features.
        expansion: Hidden width of the feed-forward network, as a multiple of ``channels``.
        dropout: Dropout probability of the output of attention and of the feed-forward network.
        norm: LN: ``layer``; ``batch``, whose statistics are of real nodes alone; another one of
            PyG's, such as ``graph`` or ``instance``; None = no normalization.
        act: Activation of the feed-forward network, by its name in torch.
        source_dropout: Probability with which a sender is dropped from attention in training: all
            receivers and heads of its molecule do without it (Hussain et al. 2024, "Triplet
            Interaction Improves Graph Transformers"). At least one remains; edges that the layer
            updates stay as they are where the sender is dropped, which the authors update.
    """

    def __init__(
        self,
        conv: nn.Module,
        channels: int,
        *,
        expansion: int = 2,
        dropout: float = 0.0,
        norm: Optional[str] = "layer",
        act: str = "silu",
        source_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= source_dropout < 1:
            raise ValueError(f"source_dropout: got {source_dropout}, expected one in [0, 1)")
        self.conv = conv
        self.source_dropout = source_dropout
        self.norm_conv = make_norm(norm, channels)
        self.norm_ff = make_norm(norm, channels)
        maps = (Linear(channels, expansion * channels), Linear(expansion * channels, channels))
        self.ff = nn.Sequential(maps[0], activation_resolver(act), maps[1])
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Nodes, edge_index: Any, edge_attr: Optional[Tensor] = None, **options: Any
    ) -> tuple[Tensor, Optional[Tensor]]:
        """Update nodes ``[N, channels]``, and edges where the layer does; it gets the options."""
        nodes = as_rows(one_set(x), edge_index)
        graph = (edge_index, options.get("batch"))
        node = normalize_rows(self.norm_conv, nodes, *graph)
        update = self.attend(node, edge_index, edge_attr, graph[1], **options)
        if isinstance(update, tuple):
            update, edge_attr = update
        nodes = nodes + self.dropout(update)
        node = normalize_rows(self.norm_ff, nodes, *graph)
        return like_input(nodes + self.dropout(self.ff(node)), x, edge_index), edge_attr

    def attend(
        self, x: Tensor, edge_index: Any, edge_attr: EdgeAttr, batch: OptTensor, /, **options: Any
    ) -> Any:
        """Call the layer, in training without some of the senders."""
        if not (self.training and self.source_dropout):
            return self.conv(x, edge_index, edge_attr, **options)
        inputs = (x, edge_index, edge_attr)
        return attend_without_sources(self.conv, self.source_dropout, inputs, batch, options)


class Encoder(Resettable):
    """A stack of :class:`AttentionBlock`, followed by a normalization.

    Blocks may read different graphs of the same nodes, such as bonds and all pairs of atoms, in
    turn. Graphs have names, and the encoder is called with a dictionary of graphs and another one
    of edge features. Lists of edges may be mixed with :class:`~molattn.graph.CompleteGraphs` if the
    nodes are in PyG's form; nodes in rows are read by layouts alone, such as ``with_edges`` makes.

    Args:
        make_conv: Returns the layer of a block, with ``channels`` inputs and outputs, or a whole
            block, such as :class:`GraphTransformerBlock`; or a dictionary with such a function for
            each graph.
        layers: Number of blocks.
        channels: Number of node features.
        dropout, norm, act, source_dropout: See :class:`AttentionBlock`; whole blocks have their
            own. The last normalization is ``norm``, too.
        make_last: Returns the layer of the last block, whose updated edges nobody would read, or of
            the last block of each graph; None = ``make_conv``.
        graphs: Names of the graphs that the blocks read, from the first block on, again from the
            start if there are more blocks; None = those of ``make_conv``.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GATv2Conv
        >>> from molattn.nn import EdgeAttentionConv
        >>> layers = {
        ...     "bonds": lambda: GATv2Conv(16, 16, edge_dim=4),
        ...     "pairs": lambda: EdgeAttentionConv(16, 16, heads=4, edge_dim=1),
        ... }
        >>> encoder = Encoder(layers, 4, 16)
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # propane
        >>> pairs = torch.ones(3, 3).nonzero().t()
        >>> distances = (pairs[0] - pairs[1]).abs().float().unsqueeze(-1)
        >>> edge_attr = {"bonds": torch.randn(4, 4), "pairs": distances}
        >>> encoder(torch.randn(3, 16), {"bonds": bonds, "pairs": pairs}, edge_attr).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        make_conv: Makers,
        layers: int,
        channels: int,
        *,
        dropout: float = 0.0,
        norm: Optional[str] = "layer",
        act: str = "silu",
        source_dropout: float = 0.0,
        make_last: Optional[Makers] = None,
        graphs: Optional[Sequence[str]] = None,
    ) -> None:
        super().__init__()
        first = _by_graph(make_conv, graphs or (None,))
        self.graphs = tuple(graphs or first)
        last = first | _by_graph(make_last or {}, first)
        names = [self.graph_of_block(index) for index in range(layers)]
        makers = (
            (first if name in names[index + 1 :] else last)[name]
            for index, name in enumerate(names)
        )
        self.blocks = nn.ModuleList(make() for make in makers)
        for index, conv in enumerate(self.blocks):
            if not isinstance(conv, AttentionBlock):
                options: Any = {"dropout": dropout, "norm": norm, "act": act}
                options["source_dropout"] = source_dropout
                self.blocks[index] = AttentionBlock(conv, channels, **options)
        self.norm = make_norm(norm, channels)

    def graph_of_block(self, index: int) -> Optional[str]:
        """Name of the graph that a block reads; None if there is only one."""
        return self.graphs[index % len(self.graphs)]

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_attr: Union[EdgeAttr, dict[str, Any]] = None,
        *,
        return_edges: bool = False,
        **options: Any,
    ) -> Any:
        """Encode nodes ``[N, channels]``; each block gets the options.

        With ``return_edges``, the edges follow as the last block that updates them returns them.

        Terms of logits read the edges given here in all blocks, or ``bias_attr`` among the options.
        With several graphs, the edges and options of each are values of a dictionary; all blocks
        get what is in none.
        """
        is_dict = isinstance(edge_attr, dict)
        edges: dict[Any, Any] = edge_attr if is_dict else dict.fromkeys(self.graphs, edge_attr)
        updated = {**edges}
        more: dict[str, Any] = options
        graph = edge_index
        nodes = as_rows(x, graph)
        for index, block in enumerate(self.blocks):
            name = self.graph_of_block(index)
            if (of_block := _of_graph(edge_index, name)) is not graph:
                nodes = as_rows(like_input(nodes, x, graph), of_block)
                graph = of_block
            more = {"bias_attr": edges.get(name)} if has_bias(block) else {}
            more |= {
                option: _of_graph(value, name)
                for option, value in options.items()
                if not isinstance(value, dict) or name in value
            }
            nodes, updated[name] = block(nodes, graph, updated.get(name), **more)
        nodes = normalize_rows(self.norm, nodes, graph, more.get("batch"))
        encoded = like_input(nodes, x, graph)
        if not return_edges:
            return encoded
        return encoded, updated if is_dict else updated[self.graphs[0]]


def _by_graph(make: Makers, names: Iterable[Optional[str]]) -> dict[Any, Callable[[], nn.Module]]:
    """The function that makes the layers of each graph."""
    return dict(make) if isinstance(make, Mapping) else dict.fromkeys(names, make)


def _of_graph(value: Any, name: Optional[str]) -> Any:
    """The value for the graph of this name."""
    return value[name] if isinstance(value, dict) else value


def has_bias(block: Any) -> bool:
    """Whether the logits of a block's layer have a term of edges, the module ``attn_bias``."""
    layer = getattr(block.conv, "conv", block.conv)  # of a wrapped one
    layer = getattr(layer, "attention", layer)
    return getattr(layer, "attn_bias", None) is not None
