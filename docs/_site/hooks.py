"""What MkDocs makes from the package itself: the pages of the layers, and the commands."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from molattn.cli.program import make_app
from molattn.nn import LAYERS

sys.path.insert(0, str(Path(__file__).parent))

from formulas import render_formulas

_LAYER_PAGE = """::: molattn.nn.{name}
    options:
      heading_level: 1
"""


def _page_of(name: str) -> str:
    return f"layers/{name}.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the layers' pages in the navigation."""
    for section in config.nav or []:
        if "Layers" in section:
            section["Layers"] += [
                {layer.conv.__name__: _page_of(name)} for name, layer in LAYERS.items()
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the layers' pages."""
    for name, layer in LAYERS.items():
        content = _LAYER_PAGE.format(name=layer.conv.__name__)
        files.append(File.generated(config, _page_of(name), content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert the help of the commands."""
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
