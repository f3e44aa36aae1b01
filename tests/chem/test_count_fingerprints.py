from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from rdkit import Chem

from molattn.chem import parse_smiles
from molattn.chem.count_fingerprints import KINDS, SubstructureCounter

from ..strategies import smiles

COUNTER = SubstructureCounter(KINDS, 4096)


@settings(max_examples=25)
@given(smiles())
@example("C")
@example("[Na+].[Cl-]")
@example("C1CC1")
@example("C" * 300)  # some counts are above 255
def test_environments_are_what_is_counted(text):
    mol = parse_smiles(text)
    places, atoms = COUNTER.environments(mol)
    assert atoms.shape == (len(places), mol.GetNumAtoms())
    counted = Counter(places.tolist())
    found = COUNTER(mol)
    expected = dict(zip(found.places.tolist(), found.counts.tolist(), strict=True))
    assert {place: min(count, 255) for place, count in counted.items()} == expected


@pytest.mark.parametrize("kind", ["morgan", "feature_morgan"])
def test_a_morgan_environment_is_the_atoms_that_its_bonds_join(kind):
    mol = parse_smiles("CC(=O)Nc1ccc2c(c1)OCO2")
    counter = SubstructureCounter((kind,))
    found = {tuple(np.flatnonzero(one).tolist()) for one in counter.environments(mol).atoms}
    expected = {(center,) for center in range(mol.GetNumAtoms())}
    for radius in (1, 2):
        for center in range(mol.GetNumAtoms()):
            bonds = Chem.FindAtomEnvironmentOfRadiusN(mol, radius, center)
            ends = [mol.GetBondWithIdx(bond) for bond in bonds]
            atoms = {
                atom for bond in ends for atom in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
            }
            expected.add(tuple(sorted(atoms)))
    assert found == expected


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("atom_pairs", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        ("torsions", [(0, 1, 2, 3)]),
    ],
)
def test_pairs_and_chains_are_their_atoms(kind, expected):
    atoms = SubstructureCounter((kind,)).environments(parse_smiles("CCCO.O")).atoms
    assert sorted(tuple(np.flatnonzero(one).tolist()) for one in atoms) == expected
