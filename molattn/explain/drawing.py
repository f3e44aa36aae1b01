"""A molecule with its atoms and bonds coloured by score, as SVG and PNG."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from molattn.chem import parse_smiles
from molattn.errors import InputError
from molattn.explain.explanation import Explanation, legend_lines, score_limit
from molattn.utils.files import write_file

__all__ = [
    "LOWER",
    "NEUTRAL",
    "Outline",
    "RAISE",
    "SHARE",
    "draw_png",
    "draw_svg",
    "molecule_outline",
    "save_drawing",
    "score_colour",
]


Colour = tuple[float, float, float]


# Blue and orange stay apart in the three common kinds of colour blindness, and black letters
# can be read on both.
LOWER: Colour = (0.30, 0.62, 0.86)
"""Of the most negative score."""

NEUTRAL: Colour = (1.0, 1.0, 1.0)
"""Of no score."""

RAISE: Colour = (0.95, 0.56, 0.16)
"""Of the most positive score."""

SHARE: Colour = (0.66, 0.50, 0.84)
"""Of the largest score of a method that knows no sign."""


def score_colour(score: float, limit: float, *, signed: bool) -> Colour:
    """Return the colour of a score.

    White is 0; a signed score is blue below and orange above, on a scale that is the same on both
    sides; one without a sign is violet.

    Args:
        score: The score.
        limit: The score of the full colour; larger ones look the same.
        signed: Whether scores have a sign.

    Example:
        >>> score_colour(0.0, 2.0, signed=True)
        (1.0, 1.0, 1.0)
        >>> score_colour(-3.0, 2.0, signed=True) == LOWER
        True
    """
    share = min(abs(score) / limit, 1.0) if limit > 0 else 0.0
    full = SHARE if not signed else RAISE if score > 0 else LOWER
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(NEUTRAL, full, strict=True))
    return red, green, blue


_LEGEND = 62  # pixels below the molecule


_BAR = 12


_STEPS = 60


_BOND = 34.0  # pixels, at most: small molecules are not blown up


_RADIUS = 0.4  # of a bond of 1.5 Å; in Å


_FAINT = 0.02  # of the scale; below, white on white is left out


_INK = (24, 32, 42)


_PATH = re.compile(r"<path\b[^>]*?\bd='([^']*)'\s+([^>]*)>")


_WIDTH = re.compile(r"stroke-width:\s*([\d.]+)")


class Outline(NamedTuple):
    """A molecule as lines to draw, without colours.

    Args:
        width: Of the picture, in pixels.
        height: Likewise.
        atoms: Where each atom is.
        paths: Path data of SVG, each with the width of its line, 0 for a filled shape.
    """

    width: float
    height: float
    atoms: list[tuple[float, float]]
    paths: list[tuple[str, float]]


def draw_svg(explanation: Explanation, width: int = 420, height: int = 340) -> str:
    """Draw a molecule with its scores as SVG, on white.

    Args:
        explanation: Of the molecule.
        width: In pixels.
        height: Likewise, legend included.
    """
    drawer = rdMolDraw2D.MolDraw2DSVG(width, height, width, height - _LEGEND)
    text = str(_drawn(drawer, explanation))
    box = _legend_box(width, height)
    kind = "signed" if explanation.signed else "share"
    stops = "".join(
        f'<stop offset="{place:.3f}" stop-color="rgb({r},{g},{b})"/>'
        for place, (r, g, b) in _ramp(explanation.signed, 11)
    )
    line = 'font-family="sans-serif" font-size="12" fill="#18202a" text-anchor='
    caption, ends = legend_lines(explanation)
    anchors = ("start", "middle", "end") if len(ends) == 3 else ("start", "end")
    labels = "".join(
        f'<text {line}"{anchor}" x="{x:.1f}" y="{box[3] + 15}">{escape(end)}</text>'
        for anchor, x, end in zip(anchors, _spread(box, len(ends)), ends, strict=True)
    )
    legend = (
        f'<defs><linearGradient id="molattn-{kind}">{stops}</linearGradient></defs>'
        f'<rect x="{box[0]}" y="{box[1]}" width="{box[2] - box[0]}" height="{_BAR}" '
        f'fill="url(#molattn-{kind})" stroke="#767676" stroke-width="0.5"/>{labels}'
        f'<text {line}"middle" x="{width / 2}" y="{box[3] + 33}" textLength='
        f'"{min(6.2 * len(caption), width - 16):.0f}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(caption)}</text>"
    )
    text = text.replace("encoding='iso-8859-1'", "encoding='utf-8'", 1)
    name = escape(f"{explanation.smiles}: {caption}", {"'": "&apos;", '"': "&quot;"})
    text = text.replace("<!-- END OF HEADER -->", f"<title>{name}</title>", 1)
    return text.replace("</svg>", f"{legend}</svg>")


def draw_png(explanation: Explanation, width: int = 420, height: int = 340) -> bytes:
    """Draw a molecule with its scores as PNG, on white, at twice the size of :func:`draw_svg`.

    Args:
        explanation: Of the molecule.
        width: In pixels of the SVG.
        height: Likewise, legend included.
    """
    width, height, twice = 2 * width, 2 * height, 2
    drawer = rdMolDraw2D.MolDraw2DCairo(width, height, width, height - twice * _LEGEND)
    data = bytes(_drawn(drawer, explanation, twice))
    image = Image.open(io.BytesIO(data)).convert("RGB")
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = (twice * edge for edge in _legend_box(width // 2, height // 2))
    for place, colour in _ramp(explanation.signed, right - left + 1):
        x = left + place * (right - left)
        draw.line([(x, top), (x, bottom)], fill=colour)
    draw.rectangle((left, top, right, bottom), outline=(118, 118, 118))
    caption, ends = legend_lines(explanation)
    font = ImageFont.truetype(findfont("DejaVu Sans"), 22)
    anchors = ("lt", "mt", "rt") if len(ends) == 3 else ("lt", "rt")
    for anchor, x, end in zip(anchors, _spread((left, 0, right, 0), len(ends)), ends, strict=True):
        draw.text((x, bottom + 10), end, _INK, font, anchor)
    size = 22
    while size > 10 and draw.textlength(caption, font) > width - 24:
        size -= 1
        font = font.font_variant(size=size)
    draw.text((width / 2, bottom + 46), caption, _INK, font, "mt")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def save_drawing(
    explanation: Explanation, path: str | Path, width: int = 420, height: int = 340
) -> None:
    """Write the drawing of a molecule to a file.

    Args:
        explanation: Of the molecule.
        path: The file, ``.svg`` or ``.png``; one that is there is replaced.
        width: As :func:`draw_svg` and :func:`draw_png` take it.
        height: Likewise.

    Raises:
        InputError: Another ending, or a place that cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in _KINDS:
        raise InputError(f"{path}: got the ending {path.suffix!r}, expected .svg or .png")
    drawing = _KINDS[path.suffix.lower()](explanation, width, height)
    try:
        write_file(path, drawing if isinstance(drawing, bytes) else drawing.encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def molecule_outline(smiles: str) -> Outline:
    """Return a molecule as lines, for whoever colours it elsewhere.

    Args:
        smiles: The molecule.

    Raises:
        SmilesError: The text is not a molecule; says why.
    """
    drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)
    mol = _laid_out(parse_smiles(smiles))
    options = _options(drawer, 1)
    options.padding = 0.0
    drawer.DrawMolecule(mol)
    atoms = [drawer.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms())]
    drawer.FinishDrawing()
    paths = []
    for data, style in _PATH.findall(drawer.GetDrawingText()):
        line = _WIDTH.search(style) if "fill:none" in style else None
        paths.append((" ".join(data.split()), float(line[1]) if line else 0.0))
    return Outline(
        float(drawer.Width()),
        float(drawer.Height()),
        [(round(point.x, 1), round(point.y, 1)) for point in atoms],
        paths,
    )


