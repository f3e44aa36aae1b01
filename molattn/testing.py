"""Assertions that catch broken layers and models of graphs, molattn's and your own.

``module`` is a layer or a model, ``data`` a graph or a batch of PyG: of at least two graphs (or a
list of them) to see whether these are independent, with different numbers of nodes, edges and
graphs.

All of them call the module with the attributes of ``data`` whose names are those of parameters of
its ``forward`` (``x``, ``edge_index``, ``edge_attr``, ``batch``, ...), or with ``data`` itself if
there are none but ``batch``; further keyword arguments are passed on, the same in all calls.
Outputs are tensors, or tuples of them; a pair ``(edge_index, alpha)`` is of its edges. Put the
module in ``eval()`` first if it has dropout.

An error is relative to the largest magnitude in that output, or to the median magnitude of the
inputs if that is larger. All but ``assert_smooth`` return the worst one. ``tolerance`` is the
largest that is allowed; None = 1e-10 in float64, 1e-5 in float32, 2e-2 in half precision. Use
float64 to find small errors. They raise AssertionError with the worst error and where it is, and
ValueError for what they cannot judge.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_geometric.data import Batch, Data

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 2e-2}
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


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
        if value.dtype in _INTEGERS and _step(data, name, value) == data.num_nodes:
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
    with a row for each node must follow the nodes, one with a row for each edge the edges.
    ``trials`` permutations are drawn with ``seed``; ``tolerance``: see :mod:`molattn.testing`.
    """
    subject = _Subject(module, data, kwargs)
    worst = _Worst(subject, tolerance)
    for node_order, edge_order in _orders(data, trials, seed):
        order_of = {len(node_order): node_order, len(edge_order): edge_order}
        for before, after in subject.compared(permute_nodes(data, node_order, edge_order)):
            if before.edges is not None:
                moved = before._replace(edges=_inverse(node_order)[before.edges])
                worst.see_edges(moved, after)
            elif (order := order_of.get(before.rows)) is not None:
                worst.see(before.name, before.value[order], after.value)
            else:
                raise before.unlike("node or edge; see assert_permutation_invariant")
    return worst.check(f"{subject.name} is not permutation equivariant")


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
    subject = _Subject(module, data, kwargs)
    worst = _Worst(subject, tolerance)
    for orders in _orders(data, trials, seed):
        for before, after in subject.compared(permute_nodes(data, *orders)):
            worst.see(before.name, before.value, after.value)
    return worst.check(f"{subject.name} is not permutation invariant")


