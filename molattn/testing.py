"""Assertions of permutation equivariance and invariance, for molattn's layers and your own.

For a permutation :math:`P` of nodes, a layer :math:`f` on a graph :math:`G` is *equivariant* when
:math:`f(P G) = P f(G)`, and a model is *invariant* when :math:`f(P G) = f(G)`.
"""

import inspect
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

__all__ = ["assert_permutation_equivariant", "assert_permutation_invariant", "permute_nodes"]

_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
_HALF_TOLERANCE = 2e-2


def permute_nodes(data: Data, node_order: Tensor, edge_order: Optional[Tensor] = None) -> Data:
    """Relabel the nodes of a graph, and list its edges in another order.

    Args:
        data: The graph. An attribute counts as one of nodes or of edges as PyG has it
            (``Data.is_node_attr``, ``Data.is_edge_attr``).
        node_order: New node ``i`` is old node ``node_order[i]``, ``[N]``.
        edge_order: New edge ``k`` is old edge ``edge_order[k]``, ``[E]``; None = the same.

    Returns:
        A new graph.
    """
    new_label = torch.empty_like(node_order)
    new_label[node_order] = torch.arange(node_order.numel(), device=node_order.device)
    out = data.clone()
    for name, value in data.to_dict().items():
        if not isinstance(value, Tensor):
            continue
        if value.layout != torch.strided:
            raise ValueError(f"{name}: got {value.layout}, expected edge_index: a dense tensor")
        if name == "edge_index":
            edges = new_label[value]
            out[name] = edges if edge_order is None else edges[:, edge_order]
        elif data.is_node_attr(name):
            out[name] = value[node_order]
        elif data.is_edge_attr(name) and edge_order is not None:
            out[name] = value[edge_order]
    return out


def assert_permutation_equivariant(
    module: nn.Module,
    data: Data,
    *,
    trials: int = 3,
    tolerance: Optional[float] = None,
    seed: int = 0,
) -> float:
    """Assert that relabeling nodes permutes a layer's outputs and changes nothing else.

    Nodes are relabeled and edges listed in another order. A tensor that comes out with one row
    for each node must follow the nodes, one with a row for each edge the edges; a returned
    ``edge_index`` must be the one given.

    Args:
        module: Called with the attributes of ``data`` whose names are those of parameters of its
            ``forward`` (``x``, ``edge_index``, ``edge_attr``, ...), or with ``data`` itself if it
            shares none but ``batch``. Put it in ``eval()`` first if it has dropout.
        data: A graph; give it different numbers of nodes and edges.
        trials: Number of random permutations.
        tolerance: Largest error relative to the largest output; None = 1e-10 in float64, 1e-5 in
            float32, 2e-2 in half precision.
        seed: Seed of the permutations.

    Returns:
        The worst error.

    Raises:
        AssertionError: Not equivariant; names the worst error and where it is.
        ValueError: As many edges as nodes, an output with a row for neither, a parameter without
            an attribute of ``data``, or a sparse ``adj_t``.
    """
    num_nodes, num_edges = _counts(data)
    if num_nodes == num_edges:
        raise ValueError(
            f"data: got {num_nodes} nodes and as many edges, expected different numbers: "
            "outputs of nodes and of edges could not be distinguished"
        )
    expected = _outputs(module, data)
    worst = _Worst(tolerance)
    for node_order, edge_order in _orders(data, trials, seed):
        permuted = permute_nodes(data, node_order, edge_order)
        got = _outputs(module, permuted)
        for name, before in expected.items():
            if before.dtype == torch.int64 and before.shape == (2, num_edges):
                _check_handed_back(name, (before, data), (got[name], permuted))
            elif before.dim() and before.size(0) == num_nodes:
                worst.see(name, before[node_order], got[name])
            elif before.dim() and before.size(0) == num_edges:
                worst.see(name, before[edge_order], got[name])
            else:
                raise ValueError(
                    f"{name}: got shape {list(before.shape)}, expected a row for each of "
                    f"{num_nodes} nodes or {num_edges} edges; "
                    "use assert_permutation_invariant for outputs of the whole graph"
                )
    return worst.check(f"{type(module).__name__} is not permutation equivariant")


