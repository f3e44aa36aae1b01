from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from rdkit.Chem import rdFingerprintGenerator

from molattn.chem import parse_smiles
from molattn.chem.fingerprints import morgan_fingerprint, split_fingerprints

from ..strategies import smiles

GENERATOR = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)


def fingerprint(text):
    return morgan_fingerprint(parse_smiles(text))


@given(smiles())
def test_counts_are_those_of_rdkit(text):
    found = fingerprint(text)
    assert (
        Counter(found.tolist())
        == GENERATOR.GetCountFingerprint(parse_smiles(text)).GetNonzeroElements()
    )
    assert found.tolist() == sorted(found)


@pytest.mark.parametrize("pattern", ["C{}", "C1{}C1"])
def test_chains_and_rings_of_each_length_differ(pattern):
    sizes = (20, 100, 255, 256, 257, 300, 400)
    found = {fingerprint(pattern.format("C" * size)).tobytes() for size in sizes}
    assert len(found) == len(sizes)


def test_fingerprints_one_after_another_are_told_apart_by_their_lengths():
    prints = [fingerprint(text) for text in ("CCO", "C", "c1ccccc1O")]
    lengths = np.array([len(one) for one in prints])
    for one, other in zip(prints, split_fingerprints(np.concatenate(prints), lengths), strict=True):
        np.testing.assert_array_equal(one, other)
