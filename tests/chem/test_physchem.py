import pytest

from molattn.chem.physchem import physchem
from molattn.errors import SmilesError


def values(smiles, **options):
    return {one["name"]: one["value"] for one in physchem(smiles, **options)["properties"]}


def test_values_are_those_of_public_databases():
    # PubChem CID 2244 (mass, donors, acceptors), Ertl 2000 (TPSA), Bickerton 2012 (QED).
    aspirin = values("CC(=O)Oc1ccccc1C(=O)O")
    assert aspirin["mw"] == pytest.approx(180.16, abs=0.01)
    assert aspirin["tpsa"] == pytest.approx(63.6, abs=0.05)
    assert (aspirin["hbd"], aspirin["hba"]) == (1, 4)
    assert aspirin["qed"] == pytest.approx(0.55, abs=0.01)
    assert aspirin["lipinski"] == 0


@pytest.mark.parametrize(
    "smiles, violations",
    [("C" * 20, 1), ("OCC(O)C(O)C(O)C(O)CO", 1), ("C" * 40, 2), ("OC" * 12 + "C" * 30, 3)],
)
def test_violations_of_the_rule_of_five_are_counted_one_by_one(smiles, violations):
    assert values(smiles)["lipinski"] == violations


def test_alerts_name_the_atoms_of_the_form_that_is_returned():
    found = physchem("[Na+].O=C1CSC(=S)N1", standardize="parent")
    assert [alert["catalog"] for alert in found["alerts"]] == ["PAINS", "BRENK"]
    brenk = found["alerts"][1]
    assert brenk["name"] == "Thiocarbonyl_group"
    atoms = [one for one in found["smiles"] if one.isalpha()]
    assert sorted(atoms[atom] for atom in brenk["atoms"]) == ["C", "S"]
    assert values("[Na+].O=C1CSC(=S)N1", standardize="parent") == values("O=C1CSC(=S)N1")


def test_a_text_that_is_no_molecule_is_refused():
    with pytest.raises(SmilesError):
        physchem("C1CC")
