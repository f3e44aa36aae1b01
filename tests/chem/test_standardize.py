"""Standard forms, compared with RDKit's own steps and with what the standardized SMILES gives."""

import dataclasses

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize

from molattn.chem import DescriptorCalculator, Featurizer, Fields, MoleculeReader, parse_smiles
from molattn.chem import limits as limits_module
from molattn.chem.grammar import ATOM_MAP
from molattn.chem.limits import read_molecule, standard_form, standardized_smiles
from molattn.chem.parse import quiet
from molattn.config import MoleculeLimits
from molattn.data.table import bundled_dataset
from molattn.errors import SmilesError

from ..conftest import rows_of

KNOWN = {
    "CC(=O)[O-].[Na+]": "CC(=O)O",
    "C[NH2+]CC.[Cl-]": "CCNC",
    "CCO.CC.CCCN": "CCCN",
    "[NH3+]CC(=O)[O-]": "NCC(=O)O",
    "CC[N+](C)(C)C.[Br-]": "CC[N+](C)(C)C",
    "Oc1ccccn1": "O=c1cccc[nH]1",
    "CC(O)=CC": "CCC(C)=O",
    "C[C@H](N)C(=O)[O-].[K+]": "C[C@H](N)C(=O)O",
    "CC(O)=N[C@@H](C)c1ccccc1": "CC(=O)N[C@@H](C)c1ccccc1",
    "[CH3:2][C:1]([O-:7])=O": "CC(=O)O",
    "[H]/N=C(/N)c1ccccc1": "N=C(N)c1ccccc1",
    "[Fe+2].[cH-]1cccc1.[cH-]1cccc1": "C1=CCC=C1",
}
UNCHANGED = tuple(
    """
    OCC CC(O)=O C[N+](C)(C)C O=[N+]([O-])c1ccccc1 O=c1cccc[nH]1 *CC [H]
    """.split()
)
FIELDS = Fields(
    DescriptorCalculator(("TPSA", "qed"), 64),
    fingerprint=True,
    smiles=True,
    scaffold=True,
    symbols=True,
)


def by_rdkit(text, tautomers):
    mol = rdMolStandardize.LargestFragmentChooser().choose(Chem.MolFromSmiles(text))
    return tautomers.Canonicalize(rdMolStandardize.Uncharger().uncharge(mol))


def without_stereo(mol):
    return Chem.CanonSmiles(Chem.MolToSmiles(mol, isomericSmiles=False))


def test_standard_forms_are_those_of_rdkit():
    """With RDKit's default tautomer enumerator, which removes more stereocenters."""
    tautomers = rdMolStandardize.TautomerEnumerator()
    bundled = [row["smiles"] for row in rows_of(bundled_dataset())][::20]
    # For the last of the known ones, RDKit returns a SMILES that is not valid.
    for text in [*bundled, *[*KNOWN][:-1], *UNCHANGED]:
        found = standard_form(parse_smiles(text))
        with quiet:
            expected = by_rdkit(ATOM_MAP.sub("", text), tautomers)
        assert without_stereo(found) == without_stereo(expected), text


@pytest.mark.parametrize("text, expected", KNOWN.items())
def test_a_changed_molecule_has_its_standardized_smiles(text, expected):
    mol = parse_smiles(text)
    found = standard_form(mol)
    assert standardized_smiles(found) == expected
    assert Chem.MolToSmiles(found) == expected
    assert not standardized_smiles(mol)


@pytest.mark.parametrize("text", KNOWN)
def test_every_field_of_a_record_is_that_of_the_standardized_smiles(text):
    """Of a SMILES atom by atom; of an RDKit molecule but for the order of its atoms."""
    standard = MoleculeReader(Featurizer.default(), FIELDS, standardize=True)
    plain = MoleculeReader(Featurizer.default(), FIELDS)
    (found,), (expected,) = standard.all([text]), plain.all([KNOWN[text]])
    assert (found.standardized, expected.standardized) == (KNOWN[text], None)
    found = dataclasses.replace(found, standardized=None)
    for field in dataclasses.fields(found):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))
    mol = Chem.MolFromSmiles(text)
    before = mol.ToBinary(int(Chem.PropertyPickleOptions.AllProps))
    (given,) = standard.all([mol])
    assert mol.ToBinary(int(Chem.PropertyPickleOptions.AllProps)) == before
    assert given.standardized == KNOWN[text]
    np.testing.assert_array_equal(given.fingerprint, expected.fingerprint)
    assert sorted(given.atoms.tolist()) == sorted(expected.atoms.tolist())


def len_of(mol):
    return mol.GetNumAtoms()


def test_too_many_tautomers_are_too_slow():
    """A small molecule, which is read without a limit of time otherwise."""
    text = "N" + "C(=N)N" * 8
    assert limits_module.is_fast(text)
    limits = MoleculeLimits(max_seconds=0.02)
    assert read_molecule(text, limits, len_of)[1] == 25
    assert read_molecule("CC(=O)Nc1ccc(O)cc1", limits, len_of, standardize=True)[1] == 11
    with pytest.raises(SmilesError) as error:
        read_molecule(text, limits, len_of, standardize=True)
    assert (error.value.smiles, error.value.code) == (text, "too_slow")


@pytest.mark.parametrize(
    "fault", [RuntimeError("Pre-condition\nline"), ValueError("Pre-condition")]
)
def test_what_cannot_be_standardized_is_refused(monkeypatch, fault):
    def canonicalize(mol):
        raise fault

    choose, uncharge, _ = limits_module._steps()
    monkeypatch.setattr(limits_module, "_steps", lambda: (choose, uncharge, canonicalize))
    # In this process, where the fault is.
    monkeypatch.setattr(limits_module, "call_within", lambda _, function, *given: function(*given))
    reader = MoleculeReader(Featurizer.default(), standardize=True)
    (error,) = reader(["CC"])
    assert error.code == "standardize"
