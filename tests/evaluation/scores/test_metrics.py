import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from molattn.evaluation import score_tasks
from molattn.evaluation.scores.metrics import metrics_of, replaced_lines, resamplings
from molattn.task import Task

Y = Task("y")
B = Task("b", "binary", ("no", "yes"))
C = Task("c", "multiclass", ("red", "green", "blue"))
seeds = st.integers(0, 100_000)


def one(task, prediction, target, **options):
    """Scores of one task."""
    prediction = np.asarray(prediction, dtype=float)
    prediction = prediction[:, None] if prediction.ndim == 1 else prediction
    target = np.asarray(target, dtype=float)[:, None]
    return score_tasks(prediction, target, [task], **options).tasks[task.name]


@given(seeds, st.integers(3, 40), st.booleans())
def test_scores_of_numbers_are_those_of_scikit_learn_and_scipy(seed, rows, has_ties):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=rows)
    guess = (truth + rng.normal(size=rows)).round(4)  # as written in tables
    if has_ties:
        truth, guess = truth.round(), guess.round()
        truth[:2] = 0, 1
        guess[:2] = 1, 2
    scores = one(Y, guess, truth)
    assert scores["count"] == rows
    assert scores["rmse"] == pytest.approx(sk.root_mean_squared_error(truth, guess))
    assert scores["mae"] == pytest.approx(sk.mean_absolute_error(truth, guess))
    assert scores["r2"] == pytest.approx(sk.r2_score(truth, guess))
    assert scores["spearman"] == pytest.approx(stats.spearmanr(truth, guess).statistic)


@given(seeds, st.integers(3, 40))
def test_logarithms_are_scored_on_log10_and_as_ratios(seed, rows):
    rng = np.random.default_rng(seed)
    truth = 10.0 ** rng.normal(1.0, 1.0, rows)
    guess = truth * 10.0 ** rng.normal(0.0, 0.5, rows)
    guess[0] = truth[0] * 2.0
    guess[1:2] = -3.0  # of a model without logarithm
    scores = one(Y, guess, truth, logarithms=["y"])
    assert scores["rmse"] == pytest.approx(sk.root_mean_squared_error(truth, guess))
    positive = np.where(guess > 0.0, guess, truth.min() / 2.0)
    logs = np.log10(truth), np.log10(positive)
    assert scores["log10_rmse"] == pytest.approx(sk.root_mean_squared_error(*logs))
    assert scores["log10_mae"] == pytest.approx(sk.mean_absolute_error(*logs))
    assert scores["log10_r2"] == pytest.approx(sk.r2_score(*logs))
    folds = np.maximum(truth / positive, positive / truth)
    assert scores["median_fold_error"] == pytest.approx(np.median(folds))
    assert scores["within_2_fold"] == pytest.approx(np.mean(folds <= 2.0 + 1e-6))
    assert scores["within_3_fold"] == pytest.approx(np.mean(folds <= 3.0))
    assert "log10_rmse" not in one(Y, guess, truth)


def test_predictions_without_logarithm_are_counted_and_labels_count_likewise():
    target, nan = np.array([[4.0], [0.0], [np.nan], [8.0]]), np.nan
    guess = np.array([[4.0], [1.0], [-1.0], [-2.0]])
    bounds = np.array([[[nan], [nan], [2.0], [nan]], [[nan]] * 4])
    options = {"logarithms": ["y"], "bounds": bounds}
    scores = score_tasks(guess, target, [Y], **options).tasks["y"]
    # Half of the smallest label, which is the limit of >2: 1.
    assert scores["log10_mae"] == pytest.approx(np.mean([0.0, 0.0, np.log10(8.0)]))
    assert scores["log10_censored_rmse"] == pytest.approx(np.log10(2.0))
    (line,) = replaced_lines(guess, target, [Y], model="the forest", **options)
    assert line.startswith("'y': 2 predictions of the forest not above 0, counted as half")
    assert replaced_lines(guess, target, [Y], model="", logarithms=[], bounds=bounds) == []


