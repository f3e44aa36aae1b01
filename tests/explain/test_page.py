"""The page of explanations in a real browser, against the numbers in the files beside it."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from molattn.config import ExplainConfig
from molattn.explain import explain_table

from ..conftest import assert_fits_and_can_be_read
from .conftest import EVIL, GOOD, TARGET


def number(text):
    return float(re.search(r"[+-]?[\d.]+(e[+-]?\d+)?", text.replace("\N{MINUS SIGN}", "-"))[0])


def share(text):
    """Percent as the page writes it, as a number from 0 to 1."""
    return 0.005 if text.startswith("<") else int(text.removesuffix("%")) / 100


@pytest.fixture(scope="module")
def numbers(explained):
    """Explanations by row and method, and attention and gates by row."""
    given = json.loads((explained / "explanations.json").read_text())
    by_row = {one["row"]: {e["method"]: e for e in one["explanations"]} for one in given["rows"]}
    return by_row, np.load(explained / "attention.npz", allow_pickle=False)


def test_texts_of_the_table_are_no_code(explained):
    text = (explained / "index.html").read_text(encoding="utf-8")
    assert EVIL not in text
    assert text.count("<img") == 1
    assert "<b onclick" not in text
    assert text.count("</script>") == text.count("<script") == len(GOOD) + 2
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in text
    references = re.findall(r"(?:src|href)=[\"']?([^\"'\s>]+)", text)
    picture, icon = sorted({one for one in references if not one.startswith(("#", "x"))})
    assert picture.startswith("data:image/png;base64,")
    assert icon.startswith("data:image/svg+xml,")


@pytest.mark.browser
def test_hovering_shows_the_numbers_of_the_head_layer_and_direction(open_page, explained, numbers):
    by_row, arrays = numbers
    weights, gates = arrays["attention_2"].astype(float), arrays["gates_2"].astype(float)
    own = by_row[2]["integrated_gradients"]
    names = [f"{symbol}{place}" for place, symbol in enumerate(own["symbols"])]

    def expected(layer, head, atom, towards):
        chosen = weights[layer if layer is None else [layer]].reshape(-1, *weights.shape[1:])
        chosen = (chosen if head is None else chosen[:, [head]]).mean(axis=(0, 1))
        return chosen[atom] if towards else chosen[:, atom]

    with open_page(explained / "index.html") as page:
        page.locator("#network summary").click()
        hits = page.locator("#attention svg circle.hit")
        hits.first.wait_for()
        assert hits.count() == len(names)
        for layer, head, direction, atom in (
            (None, None, "to", 3),
            (None, 1, "to", 5),
            (1, 1, "from", 5),
            (0, None, "from", 12),
        ):
            page.select_option("#layer", label="all (mean)" if layer is None else str(layer + 1))
            page.select_option("#head", label="all (mean)" if head is None else str(head + 1))
            page.select_option("#direction", value=direction)
            hits.nth(atom).hover()
            assert page.locator("#weights strong").inner_text() == names[atom]
            real = expected(layer, head, atom, direction == "to")
            bars = page.locator("#top li").all_inner_texts()
            assert len(bars) == 6
            for bar in bars:
                name, text = re.split(r"\s+", bar.strip(), maxsplit=1)
                assert share(text) == pytest.approx(real[names.index(name)], abs=0.008)
            best = bars[0].split()[0]
            assert real[names.index(best)] == pytest.approx(real.max(), abs=0.004)
            # Halos follow the weights too.
            halos = page.eval_on_selector_all(
                "#attention svg circle.halo", "all => all.map(e => Number(e.style.opacity))"
            )
            assert np.corrcoef(halos, real)[0, 1] > 0.999
            score = page.locator("#score").inner_text()
            assert score.startswith(f"{names[atom]}: ")
            assert score.endswith(" log mol/L")
            assert number(score.split(": ")[1]) == pytest.approx(
                own["atom_scores"][atom], rel=0.006
            )
            bars = page.locator("#gates li .value").all_inner_texts()
            of_layers = gates[:, :, atom] if layer is None else gates[[layer], :, atom]
            assert [float(bar) for bar in bars] == pytest.approx(of_layers.mean(axis=0), abs=0.008)
        facts = page.locator("#facts").inner_text()
        low, high = re.search(r"90% prediction interval\s+(\S+) to (\S+)", facts).groups()
        assert [number(low), number(high)] == pytest.approx([own["low"], own["high"]], rel=0.006)
        assert "baseline" in page.locator("#facts").inner_text()
        shown = page.locator("#facts dd").first.inner_text()
        assert number(shown) == pytest.approx(own["prediction"], rel=0.006)


@pytest.mark.browser
def test_the_matrix_follows_the_pointer_and_the_keys(open_page, explained, numbers):
    weights = numbers[1]["attention_2"].astype(float).mean(axis=(0, 1))
    with open_page(explained / "index.html") as page:
        page.locator("#network summary").click()
        page.locator("#parts svg circle.hit").first.wait_for()
        canvas = page.locator("#matrix")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
        assert re.match(r"O12 attends to O12: ", page.locator("#cell").inner_text())
        assert page.locator("#weights strong").inner_text() == "O12"
        canvas.press("ArrowLeft")
        canvas.press("ArrowUp")
        text = page.locator("#cell").inner_text()
        assert text.startswith("O11 attends to O11: ")
        assert share(text.split(": ")[1]) == pytest.approx(weights[11, 11], abs=0.008)
        # The same atom is marked on both structures.
        for name in ("parts", "attention"):
            pressed = page.locator(f"#{name} [aria-pressed=true]")
            assert pressed.get_attribute("data-atom") == "11"
        pressed.press("ArrowRight")
        assert page.locator("#weights strong").inner_text() == "O12"


@pytest.mark.browser
def test_the_list_is_searched_sorted_and_stepped_through(open_page, explained, numbers):
    by_row, _ = numbers
    with open_page(explained / "index.html") as page:
        page.locator("#molecules svg").nth(2).wait_for(state="attached")
        page.select_option("#sort", label="prediction, highest first")
        rows = [int(t.split()[1]) for t in page.locator("#molecules small").all_inner_texts()]
        predicted = {row: by_row[row]["attention"]["prediction"] for row in GOOD}
        assert rows == sorted(predicted, key=lambda row: -predicted[row])
        page.fill("#search", "n1")
        assert page.locator("#found").inner_text() == "1 of 3 molecules"
        page.locator("#molecules button").click()
        page.locator("#parts svg circle.hit").nth(13).wait_for(state="attached")
        assert page.locator("#smiles").inner_text() == GOOD[5]
        page.fill("#search", "")
        page.select_option("#sort", label="row")
        page.locator("#previous").click()
        page.locator("#smiles").filter(has_text=re.compile("^C$")).wait_for()
        page.select_option("#method", label="attention")
        assert page.locator("#parts-caption").inner_text() == "Importance of each atom"
        score = number(page.locator("#score").inner_text().split(": ")[1])
        assert score == pytest.approx(by_row[4]["attention"]["atom_scores"][0], rel=0.006)


@pytest.mark.browser
@pytest.mark.parametrize("width, scheme", [(1280, "dark"), (390, "light")])
def test_the_page_fits_the_window_and_can_be_read(open_page, explained, width, scheme):
    with open_page(explained / "index.html", width, color_scheme=scheme) as page:
        page.locator("#parts svg circle.hit").first.wait_for()
        for summary in page.locator(".detail summary").all():
            summary.click()
        page.locator("#numbers tbody tr").nth(12).wait_for()
        assert page.locator("#numbers tbody tr").count() == 13
        assert_fits_and_can_be_read(page, width)
        assert page.locator("h1").inner_text().startswith("a <img")
        assert TARGET in page.locator("header").inner_text()
        rows = page.locator("section[aria-labelledby=errors] tbody tr").all_inner_texts()
        assert [text.split()[0] for text in rows] == ["3", "6"]
        boxes = page.eval_on_selector_all(
            ".detail svg.structure path, .detail canvas",
            "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])",
        )
        assert all(0 <= left <= right <= width for left, right in boxes)


@pytest.mark.browser
def test_fragments_and_measured_values_are_beside_the_structure(open_page, small_model, tmp_path):
    small_model.save_pretrained(tmp_path / "model")
    frame = pd.DataFrame({"Name": ["aspirin"], "smiles": [GOOD[2]], TARGET: ["-1.72"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    explain_table(tmp_path / "model", tmp_path / "t.csv", tmp_path / "out")
    (row,) = json.loads((tmp_path / "out" / "explanations.json").read_text())["rows"]
    (own,) = row["explanations"]
    with open_page(tmp_path / "out" / "index.html") as page:
        page.locator("#fragments li").first.wait_for()
        shown = dict(text.split("\n") for text in page.locator("#fragments li").all_inner_texts())
        groups = {"methyl": [0], "ester": [1, 2, 3], "benzene": range(4, 10)}
        groups["carboxylic acid"] = range(10, 13)
        for name, atoms in groups.items():
            total = sum(own["atom_scores"][atom] for atom in atoms)
            assert number(shown.pop(name)) == pytest.approx(total, rel=0.006)
        assert not shown
        page.locator("#fragments li").filter(has_text="ester").hover()
        assert page.locator("#parts circle.marked").count() == 3
        assert page.locator("#row").inner_text() == "aspirin (row 2)"
        facts = page.locator("#facts").inner_text()
        error = re.search("measured\\s+\N{MINUS SIGN}1.72\\s+error\\s+(\\S+)", facts)[1]
        assert number(error) == pytest.approx(own["prediction"] + 1.72, rel=0.006)


@pytest.mark.browser
def test_each_molecule_shows_the_class_that_is_explained(open_page, phases, tmp_path):
    model, most_probable = phases
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "table.csv").write_text("\n".join(["smiles", *most_probable]) + "\n")
    config = ExplainConfig(method=("attention", "integrated_gradients"), target="phase", check=True)
    explain_table(tmp_path / "model", tmp_path / "table.csv", tmp_path / "out", config)
    names = [*most_probable.values()]
    with open_page(tmp_path / "out" / "index.html") as page:
        page.locator("#molecules svg").nth(5).wait_for(state="attached")
        head = page.locator("header").inner_text()
        assert "Predictions of phase (the most probable class of each molecule) by" in head
        listed = page.locator("#molecules small").all_inner_texts()
        assert listed == [f"row {row}, {name}" for row, name in enumerate(names, start=2)]
        page.select_option("#method", label="integrated gradients")
        for place, name in enumerate(names):
            page.locator("#molecules button").nth(place).click()
            page.locator("#facts dt").filter(has_text=name).first.wait_for()
            assert name in page.locator("#parts-legend").inner_text()
        assert f"{names[0]} ({names.count(names[0])})" in page.locator(".verdict").inner_html()
