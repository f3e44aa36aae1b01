"""The page of ``molattn serve`` in a browser: the server's answers, shown."""

import csv
import gzip
import hashlib
import io
import re
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from rdkit import Chem

import molattn
from molattn.config import NetworkConfig
from molattn.model.confidence import CONFIDENCES
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.task import Task

from ..conftest import HANGING, assert_fits_and_can_be_read
from ..contract.conftest import ask as answer_of
from ..contract.conftest import serving

PAGE = Path(molattn.__file__).parent / "serve" / "page"
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
FAR = "C[Hg]Cl"
MINUS = "\N{MINUS SIGN}"
LONG = "rate_of_intrinsic_clearance_in_human_hepatocytes_at_37_degrees"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The packaged ADMET model, one of two molecules and a feature, and one of long names."""
    folder = tmp_path_factory.mktemp("models")
    small = NetworkConfig(width=8, heads=2, layers=1, edge_width=4)
    phase = Task("phase", "multiclass", ("gas", "liquid", "solid"))
    tasks = (Task("logS", unit="log mol/L"), phase)
    pair = MolAttnConfig(tasks, small, partner_column="solvent", features=("pH",))
    MolAttn(pair).eval().save_pretrained(folder / "pair")
    tasks = (
        Task(LONG, unit="nmol/min/mg_of_microsomal_protein_at_37_degrees"),
        Task(
            "class", "multiclass", ("low", "high", "Pneumonoultramicroscopicsilicovolcanoconiosis")
        ),
    )
    model = MolAttn(MolAttnConfig(tasks, small)).eval()
    smiles = ["C" * place + "O" for place in range(1, 41)]
    model.calibrate(smiles, np.column_stack([np.arange(40) / 9, np.arange(40) % 3]), smiles)
    model.save_pretrained(folder / "long")
    return "admet", folder / "pair", folder / "long"


@pytest.fixture(scope="module")
def address(models):
    yield from (f"{one}/" for one in serving(*models))


@pytest.fixture(scope="module")
def ask(address):
    """The server's own answers, as JSON."""

    return lambda path, **body: answer_of(address + path, body or None).json


@pytest.fixture(scope="module")
def tasks(ask):
    return ask("models")["models"][0]["tasks"]


