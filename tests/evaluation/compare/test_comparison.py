"""Runs on the same test rows: their tests against NumPy by hand, what is refused, and the page."""

import json
import shutil
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import ttest_rel

import molattn
from molattn.cli import main
from molattn.config import TrainConfig
from molattn.errors import InputError
from molattn.evaluation.compare.comparison import tukey_hsd
from molattn.evaluation.compare.run_list import list_runs

from ...conftest import assert_fits_and_can_be_read, rows_of

pytestmark = pytest.mark.usefixtures("without_figures")

SMILES = [
    f"{'C' * (n % 9 + 1)}{end}" for n in range(9) for end in ("O", "N", "c1ccccc1", "C1CCCC1")
]
LABELS = np.linspace(-3.0, 4.0, len(SMILES))
RNG = np.random.default_rng(5)
NOISE = RNG.normal(size=(3, len(SMILES)))


def saved_run(folder, *, predictions, labels=LABELS, rounds=None, kind="regression", **options):
    """Write what a comparison reads of a run."""
    classes = ("no", "yes") if kind == "binary" else ()
    cells = np.array(classes)[labels.astype(int)] if classes else labels
    output = "y_probability_yes" if classes else "y_predicted"
    frame = pd.DataFrame({"smiles": SMILES, "y": cells, output: predictions})
    frame["training_similarity"] = np.linspace(0.1, 0.9, len(frame))
    data = {"target_columns": ("y",), **options}
    if rounds is not None:
        frame["round"] = rounds
        data["folds"] = len({*rounds})
    folder.mkdir(parents=True)
    frame.to_csv(folder / "predictions.csv", index=False)
    config = TrainConfig.from_options("t.csv", data).to_dict()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    task = {"name": "y", "kind": kind, "classes": classes, "unit": ""}
    (folder / "metrics.json").write_text(json.dumps({"tasks": [task], "test": {}}))
    return folder


def differences(runs, metric):
    found = molattn.compare(runs)
    is_chosen = (found["metric"] == metric) & (found["rows"] == "all") & (found["minus"] != "")
    return found[is_chosen]


@pytest.fixture
def folds(tmp_path):
    rounds = [f"fold_{n % 6 + 1}" for n in range(len(SMILES))]
    runs = [
        saved_run(tmp_path / name, predictions=LABELS + scale * noise, rounds=rounds)
        for name, scale, noise in zip("abc", (1.0, 1.1, 2.0), NOISE, strict=True)
    ]
    return runs, np.array(rounds)


def test_for_two_runs_tukey_is_the_paired_t_test():
    first, second = NOISE[0], NOISE[1] + 0.4
    d = first - second
    half, p = tukey_hsd([d.mean()], [d.std(ddof=1) / np.sqrt(len(d))], 2, len(d) - 1)
    expected = ttest_rel(first, second)
    low, high = expected.confidence_interval(0.95)
    assert p[0] == pytest.approx(expected.pvalue, rel=1e-6)
    assert half[0] == pytest.approx((high - low) / 2, rel=1e-6)
    half, p = tukey_hsd([0.0, 0.5], [0.0, 0.0], 3, 8)
    assert p.tolist() == [1.0, 0.0]  # equal predictions; always the same difference


def test_studentized_range_by_simulation():
    draws = np.random.default_rng(0).normal(size=(200_000, 4))
    pooled = np.sqrt(np.random.default_rng(1).chisquare(9, len(draws)) / 9)
    ranges = np.ptp(draws, axis=1) / pooled
    half, p = tukey_hsd([0.0, 2.5], [1.0, 1.0], 4, 9)
    assert half[0] * np.sqrt(2) == pytest.approx(np.quantile(ranges, 0.95), rel=0.01)
    assert p[1] == pytest.approx((ranges > 2.5 * np.sqrt(2)).mean(), abs=0.003)


