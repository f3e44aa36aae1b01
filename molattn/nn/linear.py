"""Linear maps by the faster of torch's two CPU libraries."""

from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn.dense.linear import Linear as PyGLinear

from molattn.nn.split_columns import is_transformed

__all__ = ["Linear", "linear"]

# Below this many rows the call costs more than the product.
_LEAST_ROWS = 128
# oneDNN compiles code for each shape, and torch keeps that of the last 1,024, megabytes each: the
# number of rows, which differs from batch to batch, is brought to a multiple of this.
_ROWS = 128


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    r"""Apply :math:`x W^\top + b`: :func:`torch.nn.functional.linear`, the same but for rounding.

    In single precision torch multiplies with MKL, which on a CPU of another maker than Intel leaves
    half of an AVX-512 unit idle. oneDNN, which torch ships too and its compiler uses, does not:
    where it is at hand, many rows go there.

    Args:
        x: ``[..., in]``.
        weight: ``[out, in]``.
        bias: ``[out]``.

    Returns:
        ``[..., out]``.
    """
    if _suits_onednn(x, weight, bias):
        return _OneDNNLinear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return F.linear(x, weight, bias)


class Linear(PyGLinear):
    """PyG's ``Linear`` (a width of -1 is settled on first use) by :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in_channels]`` to ``[..., out_channels]``."""
        return linear(x, self.weight, self.bias)


def _onednn() -> Any:
    """The operator that torch's compiler calls for linear maps on a CPU, if there is one here."""
    if not torch.backends.mkldnn.is_available():
        return None
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


_ONEDNN = _onednn()


def _suits_onednn(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> bool:
    return (
        _ONEDNN is not None
        and not torch.compiler.is_compiling()
        and all(
            type(t) in _PLAIN and t.dtype is torch.float32 and t.device.type == "cpu"
            for t in (x, weight, bias)
            if t is not None
        )
        and not is_transformed(x)
        and x.dim() == 2
        and x.size(0) >= _LEAST_ROWS
        and x.size(1) == weight.size(1)  # or the usual complaint
        and torch.backends.mkldnn.enabled
        and not torch.is_autocast_enabled("cpu")
    )


_PLAIN = (Tensor, nn.Parameter)  # other kinds may mean something else by a product


def _by_onednn(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    return _ONEDNN(_dense(x), _dense(weight), bias, "none", [], "")


def _dense(x: Tensor) -> Tensor:
    """The same in rows or in columns without gaps: for others oneDNN has slow reference code."""
    return x if x.is_contiguous() or x.t().is_contiguous() else x.contiguous()


def _product(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Products ``[N, out]`` of the rows ``[N, in]``."""
    missing = -x.size(0) % _ROWS
    if not missing:
        return _by_onednn(x, weight, bias)
    products = _by_onednn(F.pad(x, (0, 0, 0, missing)), weight, bias)
    return products.resize_(x.size(0), weight.size(0))  # no view, which autograd would track


def _sum_of_products(x: Tensor, y: Tensor) -> Tensor:
    """The sum ``[in, out]`` over rows ``[N, in]`` and ``[N, out]`` of their outer products."""
    whole = x.size(0) - x.size(0) % _ROWS
    total = _by_onednn(x[:whole].t(), y[:whole].t())
    return total if whole == x.size(0) else total.addmm_(x[whole:].t(), y[whole:])


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        # Further derivatives and batches of gradients go through what torch knows.
        plain = torch.is_grad_enabled() or is_transformed(grad)
        grad_x = grad_weight = None
        if needs_x:
            grad_x = grad @ weight if plain else _product(grad, weight.t())
        if needs_weight:
            grad_weight = grad.t() @ x if plain else _sum_of_products(x, grad).t()
        return grad_x, grad_weight, grad.sum(dim=0) if needs_bias else None

    @staticmethod
    def jvp(ctx: Any, *tangents: Optional[Tensor]) -> Tensor:
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = tangents
        terms: list[Tensor] = []
        if dx is not None:
            terms.append(F.linear(dx, weight))
        if dweight is not None:
            terms.append(F.linear(x, dweight))
        if dbias is not None:
            terms.append(dbias.expand(x.size(0), -1))
        return torch.stack(terms).sum(dim=0)
