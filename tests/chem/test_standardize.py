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
def test_a_standardized_record_equals_the_record_of_its_smiles(text):
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


# Salts as PubChem draws them, with the free forms of DrugBank.
SALTS = """
O=C([O-])Cc1ccccc1Nc1c(Cl)cccc1Cl.[Na+]    O=C(O)Cc1ccccc1Nc1c(Cl)cccc1Cl
CN(C)C(=N)NC(N)=N.Cl    CN(C)C(=N)NC(N)=N
CC(C)[NH2+]CC(O)COc1cccc2ccccc12.[Cl-]    CC(C)NCC(O)COc1cccc2ccccc12
CNC1CCC(c2ccc(Cl)c(Cl)c2)c2ccccc21.Cl    CNC1CCC(c2ccc(Cl)c(Cl)c2)c2ccccc21
CNCCC(Oc1ccc(C(F)(F)F)cc1)c1ccccc1.Cl    CNCCC(Oc1ccc(C(F)(F)F)cc1)c1ccccc1
CCOC(=O)C1=C(COCCN)NC(C)=C(C(=O)OC)C1c1ccccc1Cl.O=S(=O)(O)c1ccccc1    CCOC(=O)C1=C(COCCN)NC(C)=C(C(=O)OC)C1c1ccccc1Cl
CC(C)c1c(C(=O)Nc2ccccc2)c(-c2ccccc2)c(-c2ccc(F)cc2)n1CCC(O)CC(O)CC(=O)[O-].CC(C)c1c(C(=O)Nc2ccccc2)c(-c2ccccc2)c(-c2ccc(F)cc2)n1CCC(O)CC(O)CC(=O)[O-].[Ca+2]    CC(C)c1c(C(=O)Nc2ccccc2)c(-c2ccccc2)c(-c2ccc(F)cc2)n1CCC(O)CC(O)CC(=O)O
CCCCc1nc(Cl)c(CO)n1Cc1ccc(-c2ccccc2-c2nn[n-]n2)cc1.[K+]    CCCCc1nc(Cl)c(CO)n1Cc1ccc(-c2ccccc2-c2nn[nH]n2)cc1
CC(=O)CC(c1ccccc1)c1c([O-])c2ccccc2oc1=O.[Na+]    CC(=O)CC(c1ccccc1)c1c(O)c2ccccc2oc1=O
Cc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1Nc1nccc(-c2cccnc2)n1.CS(=O)(=O)O    Cc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1Nc1nccc(-c2cccnc2)n1
CN(C)CCC[C@]1(c2ccc(F)cc2)OCc2cc(C#N)ccc21.O=C(O)C(=O)O    CN(C)CCC[C@]1(c2ccc(F)cc2)OCc2cc(C#N)ccc21
CN(C)CCC1(c2ccc(F)cc2)OCc2cc(C#N)ccc21.Br    CN(C)CCC1(c2ccc(F)cc2)OCc2cc(C#N)ccc21
CNS(=O)(=O)Cc1ccc2[nH]cc(CCN(C)C)c2c1.O=C(O)CCC(=O)O    CNS(=O)(=O)Cc1ccc2[nH]cc(CCN(C)C)c2c1
Cc1ccc(-c2nc3ccc(C)cn3c2CC(=O)N(C)C)cc1.Cc1ccc(-c2nc3ccc(C)cn3c2CC(=O)N(C)C)cc1.O=C(O)C(O)C(O)C(=O)O    Cc1ccc(-c2nc3ccc(C)cn3c2CC(=O)N(C)C)cc1
CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(ccc1OCC)S(=O)(=O)N1CCN(C)CC1.OC(=O)CC(O)(CC(O)=O)C(O)=O    CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(ccc1OCC)S(=O)(=O)N1CCN(C)CC1
C[C@H](C(=O)[O-])c1ccc2cc(OC)ccc2c1.[Na+]    C[C@H](C(=O)O)c1ccc2cc(OC)ccc2c1
CC1(C)SC2C(NC(=O)COc3ccccc3)C(=O)N2C1C(=O)[O-].[K+]    CC1(C)SC2C(NC(=O)COc3ccccc3)C(=O)N2C1C(=O)O
O=C(c1ccccc1)c1ccc2n1CCC2C(=O)O.NC(CO)(CO)CO    O=C(c1ccccc1)c1ccc2n1CCC2C(=O)O
CC(=O)Nc1c(I)c(NC(C)=O)c(I)c(C(=O)O)c1I.CNCC(O)C(O)C(O)C(O)CO    CC(=O)Nc1c(I)c(NC(C)=O)c(I)c(C(=O)O)c1I
N[C@@H](Cc1cc(I)c(Oc2cc(I)c([O-])c(I)c2)c(I)c1)C(=O)O.[Na+]    N[C@@H](Cc1cc(I)c(Oc2cc(I)c(O)c(I)c2)c(I)c1)C(=O)O
O=C1[N-]C(=O)C(c2ccccc2)(c2ccccc2)N1.[Na+]    O=C1NC(=O)C(c2ccccc2)(c2ccccc2)N1
CCCC(CCC)C(=O)[O-].CCCC(CCC)C(=O)O.[Na+]    CCCC(CCC)C(=O)O
CCN(CC)CC(=O)Nc1c(C)cccc1C.O.Cl    CCN(CC)CC(=O)Nc1c(C)cccc1C
COC(=O)[C@H](c1ccccc1Cl)N1CCc2sccc2C1.OS(=O)(=O)O    COC(=O)[C@H](c1ccccc1Cl)N1CCc2sccc2C1
COc1ccnc(C[S](=O)c2nc3cc(OC(F)F)ccc3[n-]2)c1OC.[Na+]    COc1ccnc(C[S](=O)c2nc3cc(OC(F)F)ccc3[nH]2)c1OC
CN1CCC23C4Oc5c(O)ccc(c52)CC1C3C=CC4O.CN1CCC23C4Oc5c(O)ccc(c52)CC1C3C=CC4O.OS(=O)(=O)O    CN1CCC23C4Oc5c(O)ccc(c52)CC1C3C=CC4O
O=C(O)COCCN1CCN(C(c2ccccc2)c2ccc(Cl)cc2)CC1.Cl.Cl    O=C(O)COCCN1CCN(C(c2ccccc2)c2ccc(Cl)cc2)CC1
O=C([O-])COCC[NH+]1CCN(C(c2ccccc2)c2ccc(Cl)cc2)CC1    O=C(O)COCCN1CCN(C(c2ccccc2)c2ccc(Cl)cc2)CC1
[NH3+][C@@H](Cc1ccccc1)C(=O)[O-]    N[C@@H](Cc1ccccc1)C(=O)O
CC(=O)OCC[N+](C)(C)C.[Cl-]    CC(=O)OCC[N+](C)(C)C
C[N+](C)(C)C[C@H](O)CC(=O)[O-]    C[N+](C)(C)C[C@H](O)CC(=O)[O-]
C[n+]1ccccc1C=NO.[Cl-]    C[n+]1ccccc1C=NO
"""  # noqa: E501


