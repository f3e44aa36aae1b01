"""What torch has no public interface for: hooks, transforms, and oneDNN's linear map.

Each function has a safe answer for versions of torch that lack what it reads.
"""

from collections.abc import Callable
from typing import Any, Optional, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

_functorch: Any = getattr(torch._C, "_functorch", None)

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

Module = TypeVar("Module", bound=nn.Module)


def has_hooks(module: nn.Module) -> bool:
    """Whether calling a module runs more than the ``forward`` of its class; True if unknown."""
    return "forward" in vars(module) or any(getattr(module, name, True) for name in _HOOKS)


def with_tensors(
    module: Module,
    convert: Callable[[Tensor], Tensor],
    twins: Optional[dict[int, nn.Module]] = None,
) -> Module:
    """Copy a module with converted parameters and buffers, which stay differentiable.

    The module itself never changes, so that other threads may use it. Hooks are copied too: hooks
    that are added to the copy are not called for the module. ``twins`` are the copies so far, by
    the identities of the modules: a module that occurs several times has one copy.
    """
    twins = {} if twins is None else twins
    twin = twins[id(module)] = module.__class__.__new__(module.__class__)
    twin.__dict__.update(vars(module))  # copy.copy refuses a module with a parametrization
    for name, value in vars(module).items():
        if isinstance(value, dict):
            vars(twin)[name] = value.copy()
    for tensors in (twin._parameters, twin._buffers):
        converted = {name: convert(x) for name, x in tensors.items() if x is not None}
        tensors.update(converted)  # pyright: ignore[reportArgumentType, reportCallIssue]
    for name, child in module._modules.items():
        if child is not None:
            twin._modules[name] = twins.get(id(child)) or with_tensors(child, convert, twins)
    return twin


def is_transformed(x: Tensor) -> bool:
    """Whether a transform of torch.func, forward mode or a batch of gradients is active.

    If unknown, True: operations that are not ordinary ones are then avoided.
    """
    try:
        return (
            _functorch.is_legacy_batchedtensor(x)
            or torch._C._are_functorch_transforms_active()
            or forward_ad._current_level >= 0
        )
    except AttributeError:
        return True


def onednn_linear() -> tuple[Optional[Callable[..., Any]], bool]:
    """Return the operator that torch's compiler calls for linear maps on a CPU with AVX-512.

    Its arguments are ``(x, weight, bias, "none", [], "")``. None where there is no such operator.
    The second value says whether the CPU multiplies in bfloat16.
    """
    mkldnn = torch.backends.mkldnn.is_available()
    if not mkldnn or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None, False
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    has_bfloat16 = any(getattr(torch.cpu, name, bool)() for name in names)
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None), has_bfloat16


def is_intel() -> bool:
    """Whether the CPU is Intel's: on others MKL uses half of an AVX-512 unit. False if unknown."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return "GenuineIntel" in file.read(200)
    except OSError:
        return False


def has_amx() -> bool:
    """Whether the CPU multiplies matrices in bfloat16 (AMX)."""
    return getattr(torch.cpu, "_is_amx_tile_supported", bool)()
