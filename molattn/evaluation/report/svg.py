"""Figures and molecules as SVG elements of a page, in its colors and font."""

import io
import re
from itertools import count

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure

from molattn.chem.draw import ATOM_COLORS, draw_molecule
from molattn.errors import MolattnError
from molattn.evaluation.plots import COLORS

__all__ = ["figure_svg", "molecule_svg"]

_MOST_SMILES = 300  # characters; the drawing of a larger molecule is not readable
# The page has a light and a dark value for each of these.
_VARIABLES = {
    **{color.lower(): f"var(--{name})" for name, color in COLORS.items()},
    **{color.lower(): f"var(--{name})" for name, color in ATOM_COLORS.items()},
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    "#cccccc": "var(--line)",
}
_COLOR = re.compile("|".join(_VARIABLES), re.IGNORECASE)
_ID = re.compile(r'\bid="([^"]*)"|url\(#([^)"]*)\)|href="#([^"]*)"')
_STYLE = re.compile(r'\bstyle="[^"]*"|\bfill=\'[^\']*\'|\bstyle=\'[^\']*\'')
_FONT = re.compile(r"(font: *(?:[a-z]+ )?[\d.]+px) [^;\"]*")
_NUMBERS = count(1)
_UNDRAWN = Markup('<p class="undrawn">{}</p>')


def figure_svg(figure: Figure, label: str) -> Markup:
    """Return a figure as an SVG element of a page, described for screen readers by the label."""
    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "molattn"}):
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
            bbox_inches="tight",
            pad_inches=0.05,
        )
    return _element(file.getvalue(), label, "figure")


def molecule_svg(smiles: str, label: str) -> Markup:
    """Return a molecule as an SVG element of a page, or why it is not drawn as a paragraph."""
    try:
        drawing = draw_molecule(smiles) if len(smiles) <= _MOST_SMILES else None
    except MolattnError as error:
        return _UNDRAWN.format(error)
    if drawing is None:
        return _UNDRAWN.format("too large to draw")
    return _element(drawing, label, "molecule")


def _element(svg: str, label: str, kind: str) -> Markup:
    """Return the ``svg`` element with unique ids and the colors of the page."""
    prefix = f"{kind}-{next(_NUMBERS)}-"
    start = re.search(r"<svg\b[^>]*>", svg)
    box = re.search(r"viewBox=['\"]([^'\"]*)['\"]", svg)
    if start is None or box is None:  # written by neither library
        raise ValueError(f"svg: got {svg[:80]!r}, expected an element with a viewBox")
    body = svg[start.end() :]
    # A style sheet in an element applies to the whole page, whose own has the same rules.
    body = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = _ID.sub(lambda found: _prefixed(found, prefix), body)
    body = _STYLE.sub(lambda found: _COLOR.sub(_variable, found[0]), body)
    body = _FONT.sub(r"\1 inherit", body)
    width = box[1].split()[2]
    head = (
        f'<svg class="{kind}" role="img" aria-label="{escape(label)}" viewBox="{escape(box[1])}" '
        f'style="max-width: {float(width) * 4 / 3:.0f}px">'
    )
    return Markup(head + re.sub(r"\s*\n\s*", "\n", body))


def _prefixed(found: re.Match[str], prefix: str) -> str:
    name = next(group for group in found.groups() if group is not None)
    return found[0].replace(name, prefix + name, 1) if name else found[0]


def _variable(found: re.Match[str]) -> str:
    return _VARIABLES[found[0].lower()]
