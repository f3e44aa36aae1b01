"""Keys of molecules."""

import pytest
from rdkit import Chem

from molattn.chem.pretraining_targets import KeySet, connectivity_keys


def keys(smiles):
    return connectivity_keys(Chem.MolFromSmiles(smiles))


@pytest.mark.parametrize(
    "one, other",
    [
        ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"),  # stereo
        ("CC(=O)O", "CC(=O)[O-]"),  # charge
        ("Oc1ccccn1", "O=c1cccc[nH]1"),  # tautomers
        ("C", "[2H]C"),  # isotopes
    ],
)
def test_keys_ignore_charge_isotopes_stereo_and_tautomers(one, other):
    assert keys(one) == keys(other)
    assert len(keys(one)) == 1


def test_a_salt_has_the_keys_of_its_largest_parts_too(monkeypatch):
    assert keys("[Na+].CC(=O)[O-]")[1] == keys("CC(=O)O")[0] != keys("[Na+].CC(=O)[O-]")[0]
    assert keys("CC(=O)O.CCCN") == keys("CCCN.CC(=O)O")
    assert {*keys("CCCN.CC(=O)O")[1:]} == {*keys("CC(=O)O"), *keys("CCCN")}
    assert len(keys("CCCN.CCCN.O")) == 2
    assert keys("CCO") == ("LFQSCWFLJHTTHZ",)
    monkeypatch.setattr(Chem, "MolToInchiKey", lambda mol: "")  # what InChI refuses
    assert keys("C[C@H](N)O") == ("CC(N)O",)


def test_a_key_set_is_a_set_however_large(monkeypatch):
    monkeypatch.setattr("molattn.chem.pretraining_targets._LATEST", 7)
    found, plain = KeySet(), set()
    for text in map(str, [*range(40), *range(20, 60)]):
        assert (text in found) == (text in plain)
        assert found.add(text) == (text not in plain)
        plain.add(text)
        assert len(found) == len(plain)
    assert "60" not in found
