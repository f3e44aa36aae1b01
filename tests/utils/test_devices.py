import pytest
import torch

from molattn import InputError
from molattn.utils.devices import check_device, torch_device


@pytest.mark.parametrize(
    "cuda, mps, device, expected",
    [
        (False, False, "auto", "cpu"),
        (True, False, "auto", "cuda"),
        (True, True, "gpu", "cuda"),
        (False, True, "gpu", "mps"),
        (True, True, "cpu", "cpu"),
    ],
)
def test_the_device_of_torch(monkeypatch, cuda, mps, device, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(cuda))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    check_device(device)
    assert torch_device(device) == expected


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device in ("auto", "cpu"):
        check_device(device)
    with pytest.raises(InputError) as error:
        check_device("gpu")
    assert error.value.option == "device"
