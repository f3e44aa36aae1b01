import dataclasses

import numpy as np
import pytest
import torch
from rdkit import Chem

from molattn import from_mol, from_smiles
from molattn.chem import (
    DescriptorCalculator,
    Featurizer,
    Fields,
    MoleculeReader,
    descriptors,
    parse_smiles,
)
from molattn.chem import limits as limits_module
from molattn.chem.descriptors import DESCRIPTOR_SETS, DESCRIPTORS, descriptor_matrix
from molattn.chem.fingerprints import SubstructureCounter
from molattn.chem.limits import read_mol_block, read_molecule
from molattn.chem.parse import smiles_of_mol_block
from molattn.config import MoleculeLimits
from molattn.data import pyg_data
from molattn.errors import InputError, SmilesError

BUCKMINSTERFULLERENE = (
    "c12c3c4c5c1c1c6c7c2c2c8c3c3c9c4c4c%10c5c5c1c1c6c6c%11c7c2c2c7c8c3c3c8c9c4c4c9c%10c5c5c1c1c6c6c"
    "%11c2c2c7c3c3c8c4c4c9c5c1c1c6c2c3c41"
)
PEPTIDE = "N[C@@H](C)C(=O)" * 45 + "O"
# A ring of 20 squares, of which RDKit lists 2 ** 20 smallest rings.
NECKLACE = "C%911CC(C1)" + "C1CC(C1)" * 18 + "C1CC%91C1"
V3000 = "\n\n\n  0  0  0     0  0            999 V3000\nM  V30 BEGIN CTAB\nM  V30 "
LIMITS = MoleculeLimits(max_seconds=0.3)
RING_OF_RINGS = f"C1{'C2CC(C2)' * 11}C2CC1(C2)"  # of which RDKit lists two to the power of twelve
_RINGS = Chem.MolFromSmiles(RING_OF_RINGS)  # whose rings are gone once it is
lists_all_rings = pytest.mark.skipif(
    _RINGS.GetRingInfo().NumRings() < 2**12,
    reason="RDKit 2026.3 lists few of the rings, in no time",
)


@lists_all_rings
def test_a_molecule_that_takes_too_long_is_refused_and_the_others_are_read():
    texts = ["CCO", NECKLACE, BUCKMINSTERFULLERENE, "CC"]
    found = list(MoleculeReader(Featurizer.default(), limits=LIMITS)(texts))
    assert isinstance(found[1], SmilesError)
    assert (found[1].smiles, found[1].code) == (texts[1], "too_slow")
    assert "more than 0.3 s (--max-seconds)" in found[1].reason
    assert [found[place].num_atoms for place in (0, 2, 3)] == [3, 60, 2]


@lists_all_rings
@pytest.mark.parametrize(
    "module, function",
    [
        (pyg_data, pyg_data.from_smiles),
        (descriptors, lambda text: descriptor_matrix([text], DescriptorCalculator(("TPSA",)))),
    ],
)
def test_functions_of_python_have_the_limit_of_time(monkeypatch, module, function):
    monkeypatch.setattr(module, "MoleculeLimits", lambda: LIMITS)
    with pytest.raises(SmilesError, match=r"more than 0.3 s .*too_slow"):
        function(NECKLACE)


def test_a_large_molecule_is_the_same_graph():
    large = from_smiles(PEPTIDE)
    mol = parse_smiles(PEPTIDE)
    expected = from_mol(mol, conformer=False)
    assert torch.equal(large.x, expected.x)
    assert torch.equal(large.edge_attr, expected.edge_attr)
    assert large.smiles == PEPTIDE


def test_cis_and_trans_are_told_as_the_smiles_tells_them():
    mol = Chem.MolFromSmiles("CC(Cl)=C(C)F")
    bond = mol.GetBondBetweenAtoms(1, 3)
    bond.SetStereoAtoms(0, 5)  # a methyl group and fluorine: chlorine and fluorine are trans, E
    bond.SetStereo(Chem.BondStereo.STEREOCIS)
    found, expected = from_mol(mol, conformer=False), from_smiles("C/C(Cl)=C(/C)F")
    assert Chem.MolToSmiles(mol) == Chem.CanonSmiles(expected.smiles)
    assert torch.equal(found.edge_attr, expected.edge_attr)
    other = from_smiles("C/C(Cl)=C(\\C)F")
    assert not torch.equal(found.edge_attr, other.edge_attr)
    assert bond.GetStereo() == Chem.BondStereo.STEREOCIS


