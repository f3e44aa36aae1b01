"""Symmetries: the order of nodes and edges, the direction of edges, rotations, translations."""

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from .subject import (
    INTEGERS,
    NotApplicableError,
    Subject,
    Worst,
    floats,
    graph_of_nodes,
    largest,
    other_values,
    step,
)

_EDGES = (
    "the columns of edge_index were reordered, and edge_attr is not read in the same order, or "
    "edges are taken to be sorted, or listed as i -> j, j -> i"
)
_NODES = (
    "the nodes were renumbered, and their numbers are used as values (a position in the list, a "
    "comparison of sender and receiver, the first node), or a norm, softmax or cumulative sum "
    "runs over dimension 0"
)
_READOUT = "a readout by position (flatten, concatenate, first node) where a sum or a mean has none"
_SMALL = 1e-5  # of the largest change
_SWAPPED = (
    "sender and receiver are swapped (x_i for x_j, index_add over edge_index[0], an adjacency "
    "matrix that is not transposed); if this is meant, pass or set flow='target_to_source'"
)
_BOTH = (
    "edges are made undirected, or messages are summed over sender and receiver; if this is meant, "
    "the layer has no direction to check"
)
_NEITHER = (
    "messages are made of the receiver's own features (x_i for x_j), edge_index is not used, "
    "weights are 0 at first, or senders that receive nothing themselves have a norm of 0"
)
_SHIFT = "positions are read as features (without a difference of two), or a center is subtracted"
_TURN = (
    "coordinates are read as separate features, in a linear layer with a bias or a nonlinearity, "
    "where distances, dot products, or vectors times a scalar are invariant or turn"
)


def permute_nodes(data: Data, node_order: Tensor, edge_order: Optional[Tensor] = None) -> Data:
    """Relabel the nodes of a graph, and list its edges in another order.

    Which attributes have a row for each node or edge is decided by PyG (``Data.is_node_attr``,
    ``Data.is_edge_attr``). Integers that PyG increments by the number of nodes in a batch
    (``Data.__inc__``) are node indices and are relabeled; of those with several dimensions only
    ``edge_index`` gets another order. ``ptr`` stays, as does ``data`` itself. New node ``i`` is old
    node ``node_order[i]``, and new edge ``k`` old edge ``edge_order[k]``.
    """
    new_label = _inverse(node_order)
    out = data.clone()
    for name, value in data.to_dict().items():
        if not isinstance(value, Tensor) or name.endswith("ptr"):
            continue
        if value.dtype in INTEGERS and step(data, name, value) == data.num_nodes:
            out[name] = value = new_label[value.long()].to(value.dtype)
            if name == "edge_index" and edge_order is not None:
                out[name] = value[:, edge_order]
            if value.dim() != 1:
                continue
        if data.is_node_attr(name):
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
    **kwargs: Any,
) -> float:
    r"""Assert that reordering nodes and edges reorders a layer's outputs and changes nothing else.

    :math:`f(P G) = P f(G)` for a permutation :math:`P` of the nodes of a graph :math:`G`. An output
    with a row for each node must follow the nodes, one with a row for each edge the edges; one with
    a row for each graph must stay. First the edges alone are reordered, then nodes and
    edges in ``trials`` permutations, drawn with ``seed``; ``tolerance``: see
    :mod:`molattn.testing`.
    """
    subject = Subject(module, data, kwargs)
    problem = f"{subject.name} is not permutation equivariant"
    worst = Worst(subject, tolerance, problem, _NODES)
    fixed = getattr(data, "num_graphs", 0)
    for node_order, edge_order in _orders(data, trials, seed):
        cause = _NODES if bool(node_order.diff().ne(1).any()) else _EDGES
        order_of = {len(edge_order): _inverse(edge_order), len(node_order): _inverse(node_order)}
        for before, after in subject.compared(permute_nodes(data, node_order, edge_order)):
            if before.edges is not None:
                worst.see_edges(before, after._replace(edges=node_order[after.edges]), cause)
            elif before.rows in order_of:
                worst.see(before, after.value, order=order_of[before.rows], cause=cause)
            elif before.rows == fixed:
                worst.see(before, after.value, cause=_READOUT)
            else:
                raise before.unlike("node or edge; see assert_permutation_invariant")
        worst.check()  # the first failure has the most specific cause
    return worst.error