def test_folds_are_compared_by_repeated_measures(folds):
    runs, rounds = folds
    errors = [noise * scale for noise, scale in zip(NOISE, (1.0, 1.1, 2.0), strict=True)]
    names = sorted({*rounds})
    mae = np.array([[np.abs(one[rounds == name]).mean() for name in names] for one in errors])
    # The additive model of runs and folds, by least squares.
    design = [[*(run == np.arange(3)), *(fold == np.arange(6))] for run, fold in np.ndindex(3, 6)]
    fitted = np.linalg.lstsq(np.array(design, dtype=float), mae.ravel(), rcond=None)[0]
    residuals = mae.ravel() - np.array(design, dtype=float) @ fitted
    error = np.sqrt(2 * (residuals**2).sum() / 10 * (1 / 6 + 1 / 5))
    found = differences(runs, "mae")
    for (_, row), (i, j) in zip(found.iterrows(), combinations(range(3), 2), strict=True):
        d = mae[i].mean() - mae[j].mean()
        half, p = tukey_hsd([d], [error], 3, 10)
        assert [row["run"], row["minus"]] == ["abc"[i], "abc"[j]]
        expected = [d, d - half[0], d + half[0], p[0], 10]
        columns = ["value", "low", "high", "p_value", "degrees_of_freedom"]
        np.testing.assert_allclose(row[columns].astype(float), expected, rtol=1e-5)


def test_single_splits_are_compared_by_scaffolds(tmp_path):
    series = np.array([3.0 if "c1" in one else 0.0 for one in SMILES])
    runs = [
        saved_run(tmp_path / name, predictions=LABELS + 0.1 * noise + shift)
        for name, noise, shift in zip("ab", NOISE, (0.0 * series, series), strict=False)
    ]
    (_, found), *_ = differences(runs, "mae").iterrows()
    d = np.abs(0.1 * NOISE[0]) - np.abs(0.1 * NOISE[1] + series)
    # Two scaffolds of nine molecules, and molecules without rings one by one: the variance of a
    # mean whose clusters are drawn with replacement.
    clusters = [("c1" in one and "b") or ("C1" in one and "c") or one for one in SMILES]
    sums = pd.Series(d - d.mean()).groupby(clusters).sum()
    sizes = pd.Series(clusters).value_counts()
    error = np.sqrt((sums**2).sum()) / len(d)
    half, _ = tukey_hsd([0.0], [error], 2, len(d) ** 2 / (sizes**2).sum() - 1)
    assert found["value"] == pytest.approx(d.mean(), rel=1e-5)
    assert found["high"] - found["value"] == pytest.approx(half[0], rel=0.25)
    assert found["degrees_of_freedom"] == pytest.approx(len(d) ** 2 / (sizes**2).sum() - 1)
    table = molattn.compare(runs)
    benzene = table[table["rows"] == "scaffold: c1ccccc1"].set_index("run")["value"]
    is_benzene = series > 0
    assert benzene["b"] == pytest.approx(np.abs(0.1 * NOISE[1] + series)[is_benzene].mean())
    fifth = table[table["rows"].str.startswith("similarity: 0.10")].set_index("run")
    assert fifth["count"].tolist() == [8, 8]
    assert fifth["value"]["a"] == pytest.approx(np.abs(0.1 * NOISE[0])[:8].mean(), rel=1e-5)


def test_the_order_of_the_rows_does_not_matter_nor_that_similarities_are_equal(tmp_path):
    runs = [saved_run(tmp_path / name, predictions=LABELS + NOISE[0]) for name in "ab"]
    rows = pd.read_csv(runs[1] / "predictions.csv", dtype=str).assign(training_similarity=1)
    rows.to_csv(runs[0] / "predictions.csv", index=False)
    rows.iloc[::-1].to_csv(runs[1] / "predictions.csv", index=False)
    assert differences(runs, "rmse")[["value", "p_value"]].to_numpy().tolist() == [[0.0, 1.0]]
    found = molattn.compare(runs).set_index("rows").loc["similarity: 1.00 to 1.00"]
    assert found["count"].tolist() == [36, 36]  # all fifths together


def test_columns_of_the_table_may_have_the_names_of_added_ones_and_any_bytes(folds):
    runs, _ = folds
    before = molattn.compare(runs)
    for run in runs:
        table = pd.read_csv(run / "predictions.csv").rename(columns={"round": "round_"})
        table = table.assign(name="\xe9", round="one")[["name", "round", *table]]
        table.to_csv(run / "predictions.csv", index=False, encoding="latin-1")
    pd.testing.assert_frame_equal(molattn.compare(runs), before)