def test_atom_map_numbers_make_no_stereocenter():
    text = "[CH3:1][C@H]([CH3:2])O"
    mol = Chem.MolFromSmiles(text)
    assert torch.equal(from_mol(mol, conformer=False).x, from_smiles(text).x)
    assert mol.GetAtomWithIdx(0).GetAtomMapNum() == 1


def test_without_legacy_stereo_perception_no_molecule_is_read():
    Chem.SetUseLegacyStereoPerception(False)
    try:
        with pytest.raises(InputError, match="legacy stereo perception is off"):
            from_smiles("C[C@H](N)C(=O)O")
    finally:
        Chem.SetUseLegacyStereoPerception(True)
    assert from_smiles("C[C@H](N)C(=O)O").num_nodes == 6


def test_an_rdkit_molecule_is_the_graph_of_its_smiles_with_its_atoms_in_order():
    mol = Chem.AddHs(Chem.MolFromSmiles("OC(F)Cl"))
    found = from_smiles(Chem.RenumberAtoms(mol, [5, 3, 4, 2, 1, 0]))
    expected = from_smiles("ClC(O)F")
    assert found.smiles == "OC(F)Cl"
    assert found.x[:, 0].tolist() == from_smiles("Cl.F.C.O").x[:, 0].tolist()
    assert sorted(found.x.tolist()) == sorted(expected.x.tolist())
    for invalid in (None, Chem.Mol(), Chem.MolFromSmiles("CC", sanitize=False)):
        with pytest.raises(SmilesError):
            from_smiles(invalid)


@lists_all_rings
def test_a_mol_block_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(limits_module, "MoleculeLimits", lambda: LIMITS)
    starts = range(1, 81, 4)
    bonds = [(n + place, n + (place + 1) % 4) for n in starts for place in range(4)]
    bonds += [(n + 2, (n + 4) % 80) for n in starts]
    block = "\n\n\n 80100  0  0  0  0  0  0  0  0999 V2000\n"
    block += "    0.0000    0.0000    0.0000 C   0  0\n" * 80
    block += "".join(f"{begin:3}{end:3}  1  0\n" for begin, end in bonds) + "M  END\n"
    with pytest.raises(SmilesError, match=r"more than 0.3 s or 2 GB"):
        read_mol_block(block, smiles_of_mol_block)
    lines = "".join(f"M  V30 {n} 1 {begin} {end}\n" for n, (begin, end) in enumerate(bonds, 1))
    atoms = "".join(f"M  V30 {n} C 0 0 0 0\n" for n in range(1, 81))
    block = (
        "\n\n\n  0  0  0     0  0            999 V3000\nM  V30 BEGIN CTAB\n"
        f"M  V30 COUNTS 80 100 0 0 0\nM  V30 BEGIN ATOM\n{atoms}M  V30 END ATOM\n"
        f"M  V30 BEGIN BOND\n{lines}M  V30 END BOND\nM  V30 END CTAB\nM  END\n"
    )
    with pytest.raises(SmilesError, match=r"more than 0.3 s or 2 GB"):
        read_mol_block(block, smiles_of_mol_block)
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("OCC"))
    assert read_mol_block(block, smiles_of_mol_block) == "CCO"


@pytest.mark.parametrize(
    "text, is_fast",
    [
        ("\n\n\n  3  2  0  0  0  0  0  0  0  0999 V2000\n", True),
        ("\n\n\n 60 60  0  0  0  0  0  0  0  0999 V2000\n", True),
        ("\n\n\n 60 61  0  0  0  0  0  0  0  0999 V2000\n", False),
        ("\n\n\n200100  0  0  0  0  0  0  0  0999 V2000\n", False),  # of many parts
        ("M  V30 COUNTS 1 0 0 0 0\n\n\n 80100  0  0  0  0  0  0  0  0999 V2000\n", False),
        ("\n\n\n8  1", False),
        (V3000 + "COUNTS 3 2 0 0 0\n", True),
        (V3000 + "COUNTS 80 100 0 0 0\n", False),
        (V3000 + "COUNTS 80 -\nM  V30 100 0 0 0\n", False),
        (V3000 + "COUNTS 8-\nM  V30 0 100 0 0 0\n", False),
        (V3000 + "COUNTS 8 1-\nM  V30 00 0 0 0\n", False),
        ("M  V30 COUNTS 1 0 0 0 0" + V3000 + "COUNTS 80 100 0 0 0\n", False),
        (V3000 + "counts 80 100 0 0 0\n", False),
    ],
)
def test_a_mol_block_is_read_in_this_process_only_if_its_own_counts_are_small(
    monkeypatch, text, is_fast
):
    monkeypatch.setattr(limits_module, "call_within", lambda *_: "child")
    assert read_mol_block(text, lambda block: "here") == ("here" if is_fast else "child")


