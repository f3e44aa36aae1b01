import numpy as np
import pytest
from safetensors.numpy import load

from molattn.chem import Featurizer
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.reader import MoleculeReader
from molattn.chem.seen_atoms import SeenAtoms

DEFAULT = Featurizer.default()
TRAINING = ["CCO", "CC[NH3+]", "CCCCBr"]
LABELED = np.array([[True, True], [True, False], [False, True]])


def records(smiles):
    return MoleculeReader(DEFAULT).all(smiles)


@pytest.fixture(scope="module")
def seen():
    return SeenAtoms.of(records(TRAINING), LABELED, DEFAULT)


@pytest.mark.parametrize(
    "smiles, reasons, others",
    [
        ("CO", [], []),
        ("C[NH3+]", [], ["nitrogen never seen", "charge +1 never seen"]),
        ("CBr", ["bromine never seen"], []),
        ("CCCCO", ["5 heavy atoms, at most 3 seen"], []),
        ("CO[Sn]", ["tin never seen"], ["tin never seen"]),
        ("C[O-]", ["charge -1 never seen"], ["charge -1 never seen"]),
        ("C[U]", ["rare element never seen"], ["rare element never seen"]),
    ],
)
def test_each_task_says_what_its_molecules_lack(seen, smiles, reasons, others):
    molecule = records([smiles])
    found = [[*seen.reasons(molecule[0], DEFAULT, task)] for task in (0, 1)]
    assert found == [reasons, others]
    assert seen.lacks(molecule, DEFAULT).tolist() == [[bool(reasons), bool(others)]]
    assert seen.lacks([], DEFAULT).shape == (0, 2)  # of a run without test rows


def test_what_other_new_molecules_have_is_not_lacked(seen):
    new = records(["CBr", "BrCBr", "CF", "C" * 9, "C" * 8])
    labeled = np.ones((5, 2), dtype=bool)
    labeled[0, 0] = False
    lacks = seen.lacks_beside_others(new, labeled, DEFAULT)
    bromine = [[False, False], [True, False]]  # in a training molecule of the second task
    assert lacks.tolist() == [*bromine, [True, True], [True, True], [False, False]]


def test_what_training_molecules_consist_of_is_saved_with_their_fingerprints(seen):
    index = FingerprintIndex(read_fingerprints(TRAINING), LABELED, seen)

    read = FingerprintIndex.from_arrays(load(index.to_bytes()))
    new = records(["CBr", "CCCCO", "C[Sn]"])
    np.testing.assert_array_equal(read.seen.lacks(new, DEFAULT), seen.lacks(new, DEFAULT))
    index.seen = None
    assert FingerprintIndex.from_arrays(load(index.to_bytes())).seen is None
