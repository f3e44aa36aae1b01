from typing import get_args

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem, Descriptors

from molattn.chem.descriptors import (
    DESCRIPTOR_SETS,
    DESCRIPTORS,
    DescriptorCalculator,
    atom_contributions,
    calculate,
)
from molattn.chem.parse import parse_smiles
from molattn.config.data import DescriptorSet

SMILES = """
    CCO c1ccccc1C(=O)N C[C@H](N)C(=O)O CC(N)C(=O)O F/C=C/Cl CC1CC(C)C1 CC(=O)[O-].[Na+]
    O=C1NC(=O)C(c2ccccc2)(c2ccccc2)N1
""".split()


def matrix(smiles, calculator):
    return calculate([parse_smiles(text) for text in smiles], [calculator])[0]


def test_descriptors_are_those_of_rdkit():
    ours = matrix(SMILES, DescriptorCalculator(DESCRIPTORS))
    for row, text in zip(ours, SMILES, strict=True):
        theirs = Descriptors.CalcMolDescriptors(Chem.MolFromSmiles(text))
        expected = [theirs[name] for name in DESCRIPTORS]
        np.testing.assert_allclose(row, np.array(expected, dtype=np.float32), rtol=1e-6)
    assert {"Ipc", "AvgIpc"} == {name for name, _ in Descriptors.descList} - set(DESCRIPTORS)


def test_every_choice_of_descriptors_is_a_set_with_its_names():
    assert tuple(DESCRIPTOR_SETS) == get_args(DescriptorSet)
    assert DESCRIPTOR_SETS["none"] == ()
    assert DESCRIPTOR_SETS["all"] == DESCRIPTORS
    calculator = DescriptorCalculator(DESCRIPTOR_SETS["lipinski"])
    (numbers,) = matrix(["OCC(=O)NC"], calculator)
    np.testing.assert_allclose(numbers, [89.094, 3, 2], rtol=1e-6)


@pytest.mark.parametrize(
    "smiles",
    [*SMILES, "[2H]OC", "[13CH4]", "*N", "[Na+].[OH-]", "[H][H]", "[NH4+]"],
)
def test_atoms_add_up_to_descriptors_that_are_sums(smiles):
    names = DESCRIPTOR_SETS["lipinski"]
    mol = parse_smiles(smiles)
    found = atom_contributions(mol, names)
    assert found.shape == (mol.GetNumAtoms(), 3)
    (expected,) = matrix([smiles], DescriptorCalculator(names))
    np.testing.assert_allclose(found.sum(axis=0), expected, rtol=1e-5)
    assert atom_contributions(mol, ("MolWt", "TPSA")) is None
    assert atom_contributions(mol, ()) is None


def test_counts_are_logarithms_of_those_of_rdkit():
    calculator = DescriptorCalculator(("MolWt",), 512)
    numbers = calculator(parse_smiles(SMILES[1]))
    assert len(numbers) == len(calculator) == 513
    counts = AllChem.GetHashedMorganFingerprint(Chem.MolFromSmiles(SMILES[1]), 2, 512)
    ours = np.rint(np.expm1(numbers[1:])).astype(int)
    assert {int(p): int(ours[p]) for p in np.flatnonzero(ours)} == counts.GetNonzeroElements()


def test_undefined_descriptors_are_missing_and_silent(capfd):
    odd = ["[Na+].[Cl-]", "[He]", "*", "[2H][2H]", "[U]"]
    rows = matrix(odd, DescriptorCalculator(DESCRIPTORS, 64))
    assert rows.dtype == np.float32
    assert np.isnan(rows[0, DESCRIPTORS.index("BCUT2D_MWHI")])
    assert np.isnan(rows[3, DESCRIPTORS.index("SPS")])
    assert not np.isinf(rows).any()
    assert np.isfinite(rows[:, DESCRIPTORS.index("MolWt")]).all()
    assert tuple(capfd.readouterr()) == ("", "")


def test_descriptors_of_cubic_time_are_undefined_for_very_large_molecules() -> None:
    calculator = DescriptorCalculator(
        ("BalabanJ", "BertzCT", "BCUT2D_MWHI", "MinEStateIndex", "MolWt")
    )
    assert np.isfinite(calculator(parse_smiles("C" * 100))).all()
    assert np.isnan(calculator(parse_smiles("C" * 501))).tolist() == [True] * 4 + [False]
