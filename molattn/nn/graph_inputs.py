"""Every kind of PyG graph in one form, and checks of shapes."""

from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import Size
from torch_geometric.utils import is_sparse, to_edge_index

from molattn.graph.complete import CodedEdges, CompleteGraphs

Pair = tuple[Tensor, Tensor]
Nodes = Union[Tensor, Pair, tuple[Tensor, None]]
Graph = Any  # [2, E], EdgeIndex, sparse adj_t or CompleteGraphs
EdgeAttr = Union[Tensor, CodedEdges, None]


class Edges(NamedTuple):
    """Edges as a list, or as complete graphs."""

    index: Any  # sender and receiver of each edge, int64 [2, E], or CompleteGraphs
    attr: EdgeAttr  # features of each edge, [E, D], or codes of them

    @property
    def features(self) -> Tensor:
        """Features of each edge, ``[E, D]``, of a graph that has them."""
        if self.attr is None:
            raise ValueError("the graph has no edge features")
        return self.attr.dense() if isinstance(self.attr, CodedEdges) else self.attr

    def listed(self) -> "Edges":
        """The same edges as a list."""
        if not isinstance(self.index, CompleteGraphs):
            return self
        attr = None if self.attr is None else self.index.pairs_to_edges(self.features)
        return Edges(self.index.edge_index, attr)

    def at_receivers(self, nodes: Tensor) -> Tensor:
        """Give each edge its receiver's row."""
        if isinstance(self.index, CompleteGraphs):
            return self.index.receivers_to_pairs(nodes)
        return nodes.index_select(0, self.index[1])


def read_graph(
    x: Nodes,
    graph: Graph,
    edge_attr: EdgeAttr,
    in_channels: Union[int, tuple[int, int]],
    edge_dim: Optional[int],
    flow: str = "source_to_target",
    size: Size = None,
) -> tuple[Pair, Edges]:
    """Convert any PyG graph to a list of edges, and check shapes.

    Args:
        x: Node features, or a pair (senders, receivers); receivers without features, None, count as
            zeros.
        graph: Any PyG graph, or complete graphs. An ``adj_t`` (rows are receivers) may be a sparse
            tensor of torch or of torch_sparse; its values are the edge features if the layer reads
            some and ``edge_attr`` is None.
        edge_attr: Edge features.
        in_channels: Number of node features, or a pair (senders, receivers); -1 = any.
        edge_dim: Number of edge features; -1 = any; None = the layer reads none.
        flow: As in ``MessagePassing``: with ``target_to_source``, row 0 of ``edge_index`` holds the
            receivers.
        size: Number of senders and of receivers; None = those of ``x`` or of a graph that has them,
            otherwise as many receivers without features as senders.

    Returns:
        The features of senders and of receivers, and edges from sender to receiver.

    Raises:
        ValueError: A wrong shape.
        TypeError: Indices that are not integers.
    """
    source, target = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
    reverse = flow == "target_to_source"
    pair = (x, x) if isinstance(x, Tensor) else x
    if pair[1] is None:
        if target < 0:
            raise ValueError("x: got (senders, None), which cannot be used with in_channels=-1")
        count = _num_receivers(graph, size, reverse)
        pair = (pair[0], pair[0].new_zeros(len(pair[0]) if count is None else count, target))
    if size and any(n not in (None, len(of)) for n, of in zip(size, pair, strict=True)):
        raise ValueError(f"size: got {size}, expected {tuple(map(len, pair))}, the rows of x")
    if isinstance(graph, CompleteGraphs):
        if pair[0] is not pair[1] or reverse:
            raise ValueError("CompleteGraphs: expected one set of nodes and the default flow")
        if pair[0].size(0) != graph.num_rows:
            raise ValueError(
                f"x: got {pair[0].size(0)} nodes, expected {graph.num_rows} rows of the complete "
                "graphs: use graphs.nodes_to_rows(x), and graphs.rows_to_nodes(out) on the result"
            )
        index, count = graph, graph.num_pairs
    else:
        index, values = _edge_index(graph)
        if edge_attr is None and edge_dim is not None:
            edge_attr = values
        index, count = index.flip(0) if reverse else index, index.size(1)
    _check_shape("x", pair[0], None, source)
    if pair[1] is not pair[0]:
        _check_shape("x[1] (receivers)", pair[1], None, target)
    return pair, Edges(index, _edge_attr(edge_attr, count, edge_dim))


