"""The oracle of frequent environments against RDKit's own hashed counts."""

import importlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

SMILES = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "CCN(CC)CC", "Clc1ccccc1"]


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module("count_ceiling")


def test_an_oracle_of_all_environments_knows_the_counts_and_one_of_none_the_mean(script):
    molecules = [script.environments(text) for text in SMILES]
    frequency = Counter(one for molecule in molecules for one in molecule)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=3, fpSize=4096)
    expected = [generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(text)) for text in SMILES]
    np.testing.assert_allclose(script.hashed(molecules, frequency, 1), np.log1p(np.array(expected)))
    found = script.ceilings(molecules, frequency, (1, 2, 3, 100))
    assert found[1] == 1.0
    assert found[1] > found[2] > found[3] > found[100] == 0.0
    assert script.environments("C(") is None
