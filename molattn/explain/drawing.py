"""A molecule with its atoms and bonds coloured by score, as SVG and PNG."""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from matplotlib.font_manager import findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rdkit import Chem
from rdkit.Chem.Draw import rdMolDraw2D

from molattn.chem import parse_smiles
from molattn.errors import InputError
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

# Blue and orange stay distinct in the three common kinds of colour blindness, and black letters
# are legible on both.
LOWER: Colour = (0.30, 0.62, 0.86)
"""The most negative score."""
NEUTRAL: Colour = (1.0, 1.0, 1.0)
"""A score of 0."""
RAISE: Colour = (0.95, 0.56, 0.16)
"""The most positive score."""
SHARE: Colour = (0.66, 0.50, 0.84)
"""The largest score of an unsigned method."""

_LEGEND = 62  # pixels below the molecule
_BAR = 12
_BOND = 34.0  # pixels, at most: small molecules are not enlarged
_RADIUS = 0.4  # in Å, where a bond is 1.5 Å
_FAINT = 0.02  # of the limit; scores below are not drawn
_INK = (24, 32, 42)
_PATH = re.compile(r"<path\b[^>]*?\bd='([^']*)'\s+([^>]*)>")
_WIDTH = re.compile(r"stroke-width:\s*([\d.]+)")


class Outline(NamedTuple):
    """A structure as lines to draw, without colours.

    Args:
        width: Of the picture, in pixels.
        height: Likewise.
        atoms: Coordinates of each atom.
        paths: Path data of SVG, each with its line width, 0 for a filled shape.
    """

    width: float
    height: float
    atoms: list[tuple[float, float]]
    paths: list[tuple[str, float]]


def score_colour(score: float, limit: float, *, signed: bool) -> Colour:
    """Return the colour of a score.

    White is 0; a signed score is blue below 0 and orange above, on a symmetric scale; an unsigned
    one is violet.

    Args:
        score: The score.
        limit: The score at which the colour saturates.
        signed: Whether scores are signed.

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


def draw_svg(
    smiles: str,
    atom_scores: NDArray[np.float64],
    bonds: Sequence[tuple[int, int]],
    bond_scores: NDArray[np.float64],
    *,
    signed: bool,
    limit: float,
    caption: str,
    ends: Sequence[str],
    width: int = 420,
    height: int = 340,
) -> str:
    """Draw a molecule coloured by score as SVG, on white.

    Args:
        smiles: The molecule.
        atom_scores: Score of each atom ``[n]``, in the order of the SMILES.
        bonds: Pairs of bonded atoms; bonds left out are not coloured.
        bond_scores: Score of each of these bonds.
        signed: Whether scores are signed.
        limit: The score at which colours saturate.
        caption: Text below the colour scale.
        ends: Labels of the colour scale, spread evenly along it: two or three.
        width: In pixels.
        height: Likewise, legend included.

    Raises:
        SmilesError: The text is not a molecule.
    """
    drawer = rdMolDraw2D.MolDraw2DSVG(width, height, width, height - _LEGEND)
    text = str(_drawn(drawer, 1, smiles, atom_scores, bonds, bond_scores, signed, limit))
    box = _legend_box(width, height)
    kind = "signed" if signed else "share"
    stops = "".join(
        f'<stop offset="{place:.3f}" stop-color="rgb({r},{g},{b})"/>'
        for place, (r, g, b) in _ramp(signed, 11)
    )
    line = 'font-family="sans-serif" font-size="12" fill="#18202a" text-anchor='
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
    name = escape(f"{smiles}: {caption}", {"'": "&apos;", '"': "&quot;"})
    text = text.replace("<!-- END OF HEADER -->", f"<title>{name}</title>", 1)
    return text.replace("</svg>", f"{legend}</svg>")


def draw_png(
    smiles: str,
    atom_scores: NDArray[np.float64],
    bonds: Sequence[tuple[int, int]],
    bond_scores: NDArray[np.float64],
    *,
    signed: bool,
    limit: float,
    caption: str,
    ends: Sequence[str],
    width: int = 420,
    height: int = 340,
) -> bytes:
    """Draw a molecule coloured by score as PNG, on white, at twice the size of :func:`draw_svg`.

    The arguments are those of :func:`draw_svg`.
    """
    twice = 2
    size = twice * width, twice * height
    drawer = rdMolDraw2D.MolDraw2DCairo(*size, size[0], size[1] - twice * _LEGEND)
    data = bytes(_drawn(drawer, twice, smiles, atom_scores, bonds, bond_scores, signed, limit))
    image = Image.open(io.BytesIO(data)).convert("RGB")
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = (twice * edge for edge in _legend_box(width, height))
    for place, colour in _ramp(signed, right - left + 1):
        x = left + place * (right - left)
        draw.line([(x, top), (x, bottom)], fill=colour)
    draw.rectangle((left, top, right, bottom), outline=(118, 118, 118))
    font = ImageFont.truetype(findfont("DejaVu Sans"), 22)
    anchors = ("lt", "mt", "rt") if len(ends) == 3 else ("lt", "rt")
    for anchor, x, end in zip(anchors, _spread((left, 0, right, 0), len(ends)), ends, strict=True):
        draw.text((x, bottom + 10), end, _INK, font, anchor)
    points = 22
    while points > 10 and draw.textlength(caption, font) > size[0] - 24:
        points -= 1
        font = font.font_variant(size=points)
    draw.text((size[0] / 2, bottom + 46), caption, _INK, font, "mt")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def save_drawing(path: str | Path, **drawn: Any) -> None:
    """Write the drawing of a molecule to a file.

    Args:
        path: The file, ``.svg`` or ``.png``; an existing one is replaced.
        drawn: The arguments of :func:`draw_svg`.

    Raises:
        InputError: Another file extension, or a path that cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in _KINDS:
        raise InputError(f"{path}: got the ending {path.suffix!r}, expected .svg or .png")
    drawing = _KINDS[path.suffix.lower()](**drawn)
    try:
        write_file(path, drawing if isinstance(drawing, bytes) else drawing.encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def molecule_outline(smiles: str) -> Outline:
    """Return a structure as lines, to be coloured elsewhere.

    Args:
        smiles: The molecule.

    Raises:
        SmilesError: The text is not a molecule.
    """
    drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)
    mol = _laid_out(smiles)
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


