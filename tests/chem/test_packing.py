"""Packed molecules against what was packed."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import Featurizer, PackedMolecules, parse_smiles
from molattn.chem.atom_features import ATOM_COLUMNS, Column

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
    st.data(),
)
def test_molecules_are_unpacked_as_they_were_in_any_order(mols, featurizer, data):
    made = featurizer.many(mols)
    packed = PackedMolecules.pack(made, featurizer)
    assert len(packed) == len(made)
    more = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=20)) if made else []
    select = [*range(len(made)), *more]
    for one, place in zip(packed.unpack(select), select, strict=True):
        assert one.atoms.dtype == one.pairs.dtype == np.uint8
        np.testing.assert_array_equal(one.atoms, made[place].atoms)
        np.testing.assert_array_equal(one.pairs, made[place].pairs)