@torch.enable_grad()
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
    of its outputs with respect to features of the others must be 0. Features are the attributes
    that the module is called with: to floating-point ones with a row for each node, edge or graph,
    a random number is added; codes (integers or booleans, but no indices) are replaced by rows that
    occur in the batch. ``seed`` is of what is random; ``tolerance``: see :mod:`molattn.testing`.
    """
    batch = _as_batch(data)
    subject = _Subject(module, batch, kwargs)
    graph_of = _graph_of_rows(batch)
    generator = torch.Generator().manual_seed(seed)
    features = {
        name: value
        for name, value in subject.read.items()
        if isinstance(value, Tensor) and value.dim()
        if len(value) in graph_of and not name.endswith("ptr")
        if value.is_floating_point() or not _step(batch, name, value)
    }
    floats = {k: v.detach().requires_grad_() for k, v in features.items() if _floats(v)}
    if not features:
        raise ValueError(f"data: got no features that {subject.name} reads")
    worst = _Worst(subject, tolerance)
    for graph in range(batch.num_graphs):
        changed = batch.clone()
        for name, value in features.items():
            mine = (graph_of[len(value)] == graph).view(-1, *[1] * (value.dim() - 1))
            new = _other_values(value, generator)
            changed[name] = torch.where(mine, new, floats.get(name, value))
        for before, after in subject.compared(changed, with_grad=True):
            owner = _owners(before, graph_of)
            worst.see(before.name, before.value, after.value, (owner != graph).nonzero().flatten())
            output = after.value[owner == graph]
            if floats and output.requires_grad:  # its gradients leave out the features changed
                weights = torch.rand(output.shape, generator=generator).to(output)
                options = {"retain_graph": True, "materialize_grads": True}
                gradients = torch.autograd.grad(output, [*floats.values()], weights, **options)
                for name, gradient in zip(floats, gradients, strict=True):
                    worst.see(f"gradient of {name}", torch.zeros_like(gradient), gradient)
    return worst.check(f"graphs of a batch affect each other in {subject.name}")


def assert_batch_invariant(
    module: nn.Module,
    data: Union[Data, Sequence[Data]],
    *,
    tolerance: Optional[float] = None,
    **kwargs: Any,
) -> float:
    """Assert that a batch of graphs gives the same outputs as its graphs one by one.

    ``tolerance``: see :mod:`molattn.testing`.
    """
    batch = _as_batch(data)
    graphs: list[Any] = [Batch.from_data_list([graph]) for graph in batch.to_data_list()]
    subject = _Subject(module, batch, kwargs)
    worst = _Worst(subject, tolerance)
    for batched, *single in subject.compared(*graphs):
        if not batched.value.dim():
            raise batched.unlike("node or graph")
        values = torch.cat([output.value for output in single])
        if batched.edges is None:
            worst.see(batched.name, values, batched.value)
        else:
            starts = batch["ptr"].tolist()
            edges = [output.edges + start for output, start in zip(single, starts, strict=False)]
            worst.see_edges(_Output(batched.name, values, torch.cat(edges, dim=1)), batched)
    return worst.check(f"{subject.name} is not batch invariant")


def assert_attention_normalized(
    module: nn.Module, data: Data, *, tolerance: Optional[float] = None, **kwargs: Any
) -> float:
    r"""Assert that attention weights are at least 0 and sum to 1 over the edges of each receiver.

    :math:`\sum_{j \in N(i)} \alpha_{ij} = 1` for every node :math:`i` that receives edges, of the
    last pair ``(edge_index, alpha)``, ``alpha`` ``[E, ...]``, that the layer returns. If its
    ``forward`` has the parameter ``return_attention_weights``, it is called with True. Receivers
    are in row 0 if the layer has ``flow = "target_to_source"``. ``tolerance``: see
    :mod:`molattn.testing`.
    """
    subject = _Subject(module, data, kwargs)
    if "return_attention_weights" in subject.parameters:
        subject = _Subject(module, data, {"return_attention_weights": True, **kwargs})
    nothing = _Output("", torch.zeros(0))
    outputs = reversed(subject.outputs)
    name, alpha, edges = next((output for output in outputs if output.edges is not None), nothing)
    if edges is None or not alpha.numel():
        raise ValueError(f"{subject.name}: got no (edge_index, alpha) among the outputs")
    receiver = edges[0 if getattr(module, "flow", None) == "target_to_source" else 1]
    none = alpha.new_zeros(_num_nodes(data), *alpha.shape[1:])
    sums = none.double().index_add(0, receiver, alpha.double()).to(alpha)
    worst = _Worst(None, tolerance)
    worst.see(f"sum of {name}", none.index_fill(0, receiver, 1.0), sums)
    worst.see(name, alpha.clamp(min=0.0), alpha)
    return worst.check(f"attention of {subject.name} is not normalized")


def assert_smooth(module: nn.Module, data: Data, **kwargs: Any) -> None:
    """Assert that first and second derivatives agree with finite differences.

    :func:`torch.autograd.gradcheck` and :func:`torch.autograd.gradgradcheck` (in fast mode) with
    respect to all parameters and all floating-point attributes of ``data`` that the module reads,
    in float64: forces, Hessians and gradient penalties need the second derivatives. Attention of
    torch (``scaled_dot_product_attention``) runs on its math kernel, the only one that has second
    derivatives. At a kink, such
    as that of a ReLU at 0, derivatives do not exist: use random features. Finite differences, with
    steps of 1e-6, also miss derivatives that change within a step, such as those of
    :class:`~molattn.nn.MATConv` by the bonds of a node without bonds.
    """
    subject = _Subject(module, data, kwargs).in_double()
    _ = subject.outputs  # lazy modules get their parameters
    features = {name: value for name, value in subject.read.items() if _floats(value)}
    parameters = dict(subject.module.named_parameters())
    sizes = [parameter.numel() for parameter in parameters.values()]

    def outputs(*values: Tensor) -> Tensor:
        vectors = values[-1].split(sizes) if parameters else ()
        new = {
            key: vector.view_as(parameter)
            for (key, parameter), vector in zip(parameters.items(), vectors, strict=True)
        }
        data = subject.data.clone()
        data.update(dict(zip(features, values, strict=False)))
        out = functional_call(subject.module, new, *subject.arguments(data))
        tensors = [output.value for output in _read("output", out) if _floats(output.value)]
        return torch.cat([tensor.flatten() for tensor in tensors] or [torch.zeros(0)])

    values = [*features.values()]
    if parameters:  # as one vector, or there would be too many pairs of second derivatives
        values.append(torch.cat([parameter.flatten() for parameter in parameters.values()]))
    values = [value.detach().clone().requires_grad_() for value in values]
    out = outputs(*values)
    if not out.requires_grad or not out.numel():
        raise ValueError(f"{subject.name}: got no differentiable output, expected at least one")
    for order, check in (("first", gradcheck), ("second", gradgradcheck)):
        try:
            with sdpa_kernel(SDPBackend.MATH):
                check(outputs, values, atol=1e-6, rtol=1e-4, fast_mode=True)
        except RuntimeError as error:
            reason = " ".join(str(error).partition("\n\n")[0].split())
            for index, name in enumerate([*features, "parameters"]):
                reason = reason.replace(f"to input {index},", f"to {name},")
            message = f"{order} derivatives of {subject.name} are wrong or missing: {reason}"
            raise AssertionError(message) from error


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
    ``data`` as given, a module in float32 must have the outputs that it has in float64, up to
    ``tolerance`` (see :mod:`molattn.testing`).
    """
    subject = _Subject(module, data, kwargs)
    floats = {key: value.detach() for key, value in subject.read.items() if _floats(value)}
    if not floats:
        raise ValueError(f"data: got no floating-point attributes that {subject.name} reads")
    large = data.clone()
    large.update({key: (value * factor).requires_grad_() for key, value in floats.items()})
    with torch.enable_grad():
        tensors = {output.name: output.value for output in subject.call(large)}
        total = sum(value.sum() for value in tensors.values() if value.requires_grad)
    leaves = {key: large[key] for key in floats}
    leaves |= {key: value for key, value in module.named_parameters() if value.requires_grad}
    if isinstance(total, Tensor):
        gradients = torch.autograd.grad(total, [*leaves.values()], materialize_grads=True)
        names = (f"gradient of {key}" for key in leaves)
        tensors |= dict(zip(names, gradients, strict=True))
    for key, value in tensors.items():
        if not value.isfinite().all():
            problem = f"{key} is not finite for inputs times {factor:g}"
            raise AssertionError(f"{subject.name} is not stable: {problem}")
    worst = _Worst(subject, tolerance)
    for expected, actual in _matched(subject.in_double().outputs, subject.outputs):
        worst.see(actual.name, expected.value.to(actual.value.dtype), actual.value)
    return worst.check(f"{subject.name} is not stable")