def assert_permutation_invariant(
    module: nn.Module,
    data: Data,
    *,
    trials: int = 3,
    tolerance: Optional[float] = None,
    seed: int = 0,
    **kwargs: Any,
) -> float:
    """Assert that reordering nodes and edges does not change a model's outputs.

    :math:`f(P G) = f(G)` for a permutation :math:`P` of the nodes of a graph :math:`G`.
    ``trials`` permutations are drawn with ``seed``; ``tolerance``: see :mod:`molattn.testing`.
    """
    subject = Subject(module, data, kwargs)
    problem = f"{subject.name} is not permutation invariant"
    worst = Worst(subject, tolerance, problem, _READOUT)
    for orders in _orders(data, trials, seed):
        for before, after in subject.compared(permute_nodes(data, *orders)):
            worst.see(before, after.value)
    return worst.check()


def assert_edge_direction(
    module: nn.Module, data: Data, *, flow: Optional[str] = None, seed: int = 0, **kwargs: Any
) -> None:
    r"""Assert that outputs of a node depend on the nodes with a path to it, and on no others.

    ``flow``: ``"source_to_target"`` (messages go from ``edge_index[0]`` to ``edge_index[1]``) or
    ``"target_to_source"``; None = the attribute ``flow`` of the layers in the module (PyG's have
    it), or else source to target. Of the edges of ``data``, those from a smaller to a larger number
    remain, so that no path goes both ways, however many layers the module has. Then the features of
    each node change in turn, by random numbers that are drawn with ``seed``. A change below 1e-5 of
    the largest is rounding.
    """
    subject = Subject(module, data, kwargs)
    if subject.is_dense or data.edge_index is None or "edge_index" not in subject.read:
        raise NotApplicableError(f"{subject.name} reads no edge_index")
    forward = data.edge_index[0] < data.edge_index[1]
    if int(forward.sum()) == data.num_nodes:  # rows of nodes could not be told from rows of edges
        forward[forward.nonzero()[0]] = False
    senders, receivers = data.edge_index[:, forward].cpu()
    if not len(senders):
        raise NotApplicableError("data: got no edges from a smaller to a larger number")
    declared = flow or getattr(module, "flow", None)
    flows = {declared or getattr(layer, "flow", None) for layer in module.modules()} - {None}
    no_edges = Subject(module, data.edge_subgraph(forward & ~forward), kwargs)
    if (_changes(no_edges, senders[:1], seed) > _SMALL).any():
        raise NotApplicableError(f"nodes affect each other without edges in {subject.name}")
    directed = Subject(module, data.edge_subgraph(forward), kwargs)
    wrong = _changes(directed, torch.cat([senders, receivers]).unique(), seed)
    reach = torch.zeros_like(wrong)
    reach[senders, receivers] = 1.0
    reach = reach.t() if flows == {"target_to_source"} else reach
    for _ in range(len(reach).bit_length()):
        reach = (reach + reach @ reach).clamp(max=1.0)
    follows = bool((wrong * reach > _SMALL).any())
    wrong[reach > 0] = 0.0
    if len(flows) > 1 or (wrong.max() > _SMALL and follows and not declared):
        raise NotApplicableError(f"{subject.name} reads edges in both directions, and has no flow")
    problem = f"{subject.name} reads edges in the wrong direction"
    worst = Worst(subject, None, problem, _BOTH if follows else _SWAPPED)
    if wrong.max() > _SMALL:
        changed, affected = divmod(int(wrong.argmax()), len(wrong))
        worst.fail(
            f"the output of node {affected} changes with the features of node {changed}, by "
            f"{wrong.max():.3g} of the largest change (tolerance {_SMALL:g})"
        )
    if not follows:
        worst.cause = _NEITHER
        worst.fail("no output of a node changes with the features of the nodes that send to it")


