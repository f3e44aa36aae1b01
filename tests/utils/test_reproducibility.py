"""Training in threads, and the global random generators."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import torch

import molattn

SMILES = ["C" * n + end for n in range(1, 11) for end in "ON"]
FRAME = pd.DataFrame({"smiles": SMILES, "y": np.arange(20) / 7})
QUICK = {"epochs": 1, "width": 8, "heads": 2, "layers": 1, "init_from": "none", "device": "cpu"}


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
