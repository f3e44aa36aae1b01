import html
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from molattn import MolAttn, MolAttnConfig
from molattn.config import NetworkConfig, PretrainConfig, TrainConfig
from molattn.errors import REASONS
from molattn.model.artefact import PACKAGED
from molattn.nn import LAYERS

from .conftest import HANGING

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_of_the_pages_runs(page, tmp_path, monkeypatch):
    small = NetworkConfig(width=16, heads=2, layers=1)
    MolAttn(MolAttnConfig(("logS",), small)).save_pretrained(tmp_path / "runs/solubility/model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LAYERS, "data", {**LAYERS})  # a page registers a layer
    monkeypatch.setitem(sys.modules, "docs", module := ModuleType("docs"))
    for block in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        line = page.read_text().count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), vars(module))


def test_tables_of_layers_and_reason_codes_are_current(layer_table):
    assert layer_table in (ROOT / "docs/layers/index.md").read_text()
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in REASONS.items())
    assert f"| `error` | Meaning |\n| --- | --- |\n{rows}" in (ROOT / "docs/reasons.md").read_text()


def test_tables_of_measurements_are_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    make = importlib.import_module("scripts.experiments.make_measurements")
    for page in PAGES:
        assert make.with_tables(page.read_text()) == page.read_text(), page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_layer_has_a_page_with_its_formula(site, layer_table):
    overview = (site / "layers" / "index.html").read_text()
    for name, layer in LAYERS.items():
        page = (site / "layers" / f"{name}.html").read_text()
        assert f'id="molattn.nn.{layer.conv.__name__}"' in page
        assert '<div class="formula"><math' in page
        assert layer.conv.__name__ in overview
    assert overview.count("<tr>") == len(layer_table.splitlines()) - 1


def test_formulas_and_roles_are_all_drawn(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert ":math:" not in text
        assert ".. math" not in text
        assert not re.search(r":(class|func|meth):", text)
        assert "\\mathrm" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_commands_are_shown_as_they_are_typed(site):
    text = re.sub(r"<[^>]+>", "", (site / "cli.html").read_text())
    assert "molattn train [OPTIONS]" in text
    assert "mkdocs" not in text
    options = {*TrainConfig.options(), *PretrainConfig.options(), "resume"}
    assert all(f"--{name.replace('_', '-')}" in text for name in options)


def test_reason_codes_are_listed(site):
    page = (site / "reasons.html").read_text()
    assert all(f"<code>{code}</code>" in page for code in REASONS)


def test_pages_load_nothing_from_the_network(site):
    loads = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="?(https?:)?//')
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", sheet.read_text()), sheet


def test_notebooks_are_shown_with_their_output(site):
    for notebook in (ROOT / "docs/tutorials").glob("*.ipynb"):
        cells = json.loads(notebook.read_text())["cells"]
        assert sum(len("".join(cell["source"]).split()) for cell in cells) <= 900
        assert not any(cell.get("outputs") for cell in cells)
        page = (site / "tutorials" / f"{notebook.stem}.html").read_text()
        assert re.search(rf'src="?{notebook.stem}-\d+\.png', page)


def test_search_works_from_the_file_system(site, browser):
    page = browser.new_page()
    page.set_default_timeout(1000 * HANGING)
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("conformal")
    page.wait_for_selector(".md-search-result__item")
    assert "conformal" in page.inner_text(".md-search-result__list").lower()
    page.close()


def test_properties_of_the_packaged_model_are_described(site):
    page = re.sub(r"<[^>]+>", "", (site / "admet.html").read_text())
    for name, one in MolAttn.from_pretrained(PACKAGED / "admet").endpoints.items():
        assert f"Column: {name}" in page
        assert html.escape(one.description, quote=False) in page


def test_paragraphs_are_short_and_pictures_few(site):
    assert len([*site.rglob("*.png")]) <= 25 + 1  # of the theme
    for page in PAGES:
        for paragraph in re.split(r"\n\s*\n", page.read_text()):
            if not paragraph.lstrip().startswith(("|", "```", "<", "#", "-", "1.")):
                assert len(paragraph.split()) <= 90, (page, paragraph)
