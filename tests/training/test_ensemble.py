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
TASKS = (
    Task("logS", unit="log mol/L"),
    Task("toxic", "binary", ("no", "yes")),
    Task("phase", "multiclass", ("gas", "liquid", "solid")),
)
SMILES = ["CCO", "c1ccccc1", "C", "CC(=O)[O-].[Na+]"]
FEATURES = np.array([[7.0], [2.0], [9.0], [7.0]])
CONFIG = MolAttnConfig(TASKS, SMALL, features=("pH",))


def make(seed, config=CONFIG):
    torch.manual_seed(seed)
    model = MolAttn(config).eval()
    model.set_target_scaling([3.0, 0.0, 0.0], [2.0, 1.0, 1.0])
    model.set_feature_scaling([7.0], [3.0])
    return model


@pytest.fixture(scope="module")
def models():
    return [make(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def ensemble(models):
    return MolAttn.ensemble(models)


def test_an_ensemble_predicts_the_mean_of_its_members(models, ensemble):
    apart = np.stack([model.predict(SMILES, features=FEATURES) for model in models])
    assert apart.std(axis=0).min() > 1e-4
    np.testing.assert_array_equal(ensemble.predict(SMILES, features=FEATURES, members=True), apart)
    mean = ensemble.predict(SMILES, features=FEATURES)
    np.testing.assert_allclose(mean, apart.mean(axis=0), rtol=1e-14)
    np.testing.assert_array_equal(
        models[0].predict(SMILES, features=FEATURES, members=True), apart[:1]
    )


def test_what_an_ensemble_forwards_is_its_prediction_in_scaled_units_and_logits(ensemble):
    batch = ensemble.collate([ensemble.featurize(text) for text in SMILES])
    with torch.no_grad():
        outputs = ensemble(batch, torch.tensor(FEATURES, dtype=torch.float32))
    found = ensemble.in_own_units(ensemble.to_transformed(outputs.double().numpy()))
    expected = ensemble.predict(SMILES, features=FEATURES)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_probabilities_near_zero_and_one_have_finite_logits_and_gradients(ensemble):
    outputs = torch.tensor([[[0.0, 200.0, 300.0, 0.0, -300.0]]] * 3, requires_grad=True)
    mean = mean_of_members(outputs, ensemble.config.tasks)
    np.testing.assert_allclose(mean.detach()[0, :2].numpy(), [0.0, 200.0], rtol=1e-6)
    mean.sum().backward()
    assert outputs.grad is not None
    assert bool(outputs.grad.isfinite().all())


def test_a_saved_ensemble_is_one_model_and_comes_back_as_it_was(ensemble, tmp_path):
    ensemble.save_pretrained(tmp_path)
    assert len([*tmp_path.glob("*.safetensors")]) == 1
    again = MolAttn.from_pretrained(tmp_path)
    assert again.config == ensemble.config
    assert len(again.nets) == again.config.members == 3
    np.testing.assert_array_equal(
        again.predict(SMILES, features=FEATURES, members=True),
        ensemble.predict(SMILES, features=FEATURES, members=True),
    )


def test_an_ensemble_of_ensembles_has_all_members_and_weights_of_its_own(models, ensemble):
    more = MolAttn.ensemble([ensemble, models[0]])
    assert more.config.members == 4
    before = ensemble.predict(SMILES, features=FEATURES)
    with torch.no_grad():
        for weight in more.parameters():
            weight.zero_()
    np.testing.assert_array_equal(ensemble.predict(SMILES, features=FEATURES), before)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"tasks": (*TASKS[:2], Task("phase", "multiclass", ("a", "b", "c")))}, "tasks"),
        ({"network": replace(SMALL, score="gatv2")}, "score: gatv2, not scaled_dot"),
        ({"features": ("T",)}, "features"),
    ],
)
def test_models_that_differ_are_refused_by_what_differs(models, change, words):
    other = make(0, replace(CONFIG, **change))
    with pytest.raises(InputError, match=f"model 2 differs from model 1 in {words};"):
        MolAttn.ensemble([models[0], other])


def test_a_scaling_that_was_saved_in_single_precision_is_the_same():
    double, single = make(0), make(1)
    double.set_feature_scaling([1 / 3], [3.0])
    single.set_feature_scaling([float(np.float32(1 / 3))], [3.0])
    assert MolAttn.ensemble([double, single]).config.members == 2


def test_a_difference_of_large_means_is_a_difference():
    one, other = make(0), make(1)
    one.set_target_scaling([1e9, 0.0, 0.0], [2.0, 1.0, 1.0])
    other.set_target_scaling([1e9 + 30.0, 0.0, 0.0], [2.0, 1.0, 1.0])
    with pytest.raises(InputError, match="in the target scaling"):
        MolAttn.ensemble([one, other])


def test_models_of_other_scaling_are_refused(models):
    other = make(1)
    other.set_feature_scaling([7.0], [2.0])
    with pytest.raises(InputError, match="model 3 differs from model 1 in the feature scaling"):
        MolAttn.ensemble([*models[:2], other])
    with pytest.raises(InputError, match="expected at least one model"):
        MolAttn.ensemble([])


@pytest.mark.parametrize("members", [0, 1.5])
def test_members_are_counted_from_one(members):
    with pytest.raises(InputError, match="members"):
        replace(CONFIG, members=members)
