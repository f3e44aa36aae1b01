"""Drawings of the predictions of atoms and bonds."""

import io
import re

import pytest
import torch
from rdkit import Chem
from rich.console import Console

from molattn.config import ExplainConfig, NetworkConfig
from molattn.errors import InputError
from molattn.explain import draw_sites, explain, explain_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task
from molattn.utils.console import three_digits

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    tasks = {
        "atom_tasks": (Task("shift", unit="ppm"),),
        "bond_tasks": (Task("broken", "binary", ("0", "1")),),
    }
    return MolAttn(MolAttnConfig((), SMALL, hydrogens=True, **tasks)).eval()


@pytest.mark.parametrize("target", ["shift", "broken"])
def test_values_are_drawn_beside_their_atoms_or_bonds(model, target):
    svg = draw_sites(model, "C[C@H](N)O", target)
    assert svg.startswith("<?xml")
    predict = model.predict_atoms if target == "shift" else model.predict_bonds
    assert svg.count("class='note'") > 0
    digits = "".join(three_digits(value) for value in predict(["C[C@H](N)O"]).outputs[:, 0])
    assert svg.count("class='note'") == len(digits)


def test_molecules_with_hydrogens_are_not_explained():
    config = MolAttnConfig(("logS",), SMALL, hydrogens=True, atom_tasks=("shift",))
    with pytest.raises(InputError, match="expected a model without"):
        explain(MolAttn(config).eval(), "CCO", "occlusion")


def test_unknown_property_is_refused(model):
    with pytest.raises(InputError, match="shift"):
        draw_sites(model, "CCO", "charge")


def test_large_molecule_is_not_drawn(model):
    assert draw_sites(model, "C" * 50, "shift") is not None
    assert draw_sites(model, "C" * 100, "shift") is None  # its hydrogens are atoms too


def test_explain_draws_each_row(model, tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nCCO\nC(C\n[H]OC\n")
    config = ExplainConfig(target="shift")
    counts = explain_table(model, tmp_path / "new.csv", tmp_path / "drawn", config)
    assert (counts.done, counts.errors) == (2, 1)
    assert sorted(path.name for path in (tmp_path / "drawn" / "molecules").iterdir()) == [
        "2.svg",
        "4.svg",
    ]
    assert (
        "<h1>shift (ppm), predicted for each atom</h1>"
        in (tmp_path / "drawn" / "index.html").read_text()
    )


def test_a_molecule_that_was_changed_is_drawn_as_it_is(model):
    mol = Chem.RWMol(Chem.MolFromSmiles("CCO"))
    draw_sites(model, mol, "shift")
    mol.GetAtomWithIdx(2).SetAtomicNum(7)
    Chem.SanitizeMol(mol)
    assert draw_sites(model, mol, "shift") == draw_sites(model, Chem.Mol(mol), "shift")


def test_bonds_between_colored_atoms_have_no_color(model):
    bonds = re.findall(r"<path class='bond-[^>]*", draw_sites(model, "Clc1ccc(Cl)cc1", "shift"))
    assert bonds
    assert all("fill:none" in bond for bond in bonds)


def test_the_first_property_is_drawn_of_a_model_of_atoms_and_bonds_alone(model, tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nCCO\n")
    explain_table(model, tmp_path / "new.csv", tmp_path / "drawn", ExplainConfig())
    assert (
        "<h1>shift (ppm), predicted for each atom</h1>"
        in (tmp_path / "drawn" / "index.html").read_text()
    )
    with pytest.raises(InputError, match="shift, broken") as error:
        explain_table(model, tmp_path / "new.csv", tmp_path / "no", ExplainConfig(target="charge"))
    assert error.value.option == "target"


def test_a_method_that_is_not_used_is_named(model, tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nCCO\n")
    for name, config, is_said in (
        ("plain", ExplainConfig(), False),
        ("method", ExplainConfig(method=("attention",)), True),
        ("check", ExplainConfig(target="broken", check=True), True),
    ):
        log = io.StringIO()
        console = Console(file=log, width=200)
        explain_table(model, tmp_path / "new.csv", tmp_path / name, config, console)
        assert ("not used: --method and --check" in log.getvalue()) == is_said
