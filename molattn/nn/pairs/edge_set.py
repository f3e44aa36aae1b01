"""Attention between the edges of a graph as a set (ESA), and pooling by attention (PMA)."""

import math
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import aggr
from torch_geometric.nn.inits import glorot, reset
from torch_geometric.typing import OptTensor

from molattn.graph.complete import CompleteGraphs
from molattn.nn.attention_heads import check_choice
from molattn.nn.conv.attention_conv import AttentionConv, optional_linear
from molattn.nn.dense.linear import Linear
from molattn.nn.functional import ScatteredEdges, normalize
from molattn.nn.graph_inputs import Graph, check_presence, check_shape
from molattn.nn.resettable import Resettable


class _SetBlock(AttentionConv):
    """Attention between normalized elements of sets, and a feed-forward network."""

    def __init__(self, channels: int, heads: int, expansion: int, dropout: float) -> None:
        options: Any = {"edge_dim": None, "score": "scaled_dot", "dropout": dropout}
        super().__init__(channels, channels, heads, **options)
        self.norm = nn.LayerNorm(channels, eps=1e-8)
        self.make_projections(bias=True, source_bias=True)
        self.lin_out = Linear(channels, channels)
        self.norm_ff = nn.LayerNorm(channels, eps=1e-8)
        maps = (Linear(channels, expansion * channels), Linear(expansion * channels, channels))
        self.ff = nn.Sequential(maps[0], nn.Mish(), maps[1])

    def combine_heads(self, heads: Tensor, x: Tensor) -> Tensor:
        """Combine heads ``[N, H, V]`` and the residual branch ``[N, C]`` to ``[N, C]``."""
        heads = heads.flatten(-2)
        out = x + heads + F.mish(self.lin_out(heads))
        return out + self.ff(self.norm_ff(out))