def test_a_target_without_labels_has_no_scores_and_auxiliary_columns_may_have_relations(tmp_path):
    more = {"auxiliary_columns": ("other",), "relation_columns": ("y", "y")}
    labels = np.full(len(SMILES), np.nan)
    runs = [saved_run(tmp_path / name, predictions=LABELS, labels=labels, **more) for name in "ab"]
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out/comparison.csv")
    assert {(row["count"], row["value"]) for row in rows} == {("0", "")}


def test_runs_are_compared_on_log10_if_one_learned_the_logarithm(tmp_path, capsys):
    labels = 10.0**LABELS
    values = labels * 10.0 ** (0.2 * NOISE[0]), labels + NOISE[1]
    runs = [
        saved_run(tmp_path / name, predictions=guess, labels=labels)
        for name, guess in zip("ab", values, strict=True)
    ]
    assert not molattn.compare(runs)["metric"].str.startswith("log10").any()
    facts = json.loads((runs[0] / "metrics.json").read_text())
    (runs[0] / "metrics.json").write_text(
        json.dumps({**facts, "target_transforms": {"y": "log transform"}})
    )
    table = molattn.compare(runs)
    floor = labels.min() / 2
    errors = [np.log10(np.where(guess > 0, guess, floor)) - LABELS for guess in values]
    scores = table[(table["rows"] == "all") & (table["minus"] == "")]
    assert scores["metric"].iloc[0] == "log10_rmse"
    found = scores.set_index(["metric", "run"])["value"]
    for name, guess, error in zip("ab", values, errors, strict=True):
        assert found["log10_rmse", name] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
        fold = 10.0 ** np.abs(error)
        assert found["median_fold_error", name] == pytest.approx(np.median(fold), rel=1e-5)
        assert found["rmse", name] == pytest.approx(np.sqrt(np.mean((guess - labels) ** 2)))
    fifth = table[table["rows"].str.startswith("similarity: 0.10")].set_index("run")["value"]
    assert fifth["b"] == pytest.approx(np.abs(errors[1][:8]).mean(), rel=1e-5)
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / "out")]) == 0
    count = (values[1] <= 0).sum()
    line = f"'y': {count} predictions of {runs[1]} not above 0"
    shown = capsys.readouterr().out
    assert line in shown
    assert "RMSE ↓" in shown
    page = (tmp_path / "out/report.html").read_text()
    assert "Test log10 scores" in page
    assert f"{count} predictions of {runs[1]} not above 0" in page


def test_censored_labels_count_for_each_run(tmp_path):
    runs = [
        saved_run(tmp_path / name, predictions=LABELS + noise)
        for name, noise in zip("ab", NOISE, strict=False)
    ]
    for run in runs:
        rows = pd.read_csv(run / "predictions.csv", dtype=str)
        rows.loc[rows.index % 3 == 0, "y"] = ">" + rows["y"]
        rows.to_csv(run / "predictions.csv", index=False)
    table = molattn.compare(runs)
    scores = table[(table["rows"] == "all") & (table["minus"] == "")]
    found = scores.set_index(["metric", "run"])
    for name, noise in zip("ab", NOISE[:, ::3], strict=False):
        right = found.loc["censored_permitted", name]
        assert right["count"] == 12
        assert right["value"] == pytest.approx(np.mean(noise >= 0))
        error = np.sqrt(np.mean(np.minimum(noise, 0.0) ** 2))
        assert found.loc["censored_rmse", name]["value"] == pytest.approx(error, rel=1e-5)
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / "out")]) == 0
    assert "Test scores of censored labels" in (tmp_path / "out/report.html").read_text()


