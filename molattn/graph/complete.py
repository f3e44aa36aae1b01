"""A layout of complete graphs in which attention is a few batched matrix products."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple, Optional, Self, Union

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from molattn.graph.plan import plan_layout

Device = torch.device | str | int
_MAX_KINDS = 128  # of edges, above which codes are slower than features


@dataclass(frozen=True)
class Block:
    """Graphs of similar size, padded to one size."""

    graphs: int  # number of graphs B
    nodes: int  # padded number of nodes of each N
    row: int  # first of the block's B N rows of nodes
    pair: int  # first of the block's B N N rows of pairs

    def rows(self, x: Tensor) -> Tensor:
        """The block's part of node rows ``[R, ...]`` as ``[B, N, ...]``; a view."""
        rows = x.narrow(0, self.row, self.graphs * self.nodes)
        return rows.unflatten(0, (self.graphs, self.nodes))

    def pairs(self, e: Tensor) -> Tensor:
        """The block's part of pair rows ``[P, ...]`` as ``[B, N receivers, N senders, ...]``."""
        pairs = e.narrow(0, self.pair, self.graphs * self.nodes * self.nodes)
        return pairs.unflatten(0, (self.graphs, self.nodes, self.nodes))


class GraphStart(NamedTuple):
    """Position of a graph: its first node row, its first pair row, its padded size."""

    row: int
    pair: int
    padded: int


def _cached_property(compute: Callable[["CompleteGraphs"], Any]) -> Any:
    """Make a property that is computed at first use and kept; a compiler computes it each time."""

    @wraps(compute)
    def get(self: "CompleteGraphs") -> Any:
        if torch.compiler.is_compiling():
            return compute(self)
        if compute.__name__ not in self._cache:
            with torch.inference_mode(False):  # so that it serves training, too
                self._cache[compute.__name__] = compute(self)
        return self._cache[compute.__name__]

    return property(get)


