"""Usual drawings of the same molecule are read as one."""

from dataclasses import replace

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize

from molattn.chem import (
    DescriptorCalculator,
    Featurizer,
    Fields,
    MoleculeReader,
    parse_smiles,
    same_molecule,
)
from molattn.chem.descriptors import DESCRIPTORS
from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.fingerprints import SubstructureCounter
from molattn.chem.parse import prepare_mol, quiet, smiles_of_mol_block
from molattn.chem.reader import Preparation, PreparedMolecule

DRAWINGS = {
    "C[S@@+]([O-])CC": "C[S@@](=O)CC",
    "C[S+2]([O-])([O-])N": "CS(N)(=O)=O",
    "C[P@+]([O-])(OC)CC": "C[P@](=O)(OC)CC",
    "[S-][P+](OC)(OC)OC": "S=P(OC)(OC)OC",
    "C[S+](C)[N-]C(C)=O": "CS(C)=NC(C)=O",
    "[O-][s+]1cccc1": "O=S1C=CC=C1",
    "CC[Se+](C)[O-]": "CC[Se](C)=O",
    "[2H]C([2H])([2H])Oc1ccccc1": "COc1ccccc1",
    "C[C@]([3H])(F)Cl": "C[C@H](F)Cl",
    "C[C@H]([2H])O": "CCO",
    "[2H]O[2H]": "O",
    "[2H]/C(C)=C/C": "C/C=C\\C",
    "CC(=O)O[Na]": "CC(=O)[O-].[Na+]",
    "[K]SC": "C[S-].[K+]",
    "[Li]n1cccc1": "[n-]1cccc1.[Li+]",
    "O=C1N([Na])S(=O)(=O)c2ccccc12": "O=C1[N-]S(=O)(=O)c2ccccc12.[Na+]",
    "CC(=O)[O-]->[Na+]": "CC(=O)[O-].[Na+]",
    "[Cs]Cl": "[Cs+].[Cl-]",
}
UNCHANGED = """
    C[N+](C)(C)[O-] O=[N+]([O-])c1ccccc1 C[S+](C)C C[S+](C)[CH-]C(C)=O CC(=O)[O-].[Na+] [Li]CCCC
    [13CH3]O C[P+](C)(C)C.[Cl-] [K] [O-][n+]1ccccc1 CC/C=[S+]/[O-] CC/C=[S+]\\[O-]
""".split()
SULFOXIDES = """
    COc1ccc2[nH]c([S@@](=O)Cc3ncc(C)c(OC)c3C)nc2c1 NC(=O)C[S@](=O)C(c1ccccc1)c1ccccc1
    CC1=C(CC(=O)O)c2cc(F)ccc2/C1=C\\c1ccc(S(C)=O)cc1 C=CC[S@@](=O)C[C@H](N)C(=O)O
    CS(=O)CCCCN=C=S CCCS(=O)c1ccc2[nH]c(NC(=O)OC)nc2c1
""".split()
FIELDS = Fields(
    DescriptorCalculator(DESCRIPTORS[:20], 64),
    SubstructureCounter(),
    fingerprint=True,
    smiles=True,
    scaffold=True,
)


def assert_same(first, second):
    """Check that records hold the same but for the order of their atoms."""
    assert first.smiles == second.smiles
    assert sorted(map(bytes, first.atoms)) == sorted(map(bytes, second.atoms))
    assert sorted(first.pairs.ravel()) == sorted(second.pairs.ravel())
    np.testing.assert_allclose(first.numbers, second.numbers, rtol=1e-5)
    for name in ("fingerprint", "counts"):
        for own, other in zip(getattr(first, name), getattr(second, name), strict=True):
            assert np.array_equal(own, other)


def test_another_drawing_is_read_as_the_usual_one():
    read = MoleculeReader(Featurizer.default(), FIELDS)
    pairs = zip(read.all([*DRAWINGS]), read.all([*DRAWINGS.values()]), strict=True)
    for drawn, usual in pairs:
        assert_same(drawn, usual)
        assert drawn.is_redrawn
        assert not usual.is_redrawn


