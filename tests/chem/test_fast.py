"""The fast road against RDKit's own functions, called atom by atom."""

import logging

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from molattn.chem import Featurizer, fast, parse_smiles
from molattn.chem.fingerprints import KINDS, SubstructureCounter

from ..strategies import smiles
from .test_featurizer import BUNDLED, ODD

COUNTER = SubstructureCounter(KINDS, 4096)


def assert_plain(mols: list[Chem.Mol]) -> None:
    """Compare codes and counts with those without the fast road."""
    featurizer, pieces, none = Featurizer.default(), [*map(fast.cut, mols)], [None] * len(mols)
    for one, other in zip(featurizer.many(mols), featurizer.many(mols, pieces=none), strict=True):
        np.testing.assert_array_equal(one.atoms, other.atoms)
        np.testing.assert_array_equal(one.pairs, other.pairs)
    for one, other in zip(COUNTER.many(mols, pieces), COUNTER.many(mols, none), strict=True):
        for found, expected in zip(one, other, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_the_installed_rdkit_is_known_and_most_molecules_are_read_fast() -> None:
    mols = [parse_smiles(text) for text in BUNDLED]
    assert sum(fast.cut(mol) is not None for mol in mols) > 0.99 * len(mols)
    assert_plain(mols)


@settings(max_examples=25)
@given(st.lists(smiles() | st.sampled_from(ODD), max_size=20))
@example(["C", "[Na+].[Cl-]", "N->[Cu+2]<-N", "C" * 300, "[13CH3]C#N", "C1CC1.C1CC1"])
@example(["O" + "C" * n + "N" for n in (28, 29, 30, 31, 40)])  # pairs up to 30 bonds are counted
def test_codes_and_counts_are_those_of_rdkit(texts: list[str]) -> None:
    assert_plain([parse_smiles(text) for text in texts])


@pytest.mark.parametrize("kind", [Chem.BondType.DATIVE, Chem.BondType.ZERO])
def test_bonds_that_add_no_valence_change_no_count_of_other_molecules(kind) -> None:
    ester, bound = parse_smiles("CC(=O)OCC"), Chem.RWMol(parse_smiles("CC(C)=O.[Zn+2]"))
    bound.AddBond(3, 4, kind)
    Chem.SanitizeMol(bound)
    for mols in ([bound, ester], [ester, bound]):
        assert_plain(mols)


def test_an_unknown_rdkit_is_logged_once_and_read_atom_by_atom(monkeypatch, caplog):
    monkeypatch.setattr(fast, "_HEADS", (b"other release",))
    fast._log_unknown.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [fast.cut(parse_smiles(text)) for text in ODD] == [None] * len(ODD)
    assert len(caplog.records) == 1
    mol = parse_smiles("C[C@H](F)c1ccccc1")
    assert Featurizer()(mol).num_atoms == 9
    assert SubstructureCounter()(mol).counts.sum() > 9