class _Output(NamedTuple):
    """A tensor that a module returned, and the ``edge_index`` that was returned with it."""

    name: str
    value: Tensor
    edges: Optional[Tensor] = None

    @property
    def rows(self) -> int:
        return self.value.size(0) if self.value.dim() else 0

    def unlike(self, what: str) -> ValueError:
        shape = list(self.value.shape)
        return ValueError(f"{self.name}: got shape {shape}, expected a row for each {what}")

    def sorted(self) -> "_Output":
        """Sort by edge; duplicate edges by a projection of their values."""
        assert self.edges is not None
        columns = self.value.detach().double().reshape(len(self.value), -1)
        directions = torch.arange(1.0, 1 + columns.size(1), device=columns.device).double().cos()
        order = (columns @ directions).argsort()
        for row in (1, 0):
            order = order[self.edges[row][order].argsort(stable=True)]
        return _Output(self.name, self.value[order], self.edges[:, order])


class _Subject:
    """A module and its inputs: the data itself, or attributes of the data by name."""

    def __init__(self, module: nn.Module, data: Data, kwargs: dict[str, Any]) -> None:
        self.module = module
        self.data = data
        self.kwargs = kwargs
        self.name = type(module).__name__
        original = getattr(module, "_orig_mod", module)  # what torch.compile wrapped
        self.parameters = {
            name: parameter
            for name, parameter in inspect.signature(original.forward).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        }
        self.names = [name for name in self.parameters if name in data and name not in kwargs]
        # `batch` alone is no graph: a module whose only parameter is `batch` takes the whole batch.
        self.takes_data = not {*self.names} - {"batch"}
        needed = {
            name
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty
        }
        if not self.takes_data and (missing := needed - {*self.names, *kwargs}):
            have = ", ".join(data.keys())
            raise ValueError(f"{self.name}.forward needs {missing}, data has {have}")
        self.read = data.to_dict() if self.takes_data else {name: data[name] for name in self.names}
        """The attributes of the data that the module may read."""

    def arguments(self, data: Data) -> tuple[tuple[Data, ...], dict[str, Any]]:
        """Return the arguments of a call with data, in order and by name."""
        if self.takes_data:
            return (data,), self.kwargs
        return (), {name: data[name] for name in self.names} | self.kwargs

    def call(self, data: Data) -> list[_Output]:
        args, named = self.arguments(data)
        return list(_read("output", self.module(*args, **named)))

    @cached_property
    def outputs(self) -> list[_Output]:
        with torch.no_grad():
            return self.call(self.data)

    def compared(self, *others: Data, with_grad: bool = False) -> Iterator[tuple[_Output, ...]]:
        """Match the outputs with the outputs for other data."""
        with torch.set_grad_enabled(with_grad):
            outputs = [self.call(data) for data in others]
        return _matched(self.outputs, *outputs)

    def in_double(self) -> "_Subject":
        """Copy the module and its inputs to float64."""
        data = self.data.clone()
        data.update(
            {key: value.double() for key, value in data.to_dict().items() if _floats(value)}
        )
        kwargs = {
            key: value.double() if _floats(value) else value for key, value in self.kwargs.items()
        }
        return _Subject(copy.deepcopy(self.module).double(), data, kwargs)

    @property
    def scale(self) -> float:
        """The largest median magnitude of the inputs: few large values do not decide."""
        inputs = {key: x for key, x in self.read.items() if key != "y"} | self.kwargs
        magnitudes = [x[x.isfinite() & (x != 0)].abs() for x in inputs.values() if _floats(x)]
        return max((float(x.detach().median()) for x in magnitudes if x.numel()), default=0.0)


