import inspect
import os
import subprocess
import sys

import pytest
import torch

from molattn.nn import EdgeAttentionConv, GraphNetwork

PROGRAM = """
import torch
from torch_geometric.data import Data
from molattn import from_smiles
from molattn.nn import EdgeAttentionConv, GaANConv, MATConv, GraphNetwork
for layer in (EdgeAttentionConv, GaANConv, GraphNetwork):
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    x = layer(8, 8)(torch.ones(3, 8), edges)
    print(float((x[0] if isinstance(x, tuple) else x).sum()))
MATConv(8, 8)
"""


OWN = """
import torch
from molattn.nn import EdgeAttentionConv

class Propagate(EdgeAttentionConv):
    def propagate(self, *args, **kwargs):
        return super().propagate(*args, **kwargs)

class EdgeUpdater(EdgeAttentionConv):
    def edge_updater(self, *args, **kwargs):
        return super().edge_updater(*args, **kwargs)

class NoFunction(EdgeAttentionConv):
    propagate = torch.nn.Identity()

EdgeAttentionConv(8, 8)
for layer in (Propagate, EdgeUpdater):
    layer(8, 8)(torch.ones(3, 8), torch.tensor([[0, 1, 2], [1, 2, 0]]))
NoFunction(8, 8)
"""


def run(folder, *program):
    return subprocess.run(
        [sys.executable, *(program or ("-c", PROGRAM))],
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "",
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_no_file_is_left_in_the_temporary_folder(tmp_path):
    run(tmp_path)
    assert [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")] == []


def test_a_file_of_yours_in_the_temporary_folder_stays(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "other.pyc").touch()
    script = tmp_path / "own.py"
    script.write_text(OWN)
    run(tmp_path, str(script))
    assert script.read_text() == OWN
    assert list(tmp_path.rglob("*.pyc")) == [tmp_path / "__pycache__" / "other.pyc"]


@pytest.mark.faults
def test_layers_need_no_temporary_folder(tmp_path):
    assert run(tmp_path) == run(tmp_path / "none") == run("/dev/full")


@pytest.mark.parametrize("layer", [EdgeAttentionConv, GraphNetwork])
def test_the_source_of_a_generated_function_can_be_read(layer):
    assert "def propagate" in inspect.getsource(type(layer(8, 8)).propagate)
    assert isinstance(layer(8, 8), torch.nn.Module)
