import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molattn.config import NetworkConfig
from molattn.model.label_limits import largest_errors, mean_within, nearest_permitted
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.model.target_transform import IdentityTransform, LogTransform
from molattn.model.uncertainty import Calibration
from molattn.task import Task

NAN = np.nan
numbers = st.floats(-1e6, 1e6)
SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)


@given(numbers, numbers, st.floats(0, 1e3), st.booleans())
def test_nearest_and_largest_distance_are_those_to_all_permitted_values(value, low, width, single):
    high = low + width
    permitted = np.linspace(low, high, 201)
    kind = np.float32 if single else np.float64
    bounds = np.array([[low], [high]], dtype=kind)
    values = np.array([value], dtype=kind)
    (nearest,) = nearest_permitted(values, bounds)
    assert nearest_permitted(torch.tensor(values), torch.tensor(bounds)).item() == nearest
    tolerance = max(1e-9, width / 200) + 0.2 * single
    assert abs(abs(nearest - value) - np.abs(permitted - value).min()) <= tolerance
    (largest,) = largest_errors(values, bounds.mean(axis=0), bounds)
    assert largest == pytest.approx(np.abs(permitted - value).max(), rel=1e-6, abs=0.2 * single)


@given(numbers, numbers)
def test_an_open_side_is_a_censored_label_and_no_width_a_measured_one(value, label):
    values = np.array([value])
    for bounds, infinite in (
        ([[NAN], [label]], [[-np.inf], [label]]),
        ([[label], [NAN]], [[label], [np.inf]]),
    ):
        nearest = nearest_permitted(values, np.array(bounds))
        np.testing.assert_array_equal(nearest, nearest_permitted(values, np.array(infinite)))
        assert np.isnan(largest_errors(values, np.array([NAN]), np.array(bounds))).all()
    exact = np.array([[label], [label]])
    assert nearest_permitted(values, exact) == label
    error = np.abs(values - label)
    for bounds in (exact, np.full((2, 1), NAN), None):
        np.testing.assert_array_equal(largest_errors(values, np.array([label]), bounds), error)
    for width in (1e-3, 1e-6):
        bounds = exact + np.array([[-width], [width]])
        assert abs(nearest_permitted(values, bounds) - label) <= 1.01 * width
        assert abs(largest_errors(values, np.array([label]), bounds) - error) <= 1.01 * width


@given(st.floats(-20, 20), st.floats(-6, 6), st.floats(-6, 3), st.sampled_from([0, 1, 2]))
def test_the_mean_within_limits_is_an_integral(mean, log_width, start, opened):
    std = 1.5
    ends = np.array([start, start + 10.0**log_width]) * std
    bounds = ends.copy()
    if opened < 2:
        bounds[opened] = NAN
        sign = (-1, 1)[opened]
        ends[opened] = ends[1 - opened] + sign * (60.0 + 2.0 * abs(mean - ends[1 - opened]))
    values = np.linspace(*ends, 400_001)
    logs = -0.5 * ((values - mean) / std) ** 2
    weights = np.exp(logs - logs.max())
    weights[[0, -1]] *= 0.5
    expected = values @ weights / weights.sum()
    (found,) = mean_within(bounds[:, None], np.array([mean]), np.array([std]))
    step = values[1] - values[0]
    assert found == pytest.approx(expected, rel=1e-6, abs=max(1e-6, 2.0 * step))
    assert found == nearest_permitted(np.array([found]), bounds[:, None])


def test_intervals_of_predictions_contain_whole_intervals_of_labels():
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(40, 1))
    bounds = labels + rng.uniform(0, 1, (2, 40, 1)) * np.array([-1, 1])[:, None, None]
    bounds[:, :10] = NAN  # measured values
    bounds[0, 10:20], labels[10:20] = NAN, NAN  # censored ones, which are left out
    predicted = rng.normal(size=(40, 1))
    similarity = rng.uniform(size=(40, 1))
    parts = [Task("y")], predicted, labels, similarity, [0.8], bounds
    calibration = Calibration.fit(*parts)
    expected = []
    for value, label, low, high in zip(*np.hstack([predicted, labels, *bounds]).T, strict=True):
        ends = [label] if np.isnan(high) else [low, high]
        expected.append(max(abs(end - value) for end in ends))
    (part,) = calibration.parts
    assert part.count == 30
    assert (
        part
        == Calibration.fit(
            [Task("y")], np.zeros((40, 1)), np.array(expected)[:, None], similarity, [0.8]
        ).parts[0]
    )
    half = calibration.half_widths(similarity, 0.8) * (1.0 + 1e-9)
    is_within = (predicted - half <= bounds) & (bounds <= predicted + half) | np.isnan(bounds)
    is_within &= (np.abs(predicted - labels) <= half) | np.isnan(labels)
    assert is_within.all(axis=0)[np.r_[:10, 20:40]].sum() == 25  # ceil(31 * 0.8)


def test_labels_are_weighted_by_their_standard_errors_on_the_learned_scale():
    torch.manual_seed(0)
    tasks = (Task("y"), Task("z"), Task("b", "binary", ("no", "yes")))
    transforms = LogTransform(), IdentityTransform(), IdentityTransform()
    model = MolAttn(MolAttnConfig(tasks, SMALL))
    model.set_target_scaling([0.0, 0.0, 0.0], [2.0, 5.0, 1.0], transforms)
    targets = np.array([[1.0, 1.0, 0.0], [10.0, 2.0, 1.0], [100.0, NAN, 1.0], [NAN, 4.0, NAN]])
    stds = np.array([[0.5, 5.0, NAN], [5.0, NAN, NAN], [0.0, 1.0, NAN], [1.0, 0.0, NAN]])
    rows = np.array([1.0, 2.0, 0.0, 1.0])
    # d log(y) = dy / y; an error that is unknown is the median.
    errors = np.array([[0.25, 1.0], [0.25, 0.2], [0.0, 0.2], [0.25, 0.0]])
    errors[[1, 2], 1] = np.median([1.0, 0.0])
    expected = 1.0 / (0.25 + errors**2)
    expected = np.column_stack([expected / expected.mean(axis=0), np.ones(4)])
    weights = model.scaling.label_weights(targets, stds, None)
    np.testing.assert_allclose(weights[:, [0, 2]], expected[:, [0, 2]])
    np.testing.assert_allclose(
        model.scaling.label_weights(targets, stds, rows), weights * rows[:, None]
    )
    means = np.array([2.0, NAN, NAN])  # of other labels
    relative = model.scaling.label_weights(targets, stds, None, means)
    np.testing.assert_allclose(relative[:, 0], 1.0 / (0.25 + errors[:, 0] ** 2) / 2.0)
    np.testing.assert_array_equal(relative[:, 1:], weights[:, 1:])
    assert model.scaling.label_weights(targets, None, rows) is rows
    assert model.scaling.label_weights(targets, None, None) is None