def test_distances_to_limits_are_compared(tmp_path):
    options = {"interval_columns": ("low", "high")}
    runs = [
        saved_run(tmp_path / name, predictions=LABELS + noise, **options)
        for name, noise in zip("ab", NOISE, strict=False)
    ]
    for run in runs:
        rows = pd.read_csv(run / "predictions.csv")
        rows["low"] = (LABELS - 0.5).round(6)
        rows["high"] = np.where(rows.index % 2, (LABELS + 1.0).round(6), np.nan)  # or >low
        rows.to_csv(run / "predictions.csv", index=False)
    table = molattn.compare(runs)
    found = table[(table["rows"] == "all") & (table["minus"] == "")].set_index(["metric", "run"])
    odd = np.arange(len(LABELS)) % 2 == 1
    high = np.where(odd, LABELS + 1.0, np.inf)
    mean = LABELS[odd].mean()
    for name, noise in zip("ab", NOISE, strict=False):
        distances = [
            np.abs(values - np.clip(values, LABELS - 0.5, high)).mean()
            for values in (LABELS + noise, np.full(len(LABELS), mean))
        ]
        score = found.loc["st_rae", name]
        assert score["count"] == len(LABELS)
        assert score["value"] == pytest.approx(distances[0] / distances[1], rel=1e-4)
        assert found.loc["rmse", name]["count"] == odd.sum()
        assert found.loc["censored_permitted", name]["count"] == (~odd).sum()


def test_a_run_is_listed_with_the_scale_of_its_scores(tmp_path):
    for name, scores in (("old", {"rmse": 392.4}), ("new", {"rmse": 392.4, "log10_rmse": 0.433})):
        run = saved_run(tmp_path / name, predictions=LABELS)
        content = {"test": {"y": scores}, "test_mean": scores, "tasks": [{"name": "y"}]}
        (run / "metrics.json").write_text(json.dumps(content))
    listed = {run.name: (run.metric, run.score) for run in list_runs(tmp_path)}
    assert listed == {"old": ("RMSE", 392.4), "new": ("log10 RMSE", 0.433)}


def test_classes_rows_without_prediction_and_escaped_cells(tmp_path):
    labels = (LABELS > 0).astype(float)
    values = np.clip(0.5 + 0.2 * (LABELS > 0.5) + 0.05 * NOISE, 0.01, 0.99)
    values[1, 3] = np.nan
    runs = [
        saved_run(tmp_path / name, predictions=one, labels=labels, kind="binary")
        for name, one in zip("ab", values, strict=False)
    ]
    found = molattn.compare(runs)
    scores = found[(found["rows"] == "all") & (found["metric"] == "brier")].set_index("minus")
    assert scores.loc[""]["count"].tolist() == [35, 35]
    kept = np.arange(len(labels)) != 3
    expected = ((values[0] - labels) ** 2)[kept].mean()
    assert scores.loc[""]["value"].iloc[0] == pytest.approx(expected, rel=1e-5)
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / "out")]) == 0
    assert "yes 0." in (tmp_path / "out" / "report.html").read_text()


def test_names_of_runs_are_no_formulas_in_tables(tmp_path):
    runs = [
        saved_run(tmp_path / name, predictions=LABELS + noise)
        for name, noise in zip(("=1+1", "@b"), NOISE, strict=False)
    ]
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out/comparison.csv")
    assert {row["run"] for row in rows} == {"'=1+1", "'@b"}
    assert {row["minus"] for row in rows} == {"", "'@b"}
    assert main(["runs", str(tmp_path), "--output", str(tmp_path / "list.csv")]) == 0
    assert {row["name"] for row in rows_of(tmp_path / "list.csv")} == {"'=1+1", "'@b"}


