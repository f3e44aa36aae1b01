import numpy as np
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem.fingerprint_index import FingerprintIndex
from molattn.chem.fingerprints import packed_fingerprints

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
