"""The page of ``molattn serve`` in a browser, against canned answers and against the server."""

import csv
import gzip
import hashlib
import io
import os
import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

import molattn
from molattn.config import NetworkConfig, ServeConfig
from molattn.data.table import write_table
from molattn.inference import predict_table
from molattn.model.model import MolAttn, MolAttnConfig
from molattn.serve.bodies import FILES
from molattn.task import Task

from ..conftest import assert_fits_and_can_be_read
from .stub import MODELS, TASKS, TRAINING, Stub, molecule

PAGE = Path(molattn.__file__).parent / "serve" / "page"
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
FAR = "C" * 60
MINUS = "\N{MINUS SIGN}"

pytestmark = pytest.mark.browser


@pytest.fixture
def stub():
    with Stub() as server:
        yield server


@pytest.fixture
def open_address(browser):
    """Open a page of a server, which must neither complain nor ask another server."""

    @contextmanager
    def opened(address, width=1280, complaints=(), **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        page = context.new_page()
        page.set_default_timeout(20_000)
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        yield page
        context.close()
        expected = [text for text in said if not any(one in text for one in complaints)]
        assert expected == []
        origin = address.split("?")[0]
        others = ("data:", "blob:")
        assert [url for url in asked if not url.startswith((origin, *others))] == []

    return opened


@pytest.fixture
def opened(open_address, stub):
    """Open the page of the stub, ready to be asked."""

    @contextmanager
    def ready(**options):
        with open_address(stub.address, **options) as page:
            page.wait_for_selector("#predict:enabled")
            yield page

    return ready


def wait_until(is_so, seconds=20):
    """Wait for a condition; playwright's own wait needs eval, which the page forbids."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def predict(page, text):
    page.fill("#smiles", text)
    page.click("#predict")
    page.locator("#progress:not(.running)").wait_for()


def number(text):
    return float(text.replace(MINUS, "-"))


def column(page, place):
    """The texts of a column of the table."""
    return page.locator(f"tbody tr td:nth-child({place})").all_inner_texts()


def saved(page, selector):
    with page.expect_download() as download:
        page.click(selector)
    return Path(download.value.path()).read_bytes()


def sdf(*smiles):
    file = io.StringIO()
    with Chem.SDWriter(file) as writer:
        for place, text in enumerate(smiles):
            mol = Chem.MolFromSmiles(text)
            mol.SetProp("_Name", f"record {place + 1}")
            mol.SetProp("own", f"kept {place}")
            writer.write(mol)
    return file.getvalue()


def test_colors_are_those_of_the_other_pages():
    shared = Path(molattn.__file__).parent / "utils" / "templates" / "style.css"
    own, others = (one.read_text(encoding="utf-8") for one in (PAGE / "page.css", shared))
    assert others.split("* {")[0] in own


def test_editor_is_the_one_of_its_note():
    folder = PAGE / "vendor" / "openchemlib"
    note = (folder / "README.md").read_text(encoding="utf-8")
    content = (folder / "openchemlib.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() in note
    assert f"@version v{note.split()[2].rstrip(',')}".encode() in content
    assert "Redistribution" in (folder / "LICENSE").read_text(encoding="utf-8")


def test_one_molecule_has_every_property_and_what_is_near_it(opened):
    found = molecule(ASPIRIN, MODELS[0])["predictions"]
    with opened() as page:
        predict(page, f"{ASPIRIN} aspirin")
        assert page.inner_text("#molecule-name") == "aspirin"
        heads = page.locator(".property-groups h3").all_inner_texts()
        assert heads == ["Absorption", "Distribution", "Metabolism", "Excretion", "Toxicity"]
        rows = page.locator(".property")
        assert rows.count() == len(TASKS) == 22
        for place, task in enumerate(TASKS):
            row = rows.nth(place)
            assert row.locator(".title").inner_text() == task["card"]["title"]
            given, text = found[task["name"]], row.locator(".value b").inner_text()
            if task["kind"] == "regression":
                assert number(text) == pytest.approx(given["value"], rel=5e-3)
                interval = row.locator(".ends span").first.inner_text().split(":")[1]
                low, high = interval.split(" to ")
                assert number(low) == pytest.approx(given["low"], rel=5e-3)
                assert number(high) == pytest.approx(given["high"], rel=5e-3)
            else:
                share = given["probabilities"]["1"]
                assert abs(int(text.removesuffix("%").removeprefix("< ")) - 100 * share) <= 1
                assert row.locator(".word").inner_text() == ("yes" if share > 0.5 else "no")
        assert "permeates well" in rows.nth(0).inner_text()
        page.locator(".neighbor svg").nth(2).wait_for()
        near = page.locator(".neighbor").first.inner_text()
        assert re.search(rf"Caco-2 permeability\s+{MINUS}4.60 log cm/s", near)
        assert re.search(r"Mutagenic \(Ames test\)\s+no", near)
        labels = page.locator(".neighbor svg").evaluate_all("all => all.map(one => one.ariaLabel)")
        assert labels == [f"Structure of {one}" for one in TRAINING]
        assert "Like the training molecules" in page.inner_text(".domain")


def test_bar_is_where_the_value_lies_among_the_molecules_compared(opened):
    task = next(one for one in TASKS if one["name"] == "caco2")
    place = next(k for k, one in enumerate(TASKS) if one["name"] == "caco2")
    value = molecule(ASPIRIN, MODELS[0])["predictions"]["caco2"]["value"]
    with opened() as page:
        predict(page, ASPIRIN)
        for option, quantiles in (
            ("training", task["training"]["quantiles"]),
            ("reference", task["reference"]["quantiles"]),
        ):
            page.select_option("#against", option)
            below = sum(one < value for one in quantiles)
            row = page.locator(".property").nth(place)
            at = float(row.locator(".bar .here").evaluate("one => parseFloat(one.style.left)"))
            assert below - 1 <= at <= below
            assert re.search(rf"\b{round(at)}(st|nd|rd|th) percentile", row.inner_text())


def test_facts_of_a_property_are_a_click_away(opened):
    with opened() as page:
        predict(page, ASPIRIN)
        title = page.locator(".property .title").first
        assert title.get_attribute("aria-expanded") == "false"
        title.click()
        text = page.inner_text(".about:not([hidden])")
        for fact in ("caco2", "in vitro", "TDC, 910 rows", "CC BY 4.0", "MAE 0.274", "90%"):
            assert fact in text
        assert f"below {MINUS}5.15 log cm/s: permeates poorly" in text
        title.click()
        assert page.locator(".about:not([hidden])").count() == 0


def test_beyond_the_domain_and_without_a_prediction_are_said_in_words(opened):
    with opened() as page:
        predict(page, f"{FAR} far")
        assert "Beyond what the model knows" in page.inner_text(".domain")
        predict(page, "C1CC junk")
        assert "No prediction: SMILES: got 'C1CC'" in page.inner_text(".failed")
        assert "syntax" in page.inner_text(".failed")


def test_property_that_was_measured_of_no_molecule_like_it_is_marked(opened):
    smiles = "CC(C)NCC(O)COc1ccc(CC(N)=O)cc1"
    tasks = [one for one in TASKS if one["card"]["category"] == "Excretion"]
    with opened() as page:
        predict(page, smiles)
        said = page.inner_text(".domain")
        assert "Like some training molecules" in said
        assert f"{len(tasks)} of {len(TASKS)} properties" in said
        marked = page.locator(".property", has=page.locator(".tag"))
        assert marked.locator(".title").all_inner_texts() == [one["card"]["title"] for one in tasks]
        marked.first.locator(".title").click()
        own = molecule(smiles, MODELS[0])["predictions"][tasks[0]["name"]]["training_similarity"]
        assert f"similarity {own:.2f}: beyond" in page.inner_text(".about:not([hidden])")


def test_table_sorts_filters_and_opens_a_molecule(opened):
    with opened() as page:
        page.click("text=Ten drugs")
        page.locator("tbody tr").nth(9).wait_for()
        values = [number(text.split()[0]) for text in column(page, 4)]
        for order, reverse in (("ascending", False), ("descending", True)):
            page.click("thead button:text('Caco-2 permeability')")
            head = page.locator("th", has_text="Caco-2 permeability")
            assert head.get_attribute("aria-sort") == order
            sorted_values = [number(text.split()[0]) for text in column(page, 4)]
            assert sorted_values == sorted(values, reverse=reverse)
        page.select_option(".range select", "caco2")
        page.fill("[aria-label='from value']", "-4.6")
        kept = sum(value >= -4.6 for value in values)
        page.locator(f".found:text('{kept} of 10 molecules')").wait_for()
        assert 0 < kept < 10
        page.fill("[aria-label='from value']", "")
        page.fill("[type=search]", "caff")
        page.locator(".found:text('1 of 10 molecules')").wait_for()
        page.click("button.link:text('caffeine')")
        assert page.inner_text("#molecule-name") == "caffeine"
        assert page.locator("#table").is_hidden()
        page.go_back()
        assert page.locator("#table").is_visible()
        focused = page.evaluate("document.activeElement.textContent")
        assert focused == "caffeine"


def test_columns_can_be_left_out(opened):
    with opened() as page:
        predict(page, "CCO\nCCN")
        assert page.locator("tbody tr").first.locator("td").count() == 2 + 22
        page.click(".columns summary")
        page.uncheck(".columns label:has-text('Half-life') input")
        assert page.locator("tbody tr").first.locator("td").count() == 2 + 21
        assert page.locator("thead button:text-is('Half-life')").count() == 0


def test_ten_thousand_molecules_are_shown_a_page_at_a_time(opened, stub):
    smiles = ["C" * (1 + place % 40) + "O" for place in range(10_000)]
    with opened() as page:
        page.set_default_timeout(90_000)
        page.evaluate(
            """text => {
              const data = new DataTransfer();
              data.setData("text/plain", text);
              document.getElementById("smiles").dispatchEvent(
                new ClipboardEvent("paste", { clipboardData: data, cancelable: true }));
            }""",
            "\n".join(smiles),
        )
        page.click("#predict")
        page.locator("#progress:not(.running)").wait_for()
        assert page.inner_text("#said").startswith("10,000 molecules done")
        assert [one["smiles"] for one in stub.asked] == [smiles]
        assert page.locator("tbody tr").count() == 50
        took = page.evaluate(
            """() => { const start = performance.now();
            document.querySelector('[data-key="head =caco2"]').click();
            return performance.now() - start; }"""
        )
        assert took < 1500
        page.click("[data-step=Last]")
        assert page.inner_text(".found") == "10,000 molecules, rows 9,951 to 10,000"
        assert page.locator("tbody tr").count() == 50


def test_long_job_shows_progress_and_can_be_cancelled(opened, stub):
    stub.delay = 0.02
    with opened() as page:
        page.fill("#smiles", "\n".join(["CCO"] * 400))
        page.click("#predict")
        page.locator("#said:has-text('left')").wait_for()
        text = page.inner_text("#said")
        assert re.fullmatch(r"\d+ of 400 molecules · [\d.]+ a second · \d+ s left", text)
        assert page.locator("tbody tr").count() > 0
        page.click("#cancel")
        page.locator("#said:has-text('Cancelled')").wait_for()
        done = int(re.search(r"after (\d+) of 400", page.inner_text("#said"))[1])
        assert 0 < done < 400
        assert page.inner_text(".found").startswith(str(done))
        assert page.locator("#downloads").is_hidden()


def test_busy_server_is_waited_for_and_no_row_is_lost(opened, stub):
    stub.refusals = 1
    with opened(complaints=("429",)) as page:
        predict(page, "CCO one\nC1CC two\nCCN three")
        assert page.inner_text("#said") == "3 molecules done, 1 without a prediction."
        assert page.locator("tbody th").all_inner_texts() == ["one", "two", "three"]


def test_token_is_taken_from_the_address_or_asked_for(open_address, stub):
    stub.token = "secret"
    with open_address(f"{stub.address}?token=secret") as page:
        page.wait_for_selector("#predict:enabled")
        assert "secret" not in page.url
        predict(page, ASPIRIN)
        page.locator(".neighbor svg").first.wait_for()
    with open_address(stub.address, complaints=("401",)) as page:
        page.fill("#token", "secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#predict:enabled")


def test_table_of_other_names_asks_for_its_column(opened, tmp_path):
    table = tmp_path / "in.csv.gz"
    table.write_bytes(gzip.compress(b"code,what\na,CCO\nb,CCN\n"))
    with opened(complaints=("422",)) as page:
        page.set_input_files("#file", table)
        page.fill("#column", "what")
        page.click("text=Use it")
        page.locator("tbody tr").nth(1).wait_for()
        assert page.inner_text("#said") == "2 molecules done."


def test_a_dropped_file_is_predicted_and_the_server_writes_it_in_each_format(opened):
    with opened() as page:
        page.evaluate(
            """text => {
              const data = new DataTransfer();
              data.items.add(new File([text], "in.sdf"));
              for (const kind of ["dragenter", "dragover", "drop"]) {
                document.body.dispatchEvent(
                  new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
              }
            }""",
            sdf("CCO", "c1ccccc1N"),
        )
        page.locator("tbody tr").nth(1).wait_for()
        page.locator("#downloads:visible").wait_for()
        for ending in ("csv", "xlsx", "sdf"):
            (kind,) = (kind for kind, name in FILES.items() if name == ending)
            assert saved(page, f"#save-{ending}").decode() == kind


def test_atoms_are_colored_and_the_method_tested_on_request(opened):
    with opened() as page:
        predict(page, ASPIRIN)
        pressed = page.locator("[aria-label='Color atoms by Mutagenic (Ames test)']")
        pressed.click()
        page.locator(".drawing.colored svg").wait_for()
        assert pressed.get_attribute("aria-pressed") == "true"
        legend = page.inner_text(".below-drawing")
        assert "Mutagenic (Ames test). Orange atoms raise the predicted value" in legend
        assert "baseline" in legend
        assert "null" not in legend
        page.click("text=Test the method")
        page.locator(".checked:has-text('occlusion passed')").wait_for()
        page.click("text=Plain structure")
        assert page.locator(".drawing.colored").count() == 0
        assert pressed.get_attribute("aria-pressed") == "false"
        pressed.click()
        page.locator(".drawing.colored svg").wait_for()
        predict(page, "CCO")
        assert page.locator(".color[aria-pressed=true], .drawing.colored").count() == 0


def test_a_file_is_predicted_again_until_the_text_changes(opened, stub, tmp_path):
    table = tmp_path / "in.csv"
    table.write_text("smiles\nCCO\nCCN\n")
    with opened() as page:
        page.fill("#smiles", ASPIRIN)
        page.set_input_files("#file", table)
        page.locator("tbody tr").nth(1).wait_for()
        page.locator("#progress:not(.running)").wait_for()
        page.click("#predict")
        page.locator("#progress:not(.running)").wait_for()
        assert page.locator("tbody tr").count() == 2
        assert page.inner_text("#chosen") == "in.csv"
        predict(page, f"{ASPIRIN} aspirin")
        assert page.inner_text("#chosen") == ""
        assert page.inner_text("#molecule-name") == "aspirin"


def test_units_are_printed_as_in_print(opened):
    with opened() as page:
        predict(page, ASPIRIN)
        row = page.locator(".property", has_text="Clearance by hepatocytes")
        assert (
            row.locator(".unit").inner_text() == "\N{MICRO SIGN}L/min/10\N{SUPERSCRIPT SIX} cells"
        )


def test_what_if_shows_how_each_value_moves(opened):
    changed = "CC(=O)Oc1ccc(F)cc1C(=O)O"
    before, after = (molecule(one, MODELS[0])["predictions"] for one in (ASPIRIN, changed))
    with opened() as page:
        predict(page, ASPIRIN)
        page.click("text=What if I change it?")
        page.fill("#changed-smiles", changed)
        page.locator(".moved").first.wait_for()
        for place, task in enumerate(TASKS):
            text = page.locator(".moved").nth(place).inner_text()
            a, b = before[task["name"]], after[task["name"]]
            if task["kind"] == "regression":
                expected = b["value"] - a["value"]
                got = 0 if text == "no change" else number(text)
                assert got == pytest.approx(expected, rel=5e-3, abs=5e-4)
            elif text != "no change":
                expected = 100 * (b["probabilities"]["1"] - a["probabilities"]["1"])
                assert abs(number(text.split()[0]) - expected) <= 1
        assert page.inner_text(".said").startswith("Largest changes: ")
        marked = page.locator(".what-if figure").nth(1).locator("svg [style*='--differs']")
        marked.first.wait_for()
        page.fill("#changed-smiles", "C1CC")
        page.locator(".said:has-text('No prediction')").wait_for()
        assert page.locator(".moved").count() == 0
        assert page.inner_text(".domain").startswith("Like the training molecules.")
        page.fill("#changed-smiles", FAR)
        page.locator(".moved").first.wait_for()
        beyond = "The changed molecule: Beyond what the model knows."
        assert page.inner_text(".domain").startswith(beyond)
        assert page.locator(".color:visible").count() == 0
        page.click("text=End what-if")
        assert page.locator(".moved").count() == 0
        assert page.inner_text(".domain").startswith("Like the training molecules.")
        assert page.locator(".color:visible").count() == len(TASKS)


# Whether an editor of structures shows none.
_IS_BLANK = """one => one.getContext("2d").getImageData(0, 0, one.width, one.height).data
  .every((value, place) => place % 4 === 3 || value > 200)"""


def test_nothing_of_a_molecule_stays_when_the_next_has_no_prediction(opened, stub):
    changed = "CC(=O)Oc1ccccc1C(=O)N"
    with opened(complaints=("401", "getImageData")) as page:
        editor = page.locator("#editor canvas").last
        editor.wait_for()
        predict(page, ASPIRIN)
        wait_until(lambda: not editor.evaluate(_IS_BLANK))
        page.fill("#smiles", "C1CC")
        wait_until(lambda: editor.evaluate(_IS_BLANK))
        assert page.input_value("#smiles") == "C1CC"
        page.click("text=What if I change it?")
        before, after = page.locator(".what-if figure").all()
        editor = page.locator(".what-if .editor canvas").last
        editor.wait_for()
        for wrong, token in (("C1CC", None), ("", None), ("CCO", "now asked for")):
            stub.token = None
            page.fill("#changed-smiles", changed)
            before.locator("svg [style*='--differs']").first.wait_for()
            assert not editor.evaluate(_IS_BLANK)
            stub.token = token
            page.fill("#changed-smiles", wrong)
            page.locator(".said:has-text('No prediction')").wait_for()
            assert after.locator(".undrawn").is_visible()
            wait_until(lambda: not before.locator("svg [style*='--differs']").count())
            assert page.locator(".moved").count() == 0
            if token is None:
                assert editor.evaluate(_IS_BLANK)
            assert page.input_value("#changed-smiles") == wrong


@pytest.mark.parametrize(
    "name, content",
    [("in.png", "\x89PNG"), ("in.csv", "smiles,note\n"), ("in.sdf", "")],
)
def test_a_refused_file_is_not_listed(opened, tmp_path, name, content):
    (tmp_path / "what.csv").write_text("code,what\na,CCO\n")
    (tmp_path / name).write_text(content)
    with opened(complaints=("422",)) as page:
        predict(page, f"{ASPIRIN} aspirin")
        page.set_input_files("#file", tmp_path / "what.csv")
        page.locator("#column").wait_for()
        page.set_input_files("#file", tmp_path / name)
        page.locator(f"#problem:has-text('{name}')").wait_for()
        assert page.inner_text("#chosen") == ""
        assert page.locator("#column").count() == 0
        page.set_input_files("#file", tmp_path / "what.csv")
        page.locator("#column").wait_for()
        predict(page, f"{ASPIRIN} aspirin")
        assert page.locator("#column").count() == 0
        assert page.inner_text("#molecule-name") == "aspirin"


def test_drawing_writes_smiles_and_moves_values(opened):
    with opened() as page:
        canvas = page.locator("#editor canvas").last
        canvas.wait_for()
        box = canvas.bounding_box()
        page.mouse.click(box["x"] + 150, box["y"] + 150)
        wait_until(lambda: page.input_value("#smiles") == "CC")
        page.click("#predict")
        page.locator(".property").first.wait_for()
        page.click("text=What if I change it?")
        area = page.locator(".what-if .editor canvas").last
        area.wait_for()
        box = area.bounding_box()
        page.mouse.click(box["x"] + 20, box["y"] + 20)
        page.locator(".moved").first.wait_for()
        assert page.input_value("#changed-smiles") not in ("", "CC")


def test_editor_follows_the_line_of_the_cursor(opened):
    with opened() as page:
        page.locator("#editor canvas").last.wait_for()
        page.fill("#smiles", "CCO one\nCCN two")
        box = page.locator("#editor canvas").last.bounding_box()
        page.wait_for_timeout(500)
        page.mouse.click(box["x"] + 20, box["y"] + 20)
        wait_until(lambda: not page.input_value("#smiles").endswith("two"))
        first, second = page.input_value("#smiles").split("\n")
        assert first == "CCO one"
        assert Chem.MolFromSmiles(second).GetNumAtoms() > 3


def test_keyboard_is_enough(opened):
    with opened() as page:
        page.focus("#smiles")
        page.keyboard.type("CCO ethanol")
        page.keyboard.press("Enter")
        page.keyboard.type("CCN amine")
        page.keyboard.press("Control+Enter")
        page.locator("tbody tr").nth(1).wait_for()
        head = page.locator("[data-key='head =solubility']")
        head.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=descending] button").inner_text() == "Solubility in water"
        assert head.evaluate("one => one === document.activeElement")
        outline = head.evaluate("one => getComputedStyle(one).outlineStyle")
        assert outline == "solid"
        page.focus("button.link:text('ethanol')")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "molecule-name"
        page.focus("#to-table")
        page.keyboard.press("Enter")
        page.locator("tbody tr").nth(1).wait_for()
        assert page.evaluate("document.activeElement.textContent") == "ethanol"


def test_models_are_chosen_and_ask_for_what_else_they_need(opened, stub):
    with opened() as page:
        page.select_option("#model", label="plain")
        assert page.inner_text("#extra legend") == "The model also needs"
        page.fill("[name=solvent]", "O")
        page.fill("[name=pH]", "7.4")
        predict(page, ASPIRIN)
        (row,) = stub.asked[-1]["rows"]
        assert row == {"smiles": ASPIRIN, "name": "", "solvent": "O", "pH": "7.4"}
        assert page.locator(".property-groups h3").all_inner_texts() == ["Properties"]
        assert page.locator(".property .title").all_inner_texts() == ["logS", "phase"]
        assert page.locator(".property").nth(1).locator("b").inner_text() == "solid"
        assert page.locator(".nearest").inner_text() == ""


def test_text_of_a_molecule_is_no_code(opened):
    with opened() as page:
        predict(page, "CCO <img src=x onerror=alert(1)>\nC<b>x</b>")
        assert page.locator("tbody img, tbody b").count() == 0
        assert "<img src=x" in page.inner_text("tbody")


_SHIFTS = """() => { window.shifts = 0;
  new PerformanceObserver(list => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts += one.value;
  }).observe({ type: "layout-shift", buffered: true }); }"""


def test_nothing_jumps(opened):
    with opened() as page:
        page.evaluate(_SHIFTS)
        page.locator("#editor canvas").last.wait_for()
        predict(page, ASPIRIN)
        page.locator(".neighbor svg").nth(2).wait_for()
        page.wait_for_timeout(700)
        assert page.evaluate("window.shifts") < 0.02


def views(page):
    """Show each view of the page, and yield its name."""
    yield "empty"
    predict(page, ASPIRIN)
    page.locator(".neighbor svg").nth(2).wait_for()
    page.locator(".property .title").first.click()
    yield "molecule"
    page.locator(".color").first.click()
    page.locator(".drawing.colored svg").wait_for()
    yield "colored"
    page.click("text=Plain structure")
    page.click("text=What if I change it?")
    page.fill("#changed-smiles", "CC(=O)Oc1ccccc1")
    page.locator(".moved").first.wait_for()
    yield "what if"
    predict(page, f"CCO ethanol\n{FAR} far\nC1CC junk")
    page.click(".columns summary")
    yield "table"
    page.click(".columns summary")
    page.click("button.link:text('far')")
    yield "beyond"
    page.click("#next")
    page.locator(".failed").wait_for()
    yield "failed"
    page.select_option("#model", label="long")
    predict(page, ASPIRIN)
    page.locator(".neighbor svg").nth(2).wait_for()
    page.locator(".property .title").first.click()
    yield "long names"
    page.click("text=What if I change it?")
    page.fill("#changed-smiles", "CC(=O)Oc1ccccc1")
    page.locator(".moved").first.wait_for()
    yield "what if of long names"
    predict(page, "CCO\nCCN")
    page.click(".columns summary")
    yield "table of long names"


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (1280, "dark"), (400, "light")])
def test_every_view_fits_and_can_be_read(opened, width, scheme):
    with opened(width=width, color_scheme=scheme) as page:
        for _ in views(page):
            assert_fits_and_can_be_read(page, width)


@pytest.mark.parametrize("width, scheme", [(1280, "dark"), (400, "light")])
def test_axe_finds_nothing(opened, width, scheme):
    """AXE_CORE is the path of axe.min.js of the npm package axe-core."""
    program = os.environ.get("AXE_CORE")
    if not program:
        pytest.skip("no axe-core: AXE_CORE is not set to the path of its axe.min.js")
    source = Path(program).read_text(encoding="utf-8")
    with opened(width=width, color_scheme=scheme, bypass_csp=True) as page:
        page.evaluate(source)
        for name in views(page):
            found = page.evaluate("async () => (await axe.run(document))")
            violations = [(one["id"], one["impact"]) for one in found["violations"]]
            assert violations == [], name
            assert len(found["passes"]) > 15


@contextmanager
def served(folder):
    """The server itself, of a saved model; its address."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    from molattn.serve.app import make_app
    from molattn.serve.catalog import load_models

    app = make_app(load_models([folder]), ServeConfig())
    config = uvicorn.Config(app.state.guard, port=0, log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(30)


def test_server_and_page_agree(open_address, tmp_path):
    tasks = (Task("logS", unit="log mol/L"), Task("toxic", "binary", ("0", "1")))
    network = NetworkConfig(width=16, heads=2, layers=1, edge_width=8)
    model = MolAttn(MolAttnConfig(tasks, network)).eval()
    labels = [[0.1 * place, float(place % 2)] for place in range(20)]
    smiles = ["C" * (place + 1) + "O" for place in range(20)]
    model.calibrate(smiles, labels, training_smiles=smiles)
    known = model.uncertainty.molecules
    known.labeled = np.arange(2 * len(known.fingerprints)).reshape(-1, 2) % 3 > 0
    model.save_pretrained(tmp_path / "small")
    value, share = model.predict([ASPIRIN])[0]
    with served(tmp_path / "small") as address, open_address(address) as page:
        page.wait_for_selector("#predict:enabled")
        predict(page, ASPIRIN)
        texts = page.locator(".property .value b").all_inner_texts()
        assert number(texts[0]) == pytest.approx(value, rel=5e-3)
        assert abs(int(texts[1].removesuffix("%")) - 100 * share) <= 1
        page.locator(".structure svg path").first.wait_for()
        page.locator(".color").first.click()
        page.locator(".drawing.colored svg").wait_for()
        page.click("text=What if I change it?")
        page.fill("#changed-smiles", "CC(=O)Oc1ccc(F)cc1C(=O)O")
        page.locator(".moved").first.wait_for()
        predict(page, f"CCO\n{ASPIRIN}\nC1CC\nCCN")
        assert page.inner_text("#said").startswith("4 molecules done, 1 without a prediction")
        rows = [*csv.DictReader(io.StringIO(saved(page, "#save-csv").decode()))]
        assert float(rows[1]["logS_predicted"]) == pytest.approx(value, rel=1e-5)
        assert rows[2]["error"] == "ring_closure"
        source, output = tmp_path / "in.xlsx", tmp_path / "out.csv"
        with write_table(source, ["logS", "smiles"]) as write:
            for row in (["1", "CCO"], ["2", "C1CC"], ["3", ASPIRIN]):
                write(row)
        predict_table(tmp_path / "small", source, output)
        page.set_input_files("#file", source)
        page.locator("#said:has-text('3 molecules done')").wait_for()
        assert saved(page, "#save-csv") == output.read_bytes()
        (tmp_path / "in.sdf").write_text(sdf("CCO", ASPIRIN))
        page.set_input_files("#file", tmp_path / "in.sdf")
        page.locator("#said:has-text('2 molecules done')").wait_for()
        (tmp_path / "out.sdf").write_bytes(saved(page, "#save-sdf"))
        *_, mol = Chem.SDMolSupplier(str(tmp_path / "out.sdf"))
        assert float(mol.GetProp("logS_predicted")) == pytest.approx(value, rel=1e-5)
        assert mol.GetProp("own") == "kept 1"
