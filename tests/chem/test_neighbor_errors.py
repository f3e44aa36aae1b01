import numpy as np
import pytest
from safetensors.numpy import load

from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.seen_atoms import SeenAtoms

CHAINS = ["C" * length for length in range(2, 12)]
RINGS = [f"c1ccc({'C' * length}N)cc1" for length in range(10)]


@pytest.fixture
def index():
    index = FingerprintIndex.from_fingerprints(read_fingerprints(CHAINS + RINGS))
    errors = np.column_stack([[1.0] * 10 + [3.0] * 10, [np.nan] * 20])
    index.set_errors(read_fingerprints(CHAINS + RINGS), errors)
    return index


def test_errors_are_larger_near_molecules_of_larger_errors(index):
    similarity, nearby = index.neighbor_errors(["CCCCCCCCCCCCC", "c1ccc(CCNC)cc1", "[Xe]"], 2)
    np.testing.assert_allclose(
        similarity, index.task_similarity(["C" * 13, "c1ccc(CCNC)cc1", "[Xe]"], 2)
    )
    assert nearby[0, 0] < 0.8
    assert nearby[1, 0] > 1.2
    assert nearby[2, 0] == pytest.approx(1.0)  # unlike all
    assert (nearby[:, 1] == 1.0).all()  # unknown


def test_errors_are_kept_with_two_digits_and_the_mean_of_equal_molecules(index):
    prints = read_fingerprints(["CC", "CC", "CCC", "CCCC"])
    known = FingerprintIndex.from_fingerprints(prints)
    known.set_errors(prints, np.array([[1.0], [2.0], [np.nan], [0.777]]))
    kept = dict(zip([len(row) for row in known.fingerprints], known.errors[:, 0], strict=True))
    expected = {len(prints[0]): 1.5, len(prints[2]): np.nan, len(prints[3]): 0.777}
    for size, error in expected.items():
        np.testing.assert_allclose(kept[size], error / (3.777 / 3), atol=0.006)
    read = FingerprintIndex.from_arrays(load(index.to_bytes()))
    np.testing.assert_array_equal(read.errors, index.errors)


def test_a_task_with_few_errors_keeps_all_of_them(monkeypatch):
    monkeypatch.setattr("molattn.chem.fingerprint_index.MOST_ERRORS", 10)
    prints = read_fingerprints(CHAINS + RINGS)
    errors = np.ones((20, 2))
    errors[4:, 1] = np.nan
    index = FingerprintIndex.from_fingerprints(prints)
    index.set_errors(prints, errors)
    is_kept = ~np.isnan(index.errors)
    assert is_kept.any(axis=1).sum() == 10
    assert is_kept[:, 1].sum() == 4


def test_each_task_has_the_errors_of_its_own_molecules():
    prints = read_fingerprints(CHAINS + RINGS)
    errors = np.random.default_rng(0).uniform(1.0, 2.0, (20, 3))
    errors[:10, 1] = np.nan
    together = FingerprintIndex.from_fingerprints(prints)
    together.set_errors(prints, errors)
    found = together.neighbor_errors(["CCCCN", "c1ccccc1N"], 3)[1]
    for task in range(3):
        alone = FingerprintIndex.from_fingerprints(prints)
        alone.set_errors(prints, errors[:, [task]])
        expected = alone.neighbor_errors(["CCCCN", "c1ccccc1N"], 1)[1]
        np.testing.assert_allclose(found[:, [task]], expected)


def test_an_error_of_a_new_molecule_stays_if_an_equal_one_has_none(index):
    prints = read_fingerprints(["CCO", "CCO"])
    seen = SeenAtoms(np.zeros((2, 2, 256), dtype=bool), np.zeros(2))
    errors = np.array([[1.5, np.nan], [np.nan, 0.5]])
    more = index.with_molecules(prints, np.ones((2, 2), dtype=bool), errors, seen)
    np.testing.assert_array_equal(more.errors[-1], [1.5, 0.5])
