"""Linear maps by the faster of torch's two CPU libraries."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn.dense.linear import Linear as PyGLinear

__all__ = ["Linear", "linear"]

# Below this many rows the call costs more than the product.
_LEAST_ROWS = 128


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
        and x.dim() == 2
        and x.size(0) >= _LEAST_ROWS
        and x.size(1) == weight.size(1)  # or the usual complaint
        and torch.backends.mkldnn.enabled
        and not torch.is_autocast_enabled("cpu")
    )


_PLAIN = (Tensor, nn.Parameter)  # other kinds may mean something else by a product


def _product(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    return _ONEDNN(x, weight, bias, "none", [], "")


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _OneDNNLinear.apply(grad, weight.t(), None) if needs_x else None,
            # This way round the longer side is read in order.
            _OneDNNLinear.apply(x.t(), grad.t(), None).t() if needs_weight else None,  # pyright: ignore[reportOptionalMemberAccess]
            grad.sum(dim=0) if needs_bias else None,
        )

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

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Optional[int]], *inputs: Any) -> tuple[Tensor, int]:
        return torch.vmap(F.linear, tuple(in_dims))(*inputs), 0
