"""The Jinja environment, the frame and the style of all HTML pages."""

from base64 import b64encode
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from molattn.version import __version__

SHARED_TEMPLATES = Path(__file__).parent / "templates"
"""Folder of what all pages share."""
_IMAGE = Markup('<img class="{}" alt="{}" src="data:image/{};base64,{}">')


def data_image(kind: str, label: str, suffix: str, content: bytes) -> Markup:
    """Return an image of a page, described for screen readers by the label."""
    return _IMAGE.format(kind, label, suffix, b64encode(content).decode())


@cache
def page_environment(templates: Path) -> Environment:
    """Return the environment of a package's pages.

    It finds the templates of the package and those that all pages share: ``base.html``, which pages
    extend, ``colors.css`` and ``style.css``. Text is escaped, ``Markup`` is not; an undefined name
    is an error.
    """
    environment = Environment(
        loader=FileSystemLoader([templates, SHARED_TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    logo = (SHARED_TEMPLATES / "logo.svg").read_text(encoding="utf-8")
    environment.globals["icon"] = f"data:image/svg+xml,{quote(logo)}"
    return environment
