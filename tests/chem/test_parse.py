"""Only what is plainly a SMILES reaches RDKit; everything else gets a code and a reason."""

import threading

import numpy as np
import pytest
from hypothesis import given
from rdkit import Chem
from rdkit.Chem import rdDepictor, rdDistGeom

from molattn.chem import DescriptorCalculator, Featurizer, parse_smiles
from molattn.chem.descriptors import DESCRIPTORS
from molattn.chem.parse import prepare_mol, smiles_of_mol_block
from molattn.errors import REASONS, SmilesError

from ..conftest import assert_one_line
from ..strategies import smiles_texts

ACCEPTED = {
    "NO": 2,
    "COCOON": 6,
    " CCO\r\n": 3,
    "C%(99999)CCC%(99999)": 4,
    "C1CC=1": 3,
    "[Na+].[Cl-]": 2,
    "N->[Cu+2]<-N": 3,
    "C[Co@OH12](F)(Cl)(Br)(I)S": 7,
    "[999*]C": 2,
    "[H][H]": 2,
    "[H]OC": 2,
    "[H+]": 1,
    "[nH]1cccccc1": 7,
    "C$C": 2,
    "C[C@H](F)[C@H](Cl)Br |&1:1,3|": 6,
    "*CC* |$_AP1;;;_AP2$|": 4,
    "C" * 1500: 1500,
}


@pytest.mark.parametrize("text, atoms", ACCEPTED.items())
def test_valid_smiles_are_accepted(text: str, atoms: int) -> None:
    assert parse_smiles(text).GetNumAtoms() == atoms


INCHI = (
    "CCO",
    "[2H]O[2H]",
    "C[S+](C)[O-]",
    "C[C@H](F)/C=C/Cl",
    "CC(=O)[O-].[Na+]",
    "CC(=O)Nc1ccc(O)cc1",  # RDKit reads CC(O)=Nc1ccc(O)cc1
    "Nc1ccncn1",
    "NC(=O)c1cnccn1",
    "CN1C(=O)CNC(=O)CNC(=O)CNC(=O)CNC(=O)CNC(=O)CNC1=O",  # of more tautomers than are tried
)


@pytest.mark.parametrize("smiles", INCHI)
def test_an_inchi_is_the_molecule_of_its_smiles(smiles: str) -> None:
    mol = parse_smiles(smiles)
    found = parse_smiles(f" {Chem.MolToInchi(mol)}\n")
    assert Chem.MolToSmiles(found) == Chem.MolToSmiles(mol)


INCHI_OF_METALS = {
    "InChI=1S/2CH3.Hg/h2*1H3;": "inchi",
    "InChI=1S/CH3.BrH.Mg/h1H3;1H;/q;;+1/p-1": "inchi",
    "InChI=1S/2C5H5.Fe/c2*1-2-4-5-3-1;/h2*1-5H;/q2*-1;+2": "inchi",
    "InChI=1S/2C2H4O2.Hg/c2*1-2(3)4;/h2*1H3,(H,3,4);/q;;+2/p-2": "inchi",
    "InChI=1S/C6H5.BrH.Mg/c1-2-4-6-5-3-1;;/h1-5H;1H;/q-1;;+2/p-1": "inchi",
    "InChI=1S/C4H9.Li/c1-3-4-2;/h1,3-4H2,2H3;/q-1;+1": "inchi",
    "InChI=1S/2CH3.Zn/h2*1H3;/q2*-1;+2": "inchi",
    "InChI=1S/Na.H/q+1;-1": "inchi",
    "InChI=1S/Al.3ClH/h;3*1H/q+3;;;/p-3": "inchi",
    "InChI=1S/CN.Na/c1-2;/q-1;+1": "[C-]#N.[Na+]",
    "InChI=1S/C3H3.Na/c1-3-2;/h1H3;/q-1;+1": "[C-]#CC.[Na+]",
    "InChI=1S/CH2O3.2Li/c2-1(3)4;;/h(H2,2,3,4);;/q;2*+1/p-2": "O=C([O-])[O-].[Li+].[Li+]",
    "InChI=1S/C2H4O2.Na/c1-2(3)4;/h1H3,(H,3,4);/q;+1/p-1": "CC(=O)[O-].[Na+]",
    "InChI=1S/Ca.2ClH/h;2*1H/q+2;;/p-2": "[Ca+2].[Cl-].[Cl-]",
    "InChI=1S/C3H9As/c1-4(2)3/h1-3H3": "C[As](C)C",
}