class OnDevice:
    """What moves to a device as a tensor does, also as an attribute of a PyG ``Data``."""

    def _map(self, move: Callable[[Any], Any]) -> Self:
        """Return a copy with other tensors."""
        raise NotImplementedError

    def to(self, device: Device, *, non_blocking: bool = False) -> Self:
        """The same on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def cuda(self, device: Device = "cuda", non_blocking: bool = False) -> Self:
        """The same on a GPU."""
        return self.to(device, non_blocking=non_blocking)

    def cpu(self) -> Self:
        """The same on the CPU."""
        return self.to("cpu")

    def pin_memory(self) -> Self:
        """The same in page-locked memory."""
        return self._map(lambda tensor: tensor.pin_memory())


class CompleteGraphs(OnDevice):
    """The layout of a batch of graphs in which all nodes of a graph are neighbors.

    Graphs are sorted by size into a few blocks, each padded to its largest graph; the number of
    blocks minimizes an estimated cost. Nodes and pairs have two forms, converted by the methods
    below:

    - flat: ``[num_nodes, ...]`` in the order given and ``[num_edges, ...]`` in the order of
      ``edge_index``, without padding, as everywhere in PyG;
    - rows: ``[num_rows, ...]`` and ``[num_pairs, ...]``, block after block, padding included, as
      the layers take them. No real node reads the padding, which may hold any values up to 1e15.
      Unless rows and nodes are the same, there are more rows than nodes.

    With :meth:`with_edges` only some pairs are edges, in the same layout. Index tensors are on the
    CPU until :meth:`to` moves them. Make it outside of what ``torch.compile`` compiles.

    Args:
        sizes: Number of nodes of each graph.
        self_loops: Whether a node is a neighbor of itself.
        device: Kind of device that the layout is planned for: fewer, larger blocks for others than
            ``cpu``. Tensors are not moved there.
        row_multiple: More rows than this are padded at the end to a multiple of it.

    Example:
        >>> graphs = CompleteGraphs([1, 3], self_loops=False)
        >>> graphs.num_nodes, graphs.num_edges
        (4, 6)
        >>> x = torch.arange(4.0).unsqueeze(-1)
        >>> torch.equal(graphs.rows_to_nodes(graphs.nodes_to_rows(x)), x)
        True
    """

    @torch.inference_mode(False)  # so that tensors made in inference mode serve training, too
    def __init__(
        self,
        sizes: Sequence[int],
        *,
        self_loops: bool = True,
        device: Device = "cpu",
        row_multiple: int = 1,
    ) -> None:
        self.sizes = tuple(int(n) for n in sizes)
        if any(n < 0 for n in self.sizes):
            raise ValueError(f"sizes: got {self.sizes}, expected numbers of at least 0")
        self.self_loops = self_loops
        self.kept: Optional[Tensor] = None  # see with_edges, bool [P]; None = all pairs
        self._cache: dict[str, Any] = {}  # see _cached_property
        count = np.asarray(self.sizes, dtype=np.int64)
        self._all_as_length = _length_tensor(int((count * (count - (not self_loops))).sum()))
        # None = not counted; see _length_tensor.
        self.edges_as_length: Optional[Tensor] = self._all_as_length
        self.blocks, table, row_graph = _place_graphs(count, torch.device(device).type == "cpu")
        rows = len(row_graph)
        self._rows_at_end = -rows % row_multiple if rows > row_multiple else 0
        self.num_graphs = len(self.sizes)
        self.num_nodes = int(count.sum())
        self.num_rows = rows + self._rows_at_end
        self.num_pairs = sum(block.graphs * block.nodes**2 for block in self.blocks)
        batch = np.repeat(np.arange(self.num_graphs), count)
        first_node = np.cumsum(count) - count
        node_row = np.arange(self.num_nodes) + (table[0] - first_node)[batch]
        mask = np.zeros(self.num_rows, dtype=bool)
        mask[node_row] = True
        self.batch = torch.from_numpy(batch)
        self.node_row = torch.from_numpy(node_row)
        rows_at_end = np.zeros(self._rows_at_end, np.int64)
        self.row_graph = torch.from_numpy(np.concatenate([row_graph, rows_at_end]))
        self.row_mask = torch.from_numpy(mask)
        # For each graph its size, its first row, its first pair and its padded size.
        self._graph_table = torch.from_numpy(np.stack([count, *table]))

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        batch: Optional[Tensor] = None,
        num_nodes: Optional[int] = None,
        num_graphs: Optional[int] = None,
    ) -> tuple["CompleteGraphs", Tensor]:
        """Read a PyG batch of complete graphs.

        Args:
            edge_index: All ordered pairs of each graph, in any order, ``[2, E]``; with or without
                self loops.
            batch: Graph of each node, ascending, ``[N]``; None = one graph.
            num_nodes: Number of nodes where ``batch`` is None; None = one more than the largest.
            num_graphs: Number of graphs, of which the last may have no nodes; None = one more than
                the largest in ``batch``.

        Returns:
            The layout, and the order in which ``edge_attr[order]`` fits its ``edge_index``.
        """
        if batch is None:
            if num_nodes is None:
                num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
            batch = edge_index.new_zeros(num_nodes)
        if bool((batch[1:] < batch[:-1]).any()):
            raise ValueError("batch: got a decreasing index, expected ascending graphs")
        sizes = torch.bincount(batch, minlength=num_graphs or 0).tolist()
        self_loops = edge_index.size(1) == sum(n * n for n in sizes)
        graphs = cls(sizes, self_loops=self_loops).to(batch.device)
        position = torch.full((graphs.num_pairs,), -1, device=batch.device)
        if bool((batch[edge_index[0]] == batch[edge_index[1]]).all()):
            pair = graphs.pair_rows(edge_index)
            position[pair] = torch.arange(len(pair), device=batch.device)
        order = position[graphs.edge_row]
        if len(order) != edge_index.size(1) or bool((order < 0).any()):
            raise ValueError(
                "edge_index: expected all pairs of nodes of each graph, each once; "
                "molattn.graph.CompleteGraph makes them from bonds"
            )
        return graphs, order

    @classmethod
    def from_batch(cls, batch: Data) -> tuple["CompleteGraphs", Union[Tensor, "CodedEdges", None]]:
        """Read a PyG batch of complete graphs, such as molattn's ``from_smiles`` makes.

        Args:
            batch: A ``Batch``, or ``Data`` of one graph, with ``edge_index`` as in
                :meth:`from_edges` and, if there are any, edge features ``[E, D]`` or ``[E]``; or
                with ``pair_index`` and ``pair_attr`` of ``CompleteGraph(keep_bonds=True)``.

        Returns:
            The layout, and the edge features as its layers take them: :class:`CodedEdges` if they
            are integers or of at most 128 kinds, otherwise pair rows ``[num_pairs, D]``, into
            which gradients flow; None if there are none.
        """
        name = "pair" if "pair_index" in batch else "edge"
        index = getattr(batch, f"{name}_index", None)
        edges = getattr(batch, f"{name}_attr", None)
        if index is None:
            raise ValueError("batch: got no edge_index, expected all pairs of nodes of each graph")
        graphs, order = cls.from_edges(
            index, batch.batch, batch.num_nodes, getattr(batch, "num_graphs", None)
        )
        if edges is None:
            return graphs, None
        edges = edges[order] if edges.dim() > 1 else edges[order].unsqueeze(-1)
        if edges.requires_grad:
            return graphs, graphs.edges_to_pairs(edges)
        # Sorting one number for each edge takes a tenth of the time of sorting rows.
        projection = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(0)).double()
        _, codes = (edges.double() @ projection.to(edges.device)).unique(return_inverse=True)
        kinds = int(codes.max()) + 1 if codes.numel() else 0
        table = edges.new_zeros(kinds, edges.size(1)).index_copy(0, codes, edges)
        many = kinds > _MAX_KINDS and edges.is_floating_point()
        if many or not torch.equal(table[codes], edges):
            return graphs, graphs.edges_to_pairs(edges)
        return graphs, CodedEdges.from_edges(graphs, codes, table)

    def with_edges(self, kept: Tensor) -> "CompleteGraphs":  # name: as the attribute
        """Return the same layout with only some pairs as edges.

        Args:
            kept: Which pair rows are edges, ``bool [num_pairs]``. Entries of padding are ignored,
                and those of self loops where the graphs have none.
        """
        if kept.shape != (self.num_pairs,) or kept.dtype != torch.bool:
            raise ValueError(
                f"kept: got {kept.dtype} {list(kept.shape)}, expected torch.bool [{self.num_pairs}]"
            )
        fewer = self._map(lambda t: t)
        fewer.kept = kept
        fewer.edges_as_length = None
        if kept.device.type == "cpu":  # for the number of a GPU one would have to wait
            fewer.edges_as_length = _length_tensor(
                sum(int(mask.sum()) for mask in fewer.pair_masks)
            )
        return fewer

    def pair_rows(self, edge_index: Tensor) -> Tensor:
        """Pair row of each edge between flat nodes ``[2, E]``."""
        row_start, pair_start, width = self._graph_table[1:, self.batch]  # [num_nodes]
        position = self.node_row - row_start  # of a node in its graph
        sender, receiver = edge_index
        return pair_start[receiver] + position[receiver] * width[receiver] + position[sender]

    @property
    def num_edges(self) -> int:
        """Number of edges, without padding."""
        return len(self.edge_row if self.edges_as_length is None else self.edges_as_length)

    @property
    def is_listed(self) -> bool:
        """Whether layers read the list of edges: a compiler would do each number of blocks anew."""
        return torch.compiler.is_compiling()

    @property
    def device(self) -> torch.device:
        """Where the index tensors are."""
        return self.node_row.device

    def graph_starts(self) -> Iterator[GraphStart]:
        """Position of each graph, in the order given."""
        return map(GraphStart, *self._graph_table[1:].tolist())

    def _map(self, move: Callable[[Any], Any]) -> Self:
        moved = copy.copy(self)
        tensors = {name: move(t) for name, t in vars(self).items() if isinstance(t, Tensor)}
        vars(moved).update(tensors, _cache={})
        return moved

    # From flat nodes and edges to rows, and back.

    def nodes_to_rows(self, x: Tensor) -> Tensor:
        """Lay nodes ``[num_nodes, ...]`` out as rows ``[num_rows, ...]``; padding is zero."""
        _check_rows("nodes", x, self.num_nodes)
        return x.new_zeros((self.num_rows, *x.shape[1:])).index_copy(0, self.node_row, x)

    def rows_to_nodes(self, rows: Tensor) -> Tensor:
        """Take nodes ``[num_nodes, ...]`` from rows ``[num_rows, ...]``."""
        _check_rows("rows", rows, self.num_rows)
        return rows.index_select(0, self.node_row)

    def edges_to_pairs(self, e: Tensor) -> Tensor:
        """Lay edges ``[num_edges, ...]`` out as pair rows ``[num_pairs, ...]``; padding is zero."""
        _check_rows("edges", e, self.num_edges)
        return e.new_zeros((self.num_pairs, *e.shape[1:])).index_copy(0, self.edge_row, e)

    def pairs_to_edges(self, pairs: Tensor) -> Tensor:
        """Take edges ``[num_edges, ...]`` from pair rows ``[num_pairs, ...]``."""
        _check_rows("pairs", pairs, self.num_pairs)
        return pairs.index_select(0, self.edge_row)

    def receivers_to_pairs(self, rows: Tensor) -> Tensor:
        """Give each edge its receiver's row: ``[num_rows, ...]`` to ``[num_pairs, ...]``."""
        return self.edges_to_pairs(self.rows_to_nodes(rows)[self.edge_index[1]])

    def pairwise_sums(self, receivers: Tensor, senders: Tensor) -> Tensor:
        """Add the rows of each pair's receiver and sender, ``[num_pairs, ...]``."""
        if self.is_listed:
            listed = self.rows_to_nodes(senders)[self.edge_index[0]]
            return self.receivers_to_pairs(receivers) + self.edges_to_pairs(listed)
        blocks = [
            (block.rows(receivers).unsqueeze(2) + block.rows(senders).unsqueeze(1)).flatten(0, 2)
            for block in self.blocks
        ]
        return join_pairs(blocks, receivers)

    def pairs_to_receivers(self, pairs: Tensor, rows: Optional[int] = None) -> Tensor:
        """Add up the edges ``[num_pairs, ...]`` of each receiver, ``[num_rows, ...]``."""
        if self.is_listed:
            total = pairs.new_zeros((self.num_nodes, *pairs.shape[1:]))
            listed = self.pairs_to_edges(pairs)
            return self.nodes_to_rows(total.index_add(0, self.edge_index[1], listed))
        blocks = []
        pairs_of_blocks = pairs.split(
            [mask.numel() for mask in self.pair_masks]
        )  # one gradient of all
        for pairs_of_block, mask in zip(pairs_of_blocks, self.pair_masks, strict=True):
            edges = mask.view(*mask.shape, *(1,) * (pairs.dim() - 1))
            masked = pairs_of_block.unflatten(0, mask.shape).masked_fill(~edges, 0.0)
            blocks.append(masked.sum(2).flatten(0, 1))
        return self.join_rows(blocks, pairs)

    def empty_rows(self, like: Tensor) -> Tensor:
        """Return rows of this shape; only the padding after the last block is initialized."""
        rows = torch.empty_like(like, memory_format=torch.contiguous_format)
        if self._rows_at_end:
            rows[-self._rows_at_end :].zero_()
        return rows

    def join_rows(self, blocks: list[Tensor], like: Tensor) -> Tensor:
        """Join nodes ``[B N, ...]`` of each block to rows, empty ones if there is no block."""
        if self._rows_at_end:
            blocks = [*blocks, blocks[0].new_zeros((self._rows_at_end, *blocks[0].shape[1:]))]
        return join_pairs(blocks, like)

    # What follows from the sizes.

    @_cached_property
    def _edges(self) -> tuple[Tensor, Tensor]:
        """``edge_index`` in flat nodes, and the pair row of each edge."""
        size, row_start = self._graph_table[:2, self.batch]  # [num_nodes]
        position = self.node_row - row_start  # of a node in its graph
        node = torch.arange(self.num_nodes, device=self.device)
        edge = torch.arange(len(self._all_as_length), device=self.device)
        degree = size if self.self_loops else size - 1
        end = degree.cumsum(0)
        start = end - degree  # first edge of a receiver
        receiver = torch.bucketize(edge, end, right=True)
        sender = edge + (node - position - start)[receiver]
        if not self.self_loops:  # senders from the receiver itself on move up by one
            sender = sender + (edge >= (start + position)[receiver])
        index = torch.stack([sender, receiver])
        row = self.pair_rows(index)
        if self.kept is None:
            return index, row
        counted = self.edges_as_length
        is_edge = true_indices(self.kept[row], None if counted is None else len(counted))
        return index[:, is_edge], row[is_edge]

    @property
    def edge_index(self) -> Tensor:
        """All edges between flat nodes, ``[2, num_edges]``, sorted by receiver, then sender."""
        return self._edges[0]

    @property
    def edge_row(self) -> Tensor:
        """Pair row of each edge of ``edge_index``, ``[num_edges]``."""
        return self._edges[1]

    @_cached_property
    def pair_masks(self) -> tuple[Tensor, ...]:
        """For each block, which pairs are edges: ``bool [B, N receivers, N senders]``."""
        masks = []
        for block in self.blocks:
            node = block.rows(self.row_mask)
            mask = node.unsqueeze(-1) & node.unsqueeze(-2)
            if not self.self_loops:
                mask = mask & ~torch.eye(block.nodes, dtype=torch.bool, device=mask.device)
            masks.append(mask if self.kept is None else mask & block.pairs(self.kept))
        return tuple(masks)

    @_cached_property
    def isolated_rows(self) -> tuple[Optional[Tensor], ...]:
        """For each block, which rows have no neighbors: ``bool [B, N]``; None if all nodes have."""
        if self.kept is None and (self.self_loops or 1 not in self.sizes):
            return (None,) * len(self.blocks)
        return tuple(~mask.any(dim=-1) for mask in self.pair_masks)

    def __repr__(self) -> str:
        blocks = ", ".join(f"{b.graphs}x{b.nodes}" for b in self.blocks)
        return (
            f"{type(self).__name__}(graphs={self.num_graphs}, nodes={self.num_nodes}, "
            f"self_loops={self.self_loops}, blocks=[{blocks}])"
        )


