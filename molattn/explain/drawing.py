"""Drawings of an :class:`molattn.explain.Explanation`, atoms and bonds colored, as SVG and PNG."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from molattn.chem.draw import NOT_DRAWN, drawing_module, laid_out
from molattn.chem.parse import Molecule

Color = tuple[float, float, float]

# Blue and orange stay distinct in the three common kinds of color blindness, and black letters
# are legible on both.
LOWER: Color = (0.30, 0.62, 0.86)  # the most negative score
RAISE: Color = (0.95, 0.56, 0.16)  # the most positive score
UNSIGNED: Color = (0.66, 0.50, 0.84)  # the largest score of an unsigned method

_LEGEND = 50  # pixels below the molecule
_BOND = 34.0  # pixels, at most: small molecules are not enlarged
_RADIUS = 0.4  # in Å, where a bond is 1.5 Å
_FAINT = 0.02  # of the limit; scores below are not drawn
_INK = "#18202a"
_PATH = re.compile(r"<path\b[^>]*?\bd='([^']*)'\s+([^>]*)>")
_WIDTH = re.compile(r"stroke-width:\s*([\d.]+)")


def score_color(score: float, limit: float, *, signed: bool) -> Color:
    """Return the color of a score, saturated at ``limit``.

    0 is white. A signed score is blue if negative and orange if positive, on a symmetric scale; an
    unsigned score is violet.
    """
    weight = min(abs(score) / limit, 1.0) if limit > 0 else 0.0
    full = UNSIGNED if not signed else RAISE if score > 0 else LOWER
    red, green, blue = (1.0 - weight + weight * channel for channel in full)
    return red, green, blue


def draw_svg(explanation: Any, width: int, height: int) -> str:
    """Draw an explanation on white with a legend, as SVG text.

    A molecule that cannot be drawn (:func:`molattn.chem.draw.laid_out`) is replaced by a line that
    says so. ``width`` and ``height`` are in pixels, including the legend.
    """
    svg = str(_draw(explanation, drawing_module().MolDraw2DSVG, width, height, 1))
    svg = svg.replace("encoding='iso-8859-1'", "encoding='utf-8'", 1)
    title = escape(f"{explanation.smiles}: {explanation.caption}")
    svg = svg.replace("<!-- END OF HEADER -->", f"<title>{title}</title>", 1)
    texts = "".join(
        f'<text font-family="sans-serif" font-size="{size:.1f}" fill="{_INK}" '
        f'text-anchor="middle" x="{width / 2:g}" y="{y}">{escape(text)}</text>'
        for y, size, text in _texts(explanation, width, height)
    )
    return svg.replace("</svg>", f"{texts}</svg>")


def draw_png(explanation: Any, width: int, height: int) -> bytes:
    """Draw an explanation as PNG, at twice the size of the SVG in pixels."""
    from matplotlib.font_manager import findfont
    from PIL import Image, ImageDraw, ImageFont

    data = bytes(_draw(explanation, drawing_module().MolDraw2DCairo, width, height, 2))
    image = Image.open(io.BytesIO(data)).convert("RGB")
    for y, size, text in _texts(explanation, width, height):
        font = ImageFont.truetype(findfont("DejaVu Sans"), 1.8 * size)
        ImageDraw.Draw(image).text((width, 2 * y), text, _INK, font, "ms")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _texts(explanation: Any, width: int, height: int) -> Iterator[tuple[int, float, str]]:
    """Yield the centered lines of text: their position, size and content."""
    limit = f"{explanation.score_limit:.2g}"
    colors = f"white 0, violet {limit}"
    if explanation.signed:
        colors = f"blue \N{MINUS SIGN}{limit}, white 0, orange +{limit}"
    lines = {height - 32: colors, height - 12: explanation.caption}
    if laid_out(explanation.mol or explanation.smiles) is None:
        lines |= {height // 2 + 18 * k: text for k, text in enumerate(NOT_DRAWN)}
    for y, text in lines.items():
        yield y, min(12.0, (width - 16) / (0.56 * len(text))), text


def _draw(explanation: Any, kind: Callable[..., Any], width: int, height: int, scale: int) -> Any:
    """Draw the molecule without texts."""
    drawer = kind(scale * width, scale * height, scale * width, scale * (height - _LEGEND))
    _set_options(drawer, scale, padding=0.1)
    if (mol := laid_out(explanation.mol or explanation.smiles)) is None:
        drawer.ClearDrawing()
    else:
        bonds = [mol.GetBondBetweenAtoms(*pair).GetIdx() for pair in explanation.bonds]
        atom_colors = _colors(explanation, range(explanation.num_atoms), explanation.atom_scores)
        bond_colors = _colors(explanation, bonds, explanation.bond_scores)
        drawer.DrawMolecule(
            mol,
            highlightAtoms=list(atom_colors),
            highlightAtomColors=atom_colors,
            highlightBonds=list(bond_colors),
            highlightBondColors=bond_colors,
            highlightAtomRadii=dict.fromkeys(atom_colors, _RADIUS),
        )
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def _colors(explanation: Any, indices: Any, scores: NDArray[np.float64]) -> Any:
    limit = explanation.score_limit
    return {
        index: score_color(score, limit, signed=explanation.signed)
        for index, score in zip(indices, scores.tolist(), strict=True)
        if abs(score) > _FAINT * limit
    }


def outline(molecule: Molecule) -> dict[str, Any] | None:
    """Return a structure as lines without colors, for the page; None if it cannot be drawn.

    ``width`` and ``height`` are in pixels, ``atoms`` the coordinates of each atom, and ``paths``
    the data of SVG paths, each with its line width, 0 for a filled shape.
    """
    if (mol := laid_out(molecule)) is None:
        return None
    drawer = drawing_module().MolDraw2DSVG(-1, -1)
    _set_options(drawer, 1, padding=0.0)
    drawer.DrawMolecule(mol)
    atoms = [drawer.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms())]
    drawer.FinishDrawing()
    paths = []
    for data, style in _PATH.findall(drawer.GetDrawingText()):
        line = _WIDTH.search(style) if "fill:none" in style else None
        paths.append((" ".join(data.split()), float(line[1]) if line else 0.0))
    return {
        "width": drawer.Width(),
        "height": drawer.Height(),
        "atoms": [(round(point.x, 1), round(point.y, 1)) for point in atoms],
        "paths": paths,
    }


def _set_options(drawer: Any, scale: int, padding: float) -> None:
    options = drawer.drawOptions()
    options.padding = padding
    options.prepareMolsBeforeDrawing = False
    options.useBWAtomPalette()
    options.fixedBondLength = _BOND * scale
    options.bondLineWidth = 2 * scale
    options.minFontSize = 7 * scale
    options.maxFontSize = 17 * scale
    options.highlightBondWidthMultiplier = 10
    options.fillHighlights = options.continuousHighlight = options.atomHighlightsAreCircles = True
