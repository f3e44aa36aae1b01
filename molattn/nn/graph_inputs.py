"""Every kind of PyG graph in one form, and checks of shapes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Optional, Protocol, Union

from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import OptPairTensor, PairTensor, Size
from torch_geometric.utils import is_sparse, to_edge_index

from molattn.graph.complete import CodedEdges, CompleteGraphs

Nodes = Union[Tensor, OptPairTensor]
Graph = Any  # [2, E], EdgeIndex, sparse adj_t or CompleteGraphs
EdgeAttr = Union[Tensor, CodedEdges, None]


class EdgeList(NamedTuple):
    """A list of edges with the methods of a layout: its rows are nodes, its pairs are edges."""

    edge_index: Tensor  # sender and receiver of each edge, int64 [2, E]
    batch: Optional[Tensor] = None  # the graph of each node, ascending, int64 [N]

    @property
    def num_pairs(self) -> int:
        """Number of edges."""
        return self.edge_index.size(1)

    def rows_to_nodes(self, rows: Tensor) -> Tensor:
        """Return the rows unchanged: an edge list has no padding."""
        return rows

    nodes_to_rows = edges_to_pairs = pairs_to_edges = rows_to_nodes

    def receivers_to_pairs(self, rows: Tensor) -> Tensor:
        """Give each edge its receiver's row."""
        return rows.index_select(0, self.edge_index[1])

    def pairwise_sums(self, receivers: Tensor, senders: Tensor) -> Tensor:
        """Add the rows of each edge's receiver and sender."""
        return self.receivers_to_pairs(receivers) + senders.index_select(0, self.edge_index[0])

    def pairs_to_receivers(self, pairs: Tensor, rows: int) -> Tensor:
        """Add up the edges of each receiver, ``[rows, ...]``."""
        total = pairs.new_zeros((rows, *pairs.shape[1:]))
        return total.index_add(0, self.edge_index[1], pairs)


Edges = Union[EdgeList, CompleteGraphs]


def edge_features(attr: EdgeAttr) -> Any:
    """Features of each edge, ``[E, D]``; None if there are none."""
    return attr.dense() if isinstance(attr, CodedEdges) else attr


def edges_at(attr: Union[Tensor, CodedEdges], rows: Tensor) -> Tensor:
    """Features of the edges of some rows, by their indices or as a mask."""
    return attr.padded_table[attr.codes[rows]] if isinstance(attr, CodedEdges) else attr[rows]


def map_edges(function: Callable[[Tensor], Tensor], attr: EdgeAttr) -> Any:
    """A function of each edge's features, ``[E, D']``, computed once for edges of one code."""
    if isinstance(attr, CodedEdges):
        return replace(attr, table=function(attr.table)).dense()
    return None if attr is None else function(attr)


class Reader(Protocol):
    """Attributes of a layer that :func:`read_graph` uses."""

    source_channels: int
    target_channels: int
    edge_dim: Optional[int]
    flow: str


def read_graph(
    layer: Reader, x: Nodes, graph: Graph, edge_attr: EdgeAttr, size: Size = None
) -> tuple[PairTensor, Edges, EdgeAttr]:
    """Convert the inputs of a layer, and check their shapes.

    Args:
        layer: Its widths may be -1 for any; with ``flow="target_to_source"``, row 0 of
            ``edge_index`` holds the receivers.
        x: See :meth:`AttentionConv.forward`.
        edge_attr: Likewise.
        graph: Any PyG graph, or complete graphs. An ``adj_t`` (rows are receivers) may be a sparse
            tensor of torch or of torch_sparse; its values are the edge features if the layer reads
            some and ``edge_attr`` is None.
        size: Number of senders and of receivers; None = those of ``x`` or of a graph that has them,
            otherwise as many receivers without features as senders.

    Returns:
        The features of senders and of receivers, edges from sender to receiver, and their features.
    """
    pair = _node_pair(layer, x, graph, size)
    edges, values = edge_list(graph, layer.flow)
    if edge_attr is None and layer.edge_dim is not None:
        edge_attr = values
    if isinstance(edge_attr, Tensor) and edge_attr.dim() == 1:
        edge_attr = edge_attr.unsqueeze(-1)
    if isinstance(edges, CompleteGraphs):
        pair = _complete_pair(layer, pair, edges)
    if size and any(n not in (None, len(rows)) for n, rows in zip(size, pair, strict=True)):
        raise ValueError(f"size: got {size}, expected {tuple(map(len, pair))}, the rows of x")
    if not pair[0].is_floating_point():
        raise ValueError(f"x: got {pair[0].dtype}, expected floating-point numbers; embed codes")
    check_shape("x", pair[0], None, layer.source_channels)
    check_shape("x[1] (receivers)", pair[1], None, layer.target_channels)
    check_presence("edge_attr", edge_attr, "edge_dim", layer.edge_dim)
    if isinstance(edge_attr, CodedEdges):
        check_shape("edge_attr.table", edge_attr.table, None, layer.edge_dim)
        check_shape("edge_attr.codes", edge_attr.codes.unsqueeze(-1), edges.num_pairs, 1)
        if isinstance(edges, CompleteGraphs) and edges.kept is not None:
            codes = edge_attr.codes.masked_fill(~edges.kept, len(edge_attr.table))
            edge_attr = replace(edge_attr, codes=codes)
    elif edge_attr is not None:
        check_shape("edge_attr", edge_attr, edges.num_pairs, layer.edge_dim)
    return pair, edges, edge_attr


