"""Scaling of targets and extra features, and the choice of a target's transform."""

import numpy as np
import pytest
from scipy import stats

from molattn.model.target_transform import LogTransform, YeoJohnsonTransform
from molattn.record import MoleculeRecord
from molattn.task import Task
from molattn.training.scaling import (
    number_scaling,
    select_transform,
    target_scaling,
    target_transforms,
)

NAN = np.nan


def draw(count=400, seed=0):
    return np.random.default_rng(seed).normal(size=count)


def test_scaling_is_that_of_the_known_labels():
    targets = np.array([[1.0, 7.1, 0.1, 1.0], [3.0, NAN, 0.1, 0.0], [NAN, 7.1, 0.1, 2.0]])
    classes = Task("d", "multiclass", ("x", "y", "z"))
    mean, scale = target_scaling(targets, [Task("a"), Task("b"), Task("c"), classes])
    np.testing.assert_allclose(mean, [2.0, 7.1, 0.1, 0.0])
    np.testing.assert_allclose(scale, [1.0, 1.0, 1.0, 1.0])


def test_features_are_scaled_in_blocks_and_constant_ones_ignored(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.normal(300.0, 2.0, (23, 3)).astype(np.float32)
    values[:, 2] = NAN
    features = np.column_stack([rng.normal(size=23), np.full(23, 0.1)])
    codes = np.zeros((1, 1), dtype=np.uint8)
    partner = MoleculeRecord(codes, codes, np.ones(1, dtype=np.float32))
    records = [MoleculeRecord(codes, codes, row, partner) for row in values]
    monkeypatch.setattr("molattn.training.scaling._ROWS_AT_ONCE", 5)
    mean, scale = number_scaling(records, features)
    columns = np.column_stack([features[:, 0], values[:, :2]])
    np.testing.assert_allclose(mean[[0, 2, 3]], columns.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(scale[[0, 2, 3]], columns.std(axis=0), rtol=1e-6)
    assert np.abs((np.array([-1e6, 0.0, 1e20]) - mean[[1, 4, 5]]) / scale[[1, 4, 5]]).max() < 1e-6


@pytest.mark.parametrize(
    "labels, kind",
    [
        (1e9 + draw(), "none"),
        (1e-9 * np.exp(draw()), "log"),
        (np.maximum(0.0, np.exp(draw()) - 0.5), "yeo_johnson"),
        (-np.exp(draw()), "yeo_johnson"),
        (np.where(draw(seed=1) > 1, NAN, np.exp(draw())), "log"),
        (np.full(50, 0.1), "none"),
        (np.array([1.0, 1000.0]), "none"),
        (np.full(50, NAN), "none"),
        (np.append(np.zeros(49), 1e30), "yeo_johnson"),
        (1e-300 * np.arange(50), "none"),
    ],
)
def test_the_transform_follows_from_the_labels(labels, kind):
    assert select_transform(labels)[0].kind == kind


def test_log_likelihoods_are_those_of_scipy():
    labels = np.exp(draw() + 1.0)
    chosen, found = select_transform(np.insert(labels, [0, 7, len(labels)], NAN))
    assert chosen == LogTransform()
    logs = np.log(labels)
    expected = {
        "none": stats.norm.logpdf(labels, labels.mean(), labels.std()).sum(),
        "log": stats.lognorm.logpdf(labels, logs.std(), scale=np.exp(logs.mean())).sum(),
    }
    assert {kind: found[kind] for kind in expected} == pytest.approx(expected)
    transform = YeoJohnsonTransform.fit(labels)
    x = (labels - transform.center) / transform.scale
    concentrated = stats.yeojohnson_llf(transform.power, x)
    constant = -0.5 * len(x) * (1.0 + np.log(2.0 * np.pi)) - len(x) * np.log(transform.scale)
    assert found["yeo_johnson"] == pytest.approx(concentrated + constant)


def test_a_small_gain_changes_nothing():
    gains = {"none": [], "yeo_johnson": []}
    for skew in np.linspace(0.1, 0.8, 29):
        chosen, found = select_transform(np.expm1(skew * draw()) - 0.3)
        gains[chosen.kind].append(found["yeo_johnson"] - found["none"])
    assert max(gains["none"]) <= 2.0 + 0.1 * 400 < min(gains["yeo_johnson"])


def test_validation_labels_and_bounds_without_a_logarithm_exclude_log():
    tasks, labels = (Task("y"), Task("b", "binary", ("no", "yes"))), np.exp(draw())
    training = np.column_stack([labels, labels > 1])
    for least, kind in ((0.0, "yeo_johnson"), (0.1, "log"), (NAN, "log")):
        others = np.array([[1.0, 1.0], [least, 0.0]])
        found, (line,) = target_transforms(tasks, ("auto",), training, others)
        assert [one.kind for one in found] == [kind, "none"]
        assert line.startswith(f"'y': {kind} transform")
    found, _ = target_transforms(tasks, ("log", "auto"), training, others)
    assert [one.kind for one in found] == ["log", "none"]
