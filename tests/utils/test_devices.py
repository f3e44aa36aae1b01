"""Devices, and training in threads beside the global random generators."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

import molattn
from molattn import InputError
from molattn.utils.devices import check_device, torch_device

SMILES = ["C" * n + end for n in range(1, 11) for end in "ON"]
FRAME = pd.DataFrame({"smiles": SMILES, "y": np.arange(20) / 7})
QUICK = {"epochs": 1, "width": 8, "heads": 2, "layers": 1, "init_from": "none", "device": "cpu"}


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


def test_threads_train_one_after_another():
    def weights(seed):
        loaded = molattn.MolAttn.from_pretrained("base-small")
        assert bool(next(iter(loaded.parameters())).any())
        result = molattn.train(FRAME, "y", predictor="network", baselines=False, seed=seed, **QUICK)
        other = molattn.MolAttnRegressor(predictor="network", random_state=seed, **QUICK)
        other.fit(SMILES, range(20))
        tensors = [*result.model.parameters(), *other.model_.parameters()]
        return torch.cat([tensor.detach().flatten() for tensor in tensors])

    alone = [weights(seed) for seed in (0, 1)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(weights, [0, 1, 0, 1]))
    assert not torch.equal(*alone)
    assert all(torch.equal(alone[n % 2], one) for n, one in enumerate(together))


def test_random_generators_are_restored():
    def states():
        return torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()  # noqa: NPY002

    before = states()
    molattn.MolAttn.from_pretrained("admet")
    molattn.train(FRAME, "y", baselines=False, **QUICK)
    molattn.MolAttnRegressor(predictor="gaussian_process").fit(SMILES, range(20))
    assert states() == before
