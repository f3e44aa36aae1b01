"""PyG's GPS layer with attention that reads features of atom pairs."""

from typing import Any, Optional

from torch import Tensor
from torch.nn import Module
from torch.nn import functional as F
from torch_geometric.nn import GPSConv
from torch_geometric.nn.inits import reset
from torch_geometric.typing import OptTensor

from molattn.nn.graph_inputs import EdgeAttr, Graph


class PairGPSConv(GPSConv):
    r"""PyG's ``GPSConv`` with any layer as its attention, which may read features of pairs.

    Rampasek et al. 2022 ("Recipe for a General, Powerful, Scalable Graph Transformer"), with
    message passing along bonds and attention over all pairs of atoms, side by side:

    .. math::
        h &= \mathrm{norm}_1(x + \mathrm{conv}(x, \mathrm{bonds})) +
        \mathrm{norm}_2(x + \mathrm{attention}(x, \mathrm{pairs})) \\
        x' &= \mathrm{norm}_3(h + \mathrm{MLP}(h))

    PyG's ``GPSConv`` has ``torch.nn.MultiheadAttention`` instead, which reads no pairs.

    Args:
        channels: Number of node features.
        conv: Message passing along bonds, such as PyG's ``GINEConv``; None = attention alone.
        attention: A layer from ``channels`` to ``channels`` features, a function of
            ``(x, pair_index, pair_attr)``, such as :class:`EdgeAttentionConv`.
        options: ``dropout``, ``act``, ``act_kwargs``, ``norm`` and ``norm_kwargs`` of ``GPSConv``.

    Example:
        >>> import torch
        >>> from molattn.graph import CompleteGraphs
        >>> from molattn.nn import EdgeAttentionConv
        >>> conv = PairGPSConv(8, None, EdgeAttentionConv(8, 8, heads=2))
        >>> bonds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.randn(3, 8), bonds, pair_index=CompleteGraphs([3])).shape
        torch.Size([3, 8])
    """

    def __init__(
        self, channels: int, conv: Optional[Module], attention: Module, **options: Any
    ) -> None:
        super().__init__(channels, conv, **options)  # pyright: ignore[reportArgumentType]
        self.attn = attention

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Graph,
        batch: OptTensor = None,
        *,
        pair_index: Graph,
        pair_attr: EdgeAttr = None,
        bias_attr: EdgeAttr = None,
        **options: Any,
    ) -> Tensor:
        """Update nodes ``[N, channels]``.

        Args:
            x: Nodes.
            edge_index: Bonds.
            batch: Graph of each node ``[N]``, for norms of graphs; None = one graph.
            pair_index: All pairs, as ``edge_index`` of the attention: of
                ``CompleteGraph(keep_bonds=True)``, or :class:`~molattn.graph.CompleteGraphs`.
            pair_attr: Their features.
            bias_attr: See :meth:`AttentionConv.attend`.
            options: Further arguments of ``conv``, such as ``edge_attr``.
        """
        of_bias = {} if bias_attr is None else {"bias_attr": bias_attr}
        attended = self.attn(x, pair_index, pair_attr, **of_bias)
        out = self._add(x, attended, self.norm2, batch)
        if self.conv is not None:
            out = out + self._add(x, self.conv(x, edge_index, **options), self.norm1, batch)
        return self._norm(out + self.mlp(out), self.norm3, batch)

    def _add(self, x: Tensor, term: Tensor, norm: Optional[Module], batch: OptTensor) -> Tensor:
        return self._norm(x + F.dropout(term, self.dropout, self.training), norm, batch)

    def _norm(self, x: Tensor, norm: Optional[Module], batch: OptTensor) -> Tensor:
        if norm is None:
            return x
        return norm(x, batch=batch) if self.norm_with_batch else norm(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, conv={self.conv}, attention={self.attn})"
