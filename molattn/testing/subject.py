"""A module and its inputs, as all checks call it, and the largest error of a check."""

import copy
import inspect
from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, Optional

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import to_dense_adj, to_dense_batch

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 2e-2}
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class NotApplicableError(ValueError):
    """A check cannot judge this module, or this data."""


class Output(NamedTuple):
    """A tensor that a module returned, and the ``edge_index`` that was returned with it."""

    name: str
    value: Tensor
    edges: Optional[Tensor] = None

    @property
    def rows(self) -> int:
        """The first dimension; 0 for a scalar."""
        return self.value.size(0) if self.value.dim() else 0

    def unlike(self, what: str) -> NotApplicableError:
        """Return an error for an output of another shape than expected."""
        shape = list(self.value.shape)
        return NotApplicableError(f"{self.name}: got shape {shape}, expected a row for each {what}")

    def sorted(self) -> "Output":
        """Sort by edge; duplicate edges by a projection of their values."""
        assert self.edges is not None
        columns = self.value.detach().double().reshape(len(self.value), -1)
        directions = torch.arange(1.0, 1 + columns.size(1), device=columns.device).double().cos()
        order = (columns @ directions).argsort()
        for row in (1, 0):
            order = order[self.edges[row][order].argsort(stable=True)]
        return Output(self.name, self.value[order], self.edges[:, order])


class Subject:
    """A module and its inputs: the data itself, or attributes of the data by name."""

    def __init__(self, module: nn.Module, data: Data, kwargs: dict[str, Any]) -> None:
        self.module = module
        self.data = data
        self.kwargs = kwargs
        self.name = type(module).__name__
        # torch.compile wraps the module.
        self.parameters = _parameters(getattr(module, "_orig_mod", module))
        self.names = [name for name in self.parameters if name in data and name not in kwargs]
        # `batch` alone is no graph: a module whose only parameter is `batch` takes the whole batch.
        self.takes_data = not {*self.names} - {"batch"}
        self.is_dense = not self.takes_data and "mask" in {*self.parameters} - {*data.keys()}
        needed = {
            name
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty
        }
        needed -= {*self.names, *kwargs, *(("adj", "mask") if self.is_dense else ())}
        if not self.takes_data and needed:
            raise ValueError(f"{self.name}.forward needs {needed}, data has {data.keys()}")
        # The attributes of the data that the module may read.
        self.read = data.to_dict() if self.takes_data else {name: data[name] for name in self.names}

    def call(
        self,
        data: Data,
        parameters: Optional[dict[str, Tensor]] = None,
        padding: Optional[tuple[int, float]] = None,
    ) -> list[Output]:
        """Call the module with data, and with other parameters or more padding if asked to."""
        args: tuple[Any, ...] = (data,) if self.takes_data else ()
        named = {} if self.takes_data else {name: data[name] for name in self.names}
        if self.is_dense:
            named = self._padded(data, named, *(padding or (0, 0.0)))
        out = functional_call(self.module, parameters or {}, args, named | self.kwargs)
        outputs = list(_read("output", out))
        if self.is_dense:
            mask = named["mask"]
            outputs = [
                o._replace(value=o.value[mask]) if o.value.shape[:2] == mask.shape else o
                for o in outputs
            ]
        return outputs

    def _padded(self, data: Any, named: dict, rows: int, fill: float) -> dict[str, Tensor]:
        """Return dense features, adjacency and mask, with ``rows`` more rows than needed."""
        batch = graph_of_nodes(data)
        size = int(batch.bincount().max()) + rows
        dense = {"mask": to_dense_batch(batch, batch, max_num_nodes=size)[1]}
        if "adj" in self.parameters:
            adj = to_dense_adj(data.edge_index, batch, max_num_nodes=size)
            dense["adj"] = adj.to(next((v.dtype for v in named.values() if floats(v)), adj.dtype))
        for name, value in named.items():
            if data.is_node_attr(name):
                code = fill if value.is_floating_point() else int(value.max()) * bool(fill)
                dense[name], _ = to_dense_batch(value, batch, code, max_num_nodes=size)
            elif data.is_edge_attr(name):
                dense[name] = to_dense_adj(data.edge_index, batch, value, max_num_nodes=size)
        return dense

    @cached_property
    def outputs(self) -> list[Output]:
        """The outputs for the data, without gradients."""
        with torch.no_grad():
            return self.call(self.data)

    def compared(self, *others: Data, with_grad: bool = False) -> Iterator[tuple[Output, ...]]:
        """Match the outputs with the outputs for other data."""
        with torch.set_grad_enabled(with_grad):
            outputs = [self.call(data) for data in others]
        return matched(self.outputs, *outputs)

    def in_double(self) -> "Subject":
        """Copy the module and its inputs to float64."""
        data = self.data.clone()
        data.update({key: value.double() for key, value in data.to_dict().items() if floats(value)})
        kwargs = {
            key: value.double() if floats(value) else value for key, value in self.kwargs.items()
        }
        return Subject(copy.deepcopy(self.module).double(), data, kwargs)

    @property
    def float_inputs(self) -> dict[str, Tensor]:
        """The floating-point inputs by name, detached."""
        return {name: value.detach() for name, value in self.read.items() if floats(value)}

    def features(self, lengths: Container[int]) -> dict[str, Tensor]:
        """The inputs with so many rows: floating-point features, and codes that are no indices."""
        return {
            name: value
            for name, value in self.read.items()
            if isinstance(value, Tensor) and value.dim()
            if len(value) in lengths and not name.endswith("ptr")
            if value.is_floating_point() or not step(self.data, name, value)
        }

    @property
    def scale(self) -> float:
        """The largest median magnitude of the inputs: few large values do not decide."""
        inputs = {key: x for key, x in self.read.items() if key != "y"} | self.kwargs
        magnitudes = [x[x.isfinite() & (x != 0)].abs() for x in inputs.values() if floats(x)]
        return max((float(x.detach().median()) for x in magnitudes if x.numel()), default=0.0)

    def locate(self, value: Tensor, index: Sequence[Tensor], edges: Optional[Tensor]) -> str:
        """Say which node, edge or graph of the data has this row of a tensor."""
        data: Any = self.data
        row = int(index[0]) if index else 0
        rows = len(value) if index else 0
        if edges is not None:
            return "edge {} -> {}, ".format(*edges[:, row].tolist())
        if rows == data.num_nodes:
            return f"node {row} of graph {int(graph_of_nodes(data)[row])}, "
        if rows and rows == data.num_edges:
            return "edge {} ({} -> {}), ".format(row, *data.edge_index[:, row].tolist())
        return f"graph {row}, " if rows == getattr(data, "num_graphs", 1) else ""