def test_a_censored_label_has_no_error_on_the_right_side_and_else_the_distance_to_its_limit():
    nan = np.nan
    target = np.array([[5.0], [nan], [nan], [nan], [nan]])
    bounds = np.array([[nan, 100.0, 100.0, nan, nan], [nan, nan, nan, 1.0, nan]])[:, :, None]
    guess = np.array([[5.0], [1000.0], [10.0], [4.0], [3.0]])
    scores = score_tasks(guess, target, [Y], bounds=bounds, logarithms=["y"], resamples=50)
    found = scores.tasks["y"]
    assert found["count"] == 1
    assert (found["rmse"], found["log10_rmse"]) == (0.0, 0.0)  # of the measured label alone
    assert found["censored_permitted"] == pytest.approx(1 / 3)
    assert found["censored_rmse"] == pytest.approx(np.sqrt((90.0**2 + 3.0**2) / 3))
    logs = np.array([0.0, 1.0, np.log10(4.0)])
    assert found["log10_censored_rmse"] == pytest.approx(np.sqrt(np.mean(logs**2)))
    low, high = found["intervals"]["censored_permitted"]
    assert 0.0 <= low < 1 / 3 < high <= 1.0
    assert "censored_permitted" not in one(Y, guess[:, 0], [5.0] * 5)


def test_a_lower_limit_of_0_permits_all_logarithms():
    bounds = np.array([[[0.0], [1.0]], [[10.0], [4.0]]])
    scores = one(Y, [0.35, 2.0], [5.0, 2.0], bounds=bounds, logarithms=["y"])
    assert scores["interval_mae"] == scores["log10_interval_mae"] == 0.0


@given(seeds, st.integers(3, 30), st.booleans())
def test_distances_to_intervals_are_scored_by_hand(seed, rows, is_log):
    rng = np.random.default_rng(seed)
    nan = np.nan
    target = rng.uniform(1.0, 9.0, rows)
    bounds = target + np.array([[-0.9], [0.9]]) * rng.uniform(0.1, 1.0, (2, rows))
    kinds = rng.integers(0, 4, rows)  # intervals, measured, >, <
    kinds[:2] = 0, 1
    guess = rng.uniform(0.1, 10.0, rows)
    scale = np.log10 if is_log else np.asarray
    ends = []
    for row, kind in enumerate(kinds):
        low, high = bounds[:, row]
        ends.append([(low, high), (target[row],) * 2, (low, np.inf), (-np.inf, high)][kind])
        if kind:
            bounds[0 if kind != 2 else 1, row] = nan
        if kind == 1:
            bounds[1, row] = nan
        if kind > 1:
            target[row] = nan

    def distance(values):
        with np.errstate(invalid="ignore"):
            pairs = [
                [scale(np.clip(v, *end)), scale(v)] for v, end in zip(values, ends, strict=True)
            ]
        return np.mean([abs(nearest - value) for nearest, value in pairs])

    mean = np.nanmean(scale(target))
    mean = np.full(rows, 10.0**mean if is_log else mean)
    scores = one(Y, guess, target, bounds=bounds[:, :, None], logarithms=["y"], resamples=20)
    prefix = "log10_" * is_log
    assert scores[f"{prefix}interval_mae"] == pytest.approx(distance(guess), abs=1e-12)
    if (of_mean := distance(mean)) > 1e-9:
        assert scores[f"{prefix}st_rae"] == pytest.approx(distance(guess) / of_mean)
    assert "st_rae" not in one(Y, guess, target)
    relations = bounds[:, :, None] * np.where(kinds > 1, 1.0, nan)[:, None]
    assert "st_rae" not in one(Y, guess, target, bounds=relations)


@given(seeds, st.integers(4, 60), st.booleans())
def test_scores_of_two_classes_are_those_of_scikit_learn_and_torchmetrics(seed, rows, has_ties):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, rows)
    guess = rng.random(rows)
    if has_ties:
        guess = guess.round(1)
    truth[:2], guess[:2] = (0, 1), (0.2, 0.9)
    scores = one(B, guess, truth)
    label = guess > 0.5
    assert scores["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, guess))
    assert scores["pr_auc"] == pytest.approx(sk.average_precision_score(truth, guess))
    assert scores["mcc"] == pytest.approx(sk.matthews_corrcoef(truth, label))
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(truth, label))
    assert scores["brier"] == pytest.approx(sk.brier_score_loss(truth, guess))
    assert scores["nll"] == pytest.approx(sk.log_loss(truth, guess))
    if not has_ties:  # else predictions on the edge of a bin, where torchmetrics rounds
        error = binary_calibration_error(torch.tensor(guess), torch.tensor(truth), n_bins=10)
        assert scores["ece"] == pytest.approx(error.item(), abs=1e-6)