@pytest.mark.parametrize("salt, free", [line.split() for line in SALTS.strip().splitlines()])
def test_the_parent_of_a_salt_is_its_free_form(salt, free):
    read = MoleculeReader(Featurizer.default(), FIELDS, standardize="parent")
    (plain,) = MoleculeReader(Featurizer.default(), FIELDS).all([free])
    changed = plain.smiles if Chem.CanonSmiles(salt) != plain.smiles else ""
    for given, parent in ((salt, changed), (Chem.MolFromSmiles(salt), changed), (free, "")):
        (found,) = read.all([given])
        assert (found.smiles, found.standardized) == (plain.smiles, parent)
        np.testing.assert_array_equal(found.fingerprint, plain.fingerprint)
        np.testing.assert_allclose(found.numbers, plain.numbers, rtol=1e-6)


@pytest.mark.parametrize(
    "drawings",
    [
        ["C[NH+](C)C.[Cl-]", "CN(C)C.Cl"],
        ["[NH3+]CC(=O)[O-]", "NCC(=O)O"],
        ["C[NH3+].CC(=O)[O-]", "CN.CC(=O)O"],
        ["CC(=O)[O-].[Na+]"],
        ["C[N+](C)(C)CC(=O)[O-]"],
        ["C[N+](C)(C)C.[Cl-]"],
        ["CC[NH+](CC)CC.F[P-](F)(F)(F)(F)F"],  # RDKit would add a hydrogen atom to P
    ],
)
def test_drawings_of_a_salt_that_differ_by_a_proton_are_uncharged_alike(drawings):
    read = MoleculeReader(Featurizer.default(), FIELDS, standardize="uncharged")
    expected = Chem.CanonSmiles(drawings[-1])
    for drawn in (*drawings, *map(Chem.MolFromSmiles, drawings)):
        (record,) = read.all([drawn])
        assert record.smiles == expected
    assert read.all(drawings[-1:])[0].standardized == ""


@pytest.mark.parametrize(
    "text", "[Na+].[Cl-] O N[Pt](N)(Cl)Cl [Br-] [Li+].[Li+].[O-]C([O-])=O".split()
)
def test_a_molecule_without_carbon_has_no_parent(text):
    read = MoleculeReader(Featurizer.default(), standardize="parent")
    assert [one.code for one in read([text, Chem.MolFromSmiles(text)])] == ["no_parent"] * 2


