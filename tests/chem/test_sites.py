"""Atoms and bonds in the order of the input, and where they are in the graph."""

import pytest
from rdkit import Chem

from molattn.chem.featurizer import Featurizer
from molattn.chem.reader import MoleculeReader
from molattn.chem.sites import labels_hydrogens


def read(molecule, hydrogens=False):
    reader = MoleculeReader(Featurizer.default(), sites=True, hydrogens=hydrogens)
    return reader.all([molecule])[0]


def test_atoms_and_bonds_are_in_the_order_of_the_smiles():
    sites = read("OCC").sites
    assert sites.atoms.tolist() == [0, 1, 2]
    assert sites.bonds.T.tolist() == [[0, 1], [1, 2]]


def test_explicit_hydrogens_are_not_in_the_graph():
    sites = read("[H]OC([H])C").sites
    assert sites.atoms.tolist() == [-1, 0, 1, -1, 2]
    assert sites.bonds.T.tolist() == [[-1, -1], [0, 1], [-1, -1], [1, 2]]
    assert sites.heavy_sites("atom").tolist() == [False, True, True, False, True]


def test_all_hydrogens_are_atoms_of_the_graph_if_asked_for():
    record = read("[H]OC([H])C", hydrogens=True)
    assert record.num_atoms == 9
    assert sorted(record.sites.atoms.tolist()) == list(range(9))
    graph = Chem.AddHs(Chem.MolFromSmiles("OCC"))
    for first, second in record.sites.bonds.T.tolist():
        assert graph.GetBondBetweenAtoms(first, second) is not None
    assert record.sites.drawn == (5, 4)


@pytest.mark.parametrize("smiles", ["CCO", "c1ccccc1Cl", "C[N+](C)(C)C.[Cl-]"])
def test_other_fields_do_without_the_hydrogens(smiles):
    options = {"featurizer": Featurizer.default(), "hydrogens": True}
    mols = [Chem.MolFromSmiles(smiles), Chem.AddHs(Chem.MolFromSmiles(smiles))]
    records = MoleculeReader(**options, sites=True).all(mols)
    assert records[0].num_atoms == records[1].num_atoms == mols[1].GetNumAtoms()
    assert records[0].sites.atoms.tolist() == records[1].sites.atoms.tolist()


def test_broken_bond_of_a_salt_is_not_in_the_graph():
    assert read("CO[Na]").sites.bonds.T.tolist() == [[0, 1], [-1, -1]]


def test_labels_of_hydrogens_are_recognized():
    assert labels_hydrogens("[H]OC", "atom", [True, False, False])
    assert not labels_hydrogens("[H]OC", "atom", [False, True, True])
    assert labels_hydrogens("[H]OC", "bond", [True, False])
    assert labels_hydrogens("OC", "atom", [True] * 6)
    assert not labels_hydrogens("OC", "atom", [True] * 5)


def test_a_smiles_that_cannot_be_read_prints_nothing(capfd):
    assert not labels_hydrogens("C(C", "atom", [True])
    assert capfd.readouterr().err == ""
