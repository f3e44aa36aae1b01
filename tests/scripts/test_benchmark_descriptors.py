import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from molattn.chem.descriptors import DESCRIPTORS
from molattn.data.table import bundled_dataset


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "scripts")
        yield importlib.import_module("benchmark_descriptors")


def test_each_descriptor_is_in_one_family_and_a_family_is_measured(script, tmp_path):
    groups = script.families()
    assert groups.pop("all") == DESCRIPTORS
    assert groups.pop("lipinski") == ("MolWt", "NOCount", "NHOHCount")
    assert sorted(name for names in groups.values() for name in names) == sorted(DESCRIPTORS)
    path = tmp_path / "t.csv"
    pd.read_csv(bundled_dataset()).head(60)[["smiles", "logS"]].to_csv(path, index=False)
    some = {"logP": ("MolLogP",), "constant": ("NumRadicalElectrons",)}
    by_logp, by_constant = script.worth(str(path), "logS", some, log=False)
    assert by_logp.shape == by_constant.shape == (script.FOLDS,)
    assert np.isfinite([by_logp, by_constant]).all()
    assert by_logp.mean() < 0.0  # solubility follows lipophilicity
    assert script.costs(["CCO", "c1ccccc1O"], some)["logP"] > 0.0