def assert_permutation_invariant(
    module: nn.Module,
    data: Data,
    *,
    trials: int = 3,
    tolerance: Optional[float] = None,
    seed: int = 0,
) -> float:
    """Assert that relabeling nodes does not change a model's outputs.

    Args:
        module: See :func:`assert_permutation_equivariant`.
        data: A graph, or a PyG ``Batch`` (nodes are then relabeled within each graph).
        trials: Number of random permutations.
        tolerance: See :func:`assert_permutation_equivariant`.
        seed: Seed of the permutations.

    Returns:
        The worst error.

    Raises:
        AssertionError: Not invariant; names the worst error and where it is.
        ValueError: A graph without node features.
    """
    orders = list(_orders(data, trials, seed))
    expected = _outputs(module, data)
    worst = _Worst(tolerance)
    for node_order, edge_order in orders:
        got = _outputs(module, permute_nodes(data, node_order, edge_order))
        for name, before in expected.items():
            worst.see(name, before, got[name])
    return worst.check(f"{type(module).__name__} is not permutation invariant")


def _check_handed_back(name: str, *pairs: tuple[Tensor, Data]) -> None:
    for edges, data in pairs:
        if data.edge_index is None or not torch.equal(edges, data.edge_index):
            raise AssertionError(f"{name}: got an edge_index that is not the one given")


class _Worst:
    """The largest error so far, relative to the tolerance."""

    def __init__(self, tolerance: Optional[float]) -> None:
        self.tolerance = tolerance
        self.error = 0.0
        self.excess = 0.0
        self.where = ""

    def see(self, name: str, expected: Tensor, got: Tensor) -> None:
        if expected.shape != got.shape:
            raise AssertionError(
                f"{name}: shape {list(got.shape)} after relabeling, {list(expected.shape)} before"
            )
        if expected.numel() == 0:
            return
        allowed = self.tolerance
        if allowed is None:
            allowed = _TOLERANCE.get(expected.dtype, _HALF_TOLERANCE)
        before, after = expected.double(), got.double()
        largest = before.abs().max()
        error = (before - after).abs() / (largest if largest > 0 else 1.0)
        error = torch.where(before == after, 0.0, error)  # two equal infinities
        most = float(error.nan_to_num(nan=torch.inf).max())
        if self.where and most / allowed <= self.excess:
            return
        place = int(error.nan_to_num(nan=torch.inf).argmax())
        index = [int(i) for i in torch.unravel_index(torch.tensor(place), error.shape)]
        self.error, self.excess = most, most / allowed
        self.where = (
            f"worst error {most:.3g} (allowed {allowed:.3g}) in {name}{index}: "
            f"{float(after.flatten()[place]):.9g} after relabeling, "
            f"{float(before.flatten()[place]):.9g} expected"
        )

    def check(self, message: str) -> float:
        if self.excess > 1:
            raise AssertionError(f"{message}: {self.where}")
        return self.error


def _counts(data: Data) -> tuple[int, int]:
    if data.num_nodes is None:
        raise ValueError("data: got a graph without node features, expected x or num_nodes")
    return data.num_nodes, data.num_edges


def _orders(data: Data, trials: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    num_nodes, num_edges = _counts(data)
    if trials < 1 or num_nodes < 2:
        raise ValueError(
            f"got {trials} trials on {num_nodes} nodes, expected at least 1 on at least 2: "
            "otherwise any module would pass"
        )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(trials):
        order = torch.randperm(num_nodes, generator=generator)
        batch = data.get("batch")
        if batch is not None:  # keep each graph's nodes together, as PyG's batches do
            order = order[batch.cpu()[order].argsort(stable=True)]
        edges = torch.randperm(num_edges, generator=generator)
        device = data.edge_index.device if data.edge_index is not None else None
        yield order.to(device), edges.to(device)


@torch.no_grad()
def _outputs(module: nn.Module, data: Data) -> dict[str, Tensor]:
    parameters = [
        parameter
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    given = {p.name: data[p.name] for p in parameters if p.name in data}
    # `batch` alone is no graph: a module whose only parameter is `batch` takes the whole batch.
    if not given.keys() - {"batch"}:
        return _named_outputs(module, module(data))
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in given:
            raise ValueError(
                f"{type(module).__name__}.forward needs {parameter.name!r}, which data lacks: "
                f"it has {', '.join(data.keys())}"
            )
    return _named_outputs(module, module(**given))


def _named_outputs(module: nn.Module, out: Any) -> dict[str, Tensor]:
    tensors = dict(_tensors("output", out))
    if not tensors:
        raise ValueError(f"{type(module).__name__}: got no tensor as output, expected at least one")
    return tensors


def _tensors(name: str, thing: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(thing, Tensor):
        yield name, thing
    elif isinstance(thing, (tuple, list)):
        for i, part in enumerate(thing):
            yield from _tensors(f"{name}[{i}]", part)
    elif thing is not None:
        raise ValueError(f"{name}: got {type(thing).__name__}, expected tensors")
