"""Tables with a row for each atom or bond."""

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem

from molattn.chem import Featurizer
from molattn.config import DataConfig, NetworkConfig, PredictConfig
from molattn.data.dataset import read_training_table
from molattn.errors import InputError
from molattn.inference import predict_table
from molattn.model.model import MolAttn, MolAttnConfig

SMILES = ["CCO", "[CH3:2][OH:1]", "[H]OC(C)C", "C(", "N#CC1CC1"]
ATOMS = DataConfig(target_columns=(), atom_target_columns=("y",), atom_index_columns=("atom",))
BONDS = DataConfig(
    target_columns=(), bond_target_columns=("y",), atom_index_columns=("atom", "other")
)


def read(table, config=ATOMS, **options):
    return read_training_table(table, config, Featurizer.default(), **options)


def labels(table, level):
    sites = table.sites[level]
    return sites.targets[:, 0], sites.starts


def with_hydrogens(smiles):
    """Return the atoms and bonds as predictions number them, of SMILES without explicit ones."""
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    return mol.GetNumAtoms(), ends


@pytest.mark.parametrize("has_hydrogens", [False, True])
def test_labels_are_those_of_lists(has_hydrogens):
    rng = np.random.default_rng(0)
    atoms, bonds, lists = [], [], []
    for smiles in ["CCO", "[CH3:2][OH:1]", "N#CC1CC1"]:
        mol = Chem.MolFromSmiles(smiles)
        size, ends = with_hydrogens(smiles)
        if not has_hydrogens:
            size = mol.GetNumAtoms()
            ends = ends[: mol.GetNumBonds()]
        values = [None if rng.random() < 0.3 else number for number in rng.random(size)]
        energies = rng.random(len(ends)).tolist()
        atoms += [(smiles, index, value) for index, value in enumerate(values)]
        bonds += [(smiles, b, a, value) for (a, b), value in zip(ends, energies, strict=True)]
        lists.append((smiles, values, energies))
    frame = pd.DataFrame(lists, columns=["smiles", "y", "z"])
    config = DataConfig(target_columns=(), atom_target_columns=("y",), bond_target_columns=("z",))
    expected = read(frame, config)
    order = rng.permutation(len(atoms))
    table = read(pd.DataFrame(atoms, columns=["smiles", "atom", "y"]).iloc[order])
    by_smiles = {table.smiles[row]: row for row in range(3)}
    rows = np.array([by_smiles[smiles] for smiles in frame["smiles"]])
    values = table.sites["atom"].molecules(rows).targets
    np.testing.assert_array_equal(values, expected.sites["atom"].targets)
    table = read(pd.DataFrame(bonds, columns=["smiles", "atom", "other", "y"]), BONDS)
    np.testing.assert_array_equal(labels(table, "bond")[0], expected.sites["bond"].targets[:, 0])


def test_atoms_bonds_and_molecules_are_in_one_table():
    rows = [("CCO", 0, None, 18.0, None), ("CCO", 1, 0, None, 360.0), ("CN", 0, None, 40.0, None)]
    frame = pd.DataFrame(rows, columns=["smiles", "atom", "other", "shift", "bde"])
    sites = {"atom_target_columns": ("shift",), "bond_target_columns": ("bde",)}
    columns = {**sites, "atom_index_columns": ("atom", "other")}
    table = read(
        frame.assign(logS=[1.0, 1.0, 2.0]), DataConfig(target_columns=("logS",), **columns)
    )
    assert table.targets.tolist() == [[1.0], [2.0]]
    assert np.nansum(table.sites["atom"].targets) == 58.0
    assert table.sites["bond"].targets[0] == 360.0


def test_repeated_labels_are_averaged_and_counted():
    rows = [("CCO", 1, 57.0), ("CCO", 0, ">18"), ("CCO", 1, 59.0), ("CCO", 0, ">18"), ("CN", 0, 7)]
    table = read(pd.DataFrame(rows, columns=["smiles", "atom", "y"]))
    assert labels(table, "atom")[0][1] == 58.0
    assert table.sites["atom"].bounds[0, 0, 0] == 18.0
    assert "2 repeated labels averaged in column 'y'" in table.remarks
    assert "5 rows of 2 molecules" in table.remarks


