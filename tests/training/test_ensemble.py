"""An ensemble is one model: the mean of its members, to save, load and predict with."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.outputs import mean_of_members
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
PHASE = Task("phase", "multiclass", ("gas", "liquid", "solid"))
TASKS = (Task("logS", unit="log mol/L"), Task("toxic", "binary", ("no", "yes")), PHASE)
SMILES = ["CCO", "c1ccccc1", "C", "CC(=O)[O-].[Na+]"]
FEATURES = np.array([[7.0], [2.0], [9.0], [7.0]])
CONFIG = MolAttnConfig(TASKS, SMALL, features=("pH",))


def make(seed, config=CONFIG, mean=3.0, scale=3.0):
    torch.manual_seed(seed)
    model = MolAttn(config).eval()
    model.set_target_scaling([mean, 0.0, 0.0], [2.0, 1.0, 1.0])
    model.set_feature_scaling([7.0], [scale])
    return model


@pytest.fixture(scope="module")
def models():
    return [make(seed) for seed in range(3)]


def test_an_ensemble_predicts_the_mean_of_its_members(models, tmp_path):
    ensemble = MolAttn.ensemble(models)
    apart = np.stack([model.predict(SMILES, features=FEATURES) for model in models])
    assert apart.std(axis=0).min() > 1e-4
    np.testing.assert_array_equal(ensemble.predict(SMILES, features=FEATURES, members=True), apart)
    mean = ensemble.predict(SMILES, features=FEATURES)
    np.testing.assert_allclose(mean, apart.mean(axis=0), rtol=1e-14)
    batch = ensemble.collate([ensemble.featurize(text) for text in SMILES])
    with torch.no_grad():  # scaled units and logits
        outputs = ensemble(batch, torch.tensor(FEATURES, dtype=torch.float32))
    found = ensemble.in_own_units(ensemble.to_transformed(outputs.double().numpy()))
    np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-7)
    ensemble.save_pretrained(tmp_path)
    again = MolAttn.from_pretrained(tmp_path)
    assert again.config == ensemble.config
    np.testing.assert_array_equal(again.predict(SMILES, features=FEATURES), mean)
    more = MolAttn.ensemble([ensemble, models[0]])  # with weights of its own
    with torch.no_grad():
        for weight in more.parameters():
            weight.zero_()
    np.testing.assert_array_equal(ensemble.predict(SMILES, features=FEATURES), mean)


def test_probabilities_near_zero_and_one_have_finite_logits_and_gradients():
    outputs = torch.tensor([[[0.0, 200.0, 300.0, 0.0, -300.0]]] * 3, requires_grad=True)
    mean = mean_of_members(outputs, TASKS)
    np.testing.assert_allclose(mean.detach()[0, :2].numpy(), [0.0, 200.0], rtol=1e-6)
    mean.sum().backward()
    assert bool(outputs.grad.isfinite().all())


@pytest.mark.parametrize(
    "change, options",
    [
        ({"tasks": (*TASKS[:2], replace(PHASE, classes=("a", "b", "c")))}, {}),
        ({"network": replace(SMALL, score="gatv2")}, {}),
        ({"features": ("T",)}, {}),
        ({}, {"scale": 2.0}),
        ({}, {"mean": 3.1}),
    ],
)
def test_models_that_differ_are_refused(models, change, options):
    other = make(0, replace(CONFIG, **change), **options)
    with pytest.raises(InputError, match="model 2 differs from model 1 in"):
        MolAttn.ensemble([models[0], other])
