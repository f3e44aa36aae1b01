"""The road of a molecule through ``molattn predict`` stays short."""

import importlib
from pathlib import Path

from molattn import MolAttn, MolAttnConfig
from molattn.config import NetworkConfig
from molattn.task import Task


def test_a_smiles_passes_at_most_18_functions_from_the_command_to_the_network(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts" / "counts")
    road = importlib.import_module("count_calls").road
    network = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    MolAttn(MolAttnConfig((Task("y"),), network)).save_pretrained(tmp_path / "model")
    functions = road(str(tmp_path / "model"), "CC(N)=O")
    assert functions[0] == "cli/program.py: main"
    assert "chem/parse.py: parse_smiles" in functions
    assert functions[-1].startswith("model/networks.py: ")
    assert len(functions) <= 18, "\n".join(functions)
