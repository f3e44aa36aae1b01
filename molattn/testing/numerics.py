"""Numbers: derivatives, large inputs, rounding, isolated nodes, and weights that sum to 1."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_geometric.data import Data

from .subject import (
    INTEGERS,
    NotApplicableError,
    Output,
    Subject,
    Worst,
    as_batch,
    batch_norm,
    floats,
    graph_of_nodes,
    graphs_of,
    matched,
    step,
)

_WRONG = (
    "detach(), .item() or .data on the way, an operation in place, rounding to float32, a backward "
    "of one's own, or features at a kink (use random ones)"
)
_MISSING = (
    "the parameter is not used in forward, is detached, or has no effect on this data (attention "
    "over a single edge, units that are all off); if this is meant, name it in `unused`"
)
_INFINITE = "sqrt, norm or a division at 0, log(0), or a masked softmax of nothing but -inf"
_OVERFLOW = (
    "exp of logits without their maximum subtracted, a product or power of features, or a "
    "torch.where whose other branch overflows in the gradient"
)
_ROUNDING = (
    "a difference of large numbers (a variance as E[x^2] - E[x]^2), a division by a small number, "
    "or a computation in half precision"
)
ISOLATED = (
    "the number of nodes is taken from edge_index.max() + 1, a division by a degree of 0, a "
    "maximum, softmax or standard deviation of nothing, or a reshape of 0 edges with -1"
)
_WEIGHTS = "a softmax over senders or over all edges, a sigmoid, or weights after dropout"


def assert_gradients(
    module: nn.Module, data: Data, *, unused: Sequence[str] = (), seed: int = 0, **kwargs: Any
) -> None:
    """Assert that every parameter has a gradient, and that gradients are finite and right.

    Derivatives are compared with finite differences by :func:`torch.autograd.gradcheck`, as in
    :func:`assert_smooth`, in float64 and near the module's parameters and features: a little noise,
    drawn with ``seed``, is added, because gradients vanish at zero weights and do not exist at
    kinks. ``unused``: names of parameters, or patterns such as ``"lin_edge.*"``, that may have
    none.
    """
    subject = Subject(module, data, kwargs).in_double()  # a copy
    _ = subject.outputs  # lazy modules get their parameters
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in (*subject.module.parameters(), *subject.float_inputs.values()):
            value += 0.02 * torch.randn(value.shape, generator=generator).to(value)
    worst = Worst(subject, None, f"{subject.name} has gradients that are not finite", _INFINITE)
    tensors = forward_and_backward(subject, subject.data)
    require_finite(worst, tensors, "near the parameters and features")
    weights = {k: v for k, v in subject.module.named_parameters() if v.requires_grad}
    missing = [
        name
        for name in weights
        if not tensors[f"gradient of {name}"].any()
        if not any(fnmatch(name, pattern) for pattern in unused)
    ]
    if missing:
        worst.problem = f"{subject.name} has parameters without a gradient"
        worst.cause = _MISSING
        worst.fail(", ".join(missing))
    try:
        _compare(subject, [gradcheck], parameters={})
    except AssertionError:
        _compare(subject, [gradcheck], parameters=weights)  # slower, and names the parameter
        raise


def assert_smooth(module: nn.Module, data: Data, **kwargs: Any) -> None:
    """Assert that first and second derivatives agree with finite differences.

    :func:`torch.autograd.gradcheck` and :func:`torch.autograd.gradgradcheck` (in fast mode) with
    respect to all parameters and all floating-point attributes of ``data`` that the module reads,
    in float64: forces, Hessians and gradient penalties need the second derivatives. Attention of
    torch (``scaled_dot_product_attention``) runs on its math kernel, the only one that has second
    derivatives. At a kink, such as that of a ReLU at 0, derivatives do not exist: use random
    features. Finite differences, with steps of 1e-6, also miss derivatives that change within a
    step, such as those of :class:`~molattn.nn.MATConv` by the bonds of a node without bonds.
    """
    subject = Subject(module, data, kwargs).in_double()
    _ = subject.outputs  # lazy modules get their parameters
    _compare(subject, [gradcheck, gradgradcheck], parameters={})


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
    subject = Subject(module, data, kwargs)
    if not subject.float_inputs:
        raise NotApplicableError(
            f"data: got no floating-point attributes that {subject.name} reads"
        )
    worst = Worst(subject, tolerance, f"{subject.name} is not stable", _OVERFLOW)
    large = data.clone()
    large.update({key: value * factor for key, value in subject.float_inputs.items()})
    require_finite(worst, forward_and_backward(subject, large), f"for inputs times {factor:g}")
    for exact, rounded in matched(subject.in_double().outputs, subject.outputs):
        expected = rounded._replace(value=exact.value.to(rounded.value.dtype))
        worst.see(expected, rounded.value, cause=_ROUNDING, when=" beside float64")
    return worst.check()


def assert_isolated_nodes(module: nn.Module, data: Data, **kwargs: Any) -> None:
    """Assert that isolated nodes, graphs without edges and single nodes have finite outputs.

    From the largest graph of ``data``, the edges of its last node are removed, then all edges, then
    all nodes but the first, unless there are other indices of nodes. The module must not fail;
    outputs of nodes must have a row for each node; outputs, and their gradients, must be finite.
    """
    graph: Any = max(graphs_of(data), key=lambda graph: len(graph_of_nodes(graph)))
    if graph.edge_index is None:
        raise NotApplicableError("data: got no edge_index")
    joined = graph.edge_index.amax(0) < graph.num_nodes - 1
    no_edges = graph.edge_subgraph(joined & ~joined)
    cases = {
        "for a graph whose last node is isolated": graph.edge_subgraph(joined),
        "for a graph without edges": no_edges,
    }
    whole = Subject(module, as_batch(graph), kwargs)
    if not any(
        isinstance(value, Tensor) and value.dtype in INTEGERS and step(graph, name, value) > 0
        for name, value in whole.read.items()
        if name != "edge_index"
    ):  # PyG's subgraph leaves other indices of nodes, such as pair_index, as they are
        single = no_edges.subgraph(torch.tensor([0], device=joined.device))
        cases["for a single node"] = single
    problem = f"{whole.name} fails on isolated nodes"
    of_nodes = [graph.num_edges != output.rows == graph.num_nodes for output in whole.outputs]
    for when, case in cases.items():
        subject = Subject(module, as_batch(case), kwargs)
        worst = Worst(subject, None, problem, batch_norm(module) or ISOLATED)
        try:
            tensors = forward_and_backward(subject, subject.data)
        except Exception as error:
            worst.fail(f"{type(error).__name__} {when}: {' '.join(str(error).split())}")
        for output, expected in zip(tensors.items(), of_nodes, strict=False):
            name, value = output
            if expected and len(value) != case.num_nodes:
                worst.fail(f"{name} has {len(value)} rows {when}, expected {case.num_nodes}")
        require_finite(worst, tensors, when)


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
    subject = Subject(module, data, kwargs)
    if "return_attention_weights" in subject.parameters:
        subject = Subject(module, data, {"return_attention_weights": True, **kwargs})
    nothing = Output("", torch.zeros(0))
    outputs = reversed(subject.outputs)
    output = next((output for output in outputs if output.edges is not None), nothing)
    name, alpha, edges = output
    if edges is None or not alpha.numel():
        raise NotApplicableError(f"{subject.name}: got no (edge_index, alpha) among the outputs")
    receiver = edges[0 if getattr(module, "flow", None) == "target_to_source" else 1]
    none = alpha.new_zeros(len(graph_of_nodes(data)), *alpha.shape[1:])
    sums = none.double().index_add(0, receiver, alpha.double()).to(alpha)
    worst = Worst(subject, tolerance, f"attention of {subject.name} is not normalized", _WEIGHTS)
    worst.scale = 0.0
    worst.see(Output(f"sum of {name}", none.index_fill(0, receiver, 1.0)), sums)
    worst.see(output._replace(value=alpha.clamp(min=0.0)), alpha)
    return worst.check()


def require_finite(worst: Worst, tensors: dict[str, Tensor], when: str) -> None:
    """Fail at the first value that is not finite."""
    for name, value in tensors.items():
        if not value.isfinite().all():
            index = tuple((~value.isfinite()).nonzero()[0])
            where = f"{worst.subject.locate(value, index, None)}{name}{[int(i) for i in index]}"
            worst.fail(f"{where} is {float(value[index].detach())} {when}")


def forward_and_backward(subject: Subject, data: Data) -> dict[str, Tensor]:
    """Return outputs, and the gradients of a random but fixed sum of them, by name."""
    data = data.clone()
    leaves = {key: data[key].detach().requires_grad_() for key in subject.float_inputs}
    data.update(leaves)
    with torch.enable_grad():
        tensors = {output.name: output.value for output in subject.call(data)}
    leaves |= {k: value for k, value in subject.module.named_parameters() if value.requires_grad}
    outputs = [value for value in tensors.values() if value.requires_grad]
    if outputs and leaves:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.rand(value.shape, generator=generator).to(value) for value in outputs]
        gradients = torch.autograd.grad(
            outputs, [*leaves.values()], weights, materialize_grads=True
        )
        names = (f"gradient of {key}" for key in leaves)
        tensors |= dict(zip(names, gradients, strict=True))
    return tensors


def _compare(
    subject: Subject, checks: Sequence[Callable[..., bool]], parameters: Mapping[str, Tensor]
) -> None:
    """Compare derivatives with finite differences: by each of the parameters, or by all as one."""
    features = subject.float_inputs
    every = dict(subject.module.named_parameters())
    sizes = [parameter.numel() for parameter in every.values()]
    inputs = {**features, **parameters}
    if every and not parameters:  # or there would be too many pairs of second derivatives
        inputs["parameters"] = torch.cat([value.flatten() for value in every.values()])

    def outputs(*values: Tensor) -> Tensor:
        named = dict(zip(inputs, values, strict=True))
        vectors = named["parameters"].split(sizes) if "parameters" in named else ()
        replaced = {
            key: vector.view_as(every[key]) for key, vector in zip(every, vectors, strict=False)
        }
        data = subject.data.clone()
        data.update({key: named[key] for key in features})
        replaced |= {key: named[key] for key in parameters}
        tensors = [o.value for o in subject.call(data, replaced) if floats(o.value)]
        return torch.cat([tensor.flatten() for tensor in tensors] or [torch.zeros(0)])

    values = [value.detach().clone().requires_grad_() for value in inputs.values()]
    out = outputs(*values)
    if not out.requires_grad or not out.numel():
        raise NotApplicableError(
            f"{subject.name}: got no differentiable output, expected at least one"
        )
    for order, check in zip(("first", "second"), checks, strict=False):
        try:
            with sdpa_kernel(SDPBackend.MATH):
                check(outputs, values, atol=1e-6, rtol=1e-4, fast_mode=True)
        except RuntimeError as error:
            reason = " ".join(str(error).partition("\n\n")[0].split())
            for index, name in enumerate(inputs):
                reason = reason.replace(f"to input {index},", f"to {name},")
            problem = f"{order} derivatives of {subject.name} are wrong or missing"
            raise AssertionError(f"{problem}: {reason} Usual cause: {_WRONG}.") from error