class _Worst:
    """The largest error so far, relative to the tolerance."""

    def __init__(self, subject: Optional[_Subject], tolerance: Optional[float]) -> None:
        self.tolerance = tolerance
        # Rounding errors of outputs that are truly 0 have the scale of the inputs.
        self.scale = 0.0 if subject is None else subject.scale
        self.error = self.excess = 0.0
        self.where = ""

    def see(
        self, name: str, expected: Tensor, actual: Tensor, rows: Optional[Tensor] = None
    ) -> None:
        """Compare two tensors, or some rows of them."""
        if expected.shape != actual.shape:
            raise AssertionError(
                f"{name}: got shape {list(actual.shape)}, expected {list(expected.shape)}"
            )
        default = _TOLERANCE.get(expected.dtype, 1e-10)
        allowed = default if self.tolerance is None else self.tolerance
        before = expected.detach().double()
        after = actual.detach().double()
        error = (before - after).abs() / (max(_largest(before), self.scale) or 1.0)
        error = torch.where(before == after, 0.0, error.nan_to_num(nan=torch.inf))
        if rows is not None:
            error = torch.zeros_like(error).index_copy(0, rows, error[rows])
        most = float(error.max()) if error.numel() else 0.0
        excess = most / max(allowed, 1e-300)
        if excess > self.excess:
            index = torch.unravel_index(error.argmax(), error.shape)
            self.error = most
            self.excess = excess
            self.where = (
                f"worst error {most:.3g} (allowed {allowed:.3g}) in {name}{[int(i) for i in index]}"
                f": got {float(after[index]):.9g}, expected {float(before[index]):.9g}"
            )

    def see_edges(self, expected: _Output, actual: _Output) -> None:
        """Compare outputs of edges, in any order."""
        expected = expected.sorted()
        actual = actual.sorted()
        if not torch.equal(expected.edges, actual.edges):  # pyright: ignore[reportArgumentType]
            raise AssertionError(f"{actual.name}: got other edges in edge_index than expected")
        self.see(actual.name, expected.value, actual.value)

    def check(self, message: str) -> float:
        """Return the worst error, or raise AssertionError."""
        if self.excess > 1:
            raise AssertionError(f"{message}: {self.where}")
        return self.error


def _as_batch(data: Union[Data, Sequence[Data]]) -> Any:
    batch = data if isinstance(data, Data) else Batch.from_data_list(list(data))
    if not isinstance(batch, Batch) or batch.num_graphs < 2:
        raise ValueError("data: got one graph, expected a Batch of at least two")
    return batch


