"""Linear maps, computed by the faster of torch's two CPU libraries."""

from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn.dense.linear import Linear as PyGLinear

from molattn._torch_compat import has_hooks, is_intel, is_transformed, onednn_linear
from molattn.graph.batch import ROW_MULTIPLE

_LEAST_ROWS = 128  # of fewer the call costs more than the product
_ONEDNN, _HAS_BF16 = onednn_linear()
_INTEL = is_intel()
_PLAIN = (Tensor, nn.Parameter)  # subclasses may define other products


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    r"""Apply :math:`x W^\top + b`, as :func:`torch.nn.functional.linear` up to rounding errors.

    In single precision torch multiplies with MKL, which uses only half of an AVX-512 unit on CPUs
    that are not Intel's. oneDNN, which torch ships too, has no such limit: where it is available,
    it multiplies inputs of many rows. Under autocast to bfloat16, the conversion is part of the
    step.
    """
    dtype = _onednn_dtype(x, weight, bias)
    if dtype is None:
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _forward(_padded(x, dtype), weight.to(dtype), bias, len(x))
    return _OneDNNLinear.apply(x, weight, bias, dtype)  # pyright: ignore[reportReturnType]


def product(x: Tensor, weight: Tensor) -> Tensor:
    r"""Compute :math:`x W^\top` of matrices with few rows or columns, without autograd.

    On Intel's CPUs MKL is faster here. oneDNN is fast where ``x`` is contiguous.
    """
    return _multiply(x, weight) if _suits_onednn(x) else x @ weight.mT


def add_product(total: Tensor, weight: Tensor, x: Tensor, *, out: Tensor) -> None:
    r"""Compute :math:`t + (W x)^\top` likewise."""
    if _suits_onednn(x):
        torch.add(total, _multiply(weight, x.t()).t(), out=out)
    else:
        torch.addmm(total, x.t(), weight.t(), out=out)


def _suits_onednn(x: Tensor) -> bool:
    fast = _ONEDNN is not None and not _INTEL and torch.backends.mkldnn.enabled
    return fast and x.dtype is torch.float32 and x.device.type == "cpu"


class Linear(PyGLinear):
    """PyG's ``Linear``, computed by :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in_channels]`` to ``[..., out_channels]``."""
        if not x.is_floating_point():
            raise ValueError(f"{self}: got {x.dtype}, expected floating-point numbers; embed codes")
        return linear(x, self.weight, self.bias)


def linear_together(x: Tensor, *lins: Linear) -> tuple[Tensor, ...]:
    """Apply several linear maps to one input, as one matrix product where all are plain."""
    plain = all(map(is_plain, lins)) and len({lin.bias is None for lin in lins}) == 1
    if not plain:
        return tuple(lin(x) for lin in lins)
    bias = None if lins[0].bias is None else torch.cat([lin.bias for lin in lins])
    out = linear(x, torch.cat([lin.weight for lin in lins]), bias)
    return out.split([lin.out_channels for lin in lins], dim=-1)


def is_plain(lin: nn.Module) -> bool:
    """Whether a module computes :func:`linear` of its weight and bias, and nothing else.

    Pruning adds hooks, as does PyG before the first call of a map of unknown width.
    """
    return type(lin) is Linear and not has_hooks(lin)


def _onednn_dtype(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Optional[torch.dtype]:
    """The type in which oneDNN multiplies; None if torch does."""
    if _ONEDNN is None or torch.compiler.is_compiling() or type(x) not in _PLAIN:
        return None
    if x.dim() != 2 or x.size(0) < _LEAST_ROWS or not x.size(1) == weight.size(1) > 0:
        return None
    dtype = torch.float32
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        if dtype is not torch.bfloat16 or not _HAS_BF16:
            return None
    suits = torch.backends.mkldnn.enabled and all(
        type(t) in _PLAIN and t.dtype in (torch.float32, dtype) and t.device.type == "cpu"
        for t in (x, weight, bias)
        if t is not None
    )
    return dtype if suits and not is_transformed(x) else None


def _multiply(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    assert _ONEDNN is not None
    # It is slow for strides of neither rows nor columns.
    dense = (
        t if t.is_contiguous() or t.t().is_contiguous() else t.contiguous() for t in (x, weight)
    )
    return _ONEDNN(*dense, bias, "none", [], "")


def _padded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert, with rows of zeros at the end up to a multiple of ``ROW_MULTIPLE``."""
    missing = -len(x) % ROW_MULTIPLE
    return F.pad(x.to(dtype), (0, 0, 0, missing)) if missing else x.to(dtype)


def _forward(padded: Tensor, weight: Tensor, bias: Optional[Tensor], rows: int) -> Tensor:
    out = _multiply(padded, weight, None if bias is None else bias.to(padded.dtype))
    return out.resize_(rows, len(weight))  # no view, which autograd would track


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], dtype: torch.dtype
    ) -> Tensor:
        padded = _padded(x, dtype)
        cast = weight.to(dtype)
        ctx.save_for_backward(x, weight, padded, cast)
        return _forward(padded, cast, bias, len(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, padded, cast = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_x = grad_weight = None
        grad_bias = grad.sum(dim=-2) if needs_bias else None
        # Higher derivatives and batched gradients use torch's own products.
        if torch.is_grad_enabled() or is_transformed(grad):
            with torch.autocast("cpu", enabled=False):
                grad_x = (grad @ weight.to(grad.dtype)).to(x.dtype)
                grad_weight = (grad.mT @ x.to(grad.dtype)).to(weight.dtype)
            return grad_x, grad_weight, grad_bias, None
        padded_grad = _padded(grad, grad.dtype)
        if needs_x:
            grad_x = _multiply(padded_grad, cast.t()).resize_(len(x), x.size(1))
        if needs_weight and grad.dtype is torch.bfloat16 and x.size(1) > grad.size(1):
            grad_weight = _multiply(padded_grad.t(), padded.t())  # twice as fast for 512 and 256
        elif needs_weight:
            grad_weight = _multiply(padded.t(), padded_grad.t()).t()
        return grad_x, grad_weight, grad_bias, None
