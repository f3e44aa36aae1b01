"""Normalization of nodes and of edges, whose statistics leave out padding."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, Optional

from torch import Tensor, nn
from torch_geometric.nn.norm import BatchNorm
from torch_geometric.nn.resolver import normalization_resolver
from torch_geometric.typing import OptTensor

from molattn.nn.graph_inputs import edge_list

_NORMS: dict[Optional[str], Callable[[int], nn.Module]] = {
    None: nn.Identity,
    "layer": nn.LayerNorm,  # of each row by itself, PyG's of a graph
    "batch": partial(BatchNorm, allow_single_element=True),
}


def make_norm(norm: Optional[str], channels: int) -> nn.Module:
    """Make a normalization by its name, ``layer`` or one of PyG's; None = the identity."""
    make = _NORMS.get(norm, partial(normalization_resolver, norm))
    return make(channels)


def normalize_rows(
    norm: nn.Module, rows: Tensor, graph: Any, batch: OptTensor = None, *, of_pairs: bool = False
) -> Tensor:
    """Normalize rows of nodes ``[R, F]``, or with ``of_pairs`` rows of pairs ``[P, F]``.

    ``batch`` is the graph of each node of a list of edges; None = one graph.
    """
    if _is_rowwise(norm):
        return norm(rows)
    edges, _ = edge_list(graph)
    index = edges.batch if batch is None else batch
    if not of_pairs:
        return edges.nodes_to_rows(_normalize(norm, edges.rows_to_nodes(rows), index))
    index = None if index is None else index[edges.edge_index[1]]
    return edges.edges_to_pairs(_normalize(norm, edges.pairs_to_edges(rows), index))


def _is_rowwise(norm: nn.Module) -> bool:
    """Whether no row is normalized by others."""
    is_fixed = isinstance(norm, BatchNorm) and not norm.training
    return is_fixed or isinstance(norm, (nn.LayerNorm, nn.Identity))


def _normalize(norm: nn.Module, x: Tensor, index: OptTensor) -> Tensor:
    return norm(x, index) if "batch" in signature(norm.forward).parameters else norm(x)
