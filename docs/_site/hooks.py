"""What MkDocs makes from the package itself: layers, commands, endpoints, results, tutorials."""

import functools
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from molattn.cli.program import make_app
from molattn.nn import LAYERS

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1])]

from formulas import render_formulas

from scripts.experiments.make_measurements import (
    all_results,
    endpoint_sections,
)

_LAYER_PAGE = """::: molattn.nn.{name}
    options:
      heading_level: 1
"""


def _page_of(name: str) -> str:
    return f"layers/{name}.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the repository, if it has an address, and list the layers' pages in the navigation."""
    project = tomllib.loads((_HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    config.repo_url = project["tool"]["molattn"]["repository"] or None
    (reference,) = (section["Reference"] for section in config.nav or [] if "Reference" in section)
    (layers,) = (section["Layers"] for section in reference if "Layers" in section)
    layers += [{layer.conv.__name__: _page_of(name)} for name, layer in LAYERS.items()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the pages of layers, and those of notebooks by running them."""
    for name, layer in LAYERS.items():
        content = _LAYER_PAGE.format(name=layer.conv.__name__)
        files.append(File.generated(config, _page_of(name), content=content))
    for path in sorted(Path(config.docs_dir, "tutorials").glob("*.ipynb")):
        for name, content in _run_notebook(path, path.read_bytes()).items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


@functools.cache
def _run_notebook(path: Path, content: bytes) -> dict[str, bytes]:
    """Return the page of a notebook with this content, and its pictures, by name."""
    program = _HERE / "notebook.py"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, program, path, folder],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PluginError(f"{path.name}: {done.stderr[-3000:]}")
        files = (file for pattern in ("*.md", "*.png") for file in Path(folder).glob(pattern))
        return {file.name: file.read_bytes() for file in files}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Insert commands, properties and results, and link to the pages of notebooks."""
    own = PurePosixPath(page.file.src_uri).stem
    markdown = re.sub(rf"\b(?!{own}\.)(\w+)\.ipynb\)", r"\1.md)", markdown)
    if "<!-- endpoints -->" in markdown:
        markdown = markdown.replace("<!-- endpoints -->", endpoint_sections())
    if "<!-- results -->" in markdown:
        markdown = markdown.replace("<!-- results -->", all_results())
    if "<!-- commands -->" in markdown:
        app = make_app(all_options=True)
        commands = app.generate_docs(output_format="markdown", heading_level=2)
        # cyclopts shows how this process was started; the theme has a table of contents.
        commands = commands.replace(" -m mkdocs", "").replace(" *[default: ]*", "")
        commands = re.sub(
            r"## Table of Contents\n.*?(?=\*\*Commands)", "", commands, flags=re.DOTALL
        )
        markdown = markdown.replace("<!-- commands -->", commands)
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Draw formulas."""
    page = render_formulas(html)
    if left := re.search(r"arithmatex", page):
        raise ValueError(f"a formula was not drawn: {page[left.start() - 80 : left.end() + 80]}")
    return page