def _drawn(
    drawer: rdMolDraw2D.MolDraw2D,
    scale: int,
    smiles: str,
    atom_scores: NDArray[np.float64],
    bonds: Sequence[tuple[int, int]],
    bond_scores: NDArray[np.float64],
    signed: bool,
    limit: float,
) -> Any:
    mol = _laid_out(smiles)
    options = _options(drawer, scale)
    options.padding = 0.1
    indices = [mol.GetBondBetweenAtoms(*pair).GetIdx() for pair in bonds]
    of_atoms = _coloured(enumerate(atom_scores.tolist()), limit, signed)
    of_bonds = _coloured(zip(indices, bond_scores.tolist(), strict=True), limit, signed)
    drawer.DrawMolecule(
        mol,
        highlightAtoms=list(of_atoms),
        highlightAtomColors=of_atoms,
        highlightBonds=list(of_bonds),
        highlightBondColors=of_bonds,
        highlightAtomRadii=dict.fromkeys(of_atoms, _RADIUS),
    )
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def _coloured(scores: Iterable[tuple[int, float]], limit: float, signed: bool) -> dict[int, Colour]:
    return {
        place: score_colour(score, limit, signed=signed)
        for place, score in scores
        if abs(score) > _FAINT * limit
    }


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


def _laid_out(smiles: str) -> Chem.Mol:
    return rdMolDraw2D.PrepareMolForDrawing(parse_smiles(smiles), addChiralHs=False)


def _legend_box(width: int, height: int) -> tuple[int, int, int, int]:
    half = min(130, width // 2 - 10)
    return width // 2 - half, height - _LEGEND + 6, width // 2 + half, height - _LEGEND + 6 + _BAR


def _spread(box: Sequence[float], count: int) -> list[float]:
    return [box[0] + (box[2] - box[0]) * place / (count - 1) for place in range(count)]


def _ramp(signed: bool, steps: int) -> list[tuple[float, tuple[int, int, int]]]:
    """Return positions from 0 to 1 along the scale, each with its colour."""
    ramp = []
    for place in (step / (steps - 1) for step in range(steps)):
        colour = score_colour(2 * place - 1 if signed else place, 1.0, signed=signed)
        red, green, blue = (round(255 * part) for part in colour)
        ramp.append((place, (red, green, blue)))
    return ramp
