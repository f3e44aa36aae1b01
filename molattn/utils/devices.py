"""The devices that torch computes on."""

import torch

from molattn.errors import InputError

__all__ = ["check_device", "torch_device"]


def check_device(device: str, count: int = 1) -> None:
    """Check that there are such devices: ``device`` is ``auto``, ``cpu`` or ``gpu``.

    Args:
        device: The kind.
        count: How many processes use one each; CPUs can be used by any number.

    Raises:
        InputError: There are fewer.
    """
    if device == "gpu" and torch_device("auto") == "cpu":
        raise InputError(
            "--device gpu: PyTorch found no GPU; use --device cpu or auto, or install a GPU driver "
            "and a build of PyTorch for it"
        )
    kind = torch_device(device)
    gpus = {"cpu": count, "cuda": torch.cuda.device_count()}.get(kind, 1)
    if count > gpus:
        raise InputError(
            f"--devices: got {count}, but this machine has {gpus} GPU{'s' * (gpus != 1)}; --device "
            "cpu trains on any number of CPU processes"
        )


def torch_device(device: str) -> str:
    """Return what torch calls such a device; ``auto`` is a GPU if there is one."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    return "mps" if device != "cpu" and torch.backends.mps.is_available() else "cpu"
