"""The page of a run, read as text and in a real browser."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from molattn.config import (
    DataConfig,
    NetworkConfig,
    ReportConfig,
    SupervisedConfig,
    TrainConfig,
)
from molattn.evaluation.cross_validation import cross_validate
from molattn.evaluation.report.render import interval_promise
from molattn.evaluation.run_files import write_run
from molattn.evaluation.scoring import score_run
from molattn.training.run import train

from ...conftest import assert_fits_and_can_be_read

EVIL = "logS <script>alert(1)</script>"
KIND = 'k & "<img src=x onerror=alert(2)>"'
FEW = "too <b>few</b>"
SMALL = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
QUICK = SupervisedConfig(epochs=2, batch_size=16, device="cpu")
MAIN = ["scores", "intervals", "learning", "tasks", "data", "config", "versions"]


def write_table(path, targets):
    lines = [",".join(["smiles", *('"' + name.replace('"', '""') + '"' for name in targets)])]
    for n in range(60):
        smiles = "C" * (n % 20 + 1) + ("O", "N", "c1ccccc1Cl")[n % 3]
        cells = [f"{n / 7:.3f}", ("no", "yes")[n % 2], ("a", FEW, "c")[n % 3]]
        cells += [str(n % 2)] * (len(targets) - 3)
        lines.append(",".join([smiles, *cells[: len(targets)]]))
    lines.append(",".join(["<img src=x onerror=alert(3)>", "1", "no", "a"][: len(targets) + 1]))
    lines[-1] += ",1" * (len(targets) - 3)
    path.write_text("\n".join(lines) + "\n")


def configured(folder, targets, **data):
    path = folder / "x <script>alert(4)<|script>.csv"
    write_table(path, targets)
    sizes = (
        {"validation_size": 0.2} if "folds" in data else {"validation_size": 0.2, "test_size": 0.3}
    )
    data = DataConfig(target_columns=tuple(targets), **sizes, **data)
    return TrainConfig(str(path), data, SMALL, QUICK, ReportConfig(bootstrap=100))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One task of each kind, under names that must not be taken for HTML."""
    config = configured(tmp_path_factory.mktemp("data"), [EVIL, "soluble", KIND])
    run = train(config)
    folder = tmp_path_factory.mktemp("run")
    scores = score_run(run)
    write_run(run, scores, folder)
    return run, scores, folder


@pytest.fixture(scope="module")
def page(run):
    return Document((run[2] / "report.html").read_text(encoding="utf-8"))


