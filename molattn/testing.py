"""Assertions that catch broken layers and models of graphs, molattn's and your own.

- :func:`~molattn.testing.assert_permutation_equivariant`: reordering the graph reorders outputs
- :func:`~molattn.testing.assert_permutation_invariant`: reordering the graph changes nothing
- :func:`~molattn.testing.assert_graphs_independent`: the graphs of a batch do not affect each other
- :func:`~molattn.testing.assert_batch_invariant`: a batch gives the same outputs as its graphs one
  at a time
- :func:`~molattn.testing.assert_attention_normalized`: the weights of a receiver's edges sum to 1
- :func:`~molattn.testing.assert_smooth`: first and second derivatives are right
- :func:`~molattn.testing.assert_stable`: large inputs give finite numbers, and rounding is small

All of them call the module with the attributes of ``data`` whose names are those of parameters of
its ``forward`` (``x``, ``edge_index``, ``edge_attr``, ``batch``, ...), or with ``data`` itself if
there are none but ``batch``; further keyword arguments are passed on. Outputs are tensors, or
tuples of them. Put the module in ``eval()`` first if it has dropout. Use float64 to find small
errors.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call
from torch_geometric.data import Batch, Data

__all__ = [
    "assert_attention_normalized",
    "assert_batch_invariant",
    "assert_graphs_independent",
    "assert_permutation_equivariant",
    "assert_permutation_invariant",
    "assert_smooth",
    "assert_stable",
    "permute_nodes",
]

_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
_HALF_TOLERANCE = 2e-2
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def permute_nodes(data: Data, node_order: Tensor, edge_order: Optional[Tensor] = None) -> Data:
    """Relabel the nodes of a graph, and list its edges in another order.

    Which attributes have a row for each node or edge is decided by PyG (``Data.is_node_attr``,
    ``Data.is_edge_attr``). Integers that PyG increments by the number of nodes in a batch
    (``Data.__inc__``), such as ``pair_index``, are node indices and are relabelled. Index
    attributes with several dimensions, such as a list of pairs ``[2, P]``, keep their order, except
    for ``edge_index``. ``ptr`` stays.

    Args:
        data: The graph.
        node_order: New node ``i`` is old node ``node_order[i]``, ``[N]``.
        edge_order: New edge ``k`` is old edge ``edge_order[k]``, ``[E]``; None = the same order.

    Returns:
        A new graph.

    Raises:
        ValueError: A sparse ``adj_t``; node indices that no node has.
    """
    new_label = _inverse(node_order)
    out = data.clone()
    for name, value in data.to_dict().items():
        if not isinstance(value, Tensor) or name.endswith("ptr"):
            continue
        if value.layout != torch.strided:
            raise ValueError(f"{name}: got {value.layout}, expected edge_index: a dense tensor")
        if _is_index(data, name, value, new_label.numel()):
            moved = new_label[value.long().clamp(min=0)].to(value.dtype)
            out[name] = value = torch.where(value < 0, value, moved)
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
    with a row for each node must follow the nodes, one with a row for each edge the edges. A
    returned ``edge_index`` must have the edges of the graph, except for self loops, which layers
    such as ``GATv2Conv`` replace; the tensor that follows it in a pair ``(edge_index, alpha)`` must
    follow its edges.

    Args:
        module: The layer.
        data: A graph, with different numbers of nodes and edges.
        trials: Number of random permutations.
        tolerance: Largest error relative to the largest magnitude in that output, or to the scale
            of the inputs if that is larger. This is the largest of the median magnitudes of the
            floating-point tensors that the layer is called with; entries that are 0 or not finite
            do not count, nor does ``y`` if it is called with ``data`` itself. If the median of the
            distinct magnitudes is smaller, it counts, so that a number that stands for many missing
            paths does not decide. Give a larger one for outputs in which large inputs cancel, and
            use float64 if most inputs are large: where they are 1e5, float32 allows an error of 1.
            None = 1e-10 in float64, 1e-5 in float32, 2e-2 in half precision; 0 = any difference is
            an error.
        seed: Seed of the permutations.
        kwargs: Further arguments of the layer, the same in all calls: what has a row for each node
            or edge belongs in ``data``.

    Returns:
        The worst error, relative as above.

    Raises:
        AssertionError: Not equivariant; the message has the worst error and its place.
        ValueError: No graph of two nodes; equal numbers of nodes and edges; an output whose rows
            match neither; a keyword argument with a row for each node or edge; a required argument
            that is not an attribute of ``data``; a sparse ``adj_t``; outputs without elements.
    """
    num_nodes, num_edges = _counts(data)
    orders = list(_orders(data, trials, seed))
    _check_rows(data, kwargs)
    expected = _outputs(module, data, kwargs)
    worst = _Worst(tolerance, _scale(module, data, kwargs))
    for node_order, edge_order in orders:
        permuted = permute_nodes(data, node_order, edge_order)
        new_label = _inverse(node_order)
        for before, after in _pairs(expected, _outputs(module, permuted, kwargs)):
            if before.edges is not None and after.edges is not None:
                _check_edges(before, data)
                _check_edges(after, permuted)
                if _is_given(before, data) and _is_given(after, permuted):
                    worst.see(before.name, before.value[edge_order], after.value)
                else:
                    moved = _Output(before.name, before.value, new_label[before.edges])
                    worst.see_edges(moved, after, num_nodes)
                continue
            rows = before.value.size(0) if before.value.dim() else 0
            order_of = {num_nodes: node_order, num_edges: edge_order}
            if rows not in order_of:
                raise ValueError(
                    f"{before.name}: got shape {list(before.value.shape)}, expected a row for each "
                    f"of {num_nodes} nodes or {num_edges} edges; "
                    "use assert_permutation_invariant for outputs of the whole graph"
                )
            worst.see(before.name, before.value[order_of[rows]], after.value)
    return worst.check(f"{type(module).__name__} is not permutation equivariant")


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

    Args:
        module: The model.
        data: A graph, or a PyG ``Batch`` (nodes are then reordered within each graph), with
            different numbers of nodes and edges.
        trials: Number of random permutations.
        tolerance: See :func:`assert_permutation_equivariant`.
        seed: Seed of the permutations.
        kwargs: Further arguments of the model; see :func:`assert_permutation_equivariant`.

    Returns:
        The worst error, relative as in :func:`assert_permutation_equivariant`.

    Raises:
        AssertionError: Not invariant; the message has the worst error and its place.
        ValueError: No graph of two nodes; equal numbers of nodes and edges; a keyword argument with
            a row for each node or edge; a graph without node features; outputs without elements.
    """
    orders = list(_orders(data, trials, seed))
    _check_rows(data, kwargs)
    expected = _outputs(module, data, kwargs)
    worst = _Worst(tolerance, _scale(module, data, kwargs))
    for node_order, edge_order in orders:
        permuted = permute_nodes(data, node_order, edge_order)
        for before, after in _pairs(expected, _outputs(module, permuted, kwargs)):
            if before.edges is not None:
                raise ValueError(
                    f"{before.name}: got edges, expected outputs of the whole graph; "
                    "use assert_permutation_equivariant for outputs of nodes and edges"
                )
            worst.see(before.name, before.value, after.value)
    return worst.check(f"{type(module).__name__} is not permutation invariant")


def assert_graphs_independent(
    module: nn.Module,
    data: Union[Data, Sequence[Data]],
    *,
    tolerance: Optional[float] = None,
    seed: int = 0,
    **kwargs: Any,
) -> float:
    """Assert that the graphs of a batch do not affect each other.

    Changing the features of one graph must not change the outputs of the others, and the gradients
    of the outputs of one graph with respect to the features of the others must be 0. Features are
    the attributes that the module is called with: floating-point ones with a row for each node,
    edge or graph, and codes (integers or booleans, but no indices) with a row for each node or
    edge. To floating-point features, also to 0, a random number is added. In each column of codes,
    all those of a graph are replaced by one that another node or edge of the batch has there; rows
    may then be new combinations of valid codes. Codes have no gradients.

    Args:
        module: The layer or model. Its outputs have a row for each node, edge or graph.
        data: A batch, or a list, of at least two graphs, with different numbers of nodes, edges and
            graphs in total.
        tolerance: See :func:`assert_permutation_equivariant`; for gradients, relative to the
            largest one.
        seed: Seed of the changes.
        kwargs: Further arguments of the module.

    Returns:
        The worst error, relative as above.

    Raises:
        AssertionError: One graph affects another; the message has the worst error and its place.
        ValueError: Fewer than two graphs; equal numbers of nodes, edges or graphs; no features that
            can be changed; an output whose number of rows matches none; outputs without elements.
    """
    data = _as_batch(data)
    graph_of = _graph_of_rows(data)
    *_, num_graphs = graph_of
    generator = torch.Generator().manual_seed(seed)
    data = data.clone()
    args, given = _arguments(module, data, kwargs)
    read = data.keys() if args else given.keys() - kwargs.keys()
    features = {
        name: value.detach().requires_grad_()
        for name, value in _floats(data).items()
        if name in read and value.dim() and value.size(0) in graph_of and value.numel()
    }
    codes = {name: value for name, value in _codes(data).items() if name in read}
    if not features and not codes:
        raise ValueError(
            "data: got no features that can be changed, expected floating-point ones, or codes of "
            f"nodes or edges with two different rows, that {type(module).__name__} reads"
        )
    _update(data, features)
    with torch.enable_grad():
        expected = _call(module, data, kwargs)
    owners = [_owners(output, graph_of) for output in expected]
    worst, flow = _Worst(tolerance, _scale(module, data, kwargs)), _Worst(tolerance)
    for graph in range(num_graphs):
        changed = data.clone()
        for name, value in features.items():
            factor, noise = torch.rand(2, *value.shape, generator=generator, dtype=torch.float64)
            scale = _largest(value) or 1.0  # noise changes features that are 0, too
            new = value * (1 + factor).to(value) + (scale * noise).to(value)
            mine = _mask(graph_of[value.size(0)] == graph, value)
            changed[name] = torch.where(mine, new, value).detach()
        for name, value in codes.items():
            mine = graph_of[value.size(0)] == graph
            new = value.clone(memory_format=torch.contiguous_format)
            for column in new.view(len(value), -1).t() if mine.any() else ():
                other = column[column != column[mine][0]]
                if len(other):  # One code for all: a permutation would not change their mean.
                    column[mine] = other[torch.randint(len(other), (), generator=generator)]
            changed[name] = new
        got = _outputs(module, changed, kwargs)
        for (before, after), owner in zip(_pairs(expected, got), owners, strict=True):
            others = (owner != graph).nonzero().flatten()
            worst.see(before.name, before.value, after.value, others)
        total = sum(
            (torch.randn(output.value.shape, generator=generator).to(output.value) * output.value)[
                owner == graph
            ].sum()
            for output, owner in zip(expected, owners, strict=True)
            if output.value.requires_grad
        )
        if isinstance(total, Tensor) and features:
            gradients = torch.autograd.grad(
                total,
                list(features.values()),
                retain_graph=True,
                materialize_grads=True,
                allow_unused=True,
            )
            for (name, value), gradient in zip(features.items(), gradients, strict=True):
                mine = _mask(graph_of[value.size(0)] == graph, value)
                flow.see(f"gradient of {name}", torch.where(mine, gradient, 0.0), gradient)
    message = f"graphs of a batch affect each other in {type(module).__name__}"
    return max(worst.check(message), flow.check(message))


def assert_batch_invariant(
    module: nn.Module,
    data: Union[Data, Sequence[Data]],
    *,
    tolerance: Optional[float] = None,
    **kwargs: Any,
) -> float:
    """Assert that a batch of graphs gives the same outputs as its graphs one by one.

    Args:
        module: The layer or model. Its outputs have a row for each node, edge or graph.
        data: A batch made by ``Batch.from_data_list``, or a list, of at least two graphs.
        tolerance: See :func:`assert_permutation_equivariant`.
        kwargs: Further arguments of the module; see :func:`assert_permutation_equivariant`.

    Returns:
        The worst error, relative as in :func:`assert_permutation_equivariant`.

    Raises:
        AssertionError: The batch gives other outputs; the message has the worst error and its
            place.
        ValueError: A single graph; a keyword argument with a row for each node or edge; an output
            without rows; outputs without elements.
    """
    data = _as_batch(data)
    if not isinstance(data, Batch) or data.num_graphs < 2:
        raise ValueError("data: got one graph, expected a Batch of at least two")
    _check_rows(data, kwargs)
    graphs: list[Any] = data.to_data_list()
    names = set(data.keys()) - set(graphs[0].keys())
    follow = [name.removesuffix("_batch") for name in names if name.endswith("_batch")]
    graphs = [Batch.from_data_list([graph], follow) for graph in graphs]
    together = _outputs(module, data, kwargs)
    alone = [_outputs(module, graph, kwargs) for graph in graphs]
    worst = _Worst(tolerance, _scale(module, data, kwargs))
    for got, *parts in _pairs(together, *alone):
        if got.value.dim() == 0:
            raise ValueError(
                f"{got.name}: got a number, expected a row for each node, edge or graph"
            )
        values = torch.cat([part.value for part in parts])
        if got.edges is None:
            worst.see(got.name, values, got.value)
            continue
        starts = data["ptr"].tolist()
        edges = [part.edges + start for part, start in zip(parts, starts, strict=False)]
        worst.see_edges(_Output(got.name, values, torch.cat(edges, dim=1)), got, starts[-1])
    return worst.check(f"{type(module).__name__} is not batch invariant")


def assert_attention_normalized(
    module: nn.Module, data: Data, *, tolerance: Optional[float] = None, **kwargs: Any
) -> float:
    r"""Assert that attention weights are at least 0 and sum to 1 over the edges of each receiver.

    :math:`\sum_{j \in N(i)} \alpha_{ij} = 1` for every node :math:`i` that receives edges.

    Args:
        module: A layer that returns a pair ``(edge_index, alpha)``, ``alpha`` ``[E, ...]``; of
            several pairs the last. If its ``forward`` has the parameter
            ``return_attention_weights``, it is called with True.
        data: A graph, or a batch.
        tolerance: Largest error of a sum; None = as for :func:`assert_permutation_equivariant`.
        kwargs: Further arguments of the layer.

    Returns:
        The worst error.

    Raises:
        AssertionError: Not normalized; the message has the worst error and its place.
        ValueError: The layer returns no such pair, or one without elements; a module without an
            attribute ``flow`` that has layers of both flows.
    """
    if "return_attention_weights" in inspect.signature(_original(module).forward).parameters:
        kwargs = {"return_attention_weights": True, **kwargs}
    num_nodes, _ = _counts(data)
    receiver = _receiver(module)
    pairs = [output for output in _outputs(module, data, kwargs) if output.edges is not None]
    if not pairs or pairs[-1].edges is None or not pairs[-1].value.numel():
        raise ValueError(
            f"{type(module).__name__}: got no attention weights, expected a pair "
            "(edge_index, alpha) among the outputs"
        )
    alpha, index, worst = pairs[-1].value, pairs[-1].edges[receiver], _Worst(tolerance)
    none = alpha.new_zeros(num_nodes, *alpha.shape[1:])
    sums = none.double().index_add(0, index, alpha.double()).to(alpha)
    worst.see(f"sum of {pairs[-1].name}", none.index_fill(0, index, 1.0), sums)
    worst.see(pairs[-1].name, alpha.clamp(min=0.0), alpha)
    return worst.check(f"attention of {type(module).__name__} is not normalized")


def assert_smooth(module: nn.Module, data: Data, **kwargs: Any) -> None:
    """Assert that first and second derivatives agree with finite differences.

    :func:`torch.autograd.gradcheck` and :func:`torch.autograd.gradgradcheck` (in fast mode) with
    respect to all parameters and all floating-point attributes of ``data`` that the module reads,
    in float64: forces, Hessians and gradient penalties need the second derivatives. At a kink, such
    as that of a ReLU at 0, derivatives do not exist: use random features. Finite differences, with
    steps of 1e-6, also miss derivatives that change within a step, such as those of
    :class:`~molattn.nn.MATConv` by the bonds of a node without bonds (that of
    :class:`~molattn.graph.AddDummyNode`, for example): use a graph without such nodes.

    Args:
        module: The layer or model. It is copied.
        data: A graph, or a batch.
        kwargs: Further arguments of the module; floating-point tensors become float64, too.

    Raises:
        AssertionError: A derivative is wrong or missing; the message has the order, and what torch
            reports.
        ValueError: No differentiable output, or none with elements.
    """
    name, (module, data, kwargs) = type(module).__name__, _in_double(module, data, kwargs)
    _outputs(module, data, kwargs)  # lazy modules get their parameters
    args, given = _arguments(module, data, kwargs)
    features = [key for key, value in given.items() if _is_float(value)]
    if args:
        features = list(_floats(data))
    parameters = dict(module.named_parameters())
    sizes = [parameter.numel() for parameter in parameters.values()]

    def outputs(*values: Tensor) -> Tensor:
        inputs = dict(zip(features, values, strict=False))
        parts = values[-1].split(sizes) if parameters else ()
        new = {
            key: part.view_as(parameter)
            for (key, parameter), part in zip(parameters.items(), parts, strict=True)
        }
        if args:
            _update(data, inputs)
        out = functional_call(module, new, args, given if args else {**given, **inputs})
        found = [part.value for part in _read("output", out) if _is_float(part.value)]
        return torch.cat([value.flatten() for value in found] or [torch.zeros(0)])

    values = [(data if args else given)[key] for key in features]
    if parameters:  # as one vector, or there would be too many pairs of second derivatives
        values.append(torch.cat([parameter.flatten() for parameter in parameters.values()]))
    values = [value.detach().clone().requires_grad_() for value in values]
    out = outputs(*values)
    if not out.requires_grad or not out.numel():
        raise ValueError(f"{name}: got no differentiable output, expected at least one")
    checks: dict[str, Callable[..., bool]] = {"first": gradcheck, "second": gradgradcheck}
    for order, check in checks.items():
        try:
            check(outputs, values, atol=1e-6, rtol=1e-4, fast_mode=True)
        except RuntimeError as error:
            raise AssertionError(f"{order} derivatives of {name} are wrong: {error}") from error


def assert_stable(
    module: nn.Module,
    data: Data,
    *,
    factor: float = 1e4,
    tolerance: Optional[float] = None,
    **kwargs: Any,
) -> float:
    """Assert that large inputs give finite outputs and gradients, and that rounding is small.

    A softmax that does not subtract the largest logit overflows. All floating-point attributes of
    ``data`` that the module reads are multiplied by ``factor``; then all outputs, and the gradients
    of their sum with respect to these attributes and to all parameters, must be finite. With
    ``data`` as given, a module in float32 must have the outputs that it has in float64.

    Args:
        module: The layer or model, in float32 or float64.
        data: A graph, or a batch.
        factor: What the inputs are multiplied by.
        tolerance: See :func:`assert_permutation_equivariant`.
        kwargs: Further arguments of the module, which are not multiplied.

    Returns:
        The worst error beside float64, relative as in :func:`assert_permutation_equivariant`.

    Raises:
        AssertionError: Numbers that are not finite, or a rounding error that is too large; the
            message has the output or gradient, or the worst error and its place.
        ValueError: No floating-point attribute that the module reads; outputs without elements.
    """
    name = type(module).__name__
    args, given = _arguments(module, data, kwargs)
    read = (data.keys() if args else given.keys()) - kwargs.keys()
    floats = {key: value.detach() for key, value in _floats(data).items() if key in read}
    if not floats:
        raise ValueError(f"data: got no floating-point attributes that {name} reads")
    large = data.clone()
    _update(large, {key: (value * factor).requires_grad_() for key, value in floats.items()})
    with torch.enable_grad():
        found = {output.name: output.value for output in _call(module, large, kwargs)}
        total = sum(value.sum() for value in found.values() if value.requires_grad)
    learned = {key: value for key, value in module.named_parameters() if value.requires_grad}
    leaves = {f"gradient of {key}": large[key] for key in floats}
    leaves |= {f"gradient of {key}": value for key, value in learned.items()}
    if isinstance(total, Tensor):
        gradients = torch.autograd.grad(total, [*leaves.values()], materialize_grads=True)
        found |= dict(zip(leaves, gradients, strict=True))
    for key, value in found.items():
        if not value.isfinite().all():
            raise AssertionError(
                f"{name} is not stable: {key} is not finite for inputs times {factor:g}"
            )
    worst = _Worst(tolerance, _scale(module, data, kwargs))
    exact = _outputs(*_in_double(module, data, kwargs))
    for expected, got in _pairs(exact, _outputs(module, data, kwargs)):
        worst.see(got.name, expected.value.to(got.value.dtype), got.value)
    return worst.check(f"{name} is not stable")


@dataclass(frozen=True)
class _Output:
    """A tensor that a module returned."""

    name: str
    value: Tensor
    edges: Optional[Tensor] = None  # the edge_index that was returned with it, [2, E]

    def order(self, num_nodes: int) -> Tensor:
        """Sort by edge; duplicate edges by a projection of their values."""
        assert self.edges is not None
        columns = (
            self.value.detach().double().flatten(1)
            if self.value.dim() > 1
            else self.value.detach().double().unsqueeze(-1)
        )
        directions = torch.arange(1.0, 1 + columns.size(1), device=columns.device).double().cos()
        order = (columns @ directions).argsort()
        return order[(self.edges[0] * num_nodes + self.edges[1])[order].argsort(stable=True)]


class _Worst:
    """The largest error so far, relative to the tolerance."""

    def __init__(self, tolerance: Optional[float], scale: float = 0.0) -> None:
        if tolerance is not None and not tolerance >= 0:  # NaN too
            raise ValueError(f"tolerance: got {tolerance}, expected a number of at least 0")
        self.tolerance = tolerance
        self.error = 0.0
        self.excess = 0.0
        self.where = ""
        # Rounding errors of outputs that are truly 0 have the scale of the inputs.
        self.scale = scale

    def see(self, name: str, expected: Tensor, got: Tensor, rows: Optional[Tensor] = None) -> None:
        """Compare two tensors, or some rows of them."""
        expected, got = (
            torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (expected, got)
        )
        if expected.shape != got.shape:
            raise AssertionError(
                f"{name}: got shape {list(got.shape)}, expected {list(expected.shape)}"
            )
        allowed = self.tolerance
        if allowed is None:
            half = expected.dtype in (torch.float16, torch.bfloat16)
            allowed = _HALF_TOLERANCE if half else _TOLERANCE.get(expected.dtype, 1e-10)
        before, after = expected.detach().double(), got.detach().double()
        scale = max(_largest(before), self.scale) or 1.0
        if rows is not None:
            before, after = before[rows], after[rows]
        if before.numel() == 0:
            return
        error = (before - after).abs() / scale
        error = torch.where(before == after, 0.0, error)  # two equal infinities
        error = error.nan_to_num(nan=torch.inf)
        most = float(error.max())
        excess = most / allowed if allowed else math.inf if most else 0.0
        if self.where and (excess, most) <= (self.excess, self.error):
            return
        place = int(error.argmax())
        index = [int(i) for i in torch.unravel_index(torch.tensor(place), error.shape)]
        if rows is not None:
            index[0] = int(rows[index[0]])
        self.error, self.excess = most, excess
        self.where = (
            f"worst error {most:.3g} (allowed {allowed:.3g}) in {name}{index}: "
            f"got {float(after.flatten()[place]):.9g}, "
            f"expected {float(before.flatten()[place]):.9g}"
        )

    def see_edges(self, expected: _Output, got: _Output, num_nodes: int) -> None:
        """Compare outputs of edges, in any order."""
        assert expected.edges is not None
        assert got.edges is not None
        before, after = expected.order(num_nodes), got.order(num_nodes)
        if not torch.equal(expected.edges[:, before], got.edges[:, after]):
            raise AssertionError(f"{got.name}: got other edges in edge_index than expected")
        self.see(got.name, expected.value[before], got.value[after])

    def check(self, message: str) -> float:
        """Return the worst error, or raise AssertionError."""
        if self.excess > 1:
            raise AssertionError(f"{message}: {self.where}")
        return self.error


def _in_double(
    module: nn.Module, data: Data, kwargs: dict[str, Any]
) -> tuple[nn.Module, Data, dict[str, Any]]:
    """Copy a module and what it is called with to float64."""
    data = data.clone()
    _update(data, {key: value.double() for key, value in _floats(data).items()})
    kwargs = {key: value.double() if _is_float(value) else value for key, value in kwargs.items()}
    return copy.deepcopy(module).double(), data, kwargs


def _check_edges(output: _Output, data: Data) -> None:
    """Check that the returned edges are those given, but for self loops."""

    def proper(edges: Tensor) -> list[list[int]]:
        return sorted(edges[:, edges[0] != edges[1]].t().tolist())

    assert output.edges is not None
    if data.edge_index is None or proper(output.edges) != proper(data.edge_index):
        raise AssertionError(f"{output.name}: got an edge_index that is not the one given")


def _is_given(output: _Output, data: Data) -> bool:
    if output.edges is None or data.edge_index is None:
        return False
    return torch.equal(output.edges, data.edge_index.long())


def _receiver(module: nn.Module) -> int:
    """The row of edge_index that holds the receivers, by the flow of a module or its layers."""
    layers = [module] if hasattr(module, "flow") else module.modules()
    flows = {layer.flow for layer in layers if isinstance(getattr(layer, "flow", None), str)}
    if len(flows) > 1:
        raise ValueError(
            f"{type(module).__name__}: got layers of both flows, expected one; give it the "
            "attribute flow of the layer that returns the attention weights"
        )
    return 0 if flows == {"target_to_source"} else 1


def _as_batch(data: Union[Data, Sequence[Data]]) -> Data:
    graphs: Any = Batch.from_data_list(list(data)) if isinstance(data, (list, tuple)) else data
    return graphs


def _graph_of_rows(data: Data) -> dict[int, Tensor]:
    """For a tensor with a row for each node, edge or graph: the graph of each row."""
    if data.batch is None or data.edge_index is None:
        raise ValueError("data: got a graph without batch or edge_index, expected a batch")
    graphs = torch.arange(int(data.batch.max()) + 1, device=data.batch.device)
    numbers = (*_counts(data), graphs.numel())
    if graphs.numel() < 2 or len(set(numbers)) < 3:
        raise ValueError(
            "data: got {} nodes, {} edges and {} graphs, expected three different numbers, and at "
            "least two graphs".format(*numbers)
        )
    return dict(
        zip(numbers, (data.batch, data.batch[data.edge_index[0].long()], graphs), strict=True)
    )


def _owners(output: _Output, graph_of: dict[int, Tensor]) -> Tensor:
    """The graph of each row of an output."""
    if output.edges is not None:
        nodes, *_ = graph_of.values()
        sender, receiver = nodes[output.edges]
        if not torch.equal(sender, receiver):
            raise AssertionError(f"{output.name}: got edges from one graph to another")
        return receiver
    rows = output.value.size(0) if output.value.dim() else 0
    if rows not in graph_of:
        raise ValueError(
            f"{output.name}: got shape {list(output.value.shape)}, expected a row for each of "
            "{} nodes, {} edges or {} graphs".format(*graph_of)
        )
    return graph_of[rows]


def _inverse(order: Tensor) -> Tensor:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.numel(), device=order.device)
    return inverse


def _mask(rows: Tensor, like: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (like.dim() - 1))


def _largest(x: Tensor) -> float:
    finite = x.detach()[x.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _median(x: Tensor) -> float:
    magnitudes = x.detach()[x.isfinite() & (x != 0)].abs()
    if not magnitudes.numel():
        return 0.0
    return min(float(magnitudes.median()), float(magnitudes.unique().median()))


def _scale(module: nn.Module, data: Data, kwargs: dict[str, Any]) -> float:
    """The largest median magnitude: neither few values nor a single one, however often, decide."""
    args, given = _arguments(module, data, kwargs)
    if args:
        given = {name: value for name, value in _floats(data).items() if name != "y"} | kwargs
    return max((_median(value) for value in given.values() if _is_float(value)), default=0.0)


def _is_float(value: object) -> bool:
    if not isinstance(value, Tensor):
        return False
    return value.layout == torch.strided and value.is_floating_point()


def _floats(data: Data) -> dict[str, Tensor]:
    return {name: value for name, value in data.to_dict().items() if _is_float(value)}


def _is_index(data: Data, name: str, value: Tensor, num_nodes: int) -> bool:
    """Whether an attribute holds indices of nodes, which PyG increments in a batch."""
    if name != "edge_index":
        if "batch" in name or value.dtype not in _INTEGERS:
            return False
        step = torch.as_tensor(data.__inc__(name, value))
        if not (step.all() and (step == num_nodes).all()):
            return False
    if value.numel() and value.max() >= num_nodes:
        raise ValueError(
            f"{name}: got {int(value.min())} to {int(value.max())}, "
            f"expected indices of nodes from 0 to {num_nodes - 1}"
        )
    return True


def _codes(data: Data) -> dict[str, Tensor]:
    """Integers and booleans of nodes and edges that are no indices, and not all the same."""
    return {
        name: value
        for name, value in data.to_dict().items()
        if isinstance(value, Tensor)
        and value.layout == torch.strided
        and not (value.is_floating_point() or value.is_complex())
        and (data.is_node_attr(name) or data.is_edge_attr(name))
        and bool((value != value[:1]).any())
        and not (name.endswith("ptr") or torch.as_tensor(data.__inc__(name, value)).any())
    }


def _update(data: Data, values: dict[str, Tensor]) -> None:
    for name, value in values.items():
        data[name] = value


def _counts(data: Data) -> tuple[int, int]:
    if data.num_nodes is None:
        raise ValueError("data: got a graph without node features, expected x or num_nodes")
    return data.num_nodes, data.num_edges


def _check_rows(data: Data, kwargs: dict[str, Any]) -> None:
    """Refuse keyword arguments of nodes or edges, which would not follow these."""
    for name, value in kwargs.items():
        if isinstance(value, Tensor) and value.dim() and value.size(0) in _counts(data):
            raise ValueError(
                f"{name}: got shape {list(value.shape)} as a keyword argument, expected what has a "
                f"row for each node or edge as an attribute of data: data.{name}"
            )


def _orders(data: Data, trials: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    num_nodes, num_edges = _counts(data)
    batch = data.get("batch")
    batch = torch.zeros(num_nodes, dtype=torch.int64) if batch is None else batch.cpu()
    most = int(torch.bincount(batch).max()) if num_nodes else 0
    if trials < 1 or most < 2:
        raise ValueError(
            f"got {trials} trials and {most} nodes in the largest graph, expected at least 1 trial "
            "and 2 nodes: otherwise any module would pass"
        )
    if num_nodes == num_edges:
        raise ValueError(
            f"data: got {num_nodes} nodes and as many edges, expected different numbers: "
            "what is of nodes and what is of edges could not be distinguished"
        )
    generator = torch.Generator().manual_seed(seed)
    same, same_edges = torch.arange(num_nodes), torch.arange(num_edges)
    for _ in range(trials):
        order, edges = same, same_edges
        while torch.equal(order, same):
            order = torch.randperm(num_nodes, generator=generator)
            # Keep each graph's nodes together, as PyG's batches do.
            order = order[batch[order].argsort(stable=True)]
        while num_edges > 1 and torch.equal(edges, same_edges):
            edges = torch.randperm(num_edges, generator=generator)
        device = data.edge_index.device if data.edge_index is not None else None
        yield order.to(device), edges.to(device)


def _original(module: nn.Module) -> nn.Module:
    """The module that torch.compile wrapped, whose forward has the parameters' names."""
    return getattr(module, "_orig_mod", module)