@pytest.mark.parametrize("text, expected", INCHI_OF_METALS.items())
def test_an_inchi_without_the_bonds_of_its_metal_is_refused(text, expected):
    try:
        found = Chem.MolToSmiles(parse_smiles(text))
    except SmilesError as error:
        found = error.code
    assert found == expected


@pytest.mark.parametrize("text", ["C:CO", "CC:O", "c1ccccc1C:C", "N:N |$a;b$|"])
def test_an_aromatic_bond_outside_a_ring_is_refused(text):
    with pytest.raises(SmilesError) as caught:
        parse_smiles(text)
    assert caught.value.code == "aromaticity"
    mol = Chem.MolFromSmiles(text)
    with pytest.raises(SmilesError) as caught:
        prepare_mol(mol)
    assert caught.value.code == "aromaticity"
    with pytest.raises(SmilesError) as caught:
        parse_smiles(smiles_of_mol_block(Chem.MolToMolBlock(mol, kekulize=False)))
    assert caught.value.code == "aromaticity"


@pytest.mark.parametrize("text", ["c1ccccc1:CO", "c1ccccc1:C", "C:n1cccc1", "Cc1ccccc1:O |$a$|"])
def test_an_aromatic_bond_between_a_ring_and_an_atom_outside_is_refused(text):
    with pytest.raises(SmilesError) as caught:
        parse_smiles(text)
    assert caught.value.code == "aromaticity"
    mol = Chem.MolFromSmiles(text.split()[0], sanitize=False)
    for write in (Chem.MolToMolBlock, Chem.MolToV3KMolBlock):
        with pytest.raises(SmilesError) as caught:
            smiles_of_mol_block(write(mol, kekulize=False))
        assert caught.value.code == "aromaticity"


@pytest.mark.parametrize("text", ["c1ccccc1C", "c1ccc2ccccc2c1", "c1ccccc1:c1ccccc1"])
def test_a_mol_block_with_aromatic_bonds_is_read(text):
    mol = Chem.MolFromSmiles(text, sanitize=False)
    for write in (Chem.MolToMolBlock, Chem.MolToV3KMolBlock):
        assert smiles_of_mol_block(write(mol, kekulize=False)) == Chem.CanonSmiles(text)


@pytest.mark.parametrize("text", ["C1:C:C:C:C:C1C", "c1ccccc1:c1ccccc1", "[CH3:1][OH:2]"])
def test_other_colons_are_read(text):
    assert Chem.MolToSmiles(parse_smiles(text)) == Chem.CanonSmiles(
        text.replace("[CH3:1][OH:2]", "CO")
    )


def test_atropisomers_are_one_molecule():
    records = []
    for stereo in (Chem.BondStereo.STEREOATROPCW, Chem.BondStereo.STEREOATROPCCW):
        mol = Chem.MolFromSmiles("Cc1cccc(I)c1-c1c(C)cccc1Br")
        axis = mol.GetBondBetweenAtoms(7, 8)
        axis.SetStereoAtoms(1, 9)
        axis.SetStereo(stereo)
        rdDepictor.Compute2DCoords(mol)
        Chem.WedgeMolBonds(mol, mol.GetConformer())
        extended = Chem.MolToCXSmiles(mol)
        assert ",wU:" in extended
        texts = extended, smiles_of_mol_block(Chem.MolToMolBlock(mol))
        records += [
            Featurizer.default()(one) for one in (*map(parse_smiles, texts), prepare_mol(mol))
        ]
    first = records[0]
    for other in records:
        assert sorted(other.pairs.ravel()) == sorted(first.pairs.ravel())
        assert sorted(map(bytes, other.atoms)) == sorted(map(bytes, first.atoms))


