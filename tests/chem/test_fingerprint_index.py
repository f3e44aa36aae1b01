import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem import fingerprint_index as domain
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.chem.seen_atoms import SeenAtoms

from ..strategies import smiles

SMILES = """
    CCO CCCO c1ccccc1 c1ccccc1O CC(=O)Oc1ccccc1C(=O)O C1CCNCC1 [Na+].[Cl-]
""".split()


def index_of(smiles, seed=0):
    return FingerprintIndex.from_fingerprints(read_fingerprints(smiles), seed)


def counts(smiles):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    return [generator.GetCountFingerprint(Chem.MolFromSmiles(text)) for text in smiles]


def nearest(smiles, known):
    known = counts(known)
    return [max(DataStructs.BulkTanimotoSimilarity(one, known)) for one in counts(smiles)]


@given(st.lists(smiles(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_similarity_is_symmetric_and_does_not_depend_on_the_order(texts, random):
    texts = [text for text in texts if counts([text])[0].GetTotalVal()]
    alone = np.array([index_of([text]).similarity(texts) for text in texts]).reshape(-1, len(texts))
    np.testing.assert_array_equal(alone, alone.T)
    np.testing.assert_array_equal(np.diag(alone), np.ones(len(texts)))
    expected = [DataStructs.BulkTanimotoSimilarity(one, counts(texts)) for one in counts(texts)]
    np.testing.assert_allclose(alone, np.reshape(expected, alone.shape), rtol=1e-12)
    order = random.sample(texts, len(texts))
    if texts:
        asked = ["CCO", "C" * 30, *texts]
        np.testing.assert_array_equal(
            index_of(order).similarity(asked), index_of(texts).similarity(asked)
        )


def test_equal_molecules_are_kept_once_and_too_many_are_drawn(monkeypatch):
    monkeypatch.setattr(domain, "MOST_KEPT", 3)
    assert len(index_of(["CCO", "OCC", "CC"]).fingerprints) == 2
    some = index_of(SMILES, seed=1)
    assert len(some.fingerprints) == 3
    again = index_of(SMILES, seed=1)
    assert list(map(bytes, some.fingerprints)) == list(map(bytes, again.fingerprints))
    drawn = {tuple(index_of(SMILES, s).similarity(SMILES)) for s in range(5)}
    assert len(drawn) > 1
    assert all(sum(value == 1.0 for value in one) == 3 for one in drawn)


@pytest.mark.parametrize("seed", range(4))
def test_all_molecules_of_a_task_with_few_labels_are_kept(monkeypatch, seed):
    monkeypatch.setattr(domain, "MOST_KEPT", 10)
    molecules = read_fingerprints(["C" * (n % 6) + "N" * (n // 6 + 1) for n in range(30)])
    assert len(set(map(bytes, molecules))) == 30
    labeled = np.ones((30, 2), dtype=bool)
    labeled[:, 1] = np.arange(30) < 3
    found = FingerprintIndex.from_fingerprints(molecules, seed, labeled)
    assert len(found.fingerprints) == 10
    assert (found.task_similarity(molecules[:3], 2)[:, 1] == 1.0).all()


def test_the_nearest_molecules_are_as_rdkit_finds_them():
    asked = ["OCC", "Cc1ccccc1", "N"]
    known = index_of(SMILES)
    order = [known.nearest([text], 1) for text in SMILES]
    kept = [SMILES[at] for at in np.argsort([next(iter(one))[0][0] for one in order])]
    kept = counts(kept)
    for one, (places, similarity) in zip(counts(asked), known.nearest(asked, 3), strict=True):
        expected = np.array(DataStructs.BulkTanimotoSimilarity(one, kept))
        assert similarity.tolist() == sorted(expected, reverse=True)[:3]
        assert expected[places].tolist() == similarity.tolist()
    assert [len(places) for places, _ in known.nearest(["C"], 100)] == [len(SMILES)]


def test_similarity_by_task_compares_molecules_with_a_label_of_the_task():
    labeled = np.zeros((len(SMILES), 3), dtype=bool)
    labeled[:3, 0] = labeled[3:, 1] = True
    prints = domain.read_fingerprints([*SMILES, SMILES[0]])
    # Two rows of one molecule have the labels of both.
    labeled = np.vstack([labeled, [[False, True, False]]])
    known = FingerprintIndex.from_fingerprints(prints, labeled=labeled)
    again = FingerprintIndex.from_arrays(safetensors.numpy.load(known.to_bytes()))
    asked = ["OCC", "Cc1ccccc1O", "N"]
    for index in (known, again):
        found = index.task_similarity(asked, 3)
        np.testing.assert_allclose(found[:, 0], nearest(asked, SMILES[:3]))
        np.testing.assert_allclose(found[:, 1], nearest(asked, [*SMILES[3:], SMILES[0]]))
        assert found[:, 2].tolist() == [0.0] * 3
        np.testing.assert_array_equal(index.similarity(asked), found.max(axis=1))


def test_molecules_join_an_index():
    old, new = (read_fingerprints(texts) for texts in (["CCO", "CCN"], ["CCN", "CCF", "CCF"]))
    index = FingerprintIndex.from_fingerprints(old, labeled=np.array([[True, True], [True, False]]))
    index.set_errors(old, np.array([[1.0, 2.0], [3.0, np.nan]]))
    labeled = np.array([[False, True], [True, False], [True, False]])
    errors = np.array([[9.0, 0.5], [1.25, np.nan], [1.5, np.nan]])
    seen = SeenAtoms(np.zeros((2, 2, 256), dtype=bool), np.zeros(2, dtype=np.int64))
    joined = index.with_molecules(new, labeled, errors, seen)
    assert len(joined.fingerprints) == 3
    assert joined.contains(new) == [True] * 3
    assert joined.task_similarity(new, 2)[1, 0] == 1.0 > joined.task_similarity(new, 2)[1, 1]
    rows = {row.tobytes(): number for number, row in enumerate(joined.fingerprints)}
    amine, fluoride = (rows[row.tobytes()] for row in new[:2])
    assert joined.errors[amine].tolist() == [1.5, 0.5]
    assert joined.errors[fluoride, 0] == 1.5
    assert joined.labeled[amine].all()


def test_similarity_to_others_leaves_the_molecule_itself_out():
    index = FingerprintIndex(read_fingerprints(["CCO"]))
    new = read_fingerprints(["CCCCF", "CCCCF", "CCCCCl"])
    labeled = np.array([[True, True], [True, False], [True, True]])
    similarity = index.similarity_to_others(new, labeled)
    assert similarity[:2, 0].tolist() == [1.0, 1.0]
    assert similarity[0, 1] < 1.0 == similarity[1, 1]
    pair = FingerprintIndex(new[2:]).similarity(new[:1])
    assert similarity[0, 1] == pytest.approx(max(pair[0], index.similarity(new[:1])[0]))
