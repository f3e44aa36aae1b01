"""Distances against RDKit's own shortest paths."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem.distance import pair_distances, row_starts


def oracle(mol: Chem.Mol, limit: int) -> np.ndarray:
    distance = Chem.GetDistanceMatrix(mol, force=True)
    for i, j in np.argwhere(distance > mol.GetNumAtoms()):
        distance[i, j] = np.inf
    return np.where(np.isinf(distance), limit + 1, np.minimum(distance, limit)).astype(np.uint8)


def distances(mols: list[Chem.Mol], limit: int) -> list[np.ndarray]:
    num_atoms = np.array([mol.GetNumAtoms() for mol in mols])
    bonds = [
        (start + bond.GetBeginAtomIdx(), start + bond.GetEndAtomIdx())
        for start, mol in zip(row_starts(num_atoms), mols, strict=True)
        for bond in mol.GetBonds()
    ]
    rows = pair_distances(num_atoms, np.array(bonds, dtype=np.intp).reshape(-1, 2).T, limit)
    assert rows.dtype == np.uint8
    assert rows.shape == (num_atoms.sum(), num_atoms.max())
    starts = row_starts(num_atoms)
    return [rows[s : s + n, :n] for s, n in zip(starts, num_atoms, strict=True)]


SMILES = """
    C C.C CCCCCCCCCCCCCCCCCCCC C1CC2CCC1CC2.CCO CC(C)(C)c1ccc2c(c1)Cc1ccccc1-2
""".split()
MOLS = [Chem.MolFromSmiles(text) for text in (*SMILES, "C" * 140, "C1" + "C" * 150 + "1.CC")]


@st.composite
def graphs(draw: st.DrawFn) -> Chem.Mol:
    mol = Chem.RWMol()
    atoms = draw(st.integers(1, 80))
    for _ in range(atoms):
        mol.AddAtom(Chem.Atom(0))
    index = st.integers(0, atoms - 1)
    edges = st.tuples(index, index).filter(lambda e: e[0] < e[1])
    for begin, end in draw(st.sets(edges, max_size=90)):
        mol.AddBond(begin, end, Chem.BondType.SINGLE)
    return mol.GetMol()


@given(st.lists(graphs(), min_size=1, max_size=4), st.integers(1, 20))
@example(MOLS, 1)
@example(MOLS, 9)
@example(MOLS, 17)
@example(MOLS, 254)
@example(MOLS[-1:], 40)
def test_distances_are_those_of_rdkit(mols: list[Chem.Mol], limit: int) -> None:
    for mol, got in zip(mols, distances(mols, limit), strict=True):
        np.testing.assert_array_equal(got, oracle(mol, limit))
