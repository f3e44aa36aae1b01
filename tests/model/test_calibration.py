import math

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import betabinom
from sklearn.metrics import log_loss

from molattn.model.uncertainty import Calibration, ConformalScores, ProbabilityScaling
from molattn.task import Task

Y = Task("y")
BINARY = Task("b", "binary", ("no", "yes"))
SEVERAL = Task("c", "multiclass", ("x", "y", "z"))


def test_the_bound_is_the_score_of_the_rank_worked_by_hand():
    scores = ConformalScores.from_scores(np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 7.0, 8.0, 6.0]))
    # Of 9 scores: ceil(10 * 0.5) = 5, ceil(10 * 0.81) = 9, ceil(10 * 0.9) = 9, ceil(9.1) = 10.
    assert [scores.bound(level) for level in (0.01, 0.5, 0.81, 0.9)] == [1.0, 5.0, 9.0, 9.0]
    assert scores.bound(0.91) == math.inf


@pytest.mark.parametrize("count", [19, 99])
def test_a_level_that_is_a_whole_rank_takes_that_rank(count):
    scores = ConformalScores.from_scores(np.arange(1.0, count + 1.0))
    for rank in range(1, count + 1):
        assert scores.bound(rank / (count + 1)) == rank


def test_many_scores_are_kept_at_a_thousand_ranks_and_never_bound_too_little():
    many = np.random.default_rng(0).exponential(size=54_321)
    scores = ConformalScores.from_scores(many)
    assert len(scores.scores) == 1000
    ordered = np.sort(many)
    for level in np.linspace(0.001, 0.999, 333):
        rank = math.ceil(round((len(many) + 1) * level, 9))
        assert ordered[rank - 1] <= scores.bound(level) <= ordered[min(rank + 54, len(many) - 1)]
    assert ConformalScores.from_scores(many[:1000]).scores == tuple(np.sort(many[:1000]))


@pytest.mark.parametrize("count, level", [(19, 0.9), (112, 0.9), (60, 0.5)])
def test_coverage_of_exchangeable_errors_is_the_level(count, level):
    """Over many draws the mean and spread of the coverage are those of its known distribution."""
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(1000):
        # Errors that depend on the similarity in another way than the difficulty says.
        similarity = rng.uniform(size=count + 50)
        errors = rng.standard_t(3, count + 50) * (2.0 - similarity**3)
        prediction, target = np.zeros((count + 50, 1)), errors[:, None]
        found = Calibration.fit(
            [Y], prediction[:count], target[:count], similarity[:count, None], [1.5]
        )
        half = found.half_widths(similarity[count:, None], level)[:, 0]
        covered.append(np.mean(np.abs(errors[count:]) <= half))
    rank = math.ceil(round((count + 1) * level, 9))
    expected = betabinom(50, rank, count + 1 - rank)
    sd = expected.std() / 50
    assert abs(np.mean(covered) - expected.mean() / 50) < 4.0 * sd / np.sqrt(1000)
    assert expected.mean() / 50 >= level
    assert np.std(covered) == pytest.approx(sd, rel=0.1)
    scores = ConformalScores.from_scores(np.arange(float(count)))
    assert scores.expected_coverage(level, 50) == pytest.approx((expected.mean() / 50, sd))


def draw_classes(rng, count, sharpness, shift=0.0):
    """Logits [n, 3] that are too sharp or shifted, with labels of the true ones."""
    logits = rng.normal(scale=1.5, size=(count, 3))
    truth = softmax(logits, axis=1)
    labels = (truth.cumsum(axis=1) < rng.uniform(size=(count, 1))).sum(axis=1)
    return sharpness * logits + [shift, 0.0, 0.0], labels


@pytest.mark.parametrize("sharpness, shift", [(3.0, 0.0), (0.4, 0.0), (1.0, 2.0), (2.5, -1.0)])
def test_wrong_confidence_is_mended(sharpness, shift):
    rng = np.random.default_rng(1)
    scaling = ProbabilityScaling.fit(*draw_classes(rng, 400, sharpness, shift))
    fresh, labels = draw_classes(rng, 4000, sharpness, shift)
    true_nll = log_loss(labels, softmax((fresh - [shift, 0.0, 0.0]) / sharpness, axis=1))
    before, after = log_loss(labels, softmax(fresh, axis=1)), log_loss(labels, scaling(fresh))
    assert after < before - 0.04
    assert after < true_nll + 0.01
    assert scaling.scale == pytest.approx(1.0 / sharpness, rel=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_the_likelihood_of_its_own_labels_never_falls(seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(scale=4.0, size=(31, 4)), rng.integers(0, 4, 31)
    given, after = softmax(logits, axis=1), ProbabilityScaling.fit(logits, labels)(logits)
    np.testing.assert_allclose(after.sum(axis=1), 1.0)
    assert log_loss(labels, after, labels=range(4)) <= log_loss(labels, given, labels=range(4))


def test_a_scaling_that_does_not_help_other_rows_is_not_applied():
    rng = np.random.default_rng(3)
    right, labels = draw_classes(rng, 60, 1.0)
    given = Calibration.fit([SEVERAL], right, labels[:, None], np.zeros((60, 1)), [1.0])
    np.testing.assert_allclose(given.calibrated(right), softmax(right, axis=1))
    assert "less likely" in given.lines(0.9)[0]
    wrong, labels = draw_classes(rng, 60, 5.0)
    mended = Calibration.fit([SEVERAL], wrong, labels[:, None], np.zeros((60, 1)), [1.0])
    fresh, labels = draw_classes(rng, 2000, 5.0)
    assert log_loss(labels, mended.calibrated(fresh)) < log_loss(labels, softmax(fresh, axis=1))


@pytest.mark.parametrize(
    "labels, reason",
    [
        ([0.0, 1.0] * 14, "28 labels, at least 30 needed"),
        ([1.0] * 40, "all labels are of one class"),
        ([np.nan] * 40, "0 labels"),
    ],
)
def test_few_labels_calibrate_no_probability_and_say_so(labels, reason):
    given = np.random.default_rng(0).normal(size=(len(labels), 1))
    targets, similarity = np.array(labels)[:, None], np.zeros((len(labels), 1))
    found = Calibration.fit([BINARY], given, targets, similarity, [0.5])
    np.testing.assert_allclose(found.calibrated(given), expit(given))
    assert reason in found.lines(0.9)[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_without_a_finite_prediction_are_not_calibrated_with(bad):
    rng = np.random.default_rng(1)
    several, labels = draw_classes(rng, 90, 2.0)
    outputs = np.hstack([rng.normal(size=(90, 2)), several])
    targets = np.column_stack([rng.normal(size=90), labels == 0, labels])
    similarity, tasks = rng.uniform(size=(90, 3)), [Y, BINARY, SEVERAL]
    rows, damaged = np.arange(90) >= 5, outputs.copy()
    damaged[~rows, 0] = bad
    damaged[~rows, 1] = bad
    damaged[~rows, 3] = bad  # one logit of three
    guesses = [1.0, 0.5, 2 / 3]
    found = Calibration.fit(tasks, damaged, targets, similarity, guesses)
    whole = Calibration.fit(tasks, outputs[rows], targets[rows], similarity[rows], guesses)
    assert found == whole
    known = targets.copy()
    known[~rows] = np.nan
    assert found == Calibration.fit(tasks, outputs, known, similarity, guesses)
    assert np.isfinite(found.calibrated(damaged)[rows]).all()
