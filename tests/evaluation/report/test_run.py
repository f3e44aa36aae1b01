"""The scores, files and page of a run with a task of each kind, trained once."""

import csv
import io
import json
import re
import struct
import warnings
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from sklearn.metrics import r2_score, roc_auc_score

from molattn.config import ReportConfig, TrainConfig
from molattn.config.yaml_file import read_config_file
from molattn.evaluation.report.run_files import interval_promise, write_run
from molattn.evaluation.report.tables import (
    format_interval,
    format_score,
    print_scores,
    score_cell,
    score_tables,
)
from molattn.evaluation.scores.metrics import TaskScores
from molattn.evaluation.scores.scoring import constant_prediction, forest_prediction, score_run
from molattn.model.model import MolAttn
from molattn.model.predictor import Predictor
from molattn.task import Task
from molattn.training.run import train

from ...conftest import assert_fits_and_can_be_read, rows_of

EVIL = "logS <script>alert(1)</script>"
KIND = 'k & "<img src=x onerror=alert(2)>"'
FEW = "too <b>few</b>"
SECTIONS = ["scores", "intervals", "confidence", "plots", "tasks", "data", "config", "versions"]
OPTIONS = {
    **{"width": 8, "heads": 2, "layers": 1, "edge_width": 4, "init_from": "none"},
    **{"epochs": 2, "batch_size": 16, "device": "cpu", "bootstrap": 100, "interval": 0.5},
}


