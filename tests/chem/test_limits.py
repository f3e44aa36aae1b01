import dataclasses

import numpy as np
import pytest
import torch
from rdkit import Chem

from molattn import from_mol, from_smiles
from molattn.chem import DescriptorCalculator, Featurizer, Fields, MoleculeReader
from molattn.chem import limits as limits_module
from molattn.chem.descriptors import DESCRIPTORS
from molattn.chem.limits import read_mol_block
from molattn.chem.parse import smiles_of_mol_block
from molattn.config import MoleculeLimits
from molattn.errors import InputError, SmilesError

BUCKMINSTERFULLERENE = (
    "c12c3c4c5c1c1c6c7c2c2c8c3c3c9c4c4c%10c5c5c1c1c6c6c%11c7c2c2c7c8c3c3c8c9c4c4c9c%10c5c5c1c1c6c6c"
    "%11c2c2c7c3c3c8c4c4c9c5c1c1c6c2c3c41"
)
PEPTIDE = "N[C@@H](C)C(=O)" * 45 + "O"
# A ring of 20 squares, of which RDKit lists 2 ** 20 smallest rings.
NECKLACE = "C%911CC(C1)" + "C1CC(C1)" * 18 + "C1CC%91C1"
LIMITS = MoleculeLimits(max_seconds=0.3)
# A ring with squares, of which RDKit lists two to the power of twelve; gone once it is.
_RINGS = Chem.MolFromSmiles(f"C1{'C2CC(C2)' * 11}C2CC1(C2)")
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
    assert [found[place].num_atoms for place in (0, 2, 3)] == [3, 60, 2]


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


def test_without_legacy_stereo_perception_no_molecule_is_read():
    Chem.SetUseLegacyStereoPerception(False)
    try:
        with pytest.raises(InputError, match="legacy stereo perception is off"):
            from_smiles("C[C@H](N)C(=O)O")
    finally:
        Chem.SetUseLegacyStereoPerception(True)
    assert from_smiles("C[C@H](N)C(=O)O").num_nodes == 6


@lists_all_rings
def test_a_mol_block_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(limits_module, "MoleculeLimits", lambda: LIMITS)
    starts = range(1, 81, 4)
    bonds = [(n + place, n + (place + 1) % 4) for n in starts for place in range(4)]
    bonds += [(n + 2, (n + 4) % 80) for n in starts]
    block = "\n\n\n 80100  0  0  0  0  0  0  0  0999 V2000\n"
    block += "    0.0000    0.0000    0.0000 C   0  0\n" * 80
    block += "".join(f"{begin:3}{end:3}  1  0\n" for begin, end in bonds) + "M  END\n"
    with pytest.raises(SmilesError) as error:
        read_mol_block(block, smiles_of_mol_block)
    assert error.value.code == "too_slow"


@pytest.mark.parametrize("write", [Chem.MolToMolBlock, Chem.MolToV3KMolBlock])
def test_mol_blocks_are_read_in_this_process_only_if_their_counts_are_small(monkeypatch, write):
    for text in ("OCC", "C" * 100, "C1CC1." * 60 + "C"):
        block = write(Chem.MolFromSmiles(text))
        assert read_mol_block(block, smiles_of_mol_block) == Chem.CanonSmiles(text)
    monkeypatch.setattr(limits_module, "call_within", lambda *_: "child")
    assert read_mol_block(block, smiles_of_mol_block) == "child"
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("OCC"))
    assert read_mol_block(block, smiles_of_mol_block) == "CCO"


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


def test_a_large_rdkit_molecule_is_read_in_the_child_process(monkeypatch):
    mol = Chem.MolFromSmiles(PEPTIDE)
    fields = Fields(DescriptorCalculator(("TPSA",)), smiles=True)
    reader = MoleculeReader(Featurizer.default(), fields)
    assert not limits_module.is_fast(mol)
    (there,), (text,) = reader.all([mol]), reader.all([PEPTIDE])
    for field in dataclasses.fields(there):
        np.testing.assert_array_equal(getattr(there, field.name), getattr(text, field.name))

    def ended(*_):
        raise TimeoutError

    monkeypatch.setattr(limits_module, "call_within", ended)
    with pytest.raises(SmilesError) as error:
        reader.all(["C", mol])
    assert error.value.code == "too_slow"
    assert "position 1" in error.value.reason
    assert Chem.MolFromSmiles(error.value.smiles) is not None


def test_hydrogen_atoms_and_rings_decide_what_is_fast():
    assert limits_module.is_fast(Chem.AddHs(Chem.MolFromSmiles("C" * 199)))
    assert limits_module.is_fast(Chem.MolFromSmiles("C1CC1." * 10 + "C"))
    assert not limits_module.is_fast(Chem.MolFromSmiles("C1CC1." * 11 + "C"))
    assert not limits_module.is_fast(Chem.MolFromSmiles("C" * 201))
