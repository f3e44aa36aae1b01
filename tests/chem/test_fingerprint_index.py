import csv
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem import fingerprint_index as domain
from molattn.chem.fingerprint_index import FingerprintIndex, read_fingerprints
from molattn.data.table import bundled_dataset
from molattn.errors import InputError

SMILES = [
    "CCO",
    "CCCO",
    "c1ccccc1",
    "c1ccccc1O",
    "CC(=O)Oc1ccccc1C(=O)O",
    "C1CCNCC1",
    "[Na+].[Cl-]",
]


def index_of(smiles, seed=0):
    return FingerprintIndex.from_fingerprints(read_fingerprints(smiles), seed)


def bits(smiles):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    return [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]


def nearest(smiles, known):
    known = bits(known)
    return [max(DataStructs.BulkTanimotoSimilarity(one, known)) for one in bits(smiles)]


def test_similarity_is_that_of_rdkit():
    asked = ["OCC", "Cc1ccccc1", "O=C(O)c1ccccc1", "CCCCCCCC", "N"]
    found = index_of(SMILES).similarity(asked)
    np.testing.assert_allclose(found, nearest(asked, SMILES), rtol=1e-12)
    assert found[0] == 1.0


def test_molecules_with_more_bits_than_a_byte_counts_are_compared_too():
    with open(bundled_dataset(), encoding="utf-8") as file:
        texts = [row["smiles"] for row in csv.DictReader(file)]
    big = [".".join(texts[start : start + 40]) for start in (0, 400, 800)]
    assert max(one.GetNumOnBits() for one in bits(big)) > 255
    found = index_of(SMILES + big[:2]).similarity(big)
    np.testing.assert_allclose(found, nearest(big, SMILES + big[:2]), rtol=1e-12)


@pytest.mark.parametrize("count", [255, 256, 257, 2048])
def test_any_number_of_common_bits_is_counted(count):
    packed = np.packbits(np.arange(2048) < count, bitorder="little")[None]
    one_less = np.packbits(np.arange(2048) < count - 1, bitorder="little")[None]
    assert FingerprintIndex(packed).similarity(packed).tolist() == [1.0]
    assert FingerprintIndex(one_less).similarity(packed) == pytest.approx([(count - 1) / count])


def test_equal_molecules_are_kept_once_and_too_many_are_drawn(monkeypatch):
    monkeypatch.setattr(domain, "MOST_KEPT", 3)
    assert len(index_of(["CCO", "OCC", "CC"]).fingerprints) == 2
    some = index_of(SMILES, seed=1)
    assert len(some.fingerprints) == 3
    again = index_of(SMILES, seed=1)
    np.testing.assert_array_equal(some.fingerprints, again.fingerprints)
    drawn = {tuple(index_of(SMILES, s).similarity(SMILES)) for s in range(5)}
    assert len(drawn) > 1
    assert all(sum(value == 1.0 for value in one) == 3 for one in drawn)