@given(seeds, st.integers(5, 60))
def test_scores_of_several_classes_are_those_of_scikit_learn_and_torchmetrics(seed, rows):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, rows)
    truth[:3] = 0, 1, 2
    guess = rng.dirichlet(np.ones(3), rows)
    guess[:3] = np.eye(3) * 0.8 + 0.2 / 3
    scores = one(C, guess, truth)
    label, hot = guess.argmax(axis=1), np.eye(3)[truth]
    assert scores["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, guess, multi_class="ovr"))
    assert scores["pr_auc"] == pytest.approx(sk.average_precision_score(hot, guess))
    assert scores["mcc"] == pytest.approx(sk.matthews_corrcoef(truth, label))
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(truth, label))
    assert scores["brier"] == pytest.approx(((guess - hot) ** 2).sum(axis=1).mean())
    assert scores["nll"] == pytest.approx(sk.log_loss(truth, guess, labels=range(3)))
    error = multiclass_calibration_error(
        torch.tensor(guess), torch.tensor(truth), num_classes=3, n_bins=10
    )
    assert scores["ece"] == pytest.approx(error.item(), abs=1e-6)


KINDS = ["regression", "fold", "censored", "interval", "binary", "multiclass"]


@given(seeds, st.sampled_from(KINDS))
def test_a_weighted_score_is_that_of_repeated_rows(seed, kind):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, 12)
    guess = rng.dirichlet(np.ones(3), 12).round(2)
    is_class = kind in ("binary", "multiclass")
    truth = rng.integers(0, 2, 12) * 1.0 if is_class else rng.normal(size=12).round(1)
    guess = guess if kind == "multiclass" else guess[:, 0]
    if kind == "interval":
        truth = np.column_stack([truth, truth - 0.2, truth + 0.1])
    repeated = np.repeat(np.arange(12), counts)
    for metric in metrics_of(kind).values():
        with np.errstate(all="ignore"):
            (weighted,) = metric.function(truth, guess, counts[None].astype(float))
            if len(repeated):
                ones = np.ones((1, len(repeated)))
                (plain,) = metric.function(truth[repeated], guess[repeated], ones)
                np.testing.assert_allclose(weighted, plain, rtol=1e-7, atol=1e-9)
            else:
                assert np.isnan(weighted)


def test_undefined_scores_are_none():
    none = one(Y, [1.0, 2.0], [np.nan, np.nan])
    assert none["count"] == 0
    assert [none[key] for key in metrics_of("regression")] == [None] * 4
    single = one(Y, [1.0], [3.0])
    assert (single["rmse"], single["mae"], single["r2"], single["spearman"]) == (2, 2, None, None)
    constant = one(Y, [1.0, 2.0, 3.0], [0.1 + 0.2] * 3)
    assert constant["r2"] is constant["spearman"] is None
    flat = one(Y, [0.3, 0.3, 0.3], [1.0, 2.0, 3.0])
    assert [key for key in metrics_of("regression") if flat[key] is None] == ["spearman"]
    one_class = one(B, [0.2, 0.7], [1, 1])
    assert one_class["brier"] == pytest.approx((0.64 + 0.09) / 2)
    assert one_class["roc_auc"] is one_class["pr_auc"] is one_class["mcc"] is None
    sure = one(B, [0.7, 0.8], [0, 1])
    assert (sure["roc_auc"], sure["mcc"]) == (1.0, None)


def test_missing_labels_and_several_tasks():
    nan = np.nan
    tasks = [Y, C, Task("z")]
    target = np.array([[1.0, 0, 4.0], [2.0, nan, nan], [nan, 2, 6.0], [4.0, 1, 9.0]])
    guess = np.array(
        [
            [1.5, 0.8, 0.1, 0.1, 4.0],
            [2.0, 0.1, 0.8, 0.1, 5.0],
            [9.0, 0.1, 0.1, 0.8, 7.0],
            [3.0, 0.1, 0.8, 0.1, 8.0],
        ]
    )
    scores = score_tasks(guess, target, tasks, resamples=50)
    assert [scores.tasks[name]["count"] for name in "ycz"] == [3, 3, 3]
    assert scores.tasks["y"]["mae"] == pytest.approx(0.5)
    assert scores.tasks["c"]["accuracy"] == 1.0
    assert scores.tasks["z"]["mae"] == pytest.approx(2 / 3)
    assert scores.mean["count"] == 9
    assert scores.mean["mae"] == pytest.approx((0.5 + 2 / 3) / 2)
    assert scores.mean["accuracy"] == 1.0


