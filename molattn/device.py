"""Where to compute."""

import torch

from molattn.config.optimisation import Device
from molattn.errors import InputError

__all__ = ["check_device"]


def check_device(device: Device) -> None:
    """Refuse a device that is not there.

    Args:
        device: ``auto`` takes what there is.

    Raises:
        InputError: torch finds no GPU, and one was asked for.
    """
    if device == "gpu" and not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        raise InputError(
            "--device: got 'gpu', but torch finds none here; expected cpu or auto, or a driver and "
            "a build of torch for the GPU"
        )
