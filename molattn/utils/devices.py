"""The devices that torch computes on."""

import torch

from molattn.errors import InputError

__all__ = ["check_device", "torch_device"]


def check_device(device: str) -> None:
    """Check that there is a GPU if ``device`` asks for one: it is ``auto``, ``cpu`` or ``gpu``.

    Raises:
        InputError: There is none.
    """
    if device == "gpu" and torch_device("auto") == "cpu":
        raise InputError(
            "--device gpu: PyTorch found no GPU; use --device cpu or auto, or install a GPU driver "
            "and a build of PyTorch for it"
        )


def torch_device(device: str) -> str:
    """Return what torch calls such a device; ``auto`` is a GPU if there is one."""
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    return "mps" if device != "cpu" and torch.backends.mps.is_available() else "cpu"