@dataclass(frozen=True)
class CodedEdges(OnDevice):
    """Features of pair rows as a code for each pair and a table of the features of each code.

    A molecule has few distinct kinds of pairs: a layer transforms the features of each code once,
    not those of each pair. Codes are trusted, not checked: a pair with another code than ``K``
    counts as an edge, unless :meth:`CompleteGraphs.with_edges` left it out. :meth:`from_edges`
    makes them right.

    Args:
        codes: For each pair row its row of the table, ``int64 [num_pairs]``; ``K`` where the pair
            is no edge (see ``CompleteGraphs.pair_masks``).
        table: Features of each code, ``[K, D]``.

    Example:
        >>> graphs = CompleteGraphs([2], self_loops=False)
        >>> CodedEdges.from_edges(graphs, torch.tensor([0, 1]), torch.ones(2, 3)).codes
        tensor([2, 0, 1, 2])
    """

    codes: Tensor
    table: Tensor

    @classmethod
    def from_edges(cls, graphs: CompleteGraphs, codes: Tensor, table: Tensor) -> "CodedEdges":
        """Lay codes of edges out as pair rows.

        Args:
            graphs: The layout.
            codes: For each edge of ``graphs.edge_index`` its row of the table, ``[num_edges]``.
            table: Features of each code, ``[K, D]``.
        """
        rows = codes.new_full((graphs.num_pairs,), table.size(0), dtype=torch.int64)
        return cls(rows.index_copy(0, graphs.edge_row, codes.long()), table)

    def _map(self, move: Callable[[Any], Any]) -> Self:
        return replace(self, codes=move(self.codes), table=move(self.table))

    def __repr__(self) -> str:
        sizes = f"codes={list(self.codes.shape)}, table={list(self.table.shape)}"
        return f"{type(self).__name__}({sizes})"

    @property
    def padded_table(self) -> Tensor:
        """The table with a last row of zeros, for pairs that are not edges, ``[K + 1, D]``."""
        return F.pad(self.table, (0, 0, 0, 1))

    def dense(self) -> Tensor:
        """The features of each pair row, ``[num_pairs, D]``; 0 where the pair is no edge."""
        return self.padded_table.index_select(0, self.codes)


