from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Geometry import Point3D

from molattn import from_smiles
from molattn.chem import ConformerGenerator, ConformerWarning, parse_smiles

NO_GEOMETRY = "C[C@H]1[C@@H]2[C@H]1[C@H]2C"  # stereocenters that no shape can have
conformer = ConformerGenerator()


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def test_benzene_is_a_flat_hexagon_of_the_measured_size():
    found = conformer(parse_smiles("c1ccccc1"))
    assert found.method == "etkdg"
    assert found.coordinates.dtype == np.float64
    got = np.sort(distances(found.coordinates), axis=1)
    bond = 1.395  # angstrom, in the gas phase
    expected = bond * np.array([0, 1, 1, 3**0.5, 3**0.5, 2])
    np.testing.assert_allclose(got, np.tile(expected, (6, 1)), atol=0.02)
    height = np.linalg.svd(found.coordinates - found.coordinates.mean(0))[1]
    assert height[2] < 1e-2


def test_stereocenters_keep_their_hand():
    left, right = (conformer(parse_smiles(s)) for s in ("N[C@@H](C)C(=O)O", "N[C@H](C)C(=O)O"))

    def volume(points):  # of the center's three heavy neighbors, signed
        return np.linalg.det(points[[0, 2, 3]] - points[1])

    assert volume(left.coordinates) * volume(right.coordinates) < -1


@settings(max_examples=15)
@given(order=st.permutations(range(17)))
def test_the_conformer_follows_the_atoms(order):
    # No two atoms of this molecule are alike, so the atoms of both orders correspond in one way.
    mol = parse_smiles("CC1CC(=O)NC(N)C1Oc1cncc(F)c1")
    moved = Chem.RenumberAtoms(mol, order)
    expected = distances(conformer(mol).coordinates[order])
    np.testing.assert_allclose(distances(conformer(moved).coordinates), expected, atol=1e-9)


def test_coordinates_of_the_molecule_are_used_as_they_are():
    mol = parse_smiles("CCO")
    points = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-4.0, 0.5, 9.0]])
    own = Chem.Conformer(3)
    own.Set3D(True)
    for i, point in enumerate(points):
        own.SetAtomPosition(i, Point3D(*point))
    mol.AddConformer(own)
    found = conformer(Chem.MolFromMolBlock(Chem.MolToMolBlock(mol)))
    assert found.method == "given"
    np.testing.assert_array_equal(found.coordinates, points)


@pytest.mark.parametrize("smiles", ["C", "[H][H]", "[U]"])
def test_the_smallest_molecules_have_a_conformer(smiles):
    found = conformer(parse_smiles(smiles))
    assert found.method == "etkdg"
    assert np.isfinite(found.coordinates).all()


@pytest.mark.parametrize("generator", [conformer, ConformerGenerator(max_atoms=20)])
def test_a_molecule_without_geometry_or_of_too_many_atoms_has_none_and_a_warning(generator):
    smiles = NO_GEOMETRY if generator is conformer else "C" * 10
    with pytest.warns(ConformerWarning, match="no conformer"):
        assert generator(parse_smiles(smiles)) is None
    with pytest.warns(ConformerWarning):
        data = from_smiles(smiles, conformer=generator)
    assert "pos" not in data
    assert data.num_nodes == parse_smiles(smiles).GetNumAtoms()


def test_fragments_stand_side_by_side():
    mol = parse_smiles("[Na+].CC(=O)[O-].c1ccccc1")
    table = distances(conformer(mol).coordinates)
    pieces = Chem.GetMolFrags(mol)
    for one, other in combinations(pieces, 2):
        assert table[np.ix_(one, other)].min() >= 4 - 1e-9
    assert table[np.ix_(pieces[1], pieces[1])].max() < 3
