"""Tensors that lie side by side in one: taken apart and put together without a copy."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

__all__ = ["is_transformed", "side_by_side", "split"]


def split(x: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Take columns ``[N, sum(widths)]`` apart, as :meth:`torch.Tensor.split`.

    Gradients that come back in the columns of one tensor are not copied.
    """
    if torch.compiler.is_compiling():  # which plans copies itself
        return x.split(list(widths), dim=-1)
    return _Split.apply(x, tuple(widths))  # pyright: ignore[reportReturnType]


def side_by_side(*parts: Tensor) -> Optional[Tensor]:
    """The tensor ``[R, S]`` of whose rows these are the columns, if they are, in this order.

    Args:
        parts: ``[R, ...]`` each.
    """
    first = parts[0]
    # Neither a compiler nor a function transform shows the memory behind a tensor.
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
    """Whether a function transform (of torch.func, or a batch of gradients) stands around it."""
    return is_legacy_batchedtensor(x) or torch._C._are_functorch_transforms_active()


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.split(widths, dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.widths = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        whole = side_by_side(*grads)
        return torch.cat(grads, dim=-1) if whole is None else whole, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        return tangents[0].split(ctx.widths, dim=-1)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, widths: tuple[int, ...]) -> Any:
        parts = x.movedim(in_dims[0], 0).split(widths, dim=-1)
        return parts, (0,) * len(parts)