def test_intervals_are_those_of_a_bootstrap_by_hand():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=80)
    guess = truth + rng.normal(size=80)
    scores = one(Y, guess, truth, resamples=2000, seed=3)
    drawn = rng.integers(0, 80, (2000, 80))
    by_hand = {
        "rmse": [sk.root_mean_squared_error(truth[rows], guess[rows]) for rows in drawn],
        "spearman": [stats.spearmanr(truth[rows], guess[rows]).statistic for rows in drawn],
    }
    for key, values in by_hand.items():
        low, high = scores["intervals"][key]
        assert low < scores[key] < high
        # Two draws of 2,000 agree to a few hundredths of the interval.
        np.testing.assert_allclose(
            [low, high], np.percentile(values, [2.5, 97.5]), atol=0.12 * (high - low)
        )


def test_intervals_follow_from_the_seed_and_cover_the_mean_of_tasks():
    rng = np.random.default_rng(2)
    target = rng.integers(0, 2, (60, 2)).astype(float)
    target[rng.random(target.shape) < 0.2] = np.nan
    guess = np.clip(0.3 * np.nan_to_num(target) + rng.random((60, 2)) * 0.7, 0, 1)
    tasks = [B, Task("d", "binary", ("no", "yes"))]
    first, same, other = (
        score_tasks(guess, target, tasks, resamples=200, seed=seed) for seed in (5, 5, 6)
    )
    assert first == same
    assert first.mean["intervals"] != other.mean["intervals"]
    width = {}
    for name, scores in (*first.tasks.items(), ("mean", first.mean)):
        low, high = scores["intervals"]["roc_auc"]
        assert low < scores["roc_auc"] < high
        width[name] = high - low
    assert width["mean"] < max(width["b"], width["d"])


def test_an_interval_of_what_is_mostly_undefined_is_none():
    scores = one(B, [0.1, 0.2, 0.3, 0.9], [0, 0, 0, 1], resamples=300)
    assert scores["roc_auc"] == 1.0
    assert scores["intervals"]["roc_auc"] == [1.0, 1.0]
    lone = one(Y, [1.0], [2.0], resamples=20)
    assert lone["intervals"] == dict.fromkeys(lone["intervals"])
    assert "rmse" in lone["intervals"]
    both = score_tasks(
        np.ones((3, 2)),
        np.array([[1.0, 2.0], [3.0, np.nan], [5.0, np.nan]]),
        [Y, Task("z")],
        resamples=20,
    )
    assert both.tasks["z"]["intervals"]["rmse"] is None
    assert both.mean["intervals"]["rmse"] is not None


def test_r2_is_known_of_a_sample_without_the_outlier():
    rng = np.random.default_rng(0)
    target = np.append(rng.normal(size=60), 3e6)
    guess = target + rng.normal(size=61) * 0.7
    found = one(Y, guess, target, resamples=400)
    values = []
    for _ in range(400):
        drawn = rng.integers(0, 61, 61)
        values.append(sk.r2_score(target[drawn], guess[drawn]))
    low, high = found["intervals"]["r2"]
    assert low == pytest.approx(np.percentile(values, 2.5), abs=0.15)
    assert high == pytest.approx(1.0)
    assert one(Y, [1.0, 2.0], [3e6, 3e6], resamples=20)["r2"] is None


def test_predictions_that_differ_by_rounding_are_ties():
    target = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    prediction = np.array([0.3, 0.3 - 1e-9, 0.3 - 2e-9, 1e-9, 5e3])
    written = np.array([float(f"{value:.7g}") for value in prediction])
    for task, functions in (
        (
            Task("c", "binary", ("0", "1")),
            {"roc_auc": sk.roc_auc_score, "pr_auc": sk.average_precision_score},
        ),
        (Task("y"), {"spearman": lambda y, p: stats.spearmanr(y, p).statistic}),
    ):
        found = score_tasks(prediction[:, None], target[:, None], [task]).tasks[task.name]
        for name, function in functions.items():
            assert found[name] == pytest.approx(function(target, written))
            assert function(target, written) != pytest.approx(function(target, prediction))


def test_groups_with_gaps_are_drawn_as_a_whole():
    (weights,) = resamplings(4, 10, groups=np.array([1, 1, 3, 3]))
    np.testing.assert_array_equal(weights[:, [0, 2]], weights[:, [1, 3]])
    assert (weights[:, [0, 2]].sum(axis=1) == 2).all()