@pytest.mark.parametrize("seed", range(4))
def test_of_a_task_with_few_labels_all_are_kept(monkeypatch, seed):
    monkeypatch.setattr(domain, "MOST_KEPT", 10)
    molecules = read_fingerprints(["C" * (n % 6) + "N" * (n // 6 + 1) for n in range(30)])
    assert len(np.unique(molecules, axis=0)) == 30
    labeled = np.ones((30, 2), dtype=bool)
    labeled[:, 1] = np.arange(30) < 3
    found = FingerprintIndex.from_fingerprints(molecules, seed, labeled)
    assert len(found.fingerprints) == 10
    assert (found.task_similarity(molecules[:3], 2)[:, 1] == 1.0).all()


def test_fingerprints_come_back_from_a_file_as_they_were():
    first = index_of(SMILES)
    content = first.to_bytes()
    assert len(content) < 256 * len(SMILES) + 200
    again = FingerprintIndex.from_bytes(content, Path("known.safetensors"))
    np.testing.assert_array_equal(again.fingerprints, first.fingerprints)
    assert again.similarity(["CCO"]) == [1.0]


@pytest.mark.parametrize(
    "content",
    [
        b"damaged",
        safetensors.numpy.save({"other": np.zeros((1, 256), dtype=np.uint8)}),
        safetensors.numpy.save({"fingerprints": np.zeros((1, 128), dtype=np.uint8)}),
        safetensors.numpy.save({"fingerprints": np.zeros((0, 256), dtype=np.uint8)}),
        safetensors.numpy.save({"fingerprints": np.zeros((1, 256), dtype=np.float32)}),
    ],
)
def test_a_file_of_something_else_is_refused(content):
    with pytest.raises(InputError, match=r"known\.safetensors"):
        FingerprintIndex.from_bytes(content, Path("known.safetensors"))


def test_no_molecule_is_near_none():
    with pytest.raises(InputError, match="got none"):
        index_of([])


@pytest.mark.parametrize("one", ["CCO", Chem.MolFromSmiles("OCC")])
def test_one_molecule_is_not_taken_for_a_list(one):
    for call in (index_of(SMILES).similarity, index_of):
        with pytest.raises(TypeError, match=r"smiles: got one molecule, expected a list: \['"):
            call(one)


def test_the_nearest_ones_are_those_of_rdkit():
    asked = ["OCC", "Cc1ccccc1", "N"]
    known = index_of(SMILES)
    kept = [DataStructs.CreateFromBinaryText(row.tobytes()) for row in known.fingerprints]
    for one, (places, similarity) in zip(bits(asked), known.nearest(asked, 3), strict=True):
        expected = np.array(DataStructs.BulkTanimotoSimilarity(one, kept))
        assert similarity.tolist() == sorted(expected, reverse=True)[:3]
        assert expected[places].tolist() == similarity.tolist()
    assert [len(places) for places, _ in known.nearest(["C"], 100)] == [len(SMILES)]


def test_similarity_by_task_is_that_to_molecules_with_its_label():
    labeled = np.zeros((len(SMILES), 3), dtype=bool)
    labeled[:3, 0] = labeled[3:, 1] = True
    prints = domain.read_fingerprints([*SMILES, SMILES[0]])
    # Two rows of one molecule have the labels of both.
    labeled = np.vstack([labeled, [[False, True, False]]])
    known = FingerprintIndex.from_fingerprints(prints, labeled=labeled)
    again = FingerprintIndex.from_bytes(known.to_bytes(), Path("f"))
    asked = ["OCC", "Cc1ccccc1O", "N"]
    for index in (known, again):
        found = index.task_similarity(asked, 3)
        np.testing.assert_allclose(found[:, 0], nearest(asked, SMILES[:3]))
        np.testing.assert_allclose(found[:, 1], nearest(asked, [*SMILES[3:], SMILES[0]]))
        assert found[:, 2].tolist() == [0.0] * 3
        np.testing.assert_array_equal(index.similarity(asked), found.max(axis=1))


def test_without_missing_labels_all_tasks_have_the_same_similarity():
    prints = domain.read_fingerprints(SMILES)
    known = FingerprintIndex.from_fingerprints(prints, labeled=np.ones((len(SMILES), 2), bool))
    assert known.labeled is None
    expected = np.repeat(known.similarity(["CCN"])[:, None], 2, axis=1)
    np.testing.assert_array_equal(known.task_similarity(["CCN"], 2), expected)


@pytest.mark.parametrize(
    "labeled", [np.ones((2, 2), np.uint8), np.ones((3, 2), bool), np.ones(2, bool)]
)
def test_labels_of_other_fingerprints_are_refused(labeled):
    prints = domain.read_fingerprints(SMILES[:2])
    content = safetensors.numpy.save({"fingerprints": prints, "labeled": labeled})
    with pytest.raises(InputError, match=r"f: got \w+ \[.*\], expected bool \[2, tasks\]"):
        FingerprintIndex.from_bytes(content, Path("f"))