class EdgeSetAttention(Resettable):
    r"""Edge set attention (Buterez et al. 2025).

    The edges of a graph attend to each other as a set of tokens, in blocks of two kinds: in ``M``
    (masked) an edge attends to the others that share a node with it, in ``S`` (self) to all edges
    of its graph. For edge :math:`k` from :math:`s` to :math:`r`:

    .. math::
        t_k &= W_s x_s + W_r x_r + W_e e_k + \beta \\
        z &= \mathrm{LN}(t), \qquad
        a_k = \mathrm{concat}_h \sum_l \mathrm{softmax}_l(q_k \cdot k_l / \sqrt d)\, v_l \\
        h &= z + a + \mathrm{mish}(W_o a), \qquad t \leftarrow h + \mathrm{FF}(\mathrm{LN}(h))

    with :math:`q, k, v` linear in :math:`z`; the first block's input is added to the last block's
    output ("An end-to-end attention-based approach for learning on graphs", pre-norm, with the
    normalized tokens in the residual branch as in the authors' code). An edge with none to attend
    to has :math:`a = 0`. In the authors' code :math:`t` is an MLP, and padding takes part in ``S``
    and in pooling; here it does not, and a graph does not depend on the rest of its batch.

    Give it bonds: memory is that of all pairs of edges of a graph; where the layer is compiled or
    exported, of all pairs of edges of the batch. Read the edges out by their
    graph, ``batch[edge_index[0]]``, such as with :class:`PMA`.

    Args:
        in_channels: Number of node features; -1 = inferred in the first call.
        out_channels: Number of channels of a token ``C``, divisible by ``heads``.
        heads: Number of heads ``H``; :math:`d = C / H`.
        edge_dim: Number of edge features; -1 = inferred in the first call; None = none.
        blocks: The kinds of blocks in their order, such as ``MSMS``.
        expansion: Hidden width of the feed-forward networks, as a multiple of ``C``.
        dropout: Dropout probability of the attention weights.

    Shapes:
        - **x**: ``[N, in_channels]``, **edge_index**: ``[2, E]``, **edge_attr**: ``[E, edge_dim]``
        - **batch**: ``[N]``, graph of each node, in any order; None = one graph
        - **output**: ``[E, out_channels]``

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> edges = EdgeSetAttention(4, 8, heads=2)(torch.randn(3, 4), edge_index)
        >>> PMA(8, heads=2)(edges, torch.zeros(4, dtype=torch.long)).shape
        torch.Size([1, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        *,
        edge_dim: Optional[int] = None,
        blocks: str = "MMS",
        expansion: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for kind in blocks:
            check_choice("blocks", kind, ("M", "S"))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.edge_dim = edge_dim
        self.kinds = blocks
        self.lin_sender = Linear(in_channels, out_channels)
        self.lin_receiver = Linear(in_channels, out_channels, bias=False)
        self.lin_edge = optional_linear(edge_dim, out_channels)
        set_blocks = (_SetBlock(out_channels, heads, expansion, dropout) for _ in blocks)
        self.blocks = nn.ModuleList(set_blocks)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: OptTensor = None, batch: OptTensor = None
    ) -> Tensor:
        """Encode edges; see the class for the shapes."""
        if not isinstance(edge_index, Tensor):
            raise ValueError(f"edge_index: got {type(edge_index).__name__}, expected [2, E]")
        check_shape("edge_index", edge_index, 2, None)
        check_shape("x", x, None, self.in_channels)
        check_presence("edge_attr", edge_attr, "edge_dim", self.edge_dim)
        sender, receiver = edge_index
        tokens = self.lin_sender(x).index_select(0, sender)
        tokens = tokens + self.lin_receiver(x).index_select(0, receiver)
        if self.lin_edge is not None and edge_attr is not None:
            check_shape("edge_attr", edge_attr, edge_index.size(1), self.edge_dim)
            tokens = tokens + self.lin_edge(edge_attr)
        graph = torch.zeros_like(sender) if batch is None else batch.index_select(0, sender)
        if torch.compiler.is_compiling():  # for any number of edges of each graph
            pairs = graph.unsqueeze(1) == graph
            adjacent = pairs & _sharing_a_node(edge_index.t().unsqueeze(0)).squeeze(0)
            return self._attend(tokens, {"S": pairs.nonzero().t(), "M": adjacent.nonzero().t()})
        order = graph.argsort(stable=True)
        sets = CompleteGraphs(graph.bincount().tolist(), device=x.device).to(x.device)
        ends = sets.nodes_to_rows(edge_index.t()[order])
        masks = [_sharing_a_node(block.rows(ends)).flatten() for block in sets.blocks]
        graphs = {"S": sets, "M": sets.with_edges(torch.cat(masks)) if masks else sets}
        edges = sets.rows_to_nodes(self._attend(sets.nodes_to_rows(tokens[order]), graphs))
        return torch.empty_like(edges).index_copy(0, order, edges)

    def _attend(self, tokens: Tensor, graphs: dict[str, Graph]) -> Tensor:
        """Apply the blocks, each on the graph of its kind, whose nodes are the tokens."""
        first = tokens
        block: Any  # a _SetBlock
        for kind, block in zip(self.kinds, self.blocks, strict=True):
            tokens = block(block.norm(tokens), graphs[kind])
        return tokens + first

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
        options = f"edge_dim={self.edge_dim}, blocks={self.kinds!r}"
        return f"{type(self).__name__}({sizes}, {options})"


class PMA(aggr.Aggregation):
    r"""Pooling by multi-head attention (Lee et al. 2019), as in edge set attention.

    Learned seeds :math:`s_1, \dots, s_k` attend to the elements of a set ("Set Transformer"), and
    their outputs are averaged (Buterez et al. 2025, see :class:`EdgeSetAttention`):

    .. math::
        z &= \mathrm{LN}(x), \qquad
        a_c = \mathrm{concat}_h \sum_i
            \mathrm{softmax}_i(W_q s_c \cdot W_k z_i / \sqrt d)\, W_v z_i \\
        h &= a + \mathrm{mish}(W_o a), \qquad
        y = \frac 1 k \sum_c \big(h_c + \mathrm{FF}(\mathrm{LN}(h_c))\big)

    PyG's ``SetTransformerAggregation`` is the original, with the seeds themselves in the residual
    branch; this one needs no padding. The set of no elements gives what :math:`a = 0` gives.

    Args:
        channels: Number of channels, divisible by ``heads``.
        heads, expansion, dropout: See :class:`EdgeSetAttention`.
        num_seeds: Number of seeds; the authors use 32.

    Shapes:
        - **x**: ``[N, channels]``, **index**: set of each element, ``[N]``, in any order
        - **output**: ``[num_sets, channels]``

    Example:
        >>> PMA(8, heads=2)(torch.randn(3, 8), torch.tensor([0, 0, 2])).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        *,
        num_seeds: int = 32,
        expansion: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.block = _SetBlock(channels, heads, expansion, dropout)
        self.seeds = nn.Parameter(torch.empty(num_seeds, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        reset(self.block)
        glorot(self.seeds)

    def forward(
        self,
        x: Tensor,
        index: OptTensor = None,
        ptr: Any = None,
        dim_size: Any = None,
        dim: int = -2,
    ) -> Tensor:
        """Pool the elements of each set; see the class for the shapes."""
        self.assert_index_present(index)
        assert index is not None
        block = self.block
        x = self.block.norm(x)
        seeds, key, value = (
            rows.unflatten(-1, (block.heads, block.head_channels))
            for rows in (block.lin_query(self.seeds), block.lin_key(x), block.lin_value(x))
        )
        logits = torch.einsum("nhd,khd->nkh", key, seeds) / math.sqrt(block.head_channels)
        weights = normalize(logits, ScatteredEdges(index, dim_size))
        weights = F.dropout(weights, block.dropout, self.training)
        pooled = [  # one seed at a time, or memory would be of all elements, seeds and channels
            self.reduce(weight.unsqueeze(-1) * value, index, dim_size=dim_size, dim=0, reduce="sum")
            for weight in weights.unbind(dim=1)
        ]
        heads = torch.stack(pooled, dim=1)  # [sets, seeds, H, d]
        return block.combine_heads(heads, heads.new_zeros(())).mean(dim=1)

    def __repr__(self) -> str:
        seeds, channels = self.seeds.shape
        return f"{type(self).__name__}({channels}, heads={self.block.heads}, num_seeds={seeds})"


def _sharing_a_node(ends: Tensor) -> Tensor:
    """Adjacency of edges ``[B, L, 2]``: True where two edges share a node, ``[B, L, L]``."""
    same = ends[:, :, None, :, None] == ends[:, None, :, None, :]
    mask = same.flatten(-2).any(dim=-1)
    return mask & ~torch.eye(mask.size(1), dtype=torch.bool, device=mask.device)
