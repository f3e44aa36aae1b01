import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from molattn import from_smiles
from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
TASKS = (
    Task("logS", unit="log mol/L"),
    Task("toxic", "binary", ("no", "yes")),
    Task("phase", "multiclass", ("gas", "liquid", "solid")),
)
SMILES = ["CCO", "c1ccccc1", "C", "CC(=O)[O-].[Na+]"]


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = MolAttn(MolAttnConfig(TASKS, SMALL, features=("pH", "T"))).eval()
    model.set_target_scaling([3.0, 0.0, 0.0], [2.0, 1.0, 1.0])
    model.set_feature_scaling([7.0, 300.0], [1.0, 10.0])
    return model


FEATURES = np.array([[7.0, 300.0], [2.0, 310.0], [9.0, 280.0], [7.0, 305.0]])


def test_a_config_survives_json_and_takes_short_forms(model):
    again = MolAttnConfig.from_dict(json.loads(json.dumps(model.config.to_dict())))
    assert again == model.config
    assert MolAttnConfig(("y", TASKS[1]), features="T").tasks == (Task("y"), TASKS[1])
    for wrong in (
        {"tasks": ()},
        {"tasks": ("y", "y")},
        {"tasks": (Task("a"), Task("a", "binary", ("0", "1")))},
        {"features": ("T", "T")},
        {"members": 0},
        {"kernels": ("descriptors",)},
    ):
        with pytest.raises(InputError):
            replace(model.config, **wrong)


@pytest.mark.parametrize("features", [None, FEATURES[:, :1], FEATURES[:2], FEATURES + np.nan])
def test_features_that_do_not_fit_are_refused(model, features):
    with pytest.raises(ValueError, match="features"):
        model.predict(SMILES, features=features)


def test_a_graph_of_pyg_has_the_self_loops_of_the_model():
    model = MolAttn(MolAttnConfig(tasks=("y",)))
    with pytest.raises(ValueError, match="self_loops=True"):
        model(from_smiles("CCO"))
    whole = from_smiles("CCO", self_loops=True)
    assert model(whole).shape == model(Batch.from_data_list([whole])).shape == (1, 1)


def test_predictions_are_the_outputs_in_units_and_probabilities(model):
    batch = model.collate([model.featurize(text) for text in SMILES])
    with torch.no_grad():
        raw = model(batch, torch.tensor(FEATURES, dtype=torch.float32)).double().numpy()
    found = model.predict(SMILES, features=FEATURES)
    assert found.shape == (4, len(model.config.output_names)) == (4, 5)
    np.testing.assert_allclose(found[:, 0], 2.0 * raw[:, 0] + 3.0, rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], 1.0 / (1.0 + np.exp(-raw[:, 1])), rtol=1e-5)
    exponentials = np.exp(raw[:, 2:])
    np.testing.assert_allclose(
        found[:, 2:], exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5
    )


def test_features_are_read_in_their_own_units_and_each_by_its_molecule(model):
    found = model.predict(SMILES, features=FEATURES)
    alone = [
        model.predict([text], features=row[None])[0]
        for text, row in zip(SMILES, FEATURES, strict=True)
    ]
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6)
    other = FEATURES.copy()
    other[1, 0] += 1.0
    changed = np.abs(model.predict(SMILES, features=other) - found).max(axis=1)
    assert changed[1] > 1e-4
    assert changed[[0, 2, 3]].max() == 0.0
    # Another unit with its own scaling is the same feature.
    model.set_feature_scaling([7.0, 26.85], [1.0, 10.0])
    celsius = FEATURES - [0.0, 273.15]
    np.testing.assert_allclose(model.predict(SMILES, features=celsius), found, rtol=1e-4)


def test_probabilities_near_1_are_as_fine_as_near_0(model):
    """Beyond logits of 17 single precision knows no probability but 1."""
    with torch.no_grad():
        head = model.nets[0].head
        for weight in head.parameters():
            weight.zero_()
        found = []
        for logit in (20.0, -20.0):
            head.mlp[-1].bias[:] = torch.tensor([0.0, logit, logit, 0.0, 0.0])
            found.append(model.predict(["C"], features=FEATURES[:1])[0])
    high, low = found
    assert low[1] == pytest.approx(np.exp(-20.0), rel=1e-6)
    assert 1.0 - high[1] == pytest.approx(low[1], rel=1e-6)
    assert 1.0 - high[2] == pytest.approx(2 * np.exp(-20.0), rel=1e-6)


def test_predictions_leave_the_modes_of_modules_as_they_were(model):
    for mode in (True, False):
        model.train(mode)
        model.nets[0].encoder.train(not mode)
        before = [module.training for module in model.modules()]
        model.predict(SMILES, features=FEATURES)
        with model.networks.evaluating(), model.networks.evaluating():
            assert not any(module.training for module in model.nets.modules())
        assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("mean, scale", [([0.0], [1.0]), ([0, 0, 0], [0, 1, 1])])
def test_scaling_that_makes_no_sense_is_refused(model, mean, scale):
    former = model.target_mean.tolist(), model.target_scale.tolist()
    with pytest.raises(ValueError, match="target"):
        model.set_target_scaling(mean, scale)
    assert (model.target_mean.tolist(), model.target_scale.tolist()) == former