def test_an_inchi_keeps_its_order_and_the_limits() -> None:
    text = "InChI=1S/C3H8O/c1-2-3-4/h4H,2-3H2,1H3"
    assert [atom.GetSymbol() for atom in parse_smiles(text).GetAtoms()] == ["C", "C", "C", "O"]
    with pytest.raises(SmilesError, match="too_large"):
        parse_smiles(text, max_atoms=3)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[H]/C1=C(/[H])CCCCCC1", "C1=C/CCCCCC/1"),
        ("[H]/C1=C(\\[H])CCCCCC1", "C1=C\\CCCCCC/1"),
        ("[H]/C1=C/CCCCCC1", "C1=C\\CCCCCC/1"),
        ("[H]/C1=C(/[H])CCCCCC1 |$a;b$|", "C1=C/CCCCCC/1"),
        ("[H]/C1=C(/[H])CCCCCCCCOC1=O", "O=C1/C=C/CCCCCCCCO1"),
    ],
)
def test_hydrogens_at_a_double_bond_of_a_ring_keep_its_label(text: str, expected: str) -> None:
    """RDKit's own ``removeHs`` inverts some of them."""
    assert Chem.MolToSmiles(parse_smiles(text)) == Chem.MolToSmiles(parse_smiles(expected))
    kept = Chem.SmilesParserParams()
    kept.removeHs = False
    mol = Chem.MolFromSmiles(text.split()[0], kept)
    assert Chem.MolToSmiles(prepare_mol(mol)) == Chem.MolToSmiles(parse_smiles(text))


@pytest.mark.parametrize(
    "text, heavy",
    [
        *[(text, text) for text in ("C[C@H](F)Cl", "F/C=C/F", "C[n+]1ccccc1", "[C@H]1(O)CC1")],
        ("[H]N([H])C", "NC"),
        ("[H]/C(F)=C(/[H])C#C[H]", "C(\\F)=C/C#C"),
    ],
)
def test_molecule_is_the_one_rdkit_reads(text: str, heavy: str) -> None:
    ours, rdkits = parse_smiles(text), Chem.MolFromSmiles(heavy)
    assert ours.ToBinary(0) == rdkits.ToBinary(0)
    for one, other in zip(ours.GetAtoms(), rdkits.GetAtoms(), strict=True):
        assert one.GetPropsAsDict(True).get("_CIPCode") == other.GetPropsAsDict(True).get(
            "_CIPCode"
        )


@given(smiles_texts())
def test_any_text_is_a_molecule_or_a_smiles_error(text: str) -> None:
    try:
        mol = parse_smiles(text)
    except SmilesError as error:
        assert_one_line(error)
        assert_one_line(SmilesError(text, error.code, REASONS[error.code]))
        return
    assert mol.GetNumAtoms() > 0
    assert Chem.MolFromSmiles(text.strip()) is not None