class Worst:
    """The largest error so far, relative to the tolerance."""

    def __init__(
        self, subject: Subject, tolerance: Optional[float], problem: str, cause: str
    ) -> None:
        self.subject = subject
        self.tolerance = tolerance
        self.problem = problem
        self.cause = cause
        # Rounding errors of outputs that are truly 0 have the scale of the inputs.
        self.scale = subject.scale
        self.error = self.excess = 0.0
        self.where = ""

    def fail(self, where: str) -> NoReturn:
        """Raise AssertionError with the problem, its place and its usual cause."""
        raise AssertionError(f"{self.problem}: {where}. Usual cause: {self.cause}.")

    def see(
        self,
        expected: Output,
        actual: Tensor,
        *,
        rows: Optional[Tensor] = None,
        order: Optional[Tensor] = None,
        cause: str = "",
        when: str = "",
    ) -> None:
        """Compare two tensors, or some rows of them; ``order`` reorders the rows of ``actual``."""
        name, value, edges = expected
        if value.shape != actual.shape:
            self.fail(f"{name} has shape {list(actual.shape)}, expected {list(value.shape)}{when}")
        default = _TOLERANCE.get(value.dtype, 1e-10)
        allowed = default if self.tolerance is None else self.tolerance
        before = value.detach().double()
        after = (actual if order is None else actual[order]).detach().double()
        error = (before - after).abs() / (max(largest(before), self.scale) or 1.0)
        error = torch.where(before == after, 0.0, error.nan_to_num(nan=torch.inf))
        if rows is not None:
            error = torch.zeros_like(error).index_copy(0, rows, error[rows])
        most = float(error.max()) if error.numel() else 0.0
        excess = most / max(allowed, 1e-300)
        if excess > self.excess:
            index = torch.unravel_index(error.argmax(), error.shape)
            self.error = most
            self.excess = excess
            self.cause = cause or self.cause
            self.where = (
                f"worst error {most:.3g} (tolerance {allowed:.3g}) at "
                f"{self.subject.locate(value, index, edges)}{name}{[int(i) for i in index]}{when}, "
                f"got {float(after[index]):.9g}, expected {float(before[index]):.9g}"
            )

    def see_edges(self, expected: Output, actual: Output, cause: str = "") -> None:
        """Compare outputs of edges, in any order."""
        expected = expected.sorted()
        actual = actual.sorted()
        if not torch.equal(expected.edges, actual.edges):  # pyright: ignore[reportArgumentType]
            self.fail(f"{actual.name} comes with other edges in edge_index than expected")
        self.see(expected, actual.value, cause=cause)

    def check(self) -> float:
        """Return the worst error, or raise AssertionError."""
        if self.excess > 1:
            self.fail(self.where)
        return self.error


