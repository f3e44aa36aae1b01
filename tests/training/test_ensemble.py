"""Ensembles: which models can be joined, and the mean of their logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from molattn.config import NetworkConfig
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.outputs import mean_of_members
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
PHASE = Task("phase", "multiclass", ("gas", "liquid", "solid"))
TASKS = (Task("logS", unit="log mol/L"), Task("toxic", "binary", ("no", "yes")), PHASE)
CONFIG = MolAttnConfig(TASKS, SMALL, features=("pH",))


def make(seed, config=CONFIG, mean=3.0, scale=3.0):
    torch.manual_seed(seed)
    model = MolAttn(config).eval()
    model.set_target_scaling([mean, 0.0, 0.0], [2.0, 1.0, 1.0])
    model.set_feature_scaling([7.0], [scale])
    return model


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
        ({"network": replace(SMALL, norm="batch")}, {}),
        ({"features": ("T",)}, {}),
        ({}, {"scale": 2.0}),
        ({}, {"mean": 3.1}),
    ],
)
def test_models_that_differ_are_refused(change, options):
    other = make(0, replace(CONFIG, **change), **options)
    with pytest.raises(ValueError, match="model 2 differs from model 1 in"):
        MolAttn.ensemble([make(1), other])