def _place_graphs(
    count: NDArray[np.int64], on_cpu: bool
) -> tuple[tuple[Block, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Place graphs in blocks.

    Returns:
        The blocks; first row, first pair and padded size of each graph ``[3, G]``; and the graph of
        each row.
    """
    order = np.argsort(count, kind="stable")
    table = np.zeros((3, len(count)), dtype=np.int64)
    blocks: list[Block] = []
    row_graph = [np.zeros(0, dtype=np.int64)]
    row = pair = 0
    for first, last, nodes in plan_layout(count, order, on_cpu):
        members = order[first:last]
        position = np.arange(last - first)
        blocks.append(Block(last - first, nodes, row, pair))
        row_graph.append(np.repeat(members, nodes))
        table[0, members] = row + nodes * position
        table[1, members] = pair + nodes**2 * position
        table[2, members] = nodes
        row += len(members) * nodes
        pair += len(members) * nodes**2
    return tuple(blocks), table, np.concatenate(row_graph)


def join_pairs(blocks: list[Tensor], like: Tensor) -> Tensor:
    """Join pairs ``[B N N, ...]`` of each block to pair rows, empty ones if there is no block."""
    return torch.cat(blocks) if blocks else like[:0]  # keeps the autograd graph


def true_indices(mask: Tensor, count: Optional[int]) -> Tensor:
    """Indices of the true entries of a mask ``bool [N]``, ``int64``.

    With their number given, the CPU does not wait for a GPU to count them.
    """
    if count is None or mask.device.type == "mps":  # where torch cannot do without waiting
        return mask.nonzero()[:, 0]
    return torch.nonzero_static(mask, size=count)[:, 0]


def _length_tensor(count: int) -> Tensor:
    """A tensor of this length: a compiler keeps lengths, and may lose other numbers."""
    return torch.zeros(1, dtype=torch.bool).expand(count)


def _check_rows(name: str, x: Tensor, expected: int) -> None:
    if x.size(0) != expected:
        raise ValueError(f"{name}: got shape {list(x.shape)}, expected [{expected}, ...]")