def _parameters(module: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of forward; behind ``**kwargs``, also those of the layers in it."""
    signature = inspect.signature(module.forward).parameters.values()
    named = {p.name: p for p in signature if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if any(p.kind == p.VAR_KEYWORD for p in signature):
        layers = [layer for layer in module.children() if isinstance(layer, MessagePassing)]
        inner = {name: p for layer in layers for name, p in _parameters(layer).items()}
        named = {name: p.replace(default=None) for name, p in inner.items()} | named
    return named


def graph_of_nodes(data: Data) -> Tensor:
    """Return the graph of each node: zeros for data that is no batch."""
    if data.num_nodes is None:
        raise NotApplicableError("data: got no node features, expected x or num_nodes")
    device = None if data.edge_index is None else data.edge_index.device
    single = torch.zeros(data.num_nodes, dtype=torch.int64, device=device)
    return data.get("batch", single)


def graph_of_rows(data: Any) -> dict[int, Tensor]:
    """For a tensor with a row for each node, edge or graph: the graph of each row."""
    graphs = torch.arange(data.num_graphs, device=data.batch.device)
    receivers = [] if data.edge_index is None else data.edge_index[1].long()
    rows = (data.batch, data.batch[receivers], graphs)
    graph_of = {len(graph): graph for graph in rows}
    if len(graph_of) < 3:
        counts = [len(graph) for graph in rows]
        raise NotApplicableError(
            f"data: got {counts} nodes, edges and graphs, expected different numbers"
        )
    return graph_of


def as_batch(graph: Data) -> Any:
    """Make a batch of one graph."""
    return Batch.from_data_list([graph])


def graphs_of(data: Any) -> list[Any]:
    """Return the graphs of a batch, with the attributes that were set after it was made."""
    if "ptr" not in data:
        return [data]
    graphs = data.to_data_list()
    for name in {*data.keys()} - {*graphs[0].keys(), "batch", "ptr"}:
        owner = graph_of_rows(data)[len(data[name])]
        for index, graph in enumerate(graphs):
            graph[name] = data[name][owner == index]
    return graphs


def largest(x: Tensor) -> float:
    """Return the largest finite magnitude; 0 if there is none."""
    finite = x.detach()[x.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def floats(value: object) -> bool:
    """Tell whether a value is a floating-point tensor."""
    return isinstance(value, Tensor) and value.is_floating_point()


def batch_norm(module: nn.Module) -> str:
    """Explain a BatchNorm that normalizes over the batch, if the module has any."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    for name, norm in module.named_modules():
        if isinstance(norm, kinds) and (norm.training or not norm.track_running_stats):
            return (
                f"{name or 'the module'} is a BatchNorm in training mode (or without running "
                "statistics) and normalizes over the batch, which is its purpose and no mistake; "
                "call eval() to check all else"
            )
    return ""


def other_values(value: Tensor, generator: torch.Generator) -> Tensor:
    """Return other features of the same kind."""
    if not value.is_floating_point():
        return value[torch.randint(len(value), (len(value),), generator=generator)]
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    return value + ((largest(value) or 1.0) * (0.5 + noise)).to(value)


def step(data: Data, name: str, value: Tensor) -> int:
    """Return the offset that PyG adds to an attribute of the next graph; 0 if it has no indices."""
    return -1 if "batch" in name else int(torch.as_tensor(data.__inc__(name, value)).max())


def matched(first: list[Output], *others: list[Output]) -> Iterator[tuple[Output, ...]]:
    """Match the outputs of several calls."""
    names = [[output.name for output in outputs] for outputs in (first, *others)]
    if any(other != names[0] for other in names):
        raise AssertionError(f"got outputs {names[1]} in one call, {names[0]} in another")
    if not any(output.value.numel() for output in first):
        raise NotApplicableError("got outputs without elements: otherwise any module would pass")
    return zip(first, *others, strict=True)


def _read(name: str, out: Any) -> Iterator[Output]:
    """Find the tensors in what a module returned."""
    if isinstance(out, Tensor):
        yield Output(name, out)
    elif isinstance(out, (tuple, list)):
        both: Any = out if len(out) == 2 else (None, None)
        first, last = both
        pair = isinstance(first, Tensor) and isinstance(last, Tensor)
        if pair and first.dtype in INTEGERS and first.shape == (2, *last.shape[:1]):
            yield Output(f"{name}[1]", last, first.long())
            return
        for i, member in enumerate(out):
            yield from _read(f"{name}[{i}]", member)
    elif out is not None:
        raise NotApplicableError(f"{name}: got {type(out).__name__}, expected tensors")