@pytest.fixture
def opened(browser, address):
    """Open the page, which must neither complain nor ask another server."""

    @contextmanager
    def ready(width=1280, complaints=(), address=address, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(1000 * HANGING)
        page = context.new_page()
        messages, requests = [], []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        yield page
        context.close()
        assert [text for text in messages if not any(one in text for one in complaints)] == []
        allowed = (re.split("[?#]", address)[0], "data:", "blob:")
        assert [url for url in requests if not url.startswith(allowed)] == []

    return ready


def wait_until(is_so):
    """Wait for a condition; playwright's own wait needs eval, which the page forbids."""
    end = time.monotonic() + HANGING
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def predict(page, text):
    page.fill("#smiles", text)
    page.click("#predict:enabled")
    page.locator("#progress:not(.running)").wait_for()


def number(text):
    return float(text.replace(MINUS, "-"))


def saved(page, selector):
    with page.expect_download() as download:
        page.click(selector)
    return Path(download.value.path()).read_bytes()


def test_editor_is_the_one_of_its_note():
    folder = PAGE / "vendor" / "openchemlib"
    note = (folder / "README.md").read_text(encoding="utf-8")
    content = (folder / "openchemlib.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() in note
    assert f"@version v{note.split()[2].rstrip(',')}".encode() in content
    assert "Redistribution" in (folder / "LICENSE").read_text(encoding="utf-8")


def test_one_molecule_has_every_property_and_what_is_near_it(opened, ask, tasks):
    (answer,) = ask("predict", smiles=[ASPIRIN], neighbors=3)["molecules"]
    found = answer["predictions"]
    with opened() as page:
        page.evaluate(_SHIFTS)
        page.locator("#editor canvas").last.wait_for()
        predict(page, f"{ASPIRIN} aspirin")
        assert page.inner_text("#molecule-name") == "aspirin"
        heads = page.locator(".property-groups h3").all_inner_texts()
        assert heads == [*dict.fromkeys(task["card"]["category"] for task in tasks)]
        rows = {row.locator(".title").inner_text(): row for row in page.locator(".property").all()}
        assert rows.keys() == {task["card"]["title"] for task in tasks}
        for task in tasks:
            row, given = rows[task["card"]["title"]], found[task["name"]]
            text, ends = row.locator(".value b").inner_text(), row.locator(".ends span")
            if task["kind"] == "regression":
                assert number(text) == pytest.approx(given["value"], rel=5e-3)
                low, high = ends.first.inner_text().split(":")[1].split(" to ")
                assert [number(low), number(high)] == pytest.approx(
                    [given["low"], given["high"]], rel=5e-3
                )
                place = row.locator(".bar .here").evaluate("one => parseFloat(one.style.left)")
                below = sum(one < given["value"] for one in task["training"]["quantiles"])
                assert below - 1 <= place <= below
                if 1 < place < 99:
                    assert re.search(rf"\b{round(place)}(st|nd|rd|th) percentile", row.inner_text())
            else:
                probability = given["probabilities"]["1"]
                assert abs(int(text.removesuffix("%").strip("<> ")) - 100 * probability) <= 1
            if given["measured"] is not None:
                contradicts = re.search(
                    "outside of|otherwise", row.locator(".measured").inner_text()
                )
                assert (contradicts is None) == (given["measured_remark"] is None)
            grade = given["confidence"]
            marks = row.locator(".tag").evaluate_all("all => all.map(one => one.className)")
            assert marks == ([] if grade == "high" else [f"tag {grade}"])
        units = page.locator(".property .unit").all_inner_texts()
        assert page.locator(".measured.contradicts").count() > 0
        assert any("\N{MICRO SIGN}L/min/10\N{SUPERSCRIPT SIX} cells" in unit for unit in units)
        near = page.locator(".neighbor", has=page.locator("img"))
        near.nth(2).wait_for()
        labels = page.locator(".neighbor img").evaluate_all("all => all.map(one => one.alt)")
        assert labels == [f"Structure of {one['smiles']}" for one in answer["neighbors"]]
        assert f"{MINUS}1.72 log mol/L" in near.first.inner_text().replace("\n", " ")
        counts = Counter(one["confidence"] for one in found.values())
        words = ", ".join(f"{counts[name]} {name}" for name in CONFIDENCES if name in counts)
        assert f"Confidence: {words}." in page.inner_text(".confidence")
        assert page.evaluate(_SHIFTS_AFTER_TWO_FRAMES) < 0.02
        title = page.locator(".property .title").first
        title.click()
        card, text = tasks[0]["card"], page.inner_text(".about:not([hidden])")
        for fact in (card["assay"], card["license"], card["scores"], tasks[0]["name"]):
            assert fact in text
        assert f"{MINUS}5.15 log cm/s and above: favorable" in text
        title.click()
        assert page.locator(".about:not([hidden])").count() == 0


# How far things on the page have moved by themselves.
_SHIFTS = """() => { window.shifts = 0;
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts += one.value;
  }).observe({ type: "layout-shift", buffered: true }); }"""
_SHIFTS_AFTER_TWO_FRAMES = """() => new Promise(done => requestAnimationFrame(
  () => requestAnimationFrame(() => setTimeout(() => done(window.shifts)))))"""


def test_a_table_is_sorted_filtered_and_opened(opened, ask, tasks):
    with opened() as page:
        page.wait_for_selector("#predict:enabled")
        page.click("text=Ten drugs")
        page.locator("#downloads:visible").wait_for()

        def values():
            cells = page.locator("tbody tr td:nth-child(4)").all_inner_texts()
            return [number(text.split()[0]) for text in cells]

        before, title = values(), tasks[0]["card"]["title"]
        head = page.locator(f"thead button:text('{title}')")
        head.focus()
        for order, reverse in (("ascending", False), ("descending", True)):
            page.keyboard.press("Enter")
            assert page.locator("th", has_text=title).get_attribute("aria-sort") == order
            assert values() == sorted(before, reverse=reverse)
        assert head.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
        limit = sorted(before)[4]
        page.select_option(".range select", tasks[0]["name"])
        page.fill("[aria-label='from value']", str(limit))
        page.locator(".found:text('of 10 molecules')").wait_for()
        assert all(value >= limit for value in values())
        page.fill("[aria-label='from value']", "")
        page.fill("[type=search]", "caff")
        page.locator(".found:text('1 of 10 molecules')").wait_for()
        page.focus("button.link:text('caffeine')")
        page.keyboard.press("Enter")
        assert page.inner_text("#molecule-name") == "caffeine"
        assert page.evaluate("document.activeElement.id") == "molecule-name"
        assert page.locator("#table").is_hidden()
        page.go_back()
        assert page.locator("#table").is_visible()
        assert page.evaluate("document.activeElement.textContent") == "caffeine"
        columns = page.locator("tbody tr").first.locator("td").count()
        page.click(".columns summary")
        page.uncheck(f".columns label:has-text('{title}') input")
        assert page.locator("tbody tr").first.locator("td").count() == columns - 1
        assert page.locator("thead button", has_text=title).count() == 0


def test_a_table_is_sorted_by_several_columns(opened, ask, tasks):
    smiles = ["CCO", "CCCO", "c1ccccc1", "CC(=O)O", "CCN", "CCCCCCCC"]
    molecules = ask("predict", smiles=smiles)["molecules"]
    first = next(task for task in tasks if task["name"] == "hia_hou")["card"]["title"]
    second = tasks[0]["card"]["title"]
    keys = []
    for place, one in enumerate(molecules):
        share = one["predictions"]["hia_hou"]["probabilities"]["1"]
        value = one["predictions"][tasks[0]["name"]]["value"]
        keys.append((round(100 * share), -float(f"{value:.3g}"), place))
    assert len({share for share, *_ in keys}) < len(keys)  # the second column decides
    with opened() as page:
        predict(page, "\n".join(f"{one} {place}" for place, one in enumerate(smiles)))
        page.click(f"thead button:text('{first}')")
        for _ in range(2):  # descending
            page.click(f"thead button:text('{second}')", modifiers=["Shift"])
        names = page.locator("tbody th").all_inner_texts()
        assert [int(name) for name in names] == [place for *_, place in sorted(keys)]
        assert page.locator("thead sup").all_inner_texts() == ["2", "1"]


def test_a_result_has_an_address_that_opens_it_again(opened, address):
    with opened() as page:
        predict(page, f"{ASPIRIN} aspirin")
        page.locator(".structure img").wait_for()
        assert page.evaluate("document.querySelector('.structure').getBoundingClientRect().top") < (
            0.8 * page.viewport_size["height"]
        )
        assert "#smiles=" in page.url
        values = page.locator(".value b").all_inner_texts()
        page.reload()
        page.locator(".structure img").wait_for()
        assert page.inner_text("#molecule-name") == "aspirin"
        assert page.locator(".value b").all_inner_texts() == values
        predict(page, "CCO one\nCCN two\nCCC three")
        page.click("button.link:text('two')")
        page.reload()
        page.locator("#molecule-name:text('two')").wait_for()
        page.click("#to-table")
        assert page.locator("tbody th").all_inner_texts() == ["one", "two", "three"]


def test_calculated_values_and_alerts_are_shown_with_their_atoms(opened, ask):
    salt, free = "[Na+].CC(=O)Oc1ccccc1C(=O)[O-]", ASPIRIN
    found = ask(f"physchem?smiles={free.replace('=', '%3D')}")
    with opened() as page:
        predict(page, salt)
        page.locator(".tiles dt").first.wait_for()
        assert page.locator(".tiles dt").all_inner_texts() == [
            one["title"] for one in found["properties"]
        ]
        assert page.locator(".tiles dd").first.inner_text() == "180.2 g/mol"
        page.click(".alert:text('phenol ester')")
        page.locator(".structure img[alt='Structure with phenol ester marked']").wait_for()
        page.click(".alert:text('phenol ester')")
        page.locator(f".structure img[alt='Structure of {salt}']").wait_for()
        assert page.locator(".alert[aria-pressed=true]").count() == 0


def test_values_are_marked_as_desired_or_not(opened, ask, tasks):
    (answer,) = ask("predict", smiles=[ASPIRIN])["molecules"]
    given = answer["predictions"]
    with opened() as page:
        predict(page, ASPIRIN)
        for name, low in (("herg", True), ("hia_hou", False), ("bbb_martins", None)):
            title = next(one["card"]["title"] for one in tasks if one["name"] == name)
            share = given[name]["probabilities"]["1"]
            good = 1 - share if low else share
            expected = (
                "" if low is None else "good" if good >= 0.7 else "poor" if good <= 0.3 else ""
            )
            row = page.locator(".property", has_text=title).first
            assert row.locator(".value b").get_attribute("class") == expected


def test_values_of_low_confidence_are_neither_colored_nor_marked(opened, ask, tasks):
    (answer,) = ask("predict", smiles=[FAR])["molecules"]
    given = answer["predictions"]
    low = {one["card"]["title"] for one in tasks if given[one["name"]]["confidence"] == "low"}
    assert given["hia_hou"]["confidence"] == "low"
    assert given["hia_hou"]["probabilities"]["1"] >= 0.7  # which is desired
    with opened() as page:
        predict(page, FAR)
        colored = page.locator(".property:has(b:is(.good, .poor)) .title")
        assert not low & {*colored.all_inner_texts()}
        assert page.locator(".property .title").count() == len(tasks)
        predict(page, f"{FAR}\nCCO")
        cells = page.locator("tbody tr").first.locator("td:has(.tag.low)")
        assert cells.count() == len(low)
        assert cells.locator("span:is(.good, .poor)").count() == 0


def test_ten_thousand_molecules_are_shown_a_page_at_a_time_or_cancelled(opened):
    smiles = ["C" * (1 + place % 40) + "O" for place in range(10_000)]
    paste = """text => {
      const data = new DataTransfer();
      data.setData("text/plain", text);
      document.getElementById("smiles").dispatchEvent(
        new ClipboardEvent("paste", { clipboardData: data, cancelable: true }));
    }"""
    with opened() as page:
        page.wait_for_selector("#predict:enabled")
        page.select_option("#model", label="long")
        page.evaluate(paste, "\n".join(smiles))
        page.click("#predict")
        page.locator("#progress:not(.running)").wait_for()
        assert page.inner_text("#said").startswith("10,000 molecules done")
        assert page.locator("tbody tr").count() == 50
        page.click("[data-step=Last]")
        assert page.inner_text(".found") == "10,000 molecules, rows 9,951 to 10,000"
        page.click("#predict")
        page.click("#cancel")
        page.locator("#said:has-text('Cancelled')").wait_for()


def test_a_busy_server_is_waited_for_and_no_row_is_lost(opened):
    with opened(complaints=("429",)) as page:
        refused = {"status": 429, "headers": {"Retry-After": "1"}, "json": {"error": "busy"}}
        page.route("**/predict?*", lambda route: route.fulfill(**refused), times=1)
        predict(page, "CCO one\nC1CC two\nCCN three")
        assert "3 molecules done, 1 without a prediction" in page.inner_text("#said")
        assert page.locator("tbody th").all_inner_texts() == ["one", "two", "three"]


def test_a_token_is_taken_from_the_address_or_asked_for(opened, models):
    for address in serving(models[2], "--token", "secret-of-a-test"):
        with opened(address=f"{address}/?token=secret-of-a-test") as page:
            page.wait_for_selector("#predict:enabled")
            assert "secret" not in page.url
            predict(page, ASPIRIN)
            page.locator(".structure img").wait_for()
        with opened(address=f"{address}/", complaints=("401",)) as page:
            page.fill("#token", "secret-of-a-test")
            page.keyboard.press("Enter")
            page.wait_for_selector("#predict:enabled")


def test_files_are_read_and_written_in_each_format(opened, ask, tmp_path):
    file = io.StringIO()
    with Chem.SDWriter(file) as writer:
        for place, text in enumerate(("CCO", ASPIRIN)):
            mol = Chem.MolFromSmiles(text)
            mol.SetProp("own", f"kept {place}")
            writer.write(mol)
    drop = """text => {
      const data = new DataTransfer();
      data.items.add(new File([text], "in.sdf"));
      for (const kind of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(
          new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
      }
    }"""
    value = ask("predict", smiles=[ASPIRIN])["molecules"][0]["predictions"]["ld50_zhu"]["value"]
    with opened(complaints=("422",)) as page:
        page.wait_for_selector("#predict:enabled")
        page.evaluate(drop, file.getvalue())
        page.locator("#downloads:visible").wait_for()
        assert page.inner_text("#said").startswith("2 molecules done")
        rows = [*csv.DictReader(io.StringIO(saved(page, "#save-csv").decode()))]
        assert float(rows[1]["ld50_zhu_predicted"]) == pytest.approx(value, rel=1e-5)
        (tmp_path / "out.sdf").write_bytes(saved(page, "#save-sdf"))
        *_, mol = Chem.SDMolSupplier(str(tmp_path / "out.sdf"))
        assert mol.GetProp("own") == "kept 1"
        (tmp_path / "out.xlsx").write_bytes(saved(page, "#save-xlsx"))
        sheet = openpyxl.load_workbook(tmp_path / "out.xlsx")["Predictions"]
        assert "Acute oral toxicity, confidence" in [cell.value for cell in sheet[1]]
        page.set_input_files("#file", tmp_path / "out.xlsx")
        page.locator("#chosen:text('out.xlsx')").wait_for()
        page.locator("#downloads:visible").wait_for()
        assert page.locator("tbody tr").count() == 2
        # A table whose SMILES are in a column of another name.
        (tmp_path / "in.csv.gz").write_bytes(
            gzip.compress(b"other,what\nCC,CCO\nCCC,CCN\nCCCC,C\n")
        )
        page.set_input_files("#file", tmp_path / "in.csv.gz")
        page.fill("#column", "what")
        page.click("text=Use it")
        page.locator("#said:has-text('3 molecules done')").wait_for()
        page.click("#predict")  # the file again, until the text changes
        page.locator("#downloads:visible").wait_for()
        assert page.inner_text("#chosen") == "in.csv.gz"
        for name, content in (("in.png", "\x89PNG"), ("in.csv", "smiles,note\n"), ("in.sdf", "")):
            (tmp_path / name).write_text(content)
            page.set_input_files("#file", tmp_path / name)
            page.locator(f"#problem:has-text('{name}')").wait_for()
            assert page.inner_text("#chosen") == ""
        predict(page, f"{ASPIRIN} aspirin")
        assert page.inner_text("#molecule-name") == "aspirin"


ALCOHOLS = ["C" * place + "O" for place in (3, 7, 1, 5, 9, 2)]


def predict_alcohols(page):
    """Predict molecules with a column of their own by the model of long names, which is small."""
    page.wait_for_selector("#predict:enabled")
    page.select_option("#model", label="long")
    predict(page, "\n".join(f"{one}\tm{len(one)}\t{len(one)}" for one in ALCOHOLS))


def names_of(page):
    return page.locator("tbody th").all_inner_texts()


def test_files_hold_the_rows_that_are_shown_in_their_order(opened, ask, tmp_path):
    with opened() as page:
        predict_alcohols(page)
        page.route("**/predict*", lambda route: route.abort())  # nothing is predicted again
        page.fill("[type=search]", "CCC")
        page.locator(".found:text('4 of 6 molecules')").wait_for()
        page.click("thead button:text('Molecule')")
        page.click("thead button:text('Molecule')")
        shown = ["m8", "m6", "m4", "m10"]
        assert names_of(page) == shown
        text = saved(page, "#save-csv").decode()
        assert text.splitlines()[0].startswith(f"smiles,name,column 3,{LONG}_predicted,")
        rows = [*csv.DictReader(io.StringIO(text))]
        assert [row["name"] for row in rows] == shown
        found = ask("predict", model="long", smiles=[row["smiles"] for row in rows])["molecules"]
        for row, one in zip(rows, found, strict=True):
            given = one["predictions"]
            value = float(row[f"{LONG}_predicted"])
            assert value == pytest.approx(given[LONG]["value"], rel=1e-6)
            assert row["class_predicted"] == given["class"]["class"]
        (tmp_path / "out.xlsx").write_bytes(saved(page, "#save-xlsx"))
        sheet = openpyxl.load_workbook(tmp_path / "out.xlsx").worksheets[0]
        assert [row[1].value for row in sheet.iter_rows(min_row=2)] == shown
        assert page.inner_text("#said") == "predictions.xlsx: 4 molecules."
        (tmp_path / "out.sdf").write_bytes(saved(page, "#save-sdf"))
        mols = [*Chem.SDMolSupplier(str(tmp_path / "out.sdf"))]
        assert [mol.GetProp("_Name") for mol in mols] == shown


def test_a_plot_selects_rows_of_the_table(opened):
    with opened() as page:
        predict_alcohols(page)
        page.click(".plot summary")
        across, up, color = page.locator(".plot select").all()
        across.select_option(label="column 3")
        assert page.locator(".figure .pile").count() == 6
        up.select_option(label="Row")
        color.select_option(label="class")
        page.locator(".figure .dots").first.wait_for()
        assert set(page.locator(".legend").inner_text().split()) <= {"low", "high"}
        box = page.locator(".figure svg").bounding_box()
        middle = box["x"] + box["width"] / 2
        page.mouse.move(middle, box["y"] + 15)
        page.mouse.down()
        page.mouse.move(middle + 50, box["y"] + 50)
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 50)
        page.mouse.up()
        page.locator(".found:has-text('selected in the plot')").wait_for()
        assert names_of(page) == ["m8", "m6", "m10"]
        across.select_option(label="Row")  # which are shown in other columns too
        faint = page.locator(".figure .dots.faint").evaluate_all(
            "all => all.map(one => one.getAttribute('d'))"
        )
        assert "".join(faint).count("M") == 3
        page.click("button:text('Show all')")
        assert names_of(page) == [f"m{len(one)}" for one in ALCOHOLS]
        across.select_option(label="column 3")
        page.focus("[aria-label='across, to']")
        page.keyboard.type("4")
        page.locator(".found:has-text('3 of 6 molecules')").wait_for()
        assert names_of(page) == ["m4", "m2", "m3"]
        page.fill("[aria-label='across, to']", "")
        page.locator(".found:text-is('6 molecules')").wait_for()
        path = page.locator(".figure .dots").first.get_attribute("d")
        left, top = map(float, re.findall(r"[\d.]+", path)[:2])
        page.mouse.move(box["x"] + left, box["y"] + top)
        page.locator(".point strong").wait_for()
        name = page.inner_text(".point strong")
        page.mouse.down()
        page.mouse.up()
        assert page.inner_text("#molecule-name") == name


def test_a_score_sorts_the_table_and_is_saved(opened, ask, tmp_path):
    found = ask("predict", model="long", smiles=ALCOHOLS)["molecules"]
    values = [one["predictions"][LONG]["value"] for one in found]
    low, high = min(values) - 0.1, max(values)
    worthless = low - (high - low)
    expected = {
        f"m{len(smiles)}": ((high - value) / (high - low)) ** (3 / 4)
        * ((value - worthless) / (high - worthless)) ** (1 / 4)
        for smiles, value in zip(ALCOHOLS, values, strict=True)
    }
    best_first = sorted(expected, key=expected.get, reverse=True)

    def shown(page):
        cells = page.locator("tbody tr td:nth-child(3)").all_inner_texts()
        return dict(zip(names_of(page), map(float, cells), strict=True))

    with opened() as page:
        predict_alcohols(page)
        page.click(".score summary")  # which begins with a property
        page.click("button:text('Add a property')")
        options = page.locator("[aria-label='property 1 of the score'] option")
        assert options.all_inner_texts() == [LONG]  # without the multiclass property
        for place, fields in enumerate([(high + 1e-9, low, 3), (worthless, high, 1)], 1):
            for field, value in zip(("bad", "good", "weight"), fields, strict=True):
                page.fill(f"[aria-label^='{field}, '][aria-label*='property {place} ']", str(value))
        wait_until(lambda: shown(page) == pytest.approx(expected, abs=6e-3))
        assert names_of(page) == best_first
        assert page.locator("th", has_text="Score").get_attribute("aria-sort") == "descending"
        rows = [*csv.DictReader(io.StringIO(saved(page, "#save-csv").decode()))]
        assert [row["name"] for row in rows] == best_first
        assert [float(row["score"]) for row in rows] == pytest.approx(
            sorted(expected.values(), reverse=True), rel=1e-3, abs=1e-5
        )
        (tmp_path / "score.json").write_bytes(saved(page, ".score button:text('Save')"))
        page.reload()  # the browser keeps it
        predict_alcohols(page)
        assert names_of(page) == best_first
        page.click("button.link >> nth=0")
        assert page.inner_text(".scored").startswith("Score ")
        page.click("#to-table")
        page.click(".score summary")
        page.click(".score button:text('Clear')")
        assert names_of(page) == [f"m{len(one)}" for one in ALCOHOLS]
        page.set_input_files(".score input[type=file]", tmp_path / "score.json")
        page.locator(".part").nth(1).wait_for()
        assert names_of(page) == best_first
        (tmp_path / "wrong.json").write_text('{"properties": [{"property": "what"}]}')
        page.set_input_files(".score input[type=file]", tmp_path / "wrong.json")
        page.locator("#problem:has-text('wrong.json')").wait_for()
        assert names_of(page) == best_first


def test_atoms_are_colored_on_request(opened):
    with opened() as page:
        page.wait_for_selector("#predict:enabled")
        page.select_option("#model", label="long")
        predict(page, ASPIRIN)
        pressed = page.locator(".color").first
        pressed.click()
        page.locator(".drawing.colored img").wait_for()
        assert pressed.get_attribute("aria-pressed") == "true"
        legend = page.inner_text(".below-drawing")
        assert f"{LONG}. Orange atoms raise the predicted value" in legend
        assert "baseline" in legend
        assert "null" not in legend
        page.click("text=Plain structure")
        assert page.locator(".drawing.colored").count() == 0
        assert pressed.get_attribute("aria-pressed") == "false"
        pressed.click()
        page.locator(".drawing.colored img").wait_for()
        predict(page, "CCO")
        assert page.locator(".color[aria-pressed=true], .drawing.colored").count() == 0


def test_a_colored_drawing_names_the_property_as_the_page_does(ask, tasks):
    found = ask("explain", smiles=ASPIRIN, task=tasks[0]["name"])
    assert f"contribution to {tasks[0]['card']['title']} (" in found["svg"]


def test_what_if_shows_how_each_value_moves(opened, ask, tasks):
    changed = "CC(=O)Oc1ccc(F)cc1C(=O)O"
    smiles = [ASPIRIN, changed]
    answers = ask("predict", smiles=smiles, difference_from=[ASPIRIN] * 2)["molecules"]
    before, after = (one["predictions"] for one in answers)
    with opened() as page:
        predict(page, ASPIRIN)
        shown = page.inner_text(".confidence")
        page.click("text=What if I change it?")
        page.fill("#changed-smiles", changed)
        page.locator(".moved").first.wait_for()
        texts = page.locator(".moved").all_inner_texts()
        for task, text in zip(tasks, texts, strict=True):
            a, b = before[task["name"]], after[task["name"]]
            if task["kind"] == "regression":
                expected = b["value"] - a["value"]
                if text.endswith(" times"):
                    assert b["difference"]["kind"] == "ratio"
                    expected = b["value"] / a["value"]
                moved = 0 if text == "no change" else number(text.removesuffix(" times"))
                assert moved == pytest.approx(expected, rel=5e-3, abs=5e-4)
            elif text != "no change":
                expected = 100 * (b["probabilities"]["1"] - a["probabilities"]["1"])
                assert abs(number(text.split()[0]) - expected) <= 1
        assert page.inner_text(".said").startswith("Largest changes: ")
        words = page.locator(".value .word").all_inner_texts()
        ranges = [text.removeprefix("90% ").split(" to ") for text in words if text[:3] == "90%"]
        differences = [one["difference"] for one in after.values() if "difference" in one]
        for ends, difference in zip(ranges, differences, strict=True):
            expected = [difference["low"], difference["high"]]
            assert [*map(number, ends)] == pytest.approx(expected, rel=5e-3, abs=5e-4)
        figures = page.locator(".what-if figure")
        label = "Structure after the change"
        wait_until(lambda: figures.nth(1).locator("img").get_attribute("alt") == label)
        for wrong in ("C1CC", ""):  # nothing of the change stays
            page.fill("#changed-smiles", wrong)
            page.locator(".said:has-text('No prediction')").wait_for()
            figures.nth(1).locator(".undrawn").wait_for()
            assert page.locator(".moved").count() == 0
            assert page.inner_text(".confidence") == shown
            assert page.input_value("#changed-smiles") == wrong
        page.fill("#changed-smiles", FAR)
        page.locator(".confidence:has-text('The changed molecule: Confidence: ')").wait_for()
        assert page.locator(".color:visible").count() == 0
        page.click("text=End what-if")
        assert page.locator(".moved").count() == 0
        assert page.inner_text(".confidence") == shown
        assert page.locator(".color:visible").count() == len(tasks)


_HAS_BLUE = """canvas => {
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 2] > Math.max(data[at], data[at + 1]) + 99) return true;
  }
  return false;
}"""


def test_drawing_writes_smiles_and_moves_values(opened):
    with opened() as page:
        page.locator("#editor canvas").last.wait_for()
        page.fill("#smiles", "CCO one\nCCN two")
        area = page.locator("#editor canvas").last
        wait_until(lambda: area.evaluate(_HAS_BLUE))  # nitrogen of the line of the cursor
        area.click(position={"x": 20, "y": 20})
        wait_until(lambda: not page.input_value("#smiles").endswith("two"))
        first, second = page.input_value("#smiles").split("\n")
        assert first == "CCO one"
        assert Chem.MolFromSmiles(second).GetNumAtoms() > 3
        predict(page, "CC")
        page.click("text=What if I change it?")
        area = page.locator(".what-if .editor canvas").last
        area.click(position={"x": 20, "y": 20})
        page.locator(".moved").first.wait_for()
        assert page.input_value("#changed-smiles") not in ("", "CC")


def test_pasted_cells_have_their_smiles_found(opened):
    rows = [("aspirin", ASPIRIN, "3.5"), ("phenol, pure", "Oc1ccccc1", "2,1"), ("x", "CCO", "")]
    with opened() as page:
        for text in (
            "\n".join("\t".join(row) for row in rows),
            "\n".join(["ID\tCompound\tpIC50", *("\t".join(row) for row in rows)]),
            "\n".join(";".join((smiles, name, value)) for name, smiles, value in rows),
        ):
            predict(page, text)
            assert page.inner_text("#said").startswith("3 molecules done. Read:")
            names = page.locator("tbody th").all_inner_texts()
            assert names == ["aspirin", "phenol, pure", "x"]


def test_the_editor_has_the_molecule_of_the_address(opened, address):
    with opened(address=f"{address}#smiles=c1ccncc1") as page:
        area = page.locator("#editor canvas").last
        wait_until(lambda: area.evaluate(_HAS_BLUE))

        def draws_an_atom():  # the page moves once, to the results, when it has predicted
            area.click(position={"x": 20, "y": 20})
            page.wait_for_timeout(500)
            return page.input_value("#smiles") != "c1ccncc1"

        wait_until(draws_an_atom)
        mol = Chem.MolFromSmiles(page.input_value("#smiles"))
        assert mol.HasSubstructMatch(Chem.MolFromSmiles("c1ccncc1"))


def test_models_are_chosen_and_ask_for_what_else_they_need(opened, ask):
    inputs = {"model": "pair", "smiles": [ASPIRIN], "partner": ["O"], "features": {"pH": [7.4]}}
    found = ask("predict", **inputs)["molecules"][0]["predictions"]
    with opened() as page:
        page.wait_for_selector("#predict:enabled")
        page.select_option("#model", label="pair")
        assert page.inner_text("#extra legend") == "The model also needs"
        page.fill("[name=solvent]", "O")
        page.fill("[name=pH]", "7.4")
        predict(page, ASPIRIN)
        assert page.locator(".property-groups h3").all_inner_texts() == ["Properties"]
        assert page.locator(".property .title").all_inner_texts() == ["logS", "phase"]
        value, phase = page.locator(".property b").all_inner_texts()
        assert number(value) == pytest.approx(found["logS"]["value"], rel=5e-3)
        assert phase == found["phase"]["class"]
        assert page.locator(".nearest").inner_text() == ""


def views(page):
    """Show each view of the page; yields at each."""
    page.wait_for_selector("#predict:enabled")
    yield
    for model in ("admet", "long"):
        page.select_option("#model", label=model)
        predict(page, ASPIRIN)
        page.locator(".structure img").wait_for()
        page.locator(".property .title").first.click()
        yield
        page.click("text=What if I change it?")
        page.fill("#changed-smiles", "CC(=O)Oc1ccccc1")
        page.locator(".moved").first.wait_for()
        yield
        predict(page, f"CCO <img src=x onerror=alert(1)>\n{FAR} far\nC1CC junk")
        assert page.locator("tbody img[src=x]").count() == 0
        page.click(".columns summary")
        yield
        page.click(".columns summary")
        for tool in (".plot", ".score"):
            if page.locator(f"{tool}[open]").count() == 0:
                page.click(f"{tool} summary")
        page.select_option(".plot select >> nth=2", index=1)
        page.locator(".legend i").first.wait_for()
        yield
        page.click("button.link:text('far')")
        assert "Confidence: " in page.inner_text(".confidence")
        page.click("#next")
        assert "No prediction: " in page.inner_text(".failed")
        yield


@pytest.mark.parametrize("width, scheme", [(1280, "dark"), (400, "light")])
def test_every_view_fits_and_can_be_read(opened, width, scheme):
    with opened(width=width, color_scheme=scheme) as page:
        for _ in views(page):
            assert_fits_and_can_be_read(page, width)