def test_log_stays_off_the_terminal_also_between_threads(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        for text in ["C#C#C", "c1cccc1", "C1", "[H+]", "CC", "[H]"] * 50:
            try:
                parse_smiles(text)
            except SmilesError:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capfd.readouterr() == ("", "")


# Each with what is left of it: the centers of groups that are not absolute are unspecified.
STEREO_GROUPS = {
    "C[C@H](O)CC |&1:1|": "CC(O)CC",
    "C[C@@H](O)CC |o1:1|": "CC(O)CC",
    "C[C@@H](O)CC |a:1|": "C[C@@H](O)CC",
    "C[C@H](F)[C@H](Cl)Br |a:1,&1:3|": "C[C@H](F)C(Cl)Br",
    "[H]/C(F)=C/[C@H](O)C |&1:4|": "F/C=C\\C(O)C",
    # The center between two of a group is none without them.
    "C[C@H](O)[C@H](F)[C@@H](O)C |&1:1,5|": "CC(O)C(F)C(O)C",
    "CC1=CC=C(F)C(C)=C1C1=C(C)C=CC(F)=C1C |wU:8.8,&1:8|": "CC1=CC=C(F)C(C)=C1C1=C(C)C=CC(F)=C1C",
}


@pytest.mark.parametrize("text, plain", STEREO_GROUPS.items())
def test_the_centers_of_stereo_groups_are_unspecified(text: str, plain: str) -> None:
    kept = Chem.SmilesParserParams()
    kept.removeHs = False
    mol = Chem.MolFromSmiles(text, kept)
    rdDepictor.Compute2DCoords(mol)
    block = Chem.MolToV3KMolBlock(mol)
    expected = parse_smiles(plain)
    for found in (parse_smiles(text), prepare_mol(mol), parse_smiles(smiles_of_mol_block(block))):
        assert Chem.MolToSmiles(found) == Chem.MolToSmiles(expected)
        assert not found.GetStereoGroups()
        assert [*map(str, (b.GetStereo() for b in found.GetBonds() if b.GetStereo()))] == [
            *map(str, (b.GetStereo() for b in expected.GetBonds() if b.GetStereo()))
        ]


def same_reading(mol: Chem.Mol, text: str) -> None:
    """Check that an RDKit molecule is read as the SMILES is, to the numbers of its descriptors."""
    calculator, featurizer = DescriptorCalculator(DESCRIPTORS, 64), Featurizer.default()
    one, other = prepare_mol(mol), parse_smiles(text)
    other = Chem.RenumberAtoms(other, list(one.GetSubstructMatch(other, useChirality=True)))
    one = Chem.RenumberAtoms(one, list(one.GetSubstructMatch(one)))
    assert Chem.MolToSmiles(one) == Chem.MolToSmiles(other)
    np.testing.assert_allclose(calculator(one), calculator(other), rtol=1e-5, atol=1e-5)
    found, expected = (sorted(map(tuple, featurizer(mol).atoms)) for mol in (one, other))
    assert found == expected


def with_hydrogens(mol: Chem.Mol) -> Chem.Mol:
    mol = Chem.AddHs(mol)
    assert rdDistGeom.EmbedMolecule(mol, randomSeed=1) == 0
    return mol


def kekulized(mol: Chem.Mol) -> Chem.Mol:
    Chem.Kekulize(mol, clearAromaticFlags=True)
    return mol


def of_a_block(mol: Chem.Mol) -> Chem.Mol:
    rdDepictor.Compute2DCoords(mol)
    return Chem.MolFromMolBlock(Chem.MolToMolBlock(mol))


def mapped(mol: Chem.Mol) -> Chem.Mol:
    for atom in mol.GetAtoms():
        atom.SetAtomMapNum(atom.GetIdx() + 1)
    Chem.AssignStereochemistry(mol, cleanIt=True, force=True)
    return mol


def without_labels(mol: Chem.Mol) -> Chem.Mol:
    """As a molecule that was put together by hand: no CIP labels and no directions of bonds."""
    of = {
        Chem.BondStereo.STEREOZ: Chem.BondStereo.STEREOCIS,
        Chem.BondStereo.STEREOE: Chem.BondStereo.STEREOTRANS,
    }
    for atom in mol.GetAtoms():
        atom.ClearProp("_CIPCode")
    for bond in mol.GetBonds():
        bond.SetStereo(of.get(bond.GetStereo(), bond.GetStereo()))
        bond.SetBondDir(Chem.BondDir.NONE)
    return mol


@pytest.mark.parametrize("made", [with_hydrogens, kekulized, of_a_block, mapped, without_labels])
@pytest.mark.parametrize(
    "text",
    ["F/C=C/[C@H](O)C", "C/C(F)=C(\\Cl)Br", "O=c1cc[nH]cc1", "N[C@@H](C)C(=O)O", "CN(=O)=O"],
)
def test_an_rdkit_molecule_is_read_as_its_smiles(made, text: str) -> None:
    mol = made(Chem.MolFromSmiles(text))
    before = mol.ToBinary(int(Chem.PropertyPickleOptions.AllProps))
    same_reading(mol, text)
    assert mol.ToBinary(int(Chem.PropertyPickleOptions.AllProps)) == before


def edited() -> Chem.Mol:
    """A molecule that was valid before its last bond."""
    mol = Chem.RWMol(Chem.MolFromSmiles("CN(C)C.C"))
    mol.AddBond(1, 4, Chem.BondType.SINGLE)
    mol.UpdatePropertyCache(strict=False)
    return mol


@pytest.mark.parametrize(
    "mol, code, shown",
    [
        (Chem.Mol(), "empty", "''"),
        (Chem.MolFromSmiles("CCO", sanitize=False), "sanitize", "'CCO': the molecule is not sani"),
        (edited(), "valence", r"'CN\(C\)\(C\)C': explicit valence"),
        (Chem.AddHs(Chem.MolFromSmiles("CCC")), "too_large", r"'.*': it has 3 atoms, the limit"),
    ],
)
def test_an_rdkit_molecule_that_cannot_be_used_is_refused_by_its_code(mol, code, shown) -> None:
    with pytest.raises(SmilesError, match=shown) as error:
        prepare_mol(mol, max_atoms=2 if code == "too_large" else 10)
    assert error.value.code == code
