import os
import socket
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np

from . import gradients


def test_gradients_of_two_processes_are_those_of_one(tmp_path):
    """Of uneven parts, missing labels, and a batch of fewer molecules than processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    shared["PYTHONWARNINGS"] = "ignore:`torch.jit.script` is deprecated"  # of PyG with torch 2.14
    command = [sys.executable, gradients.__file__, tmp_path / "found.npz"]
    environment = {**os.environ, **shared}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = gradients.compute()
    found = np.load(tmp_path / "found.npz")
    assert found.keys() == expected.keys()
    assert len(found) == 10 + 1
    for name, values in expected.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6 * scale, err_msg=name)
        assert scale > 1e-3


def test_each_process_drops_other_numbers(monkeypatch):
    network, steps = replace(gradients.SMALL, dropout=0.5), []
    for rank in range(3):
        monkeypatch.setattr("molattn.training.module.process_rank", lambda rank=rank: rank)
        steps.append(gradients.supervised(network)[:-1])  # of the same rows
    for gradients_of_ranks in zip(*steps, strict=True):
        for one, other in combinations(gradients_of_ranks, 2):
            assert not np.allclose(one, other)
