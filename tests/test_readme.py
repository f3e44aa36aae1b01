"""The README's code runs as printed."""

import re
from pathlib import Path

import pytest
import torch

from molattn import MolAttn, MolAttnConfig
from molattn.config import NetworkConfig

pytestmark = pytest.mark.docs

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch):
    small = NetworkConfig(width=16, heads=2, layers=1)
    model = MolAttn(MolAttnConfig(tasks=("logS",), network=small))
    model.save_pretrained(tmp_path / "runs" / "mine" / "model")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    nodes, alpha, e = names["x_new"], names["alpha"], names["e_new"]
    assert isinstance(nodes, torch.Tensor)
    assert isinstance(alpha, torch.Tensor)
    assert isinstance(e, torch.Tensor)
    assert nodes.shape == (13, 64)
    assert alpha.shape == (e.size(0), 8)
    assert e.size(1) == 5


def test_pictures_and_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert target.startswith("http") or (README.parent / target).is_file(), target
