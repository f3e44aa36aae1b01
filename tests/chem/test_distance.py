"""Distances against RDKit's own shortest paths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import distance


def oracle(mol: Chem.Mol, limit: int) -> np.ndarray:
    return np.minimum(Chem.GetDistanceMatrix(mol, force=True), limit).astype(np.uint8)


def places(mol: Chem.Mol) -> np.ndarray:
    n = mol.GetNumAtoms()
    ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()]
    flat = [a * n + b for a, b in ends] + [b * n + a for a, b in ends]
    return np.array(flat, dtype=np.intp)


SMILES = [
    "C",
    "C.C",
    "CC",
    "CCCCCCCCCCCCCCCCCCCC",
    "C1CC2CCC1CC2.CCO",
    "CC(C)(C)c1ccc2c(c1)Cc1ccccc1-2",
    "C" * 140,
    "C1" + "C" * 150 + "1.CC",
]


@pytest.mark.parametrize("text", SMILES)
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9, 10, 16, 17, 40, 255])
def test_equals_rdkit(text: str, limit: int) -> None:
    mol = Chem.MolFromSmiles(text)
    got = distance.clipped_distances(mol.GetNumAtoms(), places(mol), limit)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, oracle(mol, limit))


@given(st.data(), st.integers(1, 25), st.integers(1, 16))
def test_both_ways_agree_on_any_graph(data: st.DataObject, atoms: int, limit: int) -> None:
    index = st.integers(0, atoms - 1)
    edges = data.draw(st.sets(st.tuples(index, index).filter(lambda e: e[0] < e[1]), max_size=40))
    flat = [a * atoms + b for a, b in edges] + [b * atoms + a for a, b in edges]
    bonds = np.array(flat, dtype=np.intp)
    by_walks = distance._by_walks(atoms, bonds, limit)
    by_neighbours = distance._by_neighbours(atoms, bonds, limit)
    off_diagonal = ~np.eye(atoms, dtype=bool)
    np.testing.assert_array_equal(by_walks[off_diagonal], by_neighbours[off_diagonal])
