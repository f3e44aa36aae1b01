"""Check the inputs of a layer, and convert every kind of PyG graph to one form."""

from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import (
    Size,
    SparseTensor,  # pyright: ignore[reportAttributeAccessIssue]  (a stand-in when not installed)
)
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from molattn.graph.complete import CodedEdges, CompleteGraphs

Pair = tuple[Tensor, Tensor]
Nodes = Union[Tensor, Pair, tuple[Tensor, None]]
Graph = Union[Tensor, SparseTensor, CompleteGraphs]
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


def as_pair(x: Union[Tensor, Pair], name: str = "x") -> Pair:
    """Read ``x`` as (senders, receivers)."""
    if isinstance(x, Tensor):
        return x, x
    if isinstance(x, (tuple, list)) and len(x) == 2 and all(isinstance(t, Tensor) for t in x):
        return x[0], x[1]
    raise TypeError(
        f"{name}: got {_kind(x)}, expected a tensor or a pair (senders, receivers) of tensors"
    )


def check_features(name: str, x: object, channels: int, rows: Optional[int] = None) -> None:
    """Check that ``x`` is a floating-point tensor ``[rows, channels]``; -1 = any ``channels``."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {_kind(x)}, expected a tensor")
    if (
        x.dim() != 2
        or (channels >= 0 and x.size(1) != channels)
        or (rows is not None and x.size(0) != rows)
    ):
        raise ValueError(f"{name}: got shape {list(x.shape)}, expected {_shape(rows, channels)}")
    if not x.is_floating_point():
        raise TypeError(
            f"{name}: got {x.dtype}, expected a floating-point tensor {_shape(rows, channels)}"
        )


def _check_dtype(name: str, given: EdgeAttr, like: Tensor) -> None:
    """Check that features have the type of the nodes; autocast converts what differs."""
    given = given.table if isinstance(given, CodedEdges) else given
    if given is None or given.dtype == like.dtype or torch.is_autocast_enabled(like.device.type):
        return
    raise TypeError(f"{name}: got {given.dtype}, expected {like.dtype}, as the nodes have")


def read_graph(
    x: Nodes,
    graph: Graph,
    edge_attr: EdgeAttr,
    in_channels: Union[int, tuple[int, int]],
    edge_dim: Optional[int],
    size: Size = None,
    flow: str = "source_to_target",
) -> tuple[Pair, Edges]:
    """Check nodes, graph and edge features, and convert any PyG graph to a list of edges.

    Args:
        x: Node features, or a pair (senders, receivers), of which the receivers may be None: they
            have no features, and count as zeros.
        graph: Any PyG graph, or complete graphs.
        edge_attr: Edge features.
        in_channels: Number of node features, or a pair (senders, receivers); -1 = any.
        edge_dim: Number of edge features; -1 = any; None = the layer reads none.
        size: Number of senders and of receivers; None = those of ``x``, and as many receivers as
            senders if they have no features.
        flow: As in ``MessagePassing``: with ``target_to_source``, row 0 of ``edge_index`` holds the
            receivers.

    Returns:
        The features of senders and of receivers, and edges from sender to receiver.

    Raises:
        ValueError: A wrong shape.
        TypeError: A wrong type.
        IndexError: An edge to a node that does not exist.
    """
    source, target = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
    if size is not None and not (isinstance(size, (tuple, list)) and len(size) == 2):
        raise TypeError(f"size: got {size}, expected a pair (senders, receivers)")
    if not isinstance(edge_attr, (Tensor, CodedEdges, NoneType)):
        raise TypeError(f"edge_attr: got {_kind(edge_attr)}, expected a tensor")
    pair = x_src, x_dst = as_pair(_with_receivers(x, graph, size, target))
    one = x_src is x_dst
    check_features("x" if one else "x[0] (senders)", x_src, source)
    check_features("x" if one else "x[1] (receivers)", x_dst, target)
    _check_dtype("x[1] (receivers)", x_dst, x_src)
    reverse = flow == "target_to_source"
    if reverse and (not one or not isinstance(graph, Tensor) or is_torch_sparse_tensor(graph)):
        raise ValueError(
            "flow='target_to_source' can be used only with an edge_index and one set of nodes; for "
            "other graphs use the default flow and swap senders and receivers"
        )
    if isinstance(graph, CompleteGraphs):
        if size is not None:
            raise ValueError("size cannot be used with CompleteGraphs")
        edges = read_complete(pair, graph, edge_attr, edge_dim)
        _check_dtype("edge_attr", edges.attr, x_src)
        return pair, edges
    if isinstance(edge_attr, CodedEdges):
        raise TypeError(
            "edge_attr: got CodedEdges, expected a tensor; CodedEdges are used only with "
            "CompleteGraphs"
        )
    numbers = (x_src.size(0), x_dst.size(0))
    if size is not None and any(
        given not in (None, number) for given, number in zip(size, numbers, strict=True)
    ):
        raise ValueError(f"size: got {size}, expected {numbers}, the rows of x")
    edges = read_edges(graph, edge_attr, *numbers, edge_dim)
    _check_dtype("edge_attr", edges.attr, x_src)
    return pair, edges._replace(index=edges.index.flip(0)) if reverse else edges


def _with_receivers(x: Nodes, graph: Graph, size: Size, channels: int) -> Any:
    """Replace receivers without features, ``(x, None)``, by zeros."""
    if not isinstance(x, (tuple, list)) or len(x) != 2 or x[1] is not None:
        return x
    if isinstance(graph, CompleteGraphs) or channels < 0:
        reason = "CompleteGraphs" if isinstance(graph, CompleteGraphs) else "in_channels=-1"
        raise ValueError(f"x: got (senders, None), which cannot be used with {reason}")
    check_features("x[0] (senders)", x[0], -1)
    senders, count = x[0], None if size is None else size[1]
    if count is not None and count < 0:
        raise ValueError(f"size: got {size}, expected at least 0 receivers")
    if isinstance(graph, SparseTensor) or is_torch_sparse_tensor(graph):
        count = graph.size(0)
    elif isinstance(graph, EdgeIndex) and count is None:
        count = graph.sparse_size(1)
    return senders, senders.new_zeros(senders.size(0) if count is None else count, channels)


def read_edges(
    edge_index: Union[Tensor, SparseTensor],
    edge_attr: Optional[Tensor],
    num_senders: int,
    num_receivers: int,
    edge_dim: Optional[int],
) -> Edges:
    """Convert any PyG graph to a list of edges, and check it.

    An ``adj_t`` (rows are receivers) may be a torch sparse tensor or a
    ``torch_sparse.SparseTensor``. Its edges have the order in which it stores them, and its values
    are the edge features if the layer reads some and ``edge_attr`` is None. Indices are checked on
    the CPU only: on a GPU this would cost a synchronization in every call.
    """
    index, values = _read_index(edge_index, num_senders, num_receivers)
    if index.dim() != 2 or index.size(0) != 2:
        raise ValueError(f"edge_index: got shape {list(index.shape)}, expected [2, E]")
    index = _as_int64("edge_index", index)
    senders = ("edge_index[0]", "senders", num_senders)
    receivers = ("edge_index[1]", "receivers", num_receivers)
    _check_range(index, (senders, receivers))
    if edge_attr is None and edge_dim is not None:
        edge_attr = values
    return Edges(index, _check_attr(edge_attr, index.size(1), edge_dim))


def read_complete(
    nodes: Pair,
    graph: CompleteGraphs,
    edge_attr: EdgeAttr,
    edge_dim: Optional[int],
) -> Edges:
    """Check the rows of nodes ``[num_rows, F]`` and of pairs ``[num_pairs, D]``."""
    x, receivers = nodes
    if x is not receivers:
        raise TypeError("x: got a pair, expected a tensor: complete graphs are not bipartite")
    if x.size(0) == graph.num_nodes != graph.num_rows:
        raise ValueError(
            f"x: got {graph.num_nodes} nodes, expected {graph.num_rows} rows of the complete "
            "graphs: use graphs.nodes_to_rows(x), and graphs.rows_to_nodes(out) on the result"
        )
    check_features("x", x, -1, graph.num_rows)
    if isinstance(edge_attr, CodedEdges):
        if edge_dim is None:
            raise ValueError("edge_attr: got CodedEdges, but the layer has edge_dim=None")
        check_features("edge_attr.table", edge_attr.table, edge_dim)
        if edge_attr.codes.shape != (graph.num_pairs,) or edge_attr.codes.dtype != torch.int64:
            raise ValueError(
                f"edge_attr.codes: got {edge_attr.codes.dtype} {list(edge_attr.codes.shape)}, "
                f"expected torch.int64 [{graph.num_pairs}]"
            )
        _check_codes(edge_attr, graph)
        return Edges(graph, edge_attr)
    rows = graph.num_pairs if edge_attr is None or not edge_attr.dim() else edge_attr.size(0)
    if rows != graph.num_pairs and rows == graph.num_edges:
        raise ValueError(
            f"edge_attr: got {graph.num_edges} edges, expected {graph.num_pairs} pairs of the "
            "complete graphs: use graphs.edges_to_pairs(edge_attr)"
        )
    return Edges(graph, _check_attr(edge_attr, graph.num_pairs, edge_dim))


def _check_codes(edges: CodedEdges, graph: CompleteGraphs) -> None:
    """Check that the codes and the graphs have the same pairs as edges."""
    if edges.codes.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if torch._C._len_torch_dispatch_stack():  # fake tensors have no values
        return
    codes, count = graph.checked_codes or (None, None)
    if codes is edges.codes and count == edges.table.size(0):  # by a layer before this one
        return
    count = edges.table.size(0)
    if edges.codes.numel() and not 0 <= int(edges.codes.min()) <= int(edges.codes.max()) <= count:
        raise IndexError(
            f"edge_attr.codes: got {int(edges.codes.min())} to {int(edges.codes.max())}, "
            f"expected 0 to {count}"
        )
    if not torch.equal(edges.codes < count, graph.is_edge):
        raise ValueError(
            f"edge_attr.codes: expected {count} for the pairs that are not edges, and less for all "
            "others; use CodedEdges.from_edges"
        )
    graph.checked_codes = edges.codes, count


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
    """Check graph features, for senders and for receivers."""
    if global_dim is None:
        if u is not None:
            raise ValueError(f"u: got shape {list(u.shape)}, but the layer has global_dim=None")
        return None, None
    if u is None:
        raise ValueError(
            f"u: got None, expected [B, {global_dim}]: the layer has global_dim={global_dim}"
        )
    complete = isinstance(graph, CompleteGraphs)
    check_features("u", u, global_dim, graph.num_graphs if complete else None)
    _check_dtype("u", u, x[1])
    if complete:
        batch = graph.row_graph
    if batch is None:
        if u.size(0) != 1:
            raise ValueError(
                f"batch: got None and u of {u.size(0)} graphs, expected the graph of each node, "
                "int64 [N]"
            )
        return NodeGlobals(u, None), NodeGlobals(u, None)
    batches = as_pair(batch, "batch")
    for nodes, of in zip(x, batches, strict=True):
        if tuple(of.shape) != (nodes.size(0),):
            raise ValueError(f"batch: got shape {list(of.shape)}, expected [{nodes.size(0)}]")
    batches = tuple(_as_int64("batch", of) for of in batches)
    for of in batches:
        _check_range(of.unsqueeze(0), (("batch", "graphs", u.size(0)),))
    return NodeGlobals(u, batches[0]), NodeGlobals(u, batches[1])


def at_receivers(rows: Tensor, graph: Union[Tensor, CompleteGraphs]) -> Tensor:
    """Give each edge its receiver's row."""
    if isinstance(graph, CompleteGraphs):
        return graph.receivers_to_pairs(rows)
    return rows.index_select(0, graph[1])