def assert_rotation_equivariant(
    module: nn.Module,
    data: Data,
    *,
    positions: str = "pos",
    vectors: Sequence[str] = (),
    reflections: bool = False,
    tolerance: Optional[float] = None,
    seed: int = 0,
    **kwargs: Any,
) -> float:
    r"""Assert that outputs stay, turn or move with the positions.

    Positions ``[N, 3]`` become :math:`R p + t`. An output must stay as it is (a scalar); if its
    last dimension is 3, it may become :math:`R v` (a vector) or :math:`R v + t` (a position)
    instead. ``vectors`` names attributes that turn with the positions, such as velocities and
    normals. First the positions move, then they turn in two random rotations, drawn with ``seed``;
    with ``reflections``, the second is a reflection, too. ``tolerance``: see
    :mod:`molattn.testing`.
    """
    subject = Subject(module, data, kwargs)
    if positions not in subject.read:
        raise NotApplicableError(f"{subject.name} reads no {positions}")
    pos = data[positions].detach()
    problem = f"{subject.name} is not equivariant to rotations and translations"
    worst = Worst(subject, tolerance, problem, _TURN)
    generator = torch.Generator().manual_seed(seed)
    for trial in range(3):
        shift, *axes = torch.randn(4, 3, generator=generator, dtype=torch.float64).to(pos)
        rotation, _ = torch.linalg.qr(torch.stack(axes) if trial else torch.eye(3).to(pos))
        rotation *= rotation.det() * (-1.0 if reflections and trial == 2 else 1.0)
        moved = data.clone()
        moved[positions] = pos @ rotation.t() + shift
        for name in vectors:
            moved[name] = data[name] @ rotation.t()
        when = " with positions that were turned and moved" if trial else " with moved positions"
        for before, after in subject.compared(moved):
            expected = [before.value]
            if before.value.shape[-1:] == (3,) and floats(before.value):
                turned = before.value @ rotation.t().to(before.value)
                expected += [turned, turned + shift.to(turned)]
            nearest = min(expected, key=lambda value, actual=after.value: largest(value - actual))
            cause = _TURN if trial else _SHIFT
            worst.see(before._replace(value=nearest), after.value, cause=cause, when=when)
        worst.check()  # the first failure has the most specific cause
    return worst.error


def _inverse(order: Tensor) -> Tensor:
    return torch.empty_like(order).index_copy(
        0, order, torch.arange(order.numel(), device=order.device)
    )


def _orders(data: Data, trials: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield orders of nodes and edges: of edges alone, then of both."""
    batch = graph_of_nodes(data).cpu()
    count = len(batch)
    num_edges = data.num_edges
    most = int(torch.bincount(batch).max()) if count else 0
    if trials < 1 or most < 2 or count == num_edges:
        raise NotApplicableError(
            f"got {trials} trials, {count} nodes, {most} in the largest graph, and {num_edges} "
            "edges, expected a trial, a graph of two nodes, and another number of edges than nodes"
        )
    generator = torch.Generator().manual_seed(seed)
    device = data.edge_index.device if data.edge_index is not None else None
    order = same = torch.arange(count)
    yield order.to(device), torch.randperm(num_edges, generator=generator).to(device)
    for _ in range(trials):
        while torch.equal(order, same):
            order = torch.randperm(count, generator=generator)
            # Keep each graph's nodes together, as PyG's batches do.
            order = order[batch[order].argsort(stable=True)]
        edges = torch.randperm(num_edges, generator=generator)
        yield order.to(device), edges.to(device)
        order = same


def _changes(subject: Subject, nodes: Tensor, seed: int) -> Tensor:
    """Return how much new features of each node (row) change outputs of others (columns)."""
    count = len(graph_of_nodes(subject.data))
    generator = torch.Generator().manual_seed(seed)
    changes = torch.zeros(count, count)
    for node in nodes.tolist():
        changed = subject.data.clone()
        for name, value in subject.features({count}).items():
            changed[name] = value.detach().clone()
            changed[name][node] = other_values(value, generator)[node]
        pairs = [pair for pair in subject.compared(changed) if pair[0].rows == count]
        if not pairs:
            raise NotApplicableError(f"{subject.name} has no outputs of nodes")
        differences = [(after.value - before.value).abs().flatten(1) for before, after in pairs]
        changes[node] = torch.cat(differences, dim=1).amax(1)
    return (changes / changes.max().clamp(min=1e-30)).fill_diagonal_(0.0)