def _complete_pair(layer: Reader, pair: PairTensor, graphs: CompleteGraphs) -> PairTensor:
    """Rows of complete graphs as senders and receivers."""
    if pair[0] is not pair[1] or layer.flow != "source_to_target":
        raise ValueError("CompleteGraphs: expected one set of nodes and the default flow")
    rows = as_rows(pair[0], graphs)
    if rows.size(0) != graphs.num_rows:
        raise ValueError(
            f"x: got {rows.size(0)} nodes, expected {graphs.num_nodes} nodes, or {graphs.num_rows} "
            "rows, of the complete graphs"
        )
    return rows, rows


def as_rows(x: Tensor, edges: Edges) -> Tensor:
    """Lay nodes ``[N, ...]`` of complete graphs out as rows; rows stay as they are.

    Unless nodes and rows are the same, there are more rows than nodes.
    """
    if not isinstance(edges, CompleteGraphs) or x.size(0) == edges.num_rows:
        return x
    return edges.nodes_to_rows(x) if x.size(0) == edges.num_nodes else x


def like_input(rows: Tensor, x: Nodes, edges: Edges) -> Tensor:
    """Take nodes from rows of complete graphs if a layer was called with nodes."""
    if not isinstance(edges, CompleteGraphs) or one_set(x).size(0) == rows.size(0):
        return rows
    return edges.rows_to_nodes(rows)


def _node_pair(layer: Reader, x: Nodes, graph: Graph, size: Size) -> PairTensor:
    """Features of senders and of receivers."""
    if isinstance(x, Tensor):
        return x, x
    senders, receivers = x
    if receivers is None:
        width = layer.target_channels
        reverse = layer.flow == "target_to_source"
        if width < 0:
            raise ValueError("x: got (senders, None), which cannot be used with in_channels=-1")
        count = None if size is None else size[1]
        if not isinstance(graph, CompleteGraphs) and is_sparse(graph):
            count = graph.size(int(reverse))
        elif isinstance(graph, EdgeIndex) and count is None:
            count = graph.sparse_size(int(not reverse))
        receivers = senders.new_zeros(len(senders) if count is None else count, width)
    return senders, receivers


def one_set(x: Nodes) -> Tensor:
    """Nodes ``[N, F]`` that are senders and receivers; PyG's layers take a pair of them, too."""
    if isinstance(x, Tensor):
        return x
    if x[0] is not x[1]:
        raise ValueError("x: got senders and receivers, expected one set of nodes for both")
    return x[0]


def edge_list(graph: Graph, flow: str = "source_to_target") -> tuple[Edges, Optional[Tensor]]:
    """Edges from sender to receiver, and the values of a sparse matrix."""
    if isinstance(graph, CompleteGraphs):
        return graph, None
    values = None
    if isinstance(graph, EdgeIndex):
        graph = graph.as_tensor()
    elif is_sparse(graph):
        graph, values = to_edge_index(graph)
        graph = graph.flip(0)
    if not graph.is_floating_point():  # PyG takes integers of any size, and raises for others
        graph = graph.long()
    return EdgeList(graph.flip(0) if flow == "target_to_source" else graph), values


class NodeGlobals(NamedTuple):
    """Graph features and the graph of each row."""

    values: Tensor  # [B, G]
    batch: Optional[Tensor]  # [R]; None = all rows are of the one graph

    def at_rows(self, values: Tensor) -> Tensor:
        """Give each row its graph's part of ``values`` ``[B, ...]``, in a shape that broadcasts."""
        return values if self.batch is None else values.index_select(0, self.batch)


Globals = Optional[tuple[NodeGlobals, NodeGlobals]]  # of senders and of receivers


def read_globals(
    u: Optional[Tensor],
    batch: Union[Tensor, PairTensor, None],
    x: PairTensor,
    edges: Edges,
    global_dim: Optional[int],
) -> Globals:
    """Check the shapes of graph features and of the graph of each node."""
    check_presence("u", u, "global_dim", global_dim)
    if u is None:
        return None
    if isinstance(edges, CompleteGraphs):
        check_shape("u", u, edges.num_graphs, global_dim)
        batch = edges.row_graph
    else:
        check_shape("u", u, 1 if batch is None else None, global_dim)
    if batch is None:
        return NodeGlobals(u, None), NodeGlobals(u, None)
    batches = (batch, batch) if isinstance(batch, Tensor) else batch
    for nodes, graph_index in zip(x, batches, strict=True):
        check_shape("batch", graph_index.unsqueeze(-1), nodes.size(0), 1)
    return NodeGlobals(u, batches[0].long()), NodeGlobals(u, batches[1].long())


def check_presence(name: str, x: object, option: str, width: Optional[int]) -> None:
    """Check that features are None if and only if the option of their width is."""
    if (x is None) != (width is None):
        value = "None" if x is None else "a value"
        raise ValueError(f"{name}: got {value}, but the layer has {option}={width}")


def check_shape(name: str, x: Tensor, rows: Optional[int], columns: Optional[int]) -> None:
    """Check that ``x`` is ``[rows, columns]``; None and -1 = any."""
    if (
        x.dim() != 2
        or (rows is not None and x.size(0) != rows)
        or (columns is not None and columns >= 0 and x.size(1) != columns)
    ):
        # Only in the message: torch.compile specializes on a size that becomes text.
        wanted = ", ".join("*" if n in (None, -1) else str(n) for n in (rows, columns))
        raise ValueError(f"{name}: got shape {list(x.shape)}, expected [{wanted}]")