def edge_list(
    x: Tensor, graph: CompleteGraphs, edge_attr: EdgeAttr
) -> tuple[Tensor, Optional[Tensor]]:
    """Take nodes and edge features out of rows, for a layer that reads ``graph.edge_index``."""
    if isinstance(edge_attr, CodedEdges):
        edge_attr = edge_attr.dense()
    attr = None if edge_attr is None else graph.pairs_to_edges(edge_attr)
    return graph.rows_to_nodes(x), attr


def results_in_rows(out: Any, graph: CompleteGraphs, *, edges: bool, weights: bool) -> Any:
    """Convert to rows what a layer returned for ``graph.edge_index``.

    With ``edges``, updated edges follow the nodes; with ``weights``, the last item is
    ``(edge_index, alpha)``, of which ``edge_index`` is replaced by ``graph``.
    """
    if not isinstance(out, tuple):
        return graph.nodes_to_rows(out)
    result = [graph.nodes_to_rows(out[0]), *out[1:]]
    if edges:
        result[1] = graph.edges_to_pairs(out[1])
    if weights:
        result[-1] = (graph, graph.edges_to_pairs(out[-1][1]))
    return tuple(result)


def _check_attr(
    edge_attr: Optional[Tensor], num_edges: int, edge_dim: Optional[int]
) -> Optional[Tensor]:
    if edge_dim is None:
        if edge_attr is not None:
            raise ValueError(
                f"edge_attr: got shape {list(edge_attr.shape)}, but the layer has edge_dim=None"
            )
        return None
    wanted = "*" if edge_dim < 0 else edge_dim
    if edge_attr is None:
        raise ValueError(
            f"edge_attr: got None, expected [{num_edges}, {wanted}]: the layer has "
            f"edge_dim={edge_dim}"
        )
    if edge_attr.dim() == 1:
        edge_attr = edge_attr.unsqueeze(-1)
    check_features("edge_attr", edge_attr, edge_dim, num_edges)
    return edge_attr