def _arguments(
    module: nn.Module, data: Data, kwargs: dict[str, Any]
) -> tuple[tuple[Data, ...], dict[str, Any]]:
    """Return what to call the module with: ``data`` itself, or its attributes by name."""
    module = _original(module)
    parameters = [
        parameter
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    given = {p.name: data[p.name] for p in parameters if p.name in data} | kwargs
    # `batch` alone is no graph: a module whose only parameter is `batch` takes the whole batch.
    if not given.keys() - kwargs.keys() - {"batch"}:
        return (data,), kwargs
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.name not in given:
            raise ValueError(
                f"{type(module).__name__}.forward needs {parameter.name!r}, which data lacks: "
                f"it has {', '.join(data.keys())}"
            )
    return (), given


def _call(module: nn.Module, data: Data, kwargs: dict[str, Any]) -> list[_Output]:
    args, given = _arguments(module, data, kwargs)
    outputs = list(_read("output", module(*args, **given)))
    if not outputs:
        raise ValueError(f"{type(module).__name__}: got no tensor as output, expected at least one")
    return outputs


@torch.no_grad()
def _outputs(module: nn.Module, data: Data, kwargs: dict[str, Any]) -> list[_Output]:
    return _call(module, data, kwargs)


def _pairs(first: list[_Output], *others: list[_Output]) -> Iterator[tuple[_Output, ...]]:
    """Match the outputs of several calls."""
    names = [[output.name for output in outputs] for outputs in (first, *others)]
    if any(other != names[0] for other in names):
        raise AssertionError(f"got outputs {names[1]} in one call, {names[0]} in another")
    if not any((out.value if out.edges is None else out.edges).numel() for out in first):
        shapes = ", ".join(f"{output.name} of shape {list(output.value.shape)}" for output in first)
        raise ValueError(f"got {shapes}, expected elements: otherwise any module would pass")
    return zip(first, *others, strict=True)


def _read(name: str, thing: Any) -> Iterator[_Output]:
    """Find the tensors in what a module returned."""
    if isinstance(thing, Tensor):
        if _is_edge_index(thing):
            yield _Output(name, torch.zeros(thing.size(1), 0, device=thing.device), thing.long())
        else:
            yield _Output(name, thing)
    elif isinstance(thing, (tuple, list)):
        if len(thing) == 2 and _is_edge_index(thing[0]) and _has_rows(thing[1], thing[0].size(1)):
            yield _Output(f"{name}[1]", thing[1], thing[0].long())
            return
        for i, part in enumerate(thing):
            yield from _read(f"{name}[{i}]", part)
    elif thing is not None:
        raise ValueError(f"{name}: got {type(thing).__name__}, expected tensors")


def _is_edge_index(thing: object) -> bool:
    return (
        isinstance(thing, Tensor)
        and thing.dtype in _INTEGERS
        and thing.dim() == 2
        and thing.size(0) == 2
    )


def _has_rows(thing: object, rows: int) -> bool:
    return isinstance(thing, Tensor) and thing.dim() > 0 and thing.size(0) == rows