def test_a_record_from_the_child_process_is_that_of_this_one(monkeypatch):
    texts = [BUCKMINSTERFULLERENE, PEPTIDE, "F/C=C/[C@H](Cl)" + "C" * 200]
    calculator = DescriptorCalculator(DESCRIPTORS, morgan_counts=64)
    fields = Fields(calculator, fingerprint=True, smiles=True, scaffold=True)
    reader = MoleculeReader(Featurizer.default(), fields, cache_size=0)
    there = reader.all(texts)
    monkeypatch.setattr(limits_module, "call_within", None)
    monkeypatch.setattr(limits_module, "is_fast", lambda text, **_: True)
    for one, other in zip(there, reader.all(texts), strict=True):
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_ordinary_molecules_are_read_in_this_process(monkeypatch):
    monkeypatch.setattr(limits_module, "call_within", None)
    for text in ("CCO", "[13CH3][15NH]" + "C" * 100, "C1CC1" * 10, "[CH2:12]" * 199 + "C"):
        read_molecule(text, LIMITS, Chem.Mol.GetNumAtoms)


@pytest.mark.parametrize(
    "text, limits, code",
    [
        ("CCCC", {"max_atoms": 3}, "too_large"),
        ("CCCC", {"max_length": 3}, "too_long"),
        ("C" * 300, {"max_atoms": 299}, "too_large"),
    ],
)
def test_a_molecule_beyond_a_limit_is_refused_by_its_code(text, limits, code):
    with pytest.raises(SmilesError) as error:
        read_molecule(text, MoleculeLimits(**limits), len)
    assert error.value.code == code


def test_a_large_rdkit_molecule_is_read_in_the_child_process(monkeypatch):
    mol = Chem.MolFromSmiles(PEPTIDE)
    fields = Fields(DescriptorCalculator(("TPSA",)), smiles=True)
    reader = MoleculeReader(Featurizer.default(), fields)
    assert not limits_module.is_fast(mol)
    (there,), (text,) = reader.all([mol]), reader.all([PEPTIDE])
    for field in dataclasses.fields(there):
        np.testing.assert_array_equal(getattr(there, field.name), getattr(text, field.name))

    def too_long(*_):
        raise TimeoutError

    monkeypatch.setattr(limits_module, "call_within", too_long)
    with pytest.raises(SmilesError, match="too_slow") as error:
        reader.all(["C", mol])
    assert "position 1" in error.value.reason
    assert Chem.MolFromSmiles(error.value.smiles) is not None


def test_hydrogen_atoms_and_rings_decide_what_is_fast():
    assert limits_module.is_fast(Chem.AddHs(Chem.MolFromSmiles("C" * 199)))
    assert limits_module.is_fast(Chem.MolFromSmiles("C1CC1." * 10 + "C"))
    assert not limits_module.is_fast(Chem.MolFromSmiles("C1CC1." * 11 + "C"))
    assert not limits_module.is_fast(Chem.MolFromSmiles("C" * 201))


@lists_all_rings
@pytest.mark.parametrize("as_mol", [False, True])
def test_more_rings_are_read_in_this_process_where_no_descriptor_is_calculated(monkeypatch, as_mol):
    text = RING_OF_RINGS
    mol = Chem.MolFromSmiles(text)
    given = mol if as_mol else text
    assert not limits_module.is_fast(given)
    assert limits_module.is_fast(given, descriptors=False)
    three = Chem.MolFromSmiles(f"{text}.C1CC1.C1CC1") if as_mol else f"{text}.C1CC1.C1CC1"
    assert not limits_module.is_fast(three, descriptors=False)
    counter = SubstructureCounter(("morgan", "atom_pairs"))
    monkeypatch.setattr(limits_module, "call_within", None)
    sums = DescriptorCalculator(DESCRIPTOR_SETS["lipinski"])
    for calculator in (None, sums):
        read = MoleculeReader(Featurizer.default(), Fields(calculator, counter))
        (record,) = read.all([given])
        assert record.num_atoms == mol.GetNumAtoms()
    read = MoleculeReader(Featurizer.default(), Fields(DescriptorCalculator(("TPSA",))))
    with pytest.raises(TypeError, match="NoneType"):  # in the child process
        read.all([given])


@pytest.mark.parametrize("update", [False, True])
def test_a_molecule_that_is_not_sanitized_is_refused(update):
    mol = Chem.MolFromSmiles("C1CC1", sanitize=False)
    if update:  # without which RDKit calls fail, as without rings
        mol.UpdatePropertyCache()
    with pytest.raises(InputError, match="mol: got a molecule that is not sanitized"):
        from_mol(mol)
