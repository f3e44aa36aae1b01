import sys

import pytest
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from molattn.chem import draw
from molattn.chem.draw import differing_atoms, draw_molecule, laid_out
from molattn.chem.limits import is_fast
from molattn.errors import MolattnError
from molattn.evaluation.report.molecules import molecule_image

PEPTIDE = "N[C@@H](Cc1ccccc1)C(=O)" * 12 + "O"


def svg(mol):
    drawer = rdMolDraw2D.MolDraw2DSVG(300, 300)
    drawer.drawOptions().prepareMolsBeforeDrawing = False
    drawer.DrawMolecule(mol)
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def test_a_child_process_lays_out_molecules_as_this_one_does():
    assert not is_fast(PEPTIDE)
    mol = Chem.MolFromSmiles(PEPTIDE)
    own = rdMolDraw2D.PrepareMolForDrawing(mol, addChiralHs=False)
    assert svg(laid_out(PEPTIDE)) == svg(own)


def test_up_to_200_atoms_are_drawn():
    assert laid_out("C" * 200).GetNumAtoms() == 200
    assert draw_molecule("C" * 200).startswith("<?xml")
    assert (laid_out("C" * 201), draw_molecule("C" * 201)) == (None, None)
    # Atoms of the graph count, not characters.
    assert laid_out("[H]C([H])([H])" + "C([H])([H])" * 90 + "[H]").GetNumAtoms() == 91


def ended(*_):
    raise TimeoutError


def test_a_layout_has_a_limit_of_time(monkeypatch):
    laid_out.cache_clear()
    monkeypatch.setattr(draw, "call_within", ended)
    assert laid_out("CCO") is not None
    assert laid_out(PEPTIDE) is None
    laid_out.cache_clear()


def test_the_error_names_the_libraries_that_rdkit_draws_with(monkeypatch):
    laid_out.cache_clear()
    assert molecule_image("CCO", "ethanol").startswith("<img")
    laid_out.cache_clear()
    for name in [one for one in sys.modules if one.startswith("rdkit.Chem.Draw")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rdkit.Chem.Draw.rdMolDraw2D", None)
    with pytest.raises(
        MolattnError, match=r"RDKit cannot draw molecules: .* apt install libxrender1"
    ):
        draw_molecule("CCO")
    assert "RDKit cannot draw" in molecule_image("CCO", "ethanol")  # in the report


@pytest.mark.parametrize(
    "smiles, other, expected",
    [
        ("OCC", "CCO", []),
        ("CCO", "CCN", [2]),
        ("CC(=O)[O-]", "CC(=O)O", [3]),
        ("CC=O", "CCO", [2]),
        ("C", "O", [0]),
        ("Cl.CCO", "CCN.Cl", [3]),
        ("[Na+].CC(=O)[O-]", "CC(=O)O", [0, 4]),
        ("Cl.Cl.CCN", "CCN.Cl", [1]),
        ("CCO", "CCO.Cl", []),
        ("c1ccccc1", "C1CCCCC1", [0, 1, 2, 3, 4, 5]),
        ("Cc1ccccc1O", "CC1CCCCC1O", [2, 3, 4, 5, 6, 7]),
    ],
)
def test_differing_atoms_are_outside_the_common_structure(smiles, other, expected):
    assert differing_atoms(smiles, other) == expected


def test_all_atoms_differ_if_the_search_takes_too_long(monkeypatch):
    monkeypatch.setattr(draw, "call_within", ended)
    assert differing_atoms("CCO", "CCN") == [0, 1, 2]