def test_other_rows_and_targets_are_refused_in_a_line(tmp_path, folds):
    (cross, *_), _ = folds
    first = saved_run(tmp_path / "first", predictions=LABELS)
    changed = saved_run(tmp_path / "changed", predictions=LABELS, labels=LABELS + (LABELS > 3.9))
    labels = (LABELS > 0).astype(float)
    classes = saved_run(tmp_path / "classes", predictions=labels, labels=labels, kind="binary")
    for other, expected in (
        (changed, f"expected the test rows of {first} (36 molecules), got 36, 35 of them the same"),
        (cross, f"expected the test rows of {first} (36 molecules), got 36, 0 of them the same"),
        (classes, f"expected the targets of {first}, 'y', 'regression', got 'y', 'binary'"),
        (tmp_path / "nothing", "expected a finished run"),
    ):
        with pytest.raises(InputError) as error:
            molattn.compare([first, other])
        assert str(error.value).startswith(f"{other}: {expected}")
    with pytest.raises(InputError, match="two or more runs"):
        molattn.compare([first, first])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of a split with two targets, and two cross-validations."""
    folder = tmp_path_factory.mktemp("trained")
    lines = [
        f"{one},M-{n},{value:.2f},{'ab'[n % 2]}"
        for n, (one, value) in enumerate(zip(SMILES, LABELS, strict=True))
    ]
    (folder / "t.csv").write_text("\n".join(["smiles,name,y,kind <b>", *lines]))
    words = "--width 8 --heads 2 --layers 1 --edge-width 4 --epochs 1 --init-from none".split()
    words += "--predictor network --device cpu --bootstrap 0 --validation-size 0.2".split()
    for name, *more in (("a", "--test-size", 0.3), ("b", "--test-size", 0.3), ("cv", "--folds", 2)):
        size = ["--learning-rate", {"b": 0.01}.get(name, 0.001), *more]
        targets = ["--target-columns", "y", "kind <b>", "--output", folder / name]
        command = ["train", folder / "t.csv", *targets, *words, *size]
        assert main([str(word) for word in [*command, *["--no-baselines"] * (name != "b")]]) == 0
    shutil.copytree(folder / "cv", folder / "again")
    return folder


def test_trained_runs_are_compared_and_listed(trained, capsys, tmp_path):
    for names in (("a", "b"), ("cv", "again")):
        runs = [str(trained / name) for name in names]
        assert main(["compare", *runs, "--output", str(tmp_path / names[0])]) == 0
        found = rows_of(tmp_path / names[0] / "comparison.csv")
        own = json.loads((trained / names[0] / "metrics.json").read_text())["test"]["y"]["rmse"]
        expected = own if names[0] == "a" else own["mean"]
        assert float(found[0]["value"]) == pytest.approx(expected, rel=1e-4)
        assert {row["task"] for row in found} == {"y", "kind <b>"}
        page = (tmp_path / names[0] / "report.html").read_text()
        assert "kind &lt;b&gt;" in page
        assert '<p class="name">M-' in page
        assert "kind <b>" not in page
    assert "paired differences" in capsys.readouterr().out
    shutil.copytree(trained / "a", trained / "dead.unfinished", dirs_exist_ok=True)
    (trained / "dead.unfinished" / "metrics.json").unlink()
    for name, text in (("other", "a: 1"), ("damaged", "data: {file")):
        (trained / name).mkdir(exist_ok=True)
        (trained / name / "config.yaml").write_text(text)
        (trained / name / "metrics.json").write_text("{}")
    (trained.parent / "config.yaml").write_text("of: something else")
    assert main(["runs", str(trained), "--output", str(tmp_path / "list.csv")]) == 0
    listed = {row["name"]: row for row in rows_of(tmp_path / "list.csv")}
    assert sorted(listed) == ["a", "again", "b", "cv", "damaged", "dead", "other"]
    states = [listed[name]["state"] for name in ("a", "dead", "damaged", "other")]
    assert states == ["finished", "failed", "unreadable", "unreadable"]
    assert listed["cv"]["split"] == "2 folds, random"
    assert [listed[name]["baseline"] != "" for name in "ab"] == [False, True]
    score = listed["cv"]["score"]
    assert score == f"{float(score):.7g}"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert "RMSE" in next(line for line in lines if line.startswith("cv"))


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_can_be_read(trained, tmp_path, open_page, width, scheme):
    runs = [str(trained / name) for name in ("a", "b")]
    assert main(["compare", *runs, "--output", str(tmp_path / "out")]) == 0
    with open_page(tmp_path / "out" / "report.html", width, color_scheme=scheme) as page:
        assert page.locator(".molecules > li").count() > 4
        assert_fits_and_can_be_read(page, width)
