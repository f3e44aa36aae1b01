from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem import parse_smiles
from molattn.chem.fast import cut
from molattn.chem.fingerprints import KINDS, SubstructureCounter, morgan_fingerprint

from ..strategies import smiles

COUNTER = SubstructureCounter(KINDS, 4096)
GENERATOR = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)


@settings(max_examples=25)
@given(smiles())
@example("C")
@example("[Na+].[Cl-]")
@example("C1CC1")
@example("C" * 300)  # some counts are above 255
def test_environments_are_the_substructures_that_are_counted(text):
    mol = parse_smiles(text)
    places, atoms = COUNTER.environments(mol)
    assert atoms.shape == (len(places), mol.GetNumAtoms())
    counted = Counter(places.tolist())
    found = COUNTER(mol)
    expected = dict(zip(found.positions.tolist(), found.counts.tolist(), strict=True))
    assert {place: min(count, 255) for place, count in counted.items()} == expected


@pytest.mark.parametrize("text", ["CC1CO1", "C1CC1C", "C1C[C@@H]2C[C@@H]2C1", "N1C2CCC12"])
def test_counts_do_not_depend_on_how_a_molecule_is_written(text):
    mol = parse_smiles(text)
    expected = COUNTER(mol)
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(mol.GetNumAtoms()).tolist()
        other = parse_smiles(Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False))
        for found in (COUNTER(other), *COUNTER.many([other], [cut(other)])):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kinds", [("atom_pairs", "morgan"), ("morgan", "torsions"), ("torsions",)])
@pytest.mark.parametrize("size, radius", [(4096, 2), (2048, 2), (1024, 2), (4096, 3)])
def test_counts_tell_the_fingerprint(kinds, size, radius):
    counter = SubstructureCounter(kinds, size, radius)
    for text in ("CCO", "C", "c1ccccc1C(=O)NC", "C" * 200, "C1" + "C" * 298 + "C1"):
        mol = parse_smiles(text)
        found = counter.fingerprint(counter(mol), mol)
        np.testing.assert_array_equal(found, morgan_fingerprint(mol))
        assert found.dtype == np.uint16


@given(smiles())
def test_counts_are_those_of_rdkit(text):
    mol = parse_smiles(text)
    found = morgan_fingerprint(mol).tolist()
    assert Counter(found) == GENERATOR.GetCountFingerprint(mol).GetNonzeroElements()
    assert found == sorted(found)
