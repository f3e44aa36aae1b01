"""The output for a graph depends neither on the other graphs of its batch, nor on padding."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from .subject import (
    NotApplicableError,
    Output,
    Subject,
    Worst,
    as_batch,
    batch_norm,
    floats,
    graph_of_rows,
    graphs_of,
    other_values,
)

_LEAK = (
    "a softmax, norm, mean or cumulative sum over all nodes or edges, where `batch` or the "
    "receiver must be the index"
)
_SIZE = (
    "padding that takes part in a norm, a softmax or a mean, or a number taken from the whole "
    "batch (its largest graph, its number of nodes)"
)
_MASK = (
    "`mask` is not applied everywhere: to the logits before a softmax, to a sum before a mean, to "
    "the count that it is divided by, and to nodes before a norm"
)


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
    The message names a BatchNorm in training mode, which mixes the graphs on purpose.
    """
    batch = _as_batch(data)
    subject = Subject(module, batch, kwargs)
    graph_of = graph_of_rows(batch)
    generator = torch.Generator().manual_seed(seed)
    features = subject.features(graph_of)
    leaves = {k: v.detach().requires_grad_() for k, v in features.items() if floats(v)}
    if not features:
        raise NotApplicableError(f"data: got no features that {subject.name} reads")
    problem = f"graphs of a batch affect each other in {subject.name}"
    worst = Worst(subject, tolerance, problem, batch_norm(module) or _LEAK)
    for graph in range(batch.num_graphs):
        changed = batch.clone()
        for name, value in features.items():
            mine = (graph_of[len(value)] == graph).view(-1, *[1] * (value.dim() - 1))
            new = other_values(value, generator)
            changed[name] = torch.where(mine, new, leaves.get(name, value))
        for before, after in subject.compared(changed, with_grad=True):
            owner = _owners(before, graph_of)
            rows = (owner != graph).nonzero().flatten()
            worst.see(before, after.value, rows=rows, when=f" with new features in graph {graph}")
            output = after.value[owner == graph]
            if leaves and output.requires_grad:  # its gradients leave out the features changed
                weights = torch.rand(output.shape, generator=generator).to(output)
                options = {"retain_graph": True, "materialize_grads": True}
                gradients = torch.autograd.grad(output, [*leaves.values()], weights, **options)
                for name, gradient in zip(leaves, gradients, strict=True):
                    zero = Output(f"gradient of {name}", torch.zeros_like(gradient))
                    worst.see(zero, gradient, when=f" from the output of graph {graph}")
    return worst.check()


def assert_batch_invariant(
    module: nn.Module,
    data: Union[Data, Sequence[Data]],
    *,
    tolerance: Optional[float] = None,
    **kwargs: Any,
) -> float:
    """Assert that a batch of graphs gives the same outputs as its graphs one by one.

    ``tolerance``: see :mod:`molattn.testing`. The message names a BatchNorm in training mode.
    """
    batch = _as_batch(data)
    graphs = [as_batch(graph) for graph in graphs_of(batch)]
    subject = Subject(module, batch, kwargs)
    problem = f"{subject.name} is not batch invariant"
    worst = Worst(subject, tolerance, problem, batch_norm(module) or _SIZE)
    for batched, *single in subject.compared(*graphs):
        if not batched.value.dim():
            raise batched.unlike("node or graph")
        alone = Output(batched.name, torch.cat([output.value for output in single]))
        if batched.edges is None:
            worst.see(alone, batched.value)
        else:
            starts = batch["ptr"].tolist()
            edges = [output.edges + start for output, start in zip(single, starts, strict=False)]
            worst.see_edges(alone._replace(edges=torch.cat(edges, dim=1)), batched)
    return worst.check()


def assert_padding_invariant(
    module: nn.Module, data: Data, *, tolerance: Optional[float] = None, **kwargs: Any
) -> float:
    """Assert that the values and the amount of padding do not change a dense layer's outputs.

    For modules whose ``forward`` has a parameter ``mask`` (see :mod:`molattn.testing`). Padded rows
    of features get 1000 for 0, and each graph three more of them; outputs of nodes and graphs must
    stay. ``adj`` is 0 in padding, as PyG's ``to_dense_adj`` makes it. ``tolerance``: see
    :mod:`molattn.testing`.
    """
    subject = Subject(module, data, kwargs)
    if not subject.is_dense:
        raise NotApplicableError(f"{subject.name}.forward has no mask")
    worst = Worst(subject, tolerance, f"padding changes outputs of {subject.name}", _MASK)
    for rows, fill in ((0, 1000.0), (3, 0.0)):
        with torch.no_grad():
            outputs = subject.call(data, padding=(rows, fill))
        when = f" with {rows} more padded rows" if rows else f" with {fill:g} in padded rows"
        for before, after in zip(subject.outputs, outputs, strict=True):
            worst.see(before, after.value, when=when)
    return worst.check()


def _as_batch(data: Union[Data, Sequence[Data]]) -> Any:
    batch = data if isinstance(data, Data) else Batch.from_data_list(list(data))
    if not isinstance(batch, Batch) or batch.num_graphs < 2:
        raise NotApplicableError("data: got one graph, expected a Batch of at least two")
    return batch


def _owners(output: Output, graph_of: dict[int, Tensor]) -> Tensor:
    """The graph of each row of an output."""
    if output.edges is not None:
        nodes, *_ = graph_of.values()
        return nodes[output.edges[1]]
    if output.rows not in graph_of:
        raise output.unlike("of {} nodes, {} edges or {} graphs".format(*graph_of))
    return graph_of[output.rows]