def configured(folder, targets=(EVIL, "soluble", KIND), **options):
    path = folder / "x <script>alert(4)<|script>.csv"
    with open(path, "w", newline="") as file:
        write = csv.writer(file).writerow
        write(["=id", "smiles", *targets])
        for n in range(60):
            smiles = "C" * (n % 20 + 1) + ("O", "N", "c1ccccc1Cl")[n % 3]
            label = f"{'>' if n % 10 == 0 else ''}{n / 7:.3f}"
            cells = [label, ("no", "yes")[n % 2], ("a", FEW, "c")[n % 3], *"01" * 20]
            write(["=1+1", smiles, *cells[: len(targets)]])
        write(["", "<img src=x onerror=alert(3)>", "1", "no", "a", *"01" * 20][: len(targets) + 2])
    sizes = {"validation_size": 0.2, "test_size": 0.3}
    units = {"target_units": ("溶解度", *[""] * (len(targets) - 1))}
    return TrainConfig.from_options(
        str(path), {"target_columns": targets, **sizes, **units, **OPTIONS, **options}
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    run = train(configured(tmp_path_factory.mktemp("data")))
    folder = tmp_path_factory.mktemp("run")
    console = Console(file=io.StringIO(), width=200)
    scores = score_run(run, console)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a font may lack letters of the unit
        write_run(run, scores, folder)
    return run, scores, folder


@pytest.fixture(scope="module")
def page(results):
    return Document((results[2] / "report.html").read_text(encoding="utf-8"))


class Document(HTMLParser):
    """What a page is made of: elements with their attributes, and the text of some."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.source, self.elements, self.open, self.texts = text, [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(((self.open or [""])[-1], data))

    def all(self, *tags):
        return [attrs for tag, attrs in self.elements if tag in tags]

    def text(self, *tags):
        return " ".join(data for tag, data in self.texts if not tags or tag in tags)


def printed(metrics, config, width=100):
    console = Console(file=io.StringIO(), width=width)
    print_scores(metrics, config, console)
    return console.file.getvalue()


def test_scores_follow_from_the_predictions(results):
    run, scores, folder = results
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(scores.metrics.to_dict()))
    rows = [row for row in rows_of(folder / "predictions.csv") if row[EVIL][0] != ">"]
    assert metrics["test"][EVIL]["count"] == len(rows)
    labels = run.table.targets[run.split.test]
    auc = roc_auc_score(labels[:, 1], scores.prediction.prediction[:, 1])
    assert metrics["test"]["soluble"]["roc_auc"] == pytest.approx(auc)
    by_grade = metrics["confidence"][EVIL].values()
    errors = sum(one["count"] * one["error"] for one in by_grade) / len(rows)
    assert errors == pytest.approx(metrics["test"][EVIL]["mae"])
    fraction = np.nanmean(run.table.targets[run.split.train, 1])
    brier = metrics["baseline"]["soluble"]["brier"]
    assert brier == pytest.approx(np.mean((labels[:, 1] - fraction) ** 2))
    low, high = metrics["test"]["soluble"]["intervals"]["brier"]
    assert low < metrics["test"]["soluble"]["brier"] < high
    assert metrics["random_forest_seconds"] >= 0.0
    inside = [float(r[f"{EVIL}_low"]) <= float(r[EVIL]) <= float(r[f"{EVIL}_high"]) for r in rows]
    found = metrics["uncertainty"][EVIL]
    assert found["coverage"] == found["coverage_at"]["0.5"] == pytest.approx(np.mean(inside))
    widths = [float(row[f"{EVIL}_high"]) - float(row[f"{EVIL}_low"]) for row in rows]
    assert found["mean_width"] == pytest.approx(np.mean(widths), rel=0.2)  # all rows of the scores
    censored = [row for row in rows_of(folder / "predictions.csv") if row[EVIL][0] == ">"]
    above = sum(float(row[f"{EVIL}_predicted"]) >= float(row[EVIL][1:]) for row in censored)
    assert metrics["censored"] == {EVIL: {"count": len(censored), "permitted": above}}


def test_the_files_are_those_of_the_run(results):
    run, _, folder = results
    metrics = json.loads((folder / "metrics.json").read_text())
    counts = [metrics[f"rows_{name}"] for name in ("in", "used", "skipped", "test")]
    assert counts == [61, 60, 1, len(run.split.test)]
    assert metrics["data_sha256"] == sha256(Path(run.config.file).read_bytes()).hexdigest()
    assert {"molattn", "torch", "rdkit", "python"} <= set(metrics["versions"])
    written = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    assert written == run.config.to_dict()
    assert TrainConfig(**read_config_file(folder / "config.yaml")) == run.config
    rows = rows_of(folder / "predictions.csv")
    assert {row["'=id"] for row in rows} == {"'=1+1"}
    smiles = [row["smiles"] for row in rows]
    assert smiles == [run.table.smiles[row] for row in run.split.test]
    model = MolAttn.from_pretrained(folder / "model")
    expected = model.predict(smiles)
    guess = [float(row[f"{EVIL}_predicted"]) for row in rows]
    np.testing.assert_allclose(guess, expected[:, 0], rtol=1e-5, atol=1e-5)
    card = (folder / "model" / "README.md").read_text(encoding="utf-8")
    for name, key in ((EVIL, "rmse"), ("soluble", "roc_auc")):
        (line,) = (line for line in card.splitlines() if line.startswith(f"- `{name}`: "))
        score = metrics["test"][name]
        assert f" {format_score(score[key])}" in line
        assert line.endswith(f" on {score['count']} test molecules")
    for name in ("learning_curve", "parity", "coverage", "similarity", "roc_pr", "calibration"):
        content = (folder / f"{name}.png").read_bytes()
        assert min(struct.unpack(">II", content[16:24])) >= 500


def test_nothing_is_fetched_and_nothing_of_the_table_is_run(page):
    assert page.all("script", "iframe", "object", "svg", "b") == []
    assert all(attrs["src"].startswith("data:image/") for attrs in page.all("img"))
    assert all(attrs["alt"] for attrs in page.all("img"))
    cliffs = page.source.count("<dt>seen coming</dt>")
    assert len(page.all("img")) == 6 + 3 * 8 + 2 * cliffs
    assert [attrs["href"] for attrs in page.all("a")] == [f"#{name}" for name in SECTIONS]
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert EVIL in page.text("th")
    assert KIND in page.text("th")
    assert page.text("h1") == "x <script>alert(4)<|script>.csv"
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:url\(|href=\")#([\w-]+)", page.source)) <= set(ids)
    assert {attrs["aria-labelledby"] for attrs in page.all("section")} == set(SECTIONS)
    assert all("scope" in attrs for attrs in page.all("th"))


def test_the_page_shows_scores_counts_and_the_largest_errors(page, results):
    run, scores, _ = results
    shown, metrics = page.text(), scores.metrics.to_dict()
    for name in ("test", "baseline", "random_forest"):
        for key in ("brier", "ece"):
            assert format_score(metrics[name]["soluble"][key]) in page.text("td")
    assert format_interval(*metrics["test"][EVIL]["intervals"]["rmse"]) in page.text("td")
    assert "61 rows read, 60 used, 1 skipped" in shown
    censored = metrics["censored"][EVIL]
    assert f"{censored['count']} censored test labels, which have scores of their own" in shown
    assert f"epoch {metrics['members'][0]['kept_epoch']} of 2" in shown
    assert metrics["data_sha256"] in shown
    assert all(line in page.text("li") for line in run.leakage.lines())
    assert "promised on average" in shown
    cards = re.findall(r"(line \d+)", page.text("dd"))
    target, given = run.table.targets[run.split.test], scores.prediction.prediction
    off = -np.abs(given[:, 0] - target[:, 0])  # NaN, last, of a censored label
    sure = np.where(target[:, 1] == 1, given[:, 1], 1 - given[:, 1])
    third = given[np.arange(len(target)), 2 + target[:, 2].astype(int)]
    assert cards == [
        run.table.where(run.split.test[index])
        for measure in (off, sure, third)
        for index in np.argsort(measure, kind="stable")[:8]
    ]


def test_network_and_gaussian_process_are_scored_alone_with_their_weights(results):
    run, scores, folder = results
    metrics, process = scores.metrics.to_dict(), run.model.gaussian_process
    weight = metrics["gaussian_process_weights"][EVIL]
    assert weight == process.shares[0]
    rows = run.split.test[~np.isnan(run.table.targets[run.split.test, 0])]
    smiles = [run.table.smiles[row] for row in rows]
    network = run.model.predict(smiles, members=True)  # with the process in each
    assert network.shape[0] == 1
    squares = np.square(network[0, :, 0] - run.table.targets[rows, 0])
    assert metrics["test"][EVIL]["rmse"] == pytest.approx(np.sqrt(squares.mean()), rel=1e-5)
    alone = MolAttn.from_pretrained(folder / "model")
    alone.gaussian_process = alone.uncertainty = None
    squares = np.square(alone.predict(smiles)[:, 0] - run.table.targets[rows, 0])
    assert metrics["network"][EVIL]["rmse"] == pytest.approx(np.sqrt(squares.mean()), rel=1e-5)
    page = Document((folder / "report.html").read_text(encoding="utf-8"))
    assert f"soluble {100 * metrics['gaussian_process_weights']['soluble']:.0f}%" in page.text("p")


def test_network_and_gaussian_process_alone_are_scored_within_the_limits_of_predictions(
    results, monkeypatch
):
    run, *_ = results
    limits = np.repeat([[-np.inf], [np.inf]], len(run.model.config.output_names), axis=1)
    limits[:, 0] = 4.0  # so that all predictions are 4
    monkeypatch.setattr(Predictor, "output_limits", limits)
    report = replace(run.config.report, baselines=False)
    metrics = score_run(replace(run, config=replace(run.config, report=report))).metrics.scores
    labels = run.table.targets[run.split.test, 0]
    expected = pytest.approx(np.sqrt(np.nanmean(np.square(labels - 4.0))))
    for name in ("test", "network", "gaussian_process"):
        assert metrics[name].tasks[EVIL]["rmse"] == expected


def test_each_point_of_a_plot_says_which_molecule_it_is(results):
    run, scores, folder = results
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('<i style="left:') == 2 * scores.metrics.scores["test"].tasks[EVIL]["count"]
    lefts = [float(left) for left in re.findall(r'<i style="left:([\d.]+)%', page)]
    assert 0 < min(lefts) < max(lefts) < 100
    row = run.split.test[~np.isnan(run.table.targets[run.split.test, 0])][0]
    measured = f"measured {format_score(run.table.targets[row, 0])}, predicted "
    assert re.search(rf"{run.table.smiles[row]}</code>{measured}", page)


def test_the_card_of_a_model_names_data_rows_command_and_the_files_that_are_there(results):
    run, scores, folder = results
    card = (folder / "model" / "README.md").read_text(encoding="utf-8")
    files = re.findall(r"^- `([\w.]+\.(?:json|safetensors))`$", card, re.MULTILINE)
    assert {*files} == {path.name for path in (folder / "model").iterdir()} - {"README.md"}
    for name in ("train", "validation", "test"):
        assert str(getattr(scores.metrics, f"rows_{name}")) in card
    assert scores.metrics.data_sha256 in card
    assert "License:" in card
    command = next(line for line in card.splitlines() if "molattn train" in line)
    assert "--validation-size 0.2" in command
    assert str(Path(run.config.file).parent) not in card


@pytest.mark.parametrize("split", [None, "scaffold", "cluster"])
def test_what_intervals_promise_is_said_beside_their_coverage(results, split, tmp_path):
    """A random split promises a coverage; one by scaffolds does not, and shows what it was."""
    run, scores, _ = results
    config = replace(run.config, data=replace(run.config.data, split=split))
    assert ("no coverage is promised" in interval_promise(config.data)) == (split is not None)
    shown = printed(scores.metrics, config)
    assert ("not promised" in shown) == (split is not None)
    assert format_score(scores.metrics.uncertainty[EVIL]["coverage"]) in shown


def test_the_printed_table_has_every_model_and_fits_80_columns(results):
    run, scores, _ = results
    shown = printed(scores.metrics, run.config, width=80)
    words = ["RMSE", "95% CI", "mean baseline", "random forest", "(溶解度)", "50% PI coverage"]
    words += ["ROC-AUC", "ECE", "class prior", "mean over tasks"]
    assert [word for word in words if word not in shown] == []
    lines = [line for line in shown.splitlines() if "depend much on chance" not in line]
    assert max(map(len, lines)) <= 80
    assert "…" not in shown


def test_options_leave_out_baselines_and_intervals_and_rows_that_are_not_finite(
    results, monkeypatch
):
    run, _, _ = results
    bare = replace(run, config=replace(run.config, report=ReportConfig(False, bootstrap=0)))
    metrics = score_run(bare).metrics.to_dict()
    assert not {"baseline", "random_forest"} & set(metrics)
    assert metrics["test"][EVIL]["intervals"] == {}
    predict = Predictor.prediction
    monkeypatch.setattr(Predictor, "prediction", lambda *args: with_nan(predict(*args)))
    console = Console(file=io.StringIO(), width=200)
    metrics = score_run(bare, console).metrics.to_dict()
    assert metrics["rows_test_not_finite"] == 1
    assert metrics["test"]["soluble"]["count"] == len(run.split.test) - 1
    assert "without a finite prediction: 1 test row" in console.file.getvalue()


def with_nan(prediction):
    prediction.prediction[0, 0] = np.nan
    return prediction


def test_without_test_rows_a_run_is_scored_by_its_validation_rows(tmp_path):
    run = train(configured(tmp_path, test_size=0.0, validation_size=0.3, ensemble=2))
    scores = score_run(run)
    write_run(run, scores, tmp_path / "run")
    metrics = scores.metrics.to_dict()
    assert {"test", "test_mean", "baseline", "random_forest"}.isdisjoint(metrics)
    shown = printed(scores.metrics, run.config)
    assert format_score(metrics["validation"][EVIL]["rmse"]) in shown
    assert "validation scores" in shown
    count = metrics["validation"][EVIL]["count"]
    card = (tmp_path / "run/model/README.md").read_text()
    assert f"on {count} validation molecules (there was no test)" in card
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert f"Scores on {count} labels of the {metrics['rows_validation']} validation rows" in page
    assert "There are no test rows on which it could be measured" in page
    assert rows_of(tmp_path / "run/predictions.csv") == []
    for n, history in enumerate(run.histories, start=1):
        written = rows_of(tmp_path / "run" / f"member_{n}" / "history.csv")
        losses = [epoch.train_loss for epoch in history.curve]
        assert [float(row["train_loss"]) for row in written] == losses


def test_a_mean_over_different_units_is_left_out_and_numbers_are_short():
    scores = {name: {"rmse": 1.0} for name in "ab"}
    for units, rows in ((("", ""), 3), (("mg", "mg"), 3), (("mg", "mol"), 2)):
        tasks = [Task(name, unit=unit) for name, unit in zip("ab", units, strict=True)]
        (table,) = score_tables(tasks, {"test": TaskScores(scores, {"rmse": 1.0})})
        assert len(table.frame) == rows
    assert format_interval(-0.03, -9.1e-06) == "-0.030 to 0.000"
    assert format_interval(2e-5, 4e-5) == "2e-05 to 4e-05"
    assert format_interval(216.2, 568.4) == "216 to 568"
    values = (0.0, 0.0433, 0.4333, 4.3333, 43.333, 433.33, 43333.3, 4.3e6)
    expected = ["0.000", "0.043", "0.433", "4.33", "43.3", "433", "43333", "4.3e+06"]
    assert [format_score(value) for value in values] == expected


@pytest.mark.parametrize(
    "mean, sd, cell",
    [(392.4, 173.2, "390 ± 170"), (0.4331, 0.0517, "0.433 ± 0.052"), (1.234, 0.2, "1.23 ± 0.20")],
)
def test_a_mean_has_the_digits_of_its_standard_deviation(mean, sd, cell):
    assert score_cell({"rmse": {"mean": mean, "sd": sd, "rounds": 5}}, "rmse") == cell
    assert score_cell({"rmse": {"mean": mean, "sd": None}}, "rmse") == format_score(mean)


# Baselines.

TASKS = [Task("y"), Task("b", "binary", ("n", "y")), Task("c", "multiclass", ("r", "g", "b"))]


def test_the_constant_is_the_mean_or_the_fraction_of_each_class():
    nan = np.nan
    targets = np.array([[1.0, 0, 0], [3.0, 1, nan], [nan, 1, 2], [nan, 1, 2]])
    constant = constant_prediction(TASKS, targets, 2)
    np.testing.assert_allclose(constant, [[2.0, 0.75, 1 / 3, 0, 2 / 3]] * 2)


def test_the_forest_learns_each_task_from_the_rows_that_have_it():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4)).astype(np.float32)
    signal = features[:, 0] + 0.1 * rng.normal(size=300)
    targets = np.column_stack([10 * signal, signal > 0, np.digitize(signal, [-0.5, 0.5])])
    train, test = targets[:200].copy(), targets[200:]
    train[rng.random(train.shape) < 0.3] = np.nan
    guess = forest_prediction(TASKS, features[:200], train, features[200:], 0)
    assert r2_score(test[:, 0], guess[:, 0]) > 0.75
    assert roc_auc_score(test[:, 1], guess[:, 1]) > 0.95
    np.testing.assert_allclose(guess[:, 2:].sum(axis=1), 1.0)
    assert np.mean(guess[:, 2:].argmax(axis=1) == test[:, 2]) > 0.8
    only = np.full((200, 1), 2.0)
    unseen = forest_prediction(TASKS[2:], features[:200], only, features[200:], 0)
    assert unseen[0].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_without_a_complaint(open_page, results, width, scheme):
    with open_page(results[2] / "report.html", width, color_scheme=scheme) as page:
        for summary in page.query_selector_all("summary"):
            if not summary.evaluate("e => e.parentElement.open"):
                summary.click()
        assert_fits_and_can_be_read(page, width)
        assert page.title().startswith("x <script>")
        for name in SECTIONS:
            assert page.locator(f"section[aria-labelledby={name}]").is_visible()
        # Whatever is drawn has a size, and stays within the window.
        boxes = page.eval_on_selector_all(
            "img", "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
        )
        assert all(0 <= left < right <= width for left, right in boxes)


@pytest.mark.browser
def test_many_tasks_are_folded_and_bounded(open_page, tmp_path):
    targets = (EVIL, "soluble", KIND, *(f"t{n}" for n in range(11)))
    run = train(configured(tmp_path, targets, baselines=False))
    write_run(run, score_run(run), tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 4e6
    with open_page(tmp_path / "report.html", 390) as page:
        assert page.locator("section[aria-labelledby=tasks] > details").count() == 12
        assert page.locator("section[aria-labelledby=tasks] > details[open]").count() == 1
        assert "The first 12 of 14 tasks" in page.content()