@pytest.mark.parametrize("text", DRAWINGS)
def test_an_rdkit_molecule_and_a_mol_block_are_read_as_their_smiles(text):
    expected = Chem.MolToSmiles(parse_smiles(text))
    mol = Chem.MolFromSmiles(text)
    assert Chem.MolToSmiles(prepare_mol(mol)) == expected
    block = Chem.MolToV3KMolBlock(mol)
    assert Chem.MolToSmiles(parse_smiles(smiles_of_mol_block(block))) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("C[P+](C)([O-])[S-]", "CP(C)(=O)[S-]"),
        ("C[S+]([O-])[S-]", "CS(=O)[S-]"),
        ("C[S+]([O-])[N-]C", "C[N-]S(C)=O"),
        ("C[S+]([N-]C)[N-]CC", None),
        ("C[S+](C)[N-][P+](C)(C)C", None),
        ("C[P+](C)([N-]C(C)=O)[N-]c1ccccc1C", None),
        ("CC=[S+][O-]", "CC=S=O"),
    ],
)
def test_the_order_of_atoms_does_not_decide_which_bond_is_redrawn(text, expected):
    mol = Chem.MolFromSmiles(text)
    orders = [range(mol.GetNumAtoms()), range(mol.GetNumAtoms())[::-1]]
    drawn = [Chem.MolToSmiles(Chem.RenumberAtoms(mol, [*o]), canonical=False) for o in orders]
    drawn += Chem.MolToRandomSmilesVect(mol, 20, randomSeed=1)
    (found,) = {Chem.MolToSmiles(parse_smiles(one)) for one in drawn}
    assert expected in (found, None)


@pytest.mark.parametrize("text", UNCHANGED)
def test_other_charges_isotopes_and_metals_stay(text):
    (record,) = MoleculeReader(Featurizer.default(), FIELDS).all([text])
    assert not record.is_redrawn
    assert record.smiles == Chem.MolToSmiles(parse_smiles(text, unify=False))


@pytest.mark.parametrize("text", SULFOXIDES)
def test_a_sulfoxide_that_rdkit_draws_with_charges_is_read_as_before(text):
    usual = parse_smiles(text)
    with quiet:
        drawn = Chem.MolToSmiles(rdMolStandardize.Normalizer().normalize(usual), doRandom=True)
    assert "+" in drawn
    assert Chem.MolToSmiles(parse_smiles(drawn)) == Chem.MolToSmiles(usual)


def test_atoms_keep_the_numbers_of_the_input():
    fields = Fields(symbols=True)
    (record,) = MoleculeReader(Featurizer.default(), fields).all(["[2H]C([2H])([2H])O[Na]"])
    assert record.symbols == ("C", "O", "Na")
    assert record.atom_numbers == (1, 4, 5)


def test_drawings_are_duplicates_and_equally_similar():
    assert same_molecule(["CS(C)=O", "CCO", "C[S+](C)[O-]"]) == [[0, 2], [1]]
    known = FingerprintIndex.from_fingerprints([parse_print("CC(=O)[O-].[Na+]")])
    assert known.similarity(["CC(=O)O[Na]"]) == [1.0]
    assert known.contains(["CC(=O)O[Na]"]) == [True]


def parse_print(text):
    return MoleculeReader(Featurizer.default(), FIELDS).all([text])[0].fingerprint


def test_a_reader_that_does_not_unify_reads_molecules_as_drawn_also_of_a_store():
    default = MoleculeReader(Featurizer.default(), Fields(fingerprint=True, smiles=True))
    (record,) = default.all(["C[S+](C)[O-]"])
    origin = Preparation(default.featurizer, default.fields)
    prepared = PreparedMolecule("C[S+](C)[O-]", record, None, origin)
    as_drawn = replace(default, unify=False)
    assert [one.smiles for one in as_drawn([prepared, "[2H]O[2H]"])] == [
        "C[S+](C)[O-]",
        "[2H]O[2H]",
    ]
    assert [one.is_redrawn for one in default([prepared])] == [True]


def test_a_partner_that_is_redrawn_counts():
    read = MoleculeReader(Featurizer.default())
    assert [one.is_redrawn for one in read(["C", "C"], ["O", "[2H]O[2H]"])] == [False, True]


def test_a_parent_does_not_depend_on_the_drawing():
    read = MoleculeReader(Featurizer.default(), FIELDS, standardize="parent")
    drawn, usual = read.all(["C[S+]([O-])CC(=O)O[Na]", "CS(=O)CC(=O)[O-].[Na+]"])
    assert drawn.standardized == usual.standardized == "CS(=O)CC(=O)O"
    assert drawn.is_redrawn
