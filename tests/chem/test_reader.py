"""Many SMILES at once against one at a time."""

import numpy as np
import pytest

from molattn.chem import Featurizer, featurize_smiles, parse_smiles
from molattn.chem.fingerprints import packed_fingerprints
from molattn.errors import SmilesError

FEATURIZER = Featurizer.default()


@pytest.mark.parametrize("copies", [0, 1, 15, 16, 40])
def test_equals_one_at_a_time_with_errors_in_place(copies: int) -> None:
    texts = ["CCO", "not a molecule", "c1ccccc1.[Na+]", "C" * 300] * copies
    read = list(featurize_smiles(iter(texts), FEATURIZER))
    assert len(read) == len(texts)
    for text, got in zip(texts, read, strict=True):
        if text == "not a molecule":
            assert isinstance(got, SmilesError)
            assert got.smiles == text
        else:
            assert not isinstance(got, SmilesError)
            expected = FEATURIZER(parse_smiles(text))
            np.testing.assert_array_equal(got.atoms, expected.atoms)
            np.testing.assert_array_equal(got.pairs, expected.pairs)


def test_fingerprints_are_those_of_each_molecule() -> None:
    texts = ["CCO", "C(C", "c1ccccc1.[Na+]"] * 30
    read = list(featurize_smiles(texts, FEATURIZER, fingerprints=True))
    for text, got in zip(texts, read, strict=True):
        if isinstance(got, SmilesError):
            assert text == "C(C"
            continue
        np.testing.assert_array_equal(got.fingerprint, packed_fingerprints([parse_smiles(text)])[0])
    assert next(featurize_smiles(texts, FEATURIZER)).fingerprint is None


def test_reads_no_further_than_asked() -> None:
    texts = iter(["C"] * 200)
    next(featurize_smiles(texts, FEATURIZER))
    assert len(list(texts)) == 136