def _graph_of_rows(data: Any) -> dict[int, Tensor]:
    """For a tensor with a row for each node, edge or graph: the graph of each row."""
    graphs = torch.arange(data.num_graphs, device=data.batch.device)
    rows = (data.batch, data.batch[data.edge_index[1].long()], graphs)
    graph_of = {len(graph): graph for graph in rows}
    if len(graph_of) < 3:
        counts = [len(graph) for graph in rows]
        raise ValueError(f"data: got {counts} nodes, edges and graphs, expected different numbers")
    return graph_of


def _other_values(value: Tensor, generator: torch.Generator) -> Tensor:
    """Return other features of the same kind."""
    if not value.is_floating_point():
        return value[torch.randint(len(value), (len(value),), generator=generator)]
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    return value + ((_largest(value) or 1.0) * (0.5 + noise)).to(value)


def _owners(output: _Output, graph_of: dict[int, Tensor]) -> Tensor:
    """The graph of each row of an output."""
    if output.edges is not None:
        nodes, *_ = graph_of.values()
        return nodes[output.edges[1]]
    if output.rows not in graph_of:
        raise output.unlike("of {} nodes, {} edges or {} graphs".format(*graph_of))
    return graph_of[output.rows]


def _inverse(order: Tensor) -> Tensor:
    return torch.empty_like(order).index_copy(
        0, order, torch.arange(order.numel(), device=order.device)
    )


def _largest(x: Tensor) -> float:
    finite = x.detach()[x.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _floats(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _step(data: Data, name: str, value: Tensor) -> int:
    """Return the offset that PyG adds to an attribute of the next graph; 0 if it has no indices."""
    return -1 if "batch" in name else int(torch.as_tensor(data.__inc__(name, value)).max())


def _num_nodes(data: Data) -> int:
    if data.num_nodes is None:
        raise ValueError("data: got a graph without node features, expected x or num_nodes")
    return data.num_nodes


def _orders(data: Data, trials: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    num_nodes = _num_nodes(data)
    num_edges = data.num_edges
    batch = data.get("batch")
    batch = torch.zeros(num_nodes, dtype=torch.int64) if batch is None else batch.cpu()
    most = int(torch.bincount(batch).max()) if num_nodes else 0
    if trials < 1 or most < 2 or num_nodes == num_edges:
        raise ValueError(
            f"got {trials} trials, {num_nodes} nodes, {most} in the largest graph, and {num_edges} "
            "edges, expected a trial, a graph of two nodes, and another number of edges than nodes"
        )
    generator = torch.Generator().manual_seed(seed)
    device = data.edge_index.device if data.edge_index is not None else None
    order = same = torch.arange(num_nodes)
    for _ in range(trials):
        while torch.equal(order, same):
            order = torch.randperm(num_nodes, generator=generator)
            # Keep each graph's nodes together, as PyG's batches do.
            order = order[batch[order].argsort(stable=True)]
        edges = torch.randperm(num_edges, generator=generator)
        yield order.to(device), edges.to(device)
        order = same


def _matched(first: list[_Output], *others: list[_Output]) -> Iterator[tuple[_Output, ...]]:
    """Match the outputs of several calls."""
    names = [[output.name for output in outputs] for outputs in (first, *others)]
    if any(other != names[0] for other in names):
        raise AssertionError(f"got outputs {names[1]} in one call, {names[0]} in another")
    if not any(output.value.numel() for output in first):
        raise ValueError("got outputs without elements: otherwise any module would pass")
    return zip(first, *others, strict=True)


def _read(name: str, out: Any) -> Iterator[_Output]:
    """Find the tensors in what a module returned."""
    if isinstance(out, Tensor):
        yield _Output(name, out)
    elif isinstance(out, (tuple, list)):
        both: Any = out if len(out) == 2 else (None, None)
        first, last = both
        pair = isinstance(first, Tensor) and isinstance(last, Tensor)
        if pair and first.dtype in _INTEGERS and first.shape == (2, *last.shape[:1]):
            yield _Output(f"{name}[1]", last, first.long())
            return
        for i, member in enumerate(out):
            yield from _read(f"{name}[{i}]", member)
    elif out is not None:
        raise ValueError(f"{name}: got {type(out).__name__}, expected tensors")
