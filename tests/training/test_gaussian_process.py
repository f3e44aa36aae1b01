import io
import pickle

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import molattn
from molattn import MolAttn
from molattn.cli import main
from molattn.config import PredictConfig
from molattn.data.table import bundled_dataset
from molattn.errors import InputError
from molattn.inference.predict import predict_table
from molattn.model.artefact import GAUSSIAN_PROCESS_FILE
from molattn.model.gaussian_process.combination import share_of_second
from molattn.sklearn import MolAttnClassifier, MolAttnRegressor

from ..conftest import rows_of

TINY = {"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "epochs": 2, "batch_size": 16}
TINY |= {"init_from": "none", "device": "cpu", "split": "random", "baselines": False}
TINY |= {"bootstrap": 0}
NEW = ["CCO", "c1ccccc1N", "CC(=O)OC"]


@pytest.fixture(scope="module")
def frame():
    table = pd.read_csv(bundled_dataset()).iloc[:80].reset_index(drop=True)
    table["soluble"] = np.where(table["logS"] > -2, "yes", "no")
    table["solvent"] = np.resize(["O", "CCO", "ClCCl"], len(table))
    table["T"] = 20.0 + np.arange(len(table)) % 5
    return table


def train(frame, targets="logS", **options):
    return molattn.train(frame, targets, **{**TINY, **options})


@pytest.fixture(scope="module")
def both(frame):
    return train(frame, keep_training_smiles=True)


def test_both_predict_by_default(frame, both):
    network = train(frame, predictor="network").model
    model = both.model
    assert network.gaussian_process is None
    assert network.config.kernels == ()
    assert model.config.kernels == ("morgan", "atom_pairs", "embedding")
    for name, weights in network.state_dict().items():  # the network is the same
        assert weights.equal(model.state_dict()[name])
    share = model.gaussian_process.shares[0]
    assert 0.0 < share < 1.0
    records = [model.featurize(smiles) for smiles in NEW]
    _, inputs = model.network_outputs(records)
    process = model.to_transformed(model.gaussian_process.predict(inputs))
    mean = (1 - share) * network.predict(NEW) + share * process
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-6, atol=1e-6)


def test_the_share_is_that_of_the_validation_rows_which_are_learned_last(frame):
    config, shown = {"seed": 3}, io.StringIO()
    run = train(frame, **config, console=Console(file=shown, width=200))
    model, process = run.model, run.model.gaussian_process
    assert f"{process.shares[0]:.0%} Gaussian process" in shown.getvalue()
    smiles = frame["smiles"].to_numpy()
    learned = {*process.rows.tolist()}
    assert len(learned) == run.split.train.size + run.split.val.size
    assert learned.isdisjoint({*run.split.test.tolist()})
    del model, smiles, share_of_second