ASPIRIN, CAFFEINE = "CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"


@pytest.mark.parametrize(
    "text, parent",
    [
        ("CN1CCCN=C1/C=C/c1cccs1.O=C(O)c1cc2ccccc2c(Cc2c(O)c(C(=O)O)cc3ccccc23)c1O", 0),  # pyrantel
        ("OC(CN1CCCCC1)C.O=C([O-])/C=C\\C(=O)O.[H+]", 0),
        ("CCN.Cc1ccc(S(=O)(=O)O)cc1", 0),  # acids are removed before bases
        ("OC(=O)c1ccccc1O.C[N+](C)(C)CCO", 0),  # but those that are often active
        ("C1CNCCN1.O=C(O)CC(O)(CC(=O)O)C(=O)O", 0),
        (f"C1CNCCN1.{ASPIRIN}", 1),
        ("CN1CCCC1c1cccnc1.[NH4+].[O-]C(O)=O", 0),
        (f"{CAFFEINE}.O=C(O)CC(O)(CC(=O)O)C(=O)O", 0),
        (f"O=C(O)c1ccccc1O.{CAFFEINE}.[Na]", 1),
        (f"C[N+](C)(C)CCO.{ASPIRIN[:-1]}[O-]", 1),
        (f"{ASPIRIN[:-1]}[O-].{ASPIRIN}.[Ca+2].CCO", 1),
        ("C[C@H](N)c1ccccc1.C[C@@H](N)c1ccccc1", 1),
        ("CC[Hg]Sc1ccccc1C(=O)[O-].[Na+]", 0),
    ],
)
def test_the_parent_has_no_usual_counterions(text, parent):
    """Whatever their size."""
    expected = Chem.MolFromSmiles(text.split(".")[parent])
    form = read_molecule(text, MoleculeLimits(), bool, standardize="parent")[0]
    neutral = rdMolStandardize.Uncharger().uncharge(expected)
    assert Chem.MolToSmiles(form) == Chem.CanonSmiles(Chem.MolToSmiles(neutral))


@pytest.mark.parametrize(
    "text, code",
    [
        ("[Fe+2].c1cc[cH-]c1.c1cc[cH-]c1", "metal_complex"),
        ("[Li+].[CH2-]CCC", "metal_complex"),
        ("[NH-][C@H]1CCCC[C@H]1[NH-].Cl[Pt]Cl", "metal_complex"),
        ("CC(=O)[O-].CC(=O)[O-].CCCC[Sn+2]CCCC", "metal_complex"),
        (f"{ASPIRIN}.{CAFFEINE}", "organic_mixture"),
    ],
)
def test_a_complex_or_a_mixture_has_no_parent(text, code):
    for molecule in (text, Chem.MolFromSmiles(text)):
        with pytest.raises(SmilesError, match="cannot use molecule") as error:
            read_molecule(molecule, MoleculeLimits(), bool, standardize="parent")
        assert error.value.code == code
        assert "--as-given" not in str(error.value)
    assert read_molecule(text, MoleculeLimits(), bool)


def len_of(mol):
    return mol.GetNumAtoms()


def test_too_many_tautomers_are_too_slow(monkeypatch):
    """A small molecule, which is read without a limit of time otherwise."""
    text, limits = "N" + "C(=N)N" * 8, MoleculeLimits(max_seconds=7)
    assert limits_module.is_fast(text)
    assert read_molecule("CC(=O)Nc1ccc(O)cc1", MoleculeLimits(), len_of, standardize=True)[1] == 11

    def end(seconds, *_):
        assert seconds == 7
        raise TimeoutError

    monkeypatch.setattr(limits_module, "call_within", end)
    assert read_molecule(text, limits, len_of)[1] == 25
    with pytest.raises(SmilesError) as error:
        read_molecule(text, limits, len_of, standardize=True)
    assert (error.value.smiles, error.value.code) == (text, "too_slow")


@pytest.mark.parametrize(
    "fault", [RuntimeError("Pre-condition\nline"), ValueError("Pre-condition")]
)
def test_a_molecule_that_rdkit_cannot_standardize_is_refused(monkeypatch, fault):
    def canonicalize(mol):
        raise fault

    choose, uncharge, _ = limits_module._steps()
    monkeypatch.setattr(limits_module, "_steps", lambda: (choose, uncharge, canonicalize))
    # In this process, where the fault is.
    monkeypatch.setattr(limits_module, "call_within", lambda _, function, *given: function(*given))
    reader = MoleculeReader(Featurizer.default(), standardize=True)
    (error,) = reader(["CC"])
    assert error.code == "standardize"