def _read_index(
    edge_index: Union[Tensor, SparseTensor], num_senders: int, num_receivers: int
) -> tuple[Tensor, Optional[Tensor]]:
    if isinstance(edge_index, EdgeIndex):
        return edge_index.as_tensor(), None
    if isinstance(edge_index, SparseTensor):
        row, col, value = edge_index.coo()  # pyright: ignore[reportAttributeAccessIssue]
        return torch.stack([col, row]), value
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f"edge_index: got {_kind(edge_index)}, expected int64 [2, E], an EdgeIndex, "
            "a sparse adj_t or CompleteGraphs"
        )
    if is_torch_sparse_tensor(edge_index):
        if tuple(edge_index.shape[:2]) != (num_receivers, num_senders):
            raise ValueError(
                f"adj_t: got shape {list(edge_index.shape)}, expected "
                f"[{num_receivers}, {num_senders}] (receivers, senders)"
            )
        if edge_index.layout == torch.sparse_coo and not edge_index.is_coalesced():
            # PyG would mark it as coalesced, which it is not.
            return edge_index._indices().flip(0), edge_index._values()
        transposed, values = to_edge_index(edge_index)
        return transposed.flip(0), values
    return edge_index, None


def _check_range(indices: Tensor, rows: Sequence[tuple[str, str, int]]) -> None:
    """Check rows of indices, each with its name, what it indexes and the number of these."""
    if indices.numel() == 0 or indices.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = indices.aminmax(dim=1)
    for row, (name, things, size) in enumerate(rows):
        least, most = int(low[row]), int(high[row])
        if least < 0 or most >= size:
            raise IndexError(
                f"{name}: got indices from {least} to {most}, expected 0 <= index < {size}, the "
                f"number of {things}"
            )


def _as_int64(name: str, index: Tensor) -> Tensor:
    """Convert integers, which PyG accepts in any size."""
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(f"{name}: got {index.dtype}, expected integers")
    return index.long()


def _shape(rows: Optional[int], channels: int) -> str:
    """Format a shape, for messages only: torch.compile specializes on a size that becomes text."""
    return f"[{'*' if rows is None else rows}, {'*' if channels < 0 else channels}]"


def _kind(thing: object) -> str:
    return type(thing).__name__
