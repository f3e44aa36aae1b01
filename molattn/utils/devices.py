"""The devices that torch computes on, and copies between them."""

from typing import Any

import torch
from torch import Tensor

from molattn.errors import InputError

__all__ = ["check_device", "finish", "to_device", "to_host", "torch_device"]


def check_device(device: str, count: int = 1) -> None:
    """Check that there are such devices: ``device`` is ``auto``, ``cpu`` or ``gpu``.

    Args:
        device: The kind.
        count: How many processes use one each; CPUs can be used by any number.

    Raises:
        InputError: There are fewer.
    """
    kind = torch_device(device)
    if device == "gpu" and kind == "cpu":
        raise InputError(
            "got gpu, but PyTorch found no GPU; use --device cpu or auto, or install a GPU driver "
            "and a build of PyTorch for it",
            option="device",
        )
    gpus = {"cpu": count, "cuda": torch.cuda.device_count()}.get(kind, 1)
    if count > gpus:
        raise InputError(
            f"got {count}, expected at most the number of GPUs, {gpus}; --device cpu "
            "trains on any number of CPU processes",
            option="devices",
        )


def torch_device(device: str) -> str:
    """Return what torch calls such a device; ``auto`` is a GPU if there is one."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    return "mps" if device != "cpu" and torch.backends.mps.is_available() else "cpu"


def to_device(data: Any, device: torch.device) -> Any:
    """Return a copy of a tensor or a batch on a device; that to a GPU is not waited for."""
    if device.type == "cuda":
        data = data.pin_memory()  # from other memory the copy would be waited for
    return data.to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU; its values from a GPU are valid after :func:`finish`."""
    # torch waits for other devices than a GPU by itself only in a blocking copy.
    return tensor.to("cpu", non_blocking=tensor.is_cuda)


def finish(device: torch.device) -> None:
    """Wait for all computations and copies on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