class Document(HTMLParser):
    """What a page is made of: elements with their attributes, and the text of some."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(((self.open or [""])[-1], data))

    def all(self, *tags):
        return [attrs for tag, attrs in self.elements if tag in tags]

    def text(self, *tags):
        return " ".join(data for tag, data in self.texts if not tags or tag in tags)


def test_nothing_is_fetched_and_nothing_of_the_table_is_run(page, run):
    text = (run[2] / "report.html").read_text(encoding="utf-8")
    assert page.all("script", "iframe", "object", "svg", "b") == []
    assert all(attrs["src"].startswith("data:image/svg+xml;") for attrs in page.all("img"))
    assert [attrs["href"] for attrs in page.all("link")] == ["data:,"]
    assert len(page.all("style")) == 1
    links = [attrs["href"] for attrs in page.all("a")]
    assert links == [f"#{name}" for name in MAIN]
    references = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", text)
    assert {reference[0] for reference in references} <= {"#", "d", "x"}
    assert all(r.startswith(("#", "data:")) or r == "x" for r in references)
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert EVIL in page.text("th")
    assert KIND in page.text("th")
    assert FEW in page.text()


def test_ids_are_unique_and_all_that_is_referred_to_is_there(page, run):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    text = (run[2] / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:url\(|href=\")#([\w-]+)", text)) <= set(ids)
    labels = {attrs["aria-labelledby"] for attrs in page.all("section")}
    assert labels == set(MAIN)


def test_headings_tables_and_pictures_are_named(page):
    assert page.text("h1") == "x <script>alert(4)<|script>.csv"
    assert all("scope" in attrs for attrs in page.all("th"))
    drawn = page.all("img")
    assert len(drawn) == 1 + (3 + 3 + 3) + 3 * 8
    assert all(attrs["alt"] for attrs in drawn)


def test_scores_and_counts_are_those_of_the_metrics(page, run):
    metrics = json.loads((run[2] / "metrics.json").read_text())
    shown = page.text()
    assert page.text("strong").split() == [
        f"{metrics['test'][EVIL]['rmse']:.3f}",
        f"{metrics['test']['soluble']['roc_auc']:.3f}",
        f"{metrics['test'][KIND]['roc_auc']:.3f}",
    ]
    for judged in ("test", "baseline", "random_forest"):
        for score in ("brier", "ece"):
            assert f"{metrics[judged]['soluble'][score]:.3f}" in page.text("td")
    low, high = metrics["test"][EVIL]["intervals"]["mae"]
    assert f"{low:.3f} to {high:.3f}" in page.text("small")
    assert "61 rows read, 60 used, 1 skipped" in shown
    assert f"test ({metrics['rows_test']} rows)" in page.text("th")
    best = metrics["members"][0]["kept_epoch"]
    assert f"epoch {best} of 2" in page.text("figcaption")
    assert metrics["data_sha256"] in shown
    assert metrics["versions"]["rdkit"] in page.text("td")
    for line in run[0].leakage.lines():
        assert line in page.text("li")
    assert "line 62" not in shown.split("Skipped rows")[0]
    assert "62" in page.text("td")


def test_the_worst_molecules_are_the_worst(page, run):
    run, scores, _ = run
    cards = re.findall(r"(line \d+)", page.text("dd"))
    assert len(cards) == 24
    target = run.table.targets[run.parts.test]
    off = -np.abs(scores.prediction.prediction[:, 0] - target[:, 0])
    # soluble: the probability of "yes" stands in column 1, those of the third task from 2 on
    given = scores.prediction.prediction
    sure = np.where(target[:, 1] == 1, given[:, 1], 1 - given[:, 1])
    third = given[np.arange(len(target)), 2 + target[:, 2].astype(int)]
    expected = [
        run.table.where(run.parts.test[place])
        for measure in (off, sure, third)
        for place in np.argsort(measure, kind="stable")[:8]
    ]
    assert cards == expected


def test_options_that_were_given_are_marked(page):
    changed = [i for i, (tag, a) in enumerate(page.elements) if a.get("class") == "changed"]
    # What the run begins with is written as what the default came to.
    given = "target_columns validation_size test_size init_from".split()
    assert len(changed) == len(given) + 4 + 3 + 1
    assert "nan" not in page.text("td").split()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_without_a_complaint(open_page, run, width, scheme):
    metrics = json.loads((run[2] / "metrics.json").read_text())
    with open_page(run[2] / "report.html", width, color_scheme=scheme) as page:
        for summary in page.query_selector_all("summary"):
            if not summary.evaluate("e => e.parentElement.open"):
                summary.click()
        assert_fits_and_can_be_read(page, width)
        assert page.title().startswith("x <script>")
        for name in MAIN:
            assert page.locator(f"section[aria-labelledby={name}]").is_visible()
        value = page.locator(".cards strong").first.inner_text()
        assert value == f"{metrics['test'][EVIL]['rmse']:.3f}"
        # Whatever is drawn has a size, and stays within the window.
        boxes = page.eval_on_selector_all(
            "img", "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
        )
        assert all(0 <= left < right <= width for left, right in boxes)


@pytest.mark.browser
def test_many_tasks_are_folded_and_bounded(open_page, tmp_path):
    names = [EVIL, "soluble", KIND, *(f"t{n}" for n in range(11))]
    run = train(configured(tmp_path, names))
    config = replace(run.config, report=ReportConfig(baselines=False, bootstrap=0))
    run = replace(run, config=config)
    write_run(run, score_run(run), tmp_path)
    path = tmp_path / "report.html"
    assert path.stat().st_size < 2e6
    with open_page(path, 390) as page:
        assert page.locator("section[aria-labelledby=tasks] > details").count() == 12
        assert page.locator("section[aria-labelledby=tasks] > details[open]").count() == 1
        shown = page.locator("section[aria-labelledby=tasks]").inner_text()
        assert "The first 12 of 14 tasks" in shown
        assert page.locator(".cards li").count() == 4
        every = page.locator("section[aria-labelledby=scores] th[scope=row]")
        assert {name.strip() for name in every.all_text_contents()} == {"mean over tasks", *names}


@pytest.mark.browser
def test_a_cross_validation_has_a_page_that_leads_to_its_rounds(open_page, tmp_path):
    config = configured(tmp_path, [EVIL, "soluble", KIND], folds=2)
    config = replace(config, report=ReportConfig(baselines=False, bootstrap=0))
    summary = cross_validate(config, tmp_path)
    for width in (1280, 390):
        with open_page(tmp_path / "report.html", width) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            links = page.eval_on_selector_all("td a, th a", "all => all.map(a => a.href)")
            assert links == [(tmp_path / f"fold_{n}/report.html").as_uri() for n in (1, 2)]
            given = summary["test"][EVIL]["rmse"]
            cell = page.locator("tbody td.num").first.inner_text()
            assert cell.split() == [f"{given['mean']:.3f}", "±", f"{given['sd']:.3f}"]
    for n in (1, 2):
        assert (tmp_path / f"fold_{n}" / "report.html").is_file()


def test_the_page_tells_what_its_intervals_promise(run, tmp_path):
    """A random split promises a coverage; one by scaffolds does not, and shows what it was."""
    results, scores, _ = run
    drawn = results.config.data
    assert "promised on average" in interval_promise(drawn)
    for split in ("scaffold", "cluster"):
        words = interval_promise(replace(drawn, split=split))
        assert repr(split) in words
        assert "no coverage is promised" in words
    config = replace(results.config, data=replace(drawn, split="scaffold"))

    write_run(replace(results, config=config), scores, tmp_path)
    page = " ".join((tmp_path / "report.html").read_text().split())
    assert "no coverage is promised for them" in page
    coverage = scores.uncertainty[EVIL]["coverage"]
    assert f'<td class="num">{coverage:.3f}</td><td class="num">not promised</td>' in page
