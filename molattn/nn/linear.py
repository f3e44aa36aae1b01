"""Linear maps, computed by the faster of torch's two CPU libraries."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch_geometric.nn.dense.linear import Linear as PyGLinear
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from molattn.graph.batch import ROW_MULTIPLE

# Below this many rows the call costs more than the product.
_LEAST_ROWS = 128


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    r"""Apply :math:`x W^\top + b`, as :func:`torch.nn.functional.linear` up to rounding errors.

    In single precision torch multiplies with MKL, which uses only half of an AVX-512 unit on CPUs
    that are not Intel's. oneDNN, which torch ships too and its compiler uses, has no such limit:
    where it is available, it multiplies inputs of many rows. Under autocast to bfloat16, the
    conversion is part of the step.
    """
    if _suits_onednn(x, weight, bias):
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        if not torch.is_grad_enabled():
            converted = None if bias is None else bias.to(dtype)
            return _product(_padded(x, dtype), weight.to(dtype), converted, len(x))
        return _OneDNNLinear.apply(x, weight, bias, dtype)  # pyright: ignore[reportReturnType]
    return F.linear(x, weight, bias)


class Linear(PyGLinear):
    """PyG's ``Linear``, computed by :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in_channels]`` to ``[..., out_channels]``."""
        return linear(x, self.weight, self.bias)


def linear_together(x: Tensor, *lins: Linear) -> tuple[Tensor, ...]:
    """Apply several linear maps to one input, as one matrix product where possible.

    If one of them is of another class, has hooks (as pruning adds) or is not initialized yet, each
    is called by itself.
    """
    if not all(_is_plain(lin) for lin in lins):
        return tuple(lin(x) for lin in lins)
    weights: list[Tensor] = [lin.weight for lin in lins]
    if x.dtype != weights[0].dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"x: got {x.dtype}, expected {weights[0].dtype}, that of the parameters")
    biases: list[Tensor] = [
        lin.weight.new_zeros(lin.out_channels) if lin.bias is None else lin.bias for lin in lins
    ]
    out = linear(x, torch.cat(weights), torch.cat(biases))
    return split(out, [lin.out_channels for lin in lins])


def _is_plain(lin: nn.Module) -> bool:
    """Whether it computes :func:`linear` of its weight and bias, and nothing else."""
    return (
        type(lin) is Linear
        and is_unchanged(lin, Linear.forward)
        and lin._compiled_call_impl is None
        and not has_global_hooks()
        and not is_uninitialized_parameter(lin.weight)
    )


def is_linear(lin: Optional[nn.Module]) -> bool:
    """Whether a module is a linear map without bias and hooks; None, which adds nothing, is."""
    if lin is None:
        return True
    return is_unchanged(lin, *_FORWARDS) and lin.bias is None


_FORWARDS = (Linear.forward, PyGLinear.forward, nn.Linear.forward)


def is_unchanged(module: nn.Module, *forwards: Any) -> bool:
    """Whether calling a module runs one of these functions as its ``forward``, and no hooks."""
    return (
        type(module).forward in forwards
        and "forward" not in vars(module)
        and not any(getattr(module, f"_{hooks}") for hooks in _HOOKS)
    )


def has_global_hooks() -> bool:
    """Whether there are hooks of all modules."""
    return any(getattr(nn.modules.module, f"_global_{hooks}") for hooks in _HOOKS)


_HOOKS = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")


