"""Predictions of atoms and bonds over HTTP."""

import pytest
import torch

from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.serve.catalog import load_models

from .conftest import SMALL


def test_atoms_and_bonds_are_lists_of_a_molecule(served, tmp_path):
    torch.manual_seed(0)
    tasks = {"atom_tasks": ("shift",), "bond_tasks": ("bde",)}
    model = MolAttn(MolAttnConfig(("logS",), SMALL, **tasks)).eval()
    model.save_pretrained(tmp_path / "nmr")
    with served(load_models([tmp_path / "nmr"])) as client:
        answer = client.post("/predict", json={"smiles": ["CCO", "C(C"]}).json()
    first, wrong = answer["molecules"]
    expected = model.predict_atoms(["CCO"]).outputs[:, 0].tolist()
    assert first["atoms"] == {"shift_predicted": pytest.approx(expected, rel=1e-6)}
    assert len(first["bonds"]["bde_predicted"]) == 2
    assert (wrong["atoms"], wrong["bonds"]) == (None, None)


def test_model_of_atoms_alone_is_not_served(tmp_path):
    MolAttn(MolAttnConfig((), SMALL, atom_tasks=("shift",))).save_pretrained(tmp_path / "nmr")
    with pytest.raises(InputError, match="predicts atoms and bonds alone"):
        load_models([tmp_path / "nmr"])
