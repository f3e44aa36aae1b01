"""Residual blocks around attention layers."""

from collections.abc import Callable
from typing import Any, Optional

from torch import Tensor, nn
from torch_geometric.nn.resolver import activation_resolver
from torch_geometric.typing import OptTensor

from molattn.nn.dense.linear import Linear
from molattn.nn.graph_inputs import EdgeAttr, Nodes, as_rows, like_input, one_set
from molattn.nn.normalization import make_norm, normalize_rows
from molattn.nn.resettable import Resettable
from molattn.nn.source_dropout import attend_without_sources


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
            updates stay as they are where the sender is dropped.
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
        nodes = one_set(x)
        graph = (edge_index, options.get("batch"))
        node = normalize_rows(self.norm_conv, nodes, *graph)
        update = self.attend(node, edge_index, edge_attr, graph[1], **options)
        if isinstance(update, tuple):
            update, edge_attr = update
        nodes = nodes + self.dropout(update)
        node = normalize_rows(self.norm_ff, nodes, *graph)
        return nodes + self.dropout(self.ff(node)), edge_attr

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

    Args:
        make_conv: Returns the layer of a block, with ``channels`` inputs and outputs, or a whole
            block, such as :class:`GraphTransformerBlock`.
        layers: Number of blocks.
        channels: Number of node features.
        dropout, norm, act, source_dropout: See :class:`AttentionBlock`; whole blocks have their
            own. The last normalization is ``norm``, too.
        make_last: Returns the layer of the last block, whose updated edges nobody would read; None
            = ``make_conv``.
    """

    def __init__(
        self,
        make_conv: Callable[[], nn.Module],
        layers: int,
        channels: int,
        *,
        dropout: float = 0.0,
        norm: Optional[str] = "layer",
        act: str = "silu",
        source_dropout: float = 0.0,
        make_last: Optional[Callable[[], nn.Module]] = None,
    ) -> None:
        super().__init__()
        makers = [make_conv] * (layers - 1) + [make_last or make_conv] * (layers > 0)
        self.blocks = nn.ModuleList(make() for make in makers)
        for index, conv in enumerate(self.blocks):
            if not isinstance(conv, AttentionBlock):
                options: Any = {"dropout": dropout, "norm": norm, "act": act}
                options["source_dropout"] = source_dropout
                self.blocks[index] = AttentionBlock(conv, channels, **options)
        self.norm = make_norm(norm, channels)

    def forward(
        self, x: Tensor, edge_index: Any, edge_attr: Optional[Tensor] = None, **options: Any
    ) -> Tensor:
        """Encode nodes ``[N, channels]``; each block gets the options.

        Terms of logits read the edges given here in all blocks, or ``bias_attr`` among the options.
        """
        unchanged = {"bias_attr": edge_attr}
        nodes = as_rows(x, edge_index)
        for block in self.blocks:
            more = unchanged if _has_bias(block) else {}
            nodes, edge_attr = block(nodes, edge_index, edge_attr, **(more | options))
        nodes = normalize_rows(self.norm, nodes, edge_index, options.get("batch"))
        return like_input(nodes, x, edge_index)


def _has_bias(block: Any) -> bool:
    """Whether the logits of a block's layer have a term of edges, the module ``attn_bias``."""
    layer = getattr(block.conv, "conv", block.conv)  # of a wrapped one
    layer = getattr(layer, "attention", layer)
    return getattr(layer, "attn_bias", None) is not None
