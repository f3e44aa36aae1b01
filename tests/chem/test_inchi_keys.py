import pytest
from rdkit import Chem

from molattn.chem.inchi_keys import KeySet, connectivity, connectivity_keys


def keys(smiles):
    return connectivity_keys(Chem.MolFromSmiles(smiles))


@pytest.mark.parametrize(
    "one,other",
    [
        ("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"),  # stereo
        ("CC(=O)O", "CC(=O)[O-]"),  # charge
        ("Oc1ccccn1", "O=c1cccc[nH]1"),  # tautomers
        ("C", "[2H]C"),  # isotopes
    ],
)
def test_what_is_one_molecule_to_a_test_has_one_key(one, other):
    assert keys(one) == keys(other)
    assert len(keys(one)) == 1


def test_a_salt_is_known_by_its_largest_part_too():
    assert keys("[Na+].CC(=O)[O-]")[1] == keys("CC(=O)O")[0]
    assert keys("[Na+].CC(=O)[O-]")[0] != keys("CC(=O)O")[0]
    assert keys("CCO") != keys("COC")


def test_of_parts_of_one_size_each_counts_however_the_salt_is_written():
    assert keys("CC(=O)O.CCCN") == keys("CCCN.CC(=O)O")
    assert {*keys("CCCN.CC(=O)O")[1:]} == {*keys("CC(=O)O"), *keys("CCCN")}
    assert len(keys("CCCN.CCCN.O")) == 2


def test_the_key_is_the_first_block_of_the_inchikey():
    assert connectivity(Chem.MolFromSmiles("CCO")) == "LFQSCWFLJHTTHZ"  # ethanol's


def test_what_inchi_refuses_has_a_key(monkeypatch):
    monkeypatch.setattr(Chem, "MolToInchiKey", lambda mol: "")
    assert connectivity(Chem.MolFromSmiles("C[C@H](N)O")) == "CC(N)O"


def test_a_key_set_is_a_set_however_large(monkeypatch):
    monkeypatch.setattr("molattn.chem.inchi_keys._LATEST", 7)
    found, plain = KeySet(), set()
    for text in map(str, [*range(40), *range(20, 60)]):
        assert (text in found) == (text in plain)
        assert found.add(text) == (text not in plain)
        plain.add(text)
        assert len(found) == len(plain)
    assert "60" not in found
