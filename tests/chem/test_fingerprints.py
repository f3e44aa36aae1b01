import numpy as np
from rdkit import Chem

from molattn.chem.fingerprints import (
    SimilaritySearch,
    fingerprints,
    packed_fingerprints,
    similarities,
)

MOLS = [Chem.MolFromSmiles(text) for text in ("CCO", "CCCO", "c1ccccc1", "c1ccccc1O", "CCO")]


def test_similarity_is_common_bits_over_all_bits():
    prints = fingerprints(MOLS)
    bits = [set(one.GetOnBits()) for one in prints]
    expected = [len(bits[0] & other) / len(bits[0] | other) for other in bits]
    np.testing.assert_allclose(similarities(prints[0], prints), expected)
    assert expected[0] == expected[4] == 1.0 > expected[1] > expected[2]


def test_the_nearest_is_the_most_similar():
    prints = fingerprints(MOLS)
    expected = [max(similarities(one, prints[2:])) for one in prints[:2]]
    packed = packed_fingerprints(MOLS)
    np.testing.assert_allclose(SimilaritySearch(packed[2:]).nearest(packed[:2]), expected)