@pytest.mark.parametrize(
    "rows, message",
    [
        ([(0, 1), (1.5, 2)], r"row 2, column 'atom': got '1\.5', expected the index of an atom"),
        ([(0, 1), (1e30, 2)], r"row 2, column 'atom': got '1e\+30', expected the index"),
        ([("", 1), (1, 2)], r"row 1, column 'atom': got '', expected the index"),
        ([(0, ">1"), (0, 2)], r"row 2, column 'y', atom 0: got '2' beside another label"),
        ([(2, "no"), (1, "no"), (2, "yes")], r"row 3, column 'y', atom 2: got 'yes' beside"),
        ([(1, 0), (0, 0), (0, 1)], r"row 3, column 'y', atom 0: got '1' beside"),
    ],
)
def test_errors_name_row_and_atom(rows, message):
    frame = pd.DataFrame([("CCO", *row) for row in rows], columns=["smiles", "atom", "y"])
    with pytest.raises(InputError, match=message):
        read(frame)


@pytest.mark.parametrize("rows", [[], [("CCO", 0, None)]])
def test_a_table_without_labels_is_refused(rows):
    with pytest.raises(InputError, match=r"no rows|has both a molecule"):
        read(pd.DataFrame(rows, columns=["smiles", "atom", "y"]))


def test_atoms_that_a_molecule_does_not_have_are_listed():
    rows = [(smiles, 0, 1.0 + index) for index, smiles in enumerate(SMILES)]
    rows += [("CCO", 2, 3.0), ("N#CC1CC1", 31, 4.0), ("CCO", 1, "1-2-3")]
    table = read(pd.DataFrame(rows, columns=["smiles", "atom", "y"]))
    assert [(row.line, row.code) for row in table.skipped] == [(4, "parenthesis")]
    assert [row.line for row in table.unreadable] == [7, 8]  # the rows of these labels
    assert "column 'y': got '31', expected one of the atoms 0, 1" in table.unreadable[0].reason
    assert "column 'y', atom 1: got '1-2-3', expected a number" in table.unreadable[1].reason


def test_labels_of_bonds_that_cannot_be_read_are_listed_by_their_rows():
    rows = [(smiles, 0, 1, 1.0 + index) for index, smiles in enumerate(SMILES)]
    rows += [("CCCO", 0, 1, 1.0), ("CCCO", 3, 2, "wrong")]
    table = read(pd.DataFrame(rows, columns=["smiles", "atom", "other", "y"]), BONDS)
    (row,) = table.unreadable
    assert row.line == len(rows)
    assert "bond 2: got 'wrong'" in row.reason


@pytest.mark.parametrize("option", [{}, {"bond_target_columns": ("z",)}])
def test_options_without_a_column_for_each_atom_are_refused(option):
    columns = {"target_columns": (), "atom_index_columns": ("a", "b", "c")}
    with pytest.raises(InputError, match="atom_index_columns"):
        DataConfig(**columns, **option)


def test_values_beside_predictions_of_atoms_are_of_the_same_atoms(tmp_path):
    network = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    model = MolAttn(MolAttnConfig((), network, atom_tasks=("shift",))).eval()
    (tmp_path / "new.csv").write_text("smiles\nOCC\n[CH3:2][OH:1]\n[H]OC\n")
    predict_table(model, tmp_path / "new.csv", tmp_path / "long.csv", PredictConfig(atoms=True))
    frame = pd.read_csv(tmp_path / "long.csv")
    table = read(frame.assign(y=frame["shift_predicted"]))
    expected = model.predict_atoms(["OCC", "[CH3:2][OH:1]", "[H]OC"])
    np.testing.assert_array_equal(labels(table, "atom")[1], expected.starts)
    np.testing.assert_allclose(labels(table, "atom")[0], expected.outputs[:, 0], rtol=1e-5)
