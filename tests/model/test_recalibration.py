import numpy as np
import pytest
import torch

from molattn.model.recalibration import (
    Combination,
    recalibrated_probabilities,
    recalibrated_scores,
)
from molattn.model.uncertainty import ConformalScores, ProbabilityScaling, Uncalibrated

RNG = np.random.default_rng(0)
ROWS = 60
NETWORK, PROCESS = RNG.normal(size=(2, ROWS))
NOISE = 0.1 * RNG.normal(size=ROWS)
FORMER = Combination(0.5)
SCORES = ConformalScores.from_scores(np.linspace(0.01, 0.99, 99), near=0.3)
SIMILARITY = RNG.uniform(0.2, 0.9, ROWS)
USUAL = 0.3 ** (SIMILARITY - 1.0)


def test_a_combination_that_fits_stays():
    labels = FORMER(NETWORK, PROCESS) + NOISE
    assert FORMER.fit_validated(NETWORK, PROCESS, labels) == FORMER


def test_a_location_is_recovered_but_for_its_prior():
    labels = FORMER(NETWORK, PROCESS) + NOISE + 1.0
    latter = FORMER.fit_validated(NETWORK, PROCESS, labels)
    assert (latter.weight, latter.scale) == (0.5, 1.0)
    assert latter.location == pytest.approx((1.0 + NOISE.mean()) * ROWS / (ROWS + 5))
    assert "multiplied by 1, moved by +0.9" in latter.changes(FORMER)


def test_scale_and_weight_are_recovered():
    wide = 3.0 * NETWORK
    labels = 1.5 + 2.0 * wide + NOISE
    latter = Combination(0.0).fit_validated(wide, wide, labels)
    assert latter.scale == pytest.approx(2.0, abs=0.1)
    latter = FORMER.fit_validated(NETWORK, PROCESS, PROCESS + NOISE)
    assert 0.8 < latter.weight < 1.0
    assert latter.location == pytest.approx(0.0, abs=0.05)


def test_a_weight_beside_a_location_does_not_make_up_for_it():
    process = PROCESS + 2.0
    labels = FORMER(NETWORK, process) + NOISE + 4.0
    fitted = FORMER.fit(NETWORK, process, labels, {"weight", "location"})
    assert fitted.weight == pytest.approx(0.5, abs=0.02)


def test_a_weight_stays_where_network_and_process_agree():
    assert FORMER.fit(NETWORK, NETWORK, NETWORK + 1.0, {"weight"}).weight == FORMER.weight


def test_a_process_that_is_alone_keeps_its_weight():
    latter = Combination(1.0).fit_validated(NETWORK, PROCESS, NETWORK)
    assert latter.weight == 1.0


def test_intervals_follow_errors_that_are_not_the_expected_ones():
    usual = USUAL * RNG.permutation(np.linspace(0.01, 0.99, ROWS))
    assert recalibrated_scores(SCORES, usual, SIMILARITY, 1.0) == SCORES
    wider = recalibrated_scores(SCORES, 3.0 * usual, SIMILARITY, 1.0)
    factor = (3.0 * ROWS + 5) / (ROWS + 5)
    assert wider.bound(0.9) / SCORES.bound(0.9) == pytest.approx(factor)
    assert (wider.count, wider.near) == (SCORES.count, SCORES.near)
    few = ConformalScores.from_scores(np.ones(3))
    assert recalibrated_scores(few, usual, SIMILARITY, 1.0).count == ROWS


def test_probabilities_are_calibrated_on_top_of_the_former_calibration():
    logits = np.column_stack([np.zeros(200), 2.0 * RNG.normal(size=200)])
    former = ProbabilityScaling(2.0, (0.5, -0.5))
    labels = (RNG.random(200) < former(logits)[:, 1]).astype(int)
    latter = recalibrated_probabilities(former, logits, 1 - labels)
    assert isinstance(latter, ProbabilityScaling)
    calibrated = former.logits(torch.from_numpy(logits)).numpy()
    expected = ProbabilityScaling.fit(calibrated, 1 - labels)(calibrated)
    np.testing.assert_allclose(latter(logits), expected)
    few = Uncalibrated("few labels")
    assert recalibrated_probabilities(few, logits[:20], labels[:20]) == few
    assert recalibrated_probabilities(former, logits, np.zeros(200, dtype=int)) == former
