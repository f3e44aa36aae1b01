from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from molattn.config import NetworkConfig
from molattn.errors import InputError
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import (
    TRANSFORMS,
    IdentityTransform,
    LogTransform,
    YeoJohnsonTransform,
    limits_with_transform,
)
from molattn.task import Task

SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
SMILES = ["CCO", "c1ccccc1", "CC(=O)N"]
LABELS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40, unique=True)


def float64(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def fitted(kind, labels):
    """A transform of labels that are distinct, and far enough from each other."""
    labels = np.array(labels)
    if kind == "log":
        labels = np.abs(labels) + 1e-3
    labels = np.unique(labels)
    assume(len(labels) > 1 and np.diff(labels).min() > 1e-6)
    return TRANSFORMS[kind].fit(labels), torch.from_numpy(labels)


@pytest.mark.parametrize("kind", TRANSFORMS)
@given(labels=LABELS)
def test_a_transform_increases_and_its_inverse_gives_the_labels_back(kind, labels):
    transform, labels = fitted(kind, labels)
    values = transform.forward(labels)
    assert (values.diff() > 0).all()
    np.testing.assert_allclose(transform.inverse(values), labels, rtol=1e-7, atol=1e-9)
    between = torch.linspace(float(values[0]) - 5, float(values[-1]) + 5, 200).double()
    back = transform.inverse(between)
    assert (back.diff() >= 0).all()
    assert back.isfinite().all()


@pytest.mark.parametrize("kind", ["none", "log", "yeo_johnson"])
@given(labels=LABELS)
def test_the_jacobian_is_the_slope(kind, labels):
    transform, labels = fitted(kind, labels)
    # A label below 0 is never that of a logarithm.
    step = 1e-6 * labels.abs() + (0.0 if kind == "log" else 1e-6 * getattr(transform, "scale", 1.0))
    rise = transform.forward(labels + step) - transform.forward(labels - step)
    slope = rise / ((labels + step) - (labels - step))
    assume(not isinstance(transform, YeoJohnsonTransform) or slope.min() > 1e-9)
    np.testing.assert_allclose(transform.log_jacobian(labels).exp(), slope, rtol=1e-3)


@given(LABELS, st.integers(0, 20).map(lambda n: n / 10))
def test_yeo_johnson_is_that_of_scipy(labels, power):
    found = YeoJohnsonTransform(power).forward(float64(labels))
    np.testing.assert_allclose(found, stats.yeojohnson(np.array(labels), power), 1e-9, 1e-12)


def test_the_power_is_that_of_largest_likelihood():
    rng = np.random.default_rng(0)
    for labels in (rng.normal(size=300) ** 3, rng.gamma(2.0, size=300), -rng.gamma(5.0, size=300)):
        found = YeoJohnsonTransform.fit(labels)
        x = (labels - found.center) / found.scale
        best = np.clip(stats.yeojohnson_normmax(x), 0.0, 2.0)
        assert found.power == pytest.approx(best, abs=0.006)
        assert found.center == np.median(labels)


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_any_finite_value_has_a_finite_inverse(kind):
    transform = TRANSFORMS[kind].fit(np.array([1e-30, 1.0, 2.0, 1e30]))
    values = float64([-1e300, -1e9, 0.0, 1e9, 1e300])
    assert transform.inverse(values).isfinite().all()
    assert transform.forward(float64([torch.nan])).isnan().all()
    assert transform.inverse(float64([torch.nan])).isnan().all()


def model_with(*transforms, members=1):
    torch.manual_seed(0)
    tasks = (Task("y"), Task("c", "multiclass", ("u", "v", "w")), Task("z"))
    model = MolAttn(MolAttnConfig(tasks, SMALL, members=members)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("head.fourier.out.weight"):  # it begins with next to nothing
                weight.mul_(16)
    model.set_target_scaling([1.0, 0.0, 3.0], [0.5, 1.0, 2.0], transforms)
    return model


def test_only_a_lower_limit_of_a_logarithm_may_be_0():
    bounds = np.array([[[0.0, 0.0], [2.0, np.nan]], [[5.0, 5.0], [np.nan, 0.0]]])
    limits = limits_with_transform(bounds, (LogTransform(), IdentityTransform()))
    assert np.isnan(limits[0, 0, 0])
    limits[0, 0, 0] = 0.0
    np.testing.assert_array_equal(limits, bounds)


def test_the_model_transforms_then_standardizes_and_undoes_both():
    model = model_with(LogTransform(), IdentityTransform(), IdentityTransform(), members=3)
    labels = float64([[20.0, 1.0, -4.0], [torch.nan, 2.0, torch.nan]])
    np.testing.assert_allclose(
        model.scaling.scaled_labels(labels),
        [[(np.log(20.0) - 1.0) / 0.5, 1.0, -3.5], [np.nan, 2.0, np.nan]],
        rtol=1e-6,
    )
    with torch.no_grad():
        batch = model.collate([model.featurize(text) for text in SMILES])
        scaled = model.networks.member_outputs(batch).double().numpy()
    outputs = model.predictor.predict_outputs([model.featurize(text) for text in SMILES])
    np.testing.assert_allclose(outputs[..., 0], 0.5 * scaled[..., 0] + 1.0, rtol=1e-5)
    found = model.predict(SMILES)
    np.testing.assert_allclose(found[:, 0], np.exp(outputs[..., 0].mean(axis=0)))
    np.testing.assert_allclose(found[:, 4], outputs[..., 4].mean(axis=0))
    np.testing.assert_allclose(model.predict(SMILES, members=True)[..., 0], np.exp(outputs[..., 0]))
    with torch.no_grad():
        np.testing.assert_allclose(
            model.scaling.in_own_units(model.scaling.to_transformed(model(batch).double().numpy())),
            found,
            rtol=1e-5,
        )


def test_transforms_fit_the_tasks():
    config = MolAttnConfig((Task("y"), Task("b", "binary", ("no", "yes"))), SMALL)
    assert config.target_transforms == (IdentityTransform(), IdentityTransform())
    for wrong in ((LogTransform(),), (IdentityTransform(), LogTransform()), ({"kind": "cube"},)):
        with pytest.raises(InputError, match=r"target.transforms"):
            replace(config, target_transforms=wrong)
    for parameters in ({"power": 3.0}, {"power": 1.0, "scale": 0.0}, {"power": 1.0, "a": 0}):
        with pytest.raises(InputError):
            YeoJohnsonTransform(**parameters)


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_intervals_are_symmetric_on_the_transformed_scale(kind):
    rng = np.random.default_rng(0)
    transform = TRANSFORMS[kind].fit(rng.lognormal(size=3000))
    model = MolAttn(MolAttnConfig("y", SMALL, target_transforms=(transform,))).eval()
    known = ["C" * length for length in range(1, 31)]
    model.calibrate(known, rng.lognormal(size=(30, 1)), SMILES)
    ends = [transform.forward(torch.from_numpy(end)) for end in model.predict_interval(SMILES, 0.5)]
    middle = transform.forward(torch.from_numpy(model.predict(SMILES)))
    np.testing.assert_allclose(ends[0] + ends[1], 2 * middle, rtol=1e-4, atol=1e-4)
    assert (ends[0] < middle).all()
