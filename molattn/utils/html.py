"""The Jinja environment, the frame and the style of all HTML pages."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from molattn.version import __version__

__all__ = ["page_environment"]

_SHARED = Path(__file__).parent / "templates"


@cache
def page_environment(templates: Path) -> Environment:
    """Return the environment of a package's pages.

    It finds the templates of the package and those that all pages share: ``base.html``, which pages
    extend, and ``style.css``. Text is escaped, ``Markup`` is not; an undefined name is an error.
    """
    environment = Environment(
        loader=FileSystemLoader([templates, _SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    return environment