def split(x: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Split columns ``[N, sum(widths)]``, as :meth:`torch.Tensor.split`.

    Gradients that come back as the columns of one tensor are not copied.
    """
    # A compiler avoids the copies itself.
    if torch.compiler.is_compiling() or is_transformed(x):
        return x.split(list(widths), dim=-1)
    return _Split.apply(x, tuple(widths))  # pyright: ignore[reportReturnType]


def side_by_side(*parts: Tensor) -> Optional[Tensor]:
    """Return the tensor ``[R, S]`` whose columns these ``[R, ...]`` are, in this order, or None."""
    first = parts[0]
    # Under a compiler or a function transform, the memory of a tensor cannot be looked up.
    if first.numel() == 0 or torch.compiler.is_compiling() or any(map(is_transformed, parts)):
        return None
    place, sizes = first.storage_offset(), [part[0].numel() for part in parts]
    memory = first.untyped_storage().data_ptr()
    for part, size in zip(parts, sizes, strict=True):
        if (
            part.storage_offset() != place
            or part.untyped_storage().data_ptr() != memory
            or part.size(0) != first.size(0)
            or part.stride(0) != first.stride(0)
            or not part[0].is_contiguous()
        ):
            return None
        place += size
    shape, strides = (first.size(0), sum(sizes)), (first.stride(0), 1)
    return first.as_strided(shape, strides, first.storage_offset())


def is_transformed(x: Tensor) -> bool:
    """Whether forward mode, a transform of torch.func or a batch of gradients is active."""
    return (
        is_legacy_batchedtensor(x)
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.split(widths, dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        # Of several gradients that have gradients themselves, a view would pass them to one alone.
        whole = None if torch.is_grad_enabled() else side_by_side(*grads)
        return torch.cat(grads, dim=-1) if whole is None else whole, None


def _onednn() -> Any:
    """Return the operator that torch's compiler calls for linear maps on a CPU, if available."""
    if not torch.backends.mkldnn.is_available():
        return None
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


_ONEDNN = _onednn()
_HAS_BF16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _suits_onednn(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> bool:
    dtypes = (torch.float32,)
    if torch.is_autocast_enabled("cpu"):
        if not _HAS_BF16 or torch.get_autocast_dtype("cpu") != torch.bfloat16:
            return False
        dtypes = (torch.float32, torch.bfloat16)
    return (
        _ONEDNN is not None
        and not torch.compiler.is_compiling()
        and all(
            type(t) in _PLAIN and t.dtype in dtypes and t.device.type == "cpu"
            for t in (x, weight, bias)
            if t is not None
        )
        and not is_transformed(x)
        and x.dim() == 2
        and x.size(0) >= _LEAST_ROWS
        and x.size(1) > 0
        and x.size(1) == weight.size(1)  # if not, F.linear raises
        and bool(torch.backends.mkldnn.enabled)
    )


_PLAIN = (Tensor, nn.Parameter)  # subclasses may define other products


def _by_onednn(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    return _ONEDNN(_dense(x), _dense(weight), bias, "none", [], "")


def _dense(x: Tensor) -> Tensor:
    """Return it contiguous in rows or in columns: oneDNN is slow for other strides."""
    return x if x.is_contiguous() or x.t().is_contiguous() else x.contiguous()


def _padded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of zeros at the end, up to a multiple of ``ROW_MULTIPLE``, and converted."""
    rows, missing = len(x), -len(x) % ROW_MULTIPLE
    if not missing:
        return x.to(dtype)
    padded = x.new_empty(rows + missing, x.size(1), dtype=dtype)
    padded[:rows].copy_(x)
    padded[rows:].zero_()
    return padded


def _product(x: Tensor, weight: Tensor, bias: Optional[Tensor], rows: int) -> Tensor:
    """Products ``[rows, out]`` of the first rows of ``x``, which has no others than padding."""
    products = _by_onednn(x, weight, bias)
    return products.resize_(rows, weight.size(0))  # no view, which autograd would track


def _sum_of_products(x: Tensor, y: Tensor) -> Tensor:
    """The sum ``[in, out]`` over rows ``[N, in]`` and ``[N, out]`` of their outer products."""
    if x.dtype is torch.bfloat16 and x.size(1) > y.size(1):  # twice as fast for 512 and 256 columns
        return _by_onednn(y.t(), x.t()).t()
    return _by_onednn(x.t(), y.t())


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], dtype: torch.dtype
    ) -> Tensor:
        padded, cast = _padded(x, dtype), weight.to(dtype)
        ctx.save_for_backward(x, weight, padded, cast)
        return _product(padded, cast, None if bias is None else bias.to(dtype), len(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, padded, cast = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_x = grad_weight = grad_bias = None
        # Higher derivatives and batched gradients use torch's own products.
        if torch.is_grad_enabled() or is_transformed(grad):
            with torch.autocast("cpu", enabled=False):
                if needs_x:
                    grad_x = (grad @ weight.to(grad.dtype)).to(x.dtype)
                if needs_weight:
                    grad_weight = (grad.mT @ x.to(grad.dtype)).to(weight.dtype)
        else:
            padded_grad = _padded(grad, grad.dtype)
            if needs_x:
                grad_x = _product(padded_grad, cast.t(), None, len(x))
            if needs_weight:
                grad_weight = _sum_of_products(padded, padded_grad).t()
        if needs_bias:
            grad_bias = grad.sum(dim=-2)
        return grad_x, grad_weight, grad_bias, None
