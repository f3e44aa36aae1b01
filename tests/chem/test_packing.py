"""Packed molecules against what was packed."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import Featurizer, PackedMolecules, parse_smiles
from molattn.chem.atom_features import ATOM_COLUMNS, Column
from molattn.record import MoleculeRecord

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"

FEATURIZER = Featurizer.default()
SHORT = replace(FEATURIZER, max_distance=3, atom_columns=FEATURIZER.atom_columns[::-2])
# 256 codes for each of seven columns: two words an atom.
WIDE = replace(
    FEATURIZER,
    atom_columns=tuple(
        Column(c.name, (*c.values, *range(1000, 1255 - len(c.values))))
        if c.is_open and isinstance(c.values[0], int)
        else c
        for c in ATOM_COLUMNS
    ),
)
TEXTS = [
    "C",
    "CC(=O)Oc1ccccc1C(=O)O",
    "[Na+].[Cl-].C1CC1",
    "F/C=C/[C@H](F)Cl",
    "N->[Cu+2]<-N",
    "[Og-99]",
    "C" * 256,
    "C" * 257,
    "C1" + "CO" * 150 + "1",
]


@lru_cache
def records(featurizer: Featurizer = FEATURIZER) -> list[MoleculeRecord]:
    return featurizer.many([parse_smiles(text) for text in TEXTS])


def assert_same(got: list[MoleculeRecord], expected: list[MoleculeRecord]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.atoms.dtype == one.pairs.dtype == np.uint8
        np.testing.assert_array_equal(one.atoms, other.atoms)
        np.testing.assert_array_equal(one.pairs, other.pairs)


@st.composite
def molecules(draw: st.DrawFn) -> Chem.Mol:
    mol = Chem.RWMol()
    for _ in range(draw(st.integers(0, 40))):
        mol.AddAtom(Chem.Atom(0))
    index = st.integers(0, max(mol.GetNumAtoms() - 1, 0))
    kinds = st.sampled_from(["SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE"])
    for begin, end in draw(st.sets(st.tuples(index, index), max_size=50)):
        if begin < end:
            mol.AddBond(begin, end, getattr(Chem.BondType, draw(kinds)))
    Chem.SanitizeMol(mol)
    return mol.GetMol()


@given(
    st.lists(molecules() | st.sampled_from(TEXTS).map(parse_smiles), max_size=6),
    st.sampled_from([FEATURIZER, SHORT, WIDE]),
)
def test_round_trip(mols: list[Chem.Mol], featurizer: Featurizer) -> None:
    made = featurizer.many(mols)
    packed = PackedMolecules.pack(made, featurizer)
    assert len(packed) == len(made)
    assert_same(packed.unpack(range(len(packed))), made)


@given(st.lists(st.integers(0, len(TEXTS) - 1), max_size=100))
def test_any_selection_in_any_order(select: list[int]) -> None:
    packed = PackedMolecules.pack(records(), FEATURIZER)
    assert_same(packed.unpack(select), [records()[i] for i in select])
