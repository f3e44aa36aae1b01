"""Whether usual drawings of a molecule are read as one is part of a model."""

import json

import numpy as np
import pytest

from molattn import MolAttn, MolAttnConfig
from molattn.chem import Featurizer, MoleculeReader
from molattn.config import DataConfig, NetworkConfig
from molattn.data.check import check_table
from molattn.data.table import open_table
from molattn.model.artefact import CONFIG_FILE, ModelFiles

from ..conftest import saved

USUAL = ["CS(C)=O", "COC(C)=O", "CC(=O)[O-].[Na+]"]
DRAWN = ["C[S+](C)[O-]", "[2H]C([2H])([2H])OC(C)=O", "CC(=O)O[Na]"]


@pytest.fixture(scope="module")
def model():
    network = NetworkConfig(width=16, heads=2, layers=1)
    return MolAttn(MolAttnConfig(("y",), network, descriptors=("MolWt",))).eval()


def test_a_new_model_predicts_every_drawing_equally(model):
    np.testing.assert_allclose(model.predict(DRAWN), model.predict(USUAL), rtol=1e-5)
    np.testing.assert_allclose(model.embed(DRAWN), model.embed(USUAL), rtol=1e-4, atol=1e-6)


def test_a_model_saved_without_the_choice_predicts_molecules_as_drawn(model):
    files = model.to_files()
    config = json.loads(files.content[CONFIG_FILE])
    assert config.pop("unify_drawings") is True
    old = MolAttn.from_files(ModelFiles.pack(config, model.state_dict(), {}))
    assert old.config.unify_drawings is False
    as_drawn = MoleculeReader(Featurizer.default(), old.config.input_fields(), unify=False)
    expected = old.predictor.values(old.predictor.predict_outputs(as_drawn.all(DRAWN)))
    np.testing.assert_array_equal(old.predict(DRAWN), expected)
    assert (np.abs(old.predict(DRAWN) - old.predict(USUAL)) > 1e-4).all()
    assert MolAttnConfig.from_dict(old.config.to_dict()) == old.config
    with pytest.raises(ValueError, match="unify_drawings"):
        MolAttn.ensemble([model, old])


def test_a_check_lists_molecules_that_are_redrawn(tmp_path):
    rows = [f"{smiles},{n}" for n, smiles in enumerate([*USUAL, *DRAWN], 1)]
    path = saved(tmp_path, "\n".join(["smiles,y", *rows]))
    found = check_table(open_table(path), DataConfig(target_columns=("y",)))
    assert [one.line for one in found.problems if one.problem == "drawing"] == [5, 6, 7]
    assert [one.line for one in found.problems if one.problem == "duplicate"] == [5, 6, 7]
