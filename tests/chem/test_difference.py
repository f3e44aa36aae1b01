import pytest

from molattn.chem import difference
from molattn.chem.difference import differing_atoms


@pytest.mark.parametrize(
    "smiles, other, expected",
    [
        ("CCO", "CCO", []),
        ("OCC", "CCO", []),
        ("CCO", "CCN", [2]),
        ("CCO", "CC", [2]),
        ("CC", "CCO", []),
        ("c1ccccc1O", "c1ccccc1", [6]),
        ("CC(=O)[O-]", "CC(=O)O", [3]),
        ("CC[13CH3]", "CCC", [2]),
        ("CC[C@H](N)O", "CC[C@@H](N)O", [2]),
        ("CC=O", "CCO", [2]),
        ("C", "O", [0]),
        ("C", "C", []),
        ("CCO.Cl", "CCO.Cl", []),
        ("Cl.CCO", "CCN.Cl", [3]),
        ("[Na+].CC(=O)[O-]", "CC(=O)O", [0, 4]),
        ("Cl.Cl.CCN", "CCN.Cl", [1]),
        ("CCO", "CCO.Cl", []),
        ("C/C=C/C", "C/C=C\\C", [1, 2]),
        ("C/C=C/C", "CC=CC", [1, 2]),
        ("C/C=C/C", "C\\C=C\\C", []),
        ("c1ccccc1", "C1CCCCC1", [0, 1, 2, 3, 4, 5]),
        ("C1CCNCC1", "c1ccncc1", [0, 1, 2, 3, 4, 5]),
        ("Cc1ccccc1O", "CC1CCCCC1O", [2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_atoms_that_differ(smiles, other, expected):
    assert differing_atoms(smiles, other) == expected


def test_all_differ_if_the_search_takes_too_long(monkeypatch):
    def ended(*_):
        raise TimeoutError

    monkeypatch.setattr(difference, "call_within", ended)
    assert differing_atoms("CCO", "CCN") == [0, 1, 2]
