import csv
import os
import socket
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from molattn.data.table import bundled_dataset

from . import gradients


@pytest.fixture
def folder(tmp_path):
    with open(bundled_dataset(), encoding="utf-8", newline="") as file:
        smiles = [row["smiles"] for row in islice(csv.DictReader(file), 21)]
    (tmp_path / "some.smi").write_text("\n".join(smiles) + "\n")
    return tmp_path


def in_processes(count, *words):
    """Run the program in a group of processes, as torchrun would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "OMP_NUM_THREADS": 1}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    shared["PYTHONWARNINGS"] = "ignore:`torch.jit.script` is deprecated"  # of PyG with torch 2.14
    running = []
    for rank in range(count):
        variables = {**shared, "RANK": rank, "LOCAL_RANK": rank}
        environment = {**os.environ, **{name: str(one) for name, one in variables.items()}}
        command = [sys.executable, *map(str, words)]
        running.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert not errors


def test_gradients_of_two_processes_are_those_of_one(folder):
    """Of uneven parts, missing labels, masks, and a batch of fewer molecules than processes."""
    expected = gradients.compute(folder)
    in_processes(2, gradients.__file__, folder, folder / "found.npz")
    found = np.load(folder / "found.npz")
    assert found.keys() == expected.keys()
    assert len(found) == 2 * (10 + 1)
    for name, values in expected.items():
        scale = np.abs(values).max()
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6 * scale, err_msg=name)
        assert scale > 1e-3
