"""Many SMILES at once against one at a time."""

import numpy as np
import pytest

from molattn.chem import Featurizer, featurize_smiles, parse_smiles
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


def test_reads_no_further_than_asked() -> None:
    texts = iter(["C"] * 200)
    next(featurize_smiles(texts, FEATURIZER))
    assert len(list(texts)) == 136
