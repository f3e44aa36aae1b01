import csv
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import atom_pairs, parse_smiles
from molattn.chem.count_fingerprints import KINDS, SubstructureCounter
from molattn.chem.fingerprints import morgan_fingerprint
from molattn.chem.mol_binary import cut
from molattn.data.table import bundled_dataset

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


@pytest.mark.parametrize("text", ["CC1CO1", "C1CC1C", "C1C[C@@H]2C[C@@H]2C1", "N1C2CCC12"])
def test_counts_do_not_depend_on_how_a_molecule_is_written(text):
    mol = parse_smiles(text)
    expected = COUNTER(mol)
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(mol.GetNumAtoms()).tolist()
        other = parse_smiles(Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False))
        for found in (COUNTER(other), *COUNTER.many([other], [cut(other)])):
            np.testing.assert_array_equal(found, expected)


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


def counted_alike(counter, texts):
    mols = [parse_smiles(text) for text in texts]
    found = counter.many(mols, [cut(mol) for mol in mols])
    assert len(found) == len(mols)
    for text, mol, one in zip(texts, mols, found, strict=True):
        for got, expected in zip(one, counter(mol), strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected, err_msg=text)


@settings(max_examples=25)
@given(st.lists(smiles(), max_size=5))
@example([])
@example(["C", "[Na+].[Cl-]", "N->[Cu+2]<-N", "C" * 300, "[13CH3]C#N", "C1CC1.C1CC1"])
@example(["O" + "C" * n + "N" for n in (28, 29, 30, 31, 40)])  # pairs up to 30 bonds are counted
def test_many_molecules_are_counted_as_one_at_a_time(texts):
    counted_alike(COUNTER, texts)


@pytest.mark.parametrize("kind", [Chem.BondType.DATIVE, Chem.BondType.ZERO])
def test_bonds_that_add_no_valence_change_no_count_of_other_molecules(kind):
    ester, bound = parse_smiles("CC(=O)OCC"), Chem.RWMol(parse_smiles("CC(C)=O.[Zn+2]"))
    bound.AddBond(3, 4, kind)
    Chem.SanitizeMol(bound)
    for mols in ([bound, ester], [ester, bound]):
        found = SubstructureCounter().many(mols, [cut(mol) for mol in mols])
        for one, mol in zip(found, mols, strict=True):
            for got, expected in zip(one, SubstructureCounter()(mol), strict=True):
                np.testing.assert_array_equal(got, expected)


def test_bundled_molecules_are_counted_as_by_rdkit():
    with bundled_dataset().open(newline="", encoding="utf-8") as file:
        counted_alike(SubstructureCounter(), [row["smiles"] for row in csv.DictReader(file)])


def test_atom_pairs_are_counted_fast():
    assert SubstructureCounter()._fast_pairs is not None, "RDKit's atom pairs have changed"


def test_an_rdkit_with_other_atom_pairs_counts_them_itself(monkeypatch):
    monkeypatch.setattr(atom_pairs, "_TYPES", 7)
    counter = SubstructureCounter(("atom_pairs",))
    assert counter._fast_pairs is None
    counted_alike(counter, ["CCO", "c1ccccc1"])


@pytest.mark.parametrize("kinds", [("atom_pairs", "morgan"), ("morgan", "torsions"), ("torsions",)])
@pytest.mark.parametrize("size, radius", [(4096, 2), (2048, 2), (1024, 2), (4096, 3)])
def test_counts_tell_the_fingerprint(kinds, size, radius):
    counter = SubstructureCounter(kinds, size, radius)
    for text in ("CCO", "C", "c1ccccc1C(=O)NC", "C" * 200, "C1" + "C" * 298 + "C1"):
        mol = parse_smiles(text)
        found = counter.fingerprint(counter(mol), mol)
        np.testing.assert_array_equal(found, morgan_fingerprint(mol))
        assert found.dtype == np.uint16
