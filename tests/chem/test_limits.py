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

from ..conftest import HANGING

PEPTIDE = "N[C@@H](C)C(=O)" * 45 + "O"
LARGE = "C1CC1." * 400 + "C"
LIMITS = MoleculeLimits(max_seconds=0.001)


@pytest.fixture
def ended(monkeypatch):
    """The limits of the calls in a child process, all of which end without a result."""
    limits = []

    def end(seconds, *_):
        limits.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(limits_module, "call_within", end)
    return limits


def test_a_molecule_that_takes_too_long_is_refused_and_the_others_are_read(ended):
    reader = MoleculeReader(Featurizer.default(), limits=LIMITS)
    first, slow, last = reader(["CCO", LARGE, "CC"])
    assert isinstance(slow, SmilesError)
    assert (slow.smiles, slow.code) == (LARGE, "too_slow")
    assert [first.num_atoms, last.num_atoms] == [3, 2]
    with pytest.raises(SmilesError, match="position 1") as error:
        reader.all(["C", Chem.MolFromSmiles(LARGE)])
    assert error.value.code == "too_slow"
    assert Chem.MolFromSmiles(error.value.smiles) is not None
    assert ended == [LIMITS.max_seconds] * 2


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


def test_a_mol_block_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(limits_module, "MoleculeLimits", lambda: LIMITS)
    with pytest.raises(SmilesError) as error:
        read_mol_block("while True: pass", exec)  # no block that RDKit reads is slow everywhere
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


def test_a_child_process_reads_the_same_record(monkeypatch):
    texts = [
        "C1CC1." * 11 + "C",
        PEPTIDE,
        "F/C=C/[C@H](Cl)" + "C" * 200,
        Chem.MolFromSmiles(PEPTIDE),
    ]
    calculator = DescriptorCalculator(DESCRIPTORS, morgan_counts=64)
    fields = Fields(calculator, fingerprint=True, smiles=True, scaffold=True)
    limits = MoleculeLimits(max_seconds=HANGING)
    reader = MoleculeReader(Featurizer.default(), fields, limits, cache_size=0)
    there = reader.all(texts)
    monkeypatch.setattr(limits_module, "call_within", None)
    monkeypatch.setattr(limits_module, "is_fast", lambda text, **_: True)
    for one, other in zip(there, reader.all(texts), strict=True):
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_hydrogen_atoms_and_rings_decide_what_is_fast():
    assert limits_module.is_fast(Chem.AddHs(Chem.MolFromSmiles("C" * 199)))
    assert limits_module.is_fast(Chem.MolFromSmiles("C1CC1." * 10 + "C"))
    assert not limits_module.is_fast(Chem.MolFromSmiles("C1CC1." * 11 + "C"))
    assert not limits_module.is_fast(Chem.MolFromSmiles("C" * 201))
