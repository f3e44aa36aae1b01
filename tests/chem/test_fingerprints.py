import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem, Descriptors

from molattn.chem.fingerprints import fingerprints_and_descriptors
from molattn.errors import SmilesError


def test_counts_and_descriptors_are_those_of_rdkit():
    smiles = ["CCO", "c1ccccc1C(=O)N", "OCC"]
    rows = fingerprints_and_descriptors(smiles)
    assert rows.dtype == np.float32
    assert rows.shape == (3, 2048 + len(Descriptors.descList))
    np.testing.assert_array_equal(rows[0], rows[2])
    mol = Chem.MolFromSmiles(smiles[1])
    counts = AllChem.GetHashedMorganFingerprint(mol, 2, 2048).GetNonzeroElements()
    assert {place: int(rows[1, place]) for place in np.flatnonzero(rows[1, :2048])} == counts
    names = [name for name, _ in Descriptors.descList]
    for name in ("MolWt", "MolLogP", "TPSA", "RingCount"):
        expected = getattr(Descriptors, name)(mol)
        assert rows[1, 2048 + names.index(name)] == pytest.approx(expected, rel=1e-6)


def test_molecules_without_some_descriptor_are_finite_and_silent(capfd):
    rows = fingerprints_and_descriptors(["[Na+].[Cl-]", "[He]", "C" * 200, "[U]", "[2H][2H]"])
    assert np.isfinite(rows).all()
    assert tuple(capfd.readouterr()) == ("", "")


def test_what_is_no_molecule_is_refused():
    with pytest.raises(SmilesError):
        fingerprints_and_descriptors(["CCO", "nonsense"])