def _num_receivers(graph: Graph, size: Size, reverse: bool) -> Optional[int]:
    if not isinstance(graph, CompleteGraphs) and is_sparse(graph):
        return graph.size(int(reverse))
    if isinstance(graph, EdgeIndex) and (size is None or size[1] is None):
        return graph.sparse_size(int(not reverse))
    return None if size is None else size[1]


def _edge_index(graph: Graph) -> tuple[Tensor, Optional[Tensor]]:
    values = None
    if isinstance(graph, EdgeIndex):
        graph = graph.as_tensor()
    elif is_sparse(graph):
        graph, values = to_edge_index(graph)
        graph = graph.flip(0)
    if graph.dim() != 2 or graph.size(0) != 2:
        raise ValueError(f"edge_index: got shape {list(graph.shape)}, expected [2, E]")
    return _as_int64("edge_index", graph), values


def _edge_attr(edge_attr: EdgeAttr, count: int, edge_dim: Optional[int]) -> EdgeAttr:
    if (edge_attr is None) != (edge_dim is None):
        got = "None" if edge_attr is None else "a value"
        raise ValueError(f"edge_attr: got {got}, but the layer has edge_dim={edge_dim}")
    if isinstance(edge_attr, CodedEdges):
        _check_shape("edge_attr.table", edge_attr.table, None, edge_dim)
        _check_shape("edge_attr.codes", edge_attr.codes.unsqueeze(-1), count, 1)
    elif edge_attr is not None:
        edge_attr = edge_attr.unsqueeze(-1) if edge_attr.dim() == 1 else edge_attr
        _check_shape("edge_attr", edge_attr, count, edge_dim)
    return edge_attr


class NodeGlobals(NamedTuple):
    """Graph features and the graph of each node."""

    values: Tensor  # [B, G]
    batch: Optional[Tensor]  # [N]; None = all nodes are of the one graph

    def at_nodes(self, values: Tensor) -> Tensor:
        """Give each node its graph's row of ``values`` ``[B, ...]``, in a shape that broadcasts."""
        return values if self.batch is None else values.index_select(0, self.batch)


Globals = Union[tuple[NodeGlobals, NodeGlobals], tuple[None, None]]  # of senders and of receivers


def read_globals(
    u: Optional[Tensor],
    batch: Union[Tensor, Pair, None],
    x: Pair,
    global_dim: Optional[int],
    graph: Union[Tensor, CompleteGraphs],
) -> Globals:
    """Check the shapes of graph features and of the graph of each node."""
    if u is None or global_dim is None:
        if u is not None or global_dim is not None:
            got = "None" if u is None else "a value"
            raise ValueError(f"u: got {got}, but the layer has global_dim={global_dim}")
        return None, None
    complete = isinstance(graph, CompleteGraphs)
    _check_shape("u", u, graph.num_graphs if complete else None, global_dim)
    if complete:
        batch = graph.row_graph
    if batch is None:
        _check_shape("u, without batch", u, 1, global_dim)
        return NodeGlobals(u, None), NodeGlobals(u, None)
    batches = (batch, batch) if isinstance(batch, Tensor) else batch
    for nodes, of in zip(x, batches, strict=True):
        _check_shape("batch", of.unsqueeze(-1), nodes.size(0), 1)
    senders, receivers = (_as_int64("batch", of) for of in batches)
    return NodeGlobals(u, senders), NodeGlobals(u, receivers)


def _check_shape(name: str, x: Tensor, rows: Optional[int], columns: Optional[int]) -> None:
    """Check that ``x`` is ``[rows, columns]``; None and -1 = any."""
    if (
        x.dim() != 2
        or (rows is not None and x.size(0) != rows)
        or (columns is not None and columns >= 0 and x.size(1) != columns)
    ):
        # Only in the message: torch.compile specializes on a size that becomes text.
        wanted = ", ".join("*" if n in (None, -1) else str(n) for n in (rows, columns))
        raise ValueError(f"{name}: got shape {list(x.shape)}, expected [{wanted}]")


def _as_int64(name: str, index: Tensor) -> Tensor:
    """Convert integers, which PyG accepts in any size."""
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"{name}: got {index.dtype}, expected integers")
    return index.long()