_KINDS = {".svg": draw_svg, ".png": draw_png}


def _drawn(drawer: rdMolDraw2D.MolDraw2D, explanation: Explanation, scale: int = 1) -> Any:
    mol = _laid_out(parse_smiles(explanation.smiles))
    limit = score_limit(explanation)
    options = _options(drawer, scale)
    options.padding = 0.1
    atoms = _coloured(explanation.atom_scores.tolist(), limit, explanation.signed)
    pairs = zip(explanation.bonds, explanation.bond_scores, strict=True)
    of_bonds = {mol.GetBondBetweenAtoms(*pair).GetIdx(): score for pair, score in pairs}
    scores = [of_bonds.get(bond, 0.0) for bond in range(mol.GetNumBonds())]
    bonds = _coloured(scores, limit, explanation.signed)
    drawer.DrawMolecule(
        mol,
        highlightAtoms=list(atoms),
        highlightAtomColors=atoms,
        highlightBonds=list(bonds),
        highlightBondColors=bonds,
        highlightAtomRadii=dict.fromkeys(atoms, _RADIUS),
    )
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def _options(drawer: rdMolDraw2D.MolDraw2D, scale: int) -> rdMolDraw2D.MolDrawOptions:
    options = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.useBWAtomPalette()
    options.fixedBondLength = _BOND * scale
    options.bondLineWidth = 2 * scale
    options.minFontSize, options.maxFontSize = 7 * scale, 17 * scale
    options.highlightBondWidthMultiplier = 10
    options.fillHighlights = options.continuousHighlight = options.atomHighlightsAreCircles = True
    return options


def _laid_out(mol: Chem.Mol) -> Chem.Mol:
    return rdMolDraw2D.PrepareMolForDrawing(mol, addChiralHs=False)


def _coloured(
    scores: Sequence[float], limit: float, signed: bool
) -> dict[int, tuple[float, float, float]]:
    return {
        place: score_colour(float(score), limit, signed=signed)
        for place, score in enumerate(scores)
        if abs(score) > _FAINT * limit
    }


def _legend_box(width: int, height: int) -> tuple[int, int, int, int]:
    half = min(130, width // 2 - 10)
    return width // 2 - half, height - _LEGEND + 6, width // 2 + half, height - _LEGEND + 6 + _BAR


def _spread(box: Sequence[float], count: int) -> list[float]:
    return [box[0] + (box[2] - box[0]) * place / (count - 1) for place in range(count)]


def _ramp(signed: bool, steps: int) -> list[tuple[float, tuple[int, int, int]]]:
    """Return places from 0 to 1 of the scale, each with its colour."""
    found = []
    for place in (step / (steps - 1) for step in range(steps)):
        colour = score_colour(2 * place - 1 if signed else place, 1.0, signed=signed)
        red, green, blue = (round(255 * part) for part in colour)
        found.append((place, (red, green, blue)))
    return found
