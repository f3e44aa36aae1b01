import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.fingerprints import (
    compress_fingerprints,
    expand_fingerprints,
    packed_fingerprints,
)

MOLS = [Chem.MolFromSmiles(text) for text in ("CCO", "CCCO", "c1ccccc1", "c1ccccc1O", "CCO")]


PACKED = packed_fingerprints(MOLS)
BITS = [set(np.flatnonzero(np.unpackbits(row, bitorder="little"))) for row in PACKED]


def tanimoto(one, other):
    return len(one & other) / len(one | other)


def test_bits_are_those_of_rdkit():
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    assert [set(generator.GetFingerprint(mol).GetOnBits()) for mol in MOLS] == BITS


def test_similarity_is_common_bits_over_all_bits():
    expected = [tanimoto(BITS[0], other) for other in BITS]
    found = [FingerprintIndex(row[None]).similarity(PACKED[:1]).item() for row in PACKED]
    np.testing.assert_allclose(found, expected)
    assert expected[0] == expected[4] == 1.0 > expected[1] > expected[2]


def test_the_nearest_is_the_most_similar():
    expected = [max(tanimoto(one, other) for other in BITS[2:]) for one in BITS[:2]]
    np.testing.assert_allclose(FingerprintIndex(PACKED[2:]).similarity(PACKED[:2]), expected)


@given(st.lists(st.sets(st.sampled_from([*range(3), 254, 255, 256, 510, 511, 900, 2046, 2047]))))
def test_compressed_fingerprints_are_expanded_to_the_same(places):
    bits = np.zeros((len(places), 2048), dtype=np.uint8)
    for row, own in zip(bits, places, strict=True):
        row[list(own)] = 1
    packed = np.packbits(bits, axis=1, bitorder="little")
    content, lengths = compress_fingerprints(packed)
    np.testing.assert_array_equal(expand_fingerprints(content, lengths), packed)
    assert len(content) == lengths.sum() <= bits.sum() + 8 * len(places)


def test_a_fingerprint_takes_about_a_byte_for_each_bit():
    content, lengths = compress_fingerprints(PACKED)
    assert len(content) - sum(map(len, BITS)) <= 8 * len(MOLS)
    np.testing.assert_array_equal(expand_fingerprints(content, lengths), PACKED)
