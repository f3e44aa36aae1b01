"""Drawings of a molecule with atoms and bonds colored by score, as SVG and PNG."""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from matplotlib.font_manager import findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from molattn.chem.draw import NOT_DRAWN, drawing_module, laid_out
from molattn.chem.parse import Molecule, written
from molattn.errors import InputError
from molattn.utils.files import write_file

__all__ = [
    "LOWER",
    "NEUTRAL",
    "RAISE",
    "SHARE",
    "Drawing",
    "Outline",
    "molecule_outline",
    "score_color",
]

Color = tuple[float, float, float]

# Blue and orange stay distinct in the three common kinds of color blindness, and black letters
# are legible on both.
LOWER: Color = (0.30, 0.62, 0.86)
"""The most negative score."""
NEUTRAL: Color = (1.0, 1.0, 1.0)
"""A score of 0."""
RAISE: Color = (0.95, 0.56, 0.16)
"""The most positive score."""
SHARE: Color = (0.66, 0.50, 0.84)
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
    """A structure as lines to draw, without colors.

    Args:
        width: Width of the picture in pixels.
        height: Height in pixels.
        atoms: Coordinates of each atom.
        paths: Path data of SVG, each with its line width, 0 for a filled shape.
    """

    width: float
    height: float
    atoms: list[tuple[float, float]]
    paths: list[tuple[str, float]]


def score_color(score: float, limit: float, *, signed: bool) -> Color:
    """Return the color of a score, saturated at ``limit``.

    0 is white. A signed score is blue if negative and orange if positive, on a symmetric scale; an
    unsigned score is violet.

    Example:
        >>> score_color(0.0, 2.0, signed=True)
        (1.0, 1.0, 1.0)
        >>> score_color(-3.0, 2.0, signed=True) == LOWER
        True
    """
    share = min(abs(score) / limit, 1.0) if limit > 0 else 0.0
    full = SHARE if not signed else RAISE if score > 0 else LOWER
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(NEUTRAL, full, strict=True))
    return red, green, blue


@dataclass(frozen=True, eq=False)
class Drawing:
    """A molecule colored by score, on white, with a color scale.

    A molecule that cannot be drawn (:func:`molattn.chem.draw.laid_out`) is replaced by a line that
    says so.

    Args:
        molecule: A SMILES or an RDKit molecule.
        atom_scores: Score of each atom ``[n]``, in its order.
        bonds: Pairs of bonded atoms; other bonds are not colored.
        bond_scores: Score of each of these bonds.
        signed: Whether scores are signed.
        limit: The score at which colors saturate.
        caption: Text below the color scale.
        ends: Labels of the color scale, spread evenly along it: two or three.
        width: Width in pixels; a PNG has twice as many.
        height: Height in pixels, including the legend; a PNG has twice as many.
    """

    molecule: Molecule
    atom_scores: NDArray[np.float64]
    bonds: Sequence[tuple[int, int]]
    bond_scores: NDArray[np.float64]
    signed: bool
    limit: float
    caption: str
    ends: Sequence[str]
    width: int = 420
    height: int = 340

    def svg(self) -> str:
        """Return the drawing as SVG text."""
        drawer = drawing_module().MolDraw2DSVG(
            self.width, self.height, self.width, self.height - _LEGEND
        )
        text = str(self._draw_molecule(drawer, 1))
        left, top, right, bottom = self._scale_box
        kind = "signed" if self.signed else "share"
        stops = "".join(
            f'<stop offset="{place:.3f}" stop-color="rgb({r},{g},{b})"/>'
            for place, (r, g, b) in self._ramp(11)
        )
        line = 'font-family="sans-serif" font-size="12" fill="#18202a" text-anchor='
        anchors = ("start", "middle", "end") if len(self.ends) == 3 else ("start", "end")
        places = np.linspace(left, right, len(self.ends))
        labels = "".join(
            f'<text {line}"{anchor}" x="{x:.1f}" y="{bottom + 15}">{escape(end)}</text>'
            for anchor, x, end in zip(anchors, places, self.ends, strict=True)
        )
        legend = (
            f'<defs><linearGradient id="molattn-{kind}">{stops}</linearGradient></defs>'
            f'<rect x="{left}" y="{top}" width="{right - left}" height="{_BAR}" '
            f'fill="url(#molattn-{kind})" stroke="#767676" stroke-width="0.5"/>{labels}'
            f'<text {line}"middle" x="{self.width / 2}" y="{bottom + 33}" textLength='
            f'"{min(6.2 * len(self.caption), self.width - 16):.0f}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(self.caption)}</text>'
        )
        legend += "".join(
            f'<text {line}"middle" x="{self.width / 2}" y="{y}">{escape(words)}</text>'
            for y, words in self._instead
        )
        text = text.replace("encoding='iso-8859-1'", "encoding='utf-8'", 1)
        name = escape(f"{written(self.molecule)}: {self.caption}", {"'": "&apos;", '"': "&quot;"})
        text = text.replace("<!-- END OF HEADER -->", f"<title>{name}</title>", 1)
        return text.replace("</svg>", f"{legend}</svg>")

    def png(self) -> bytes:
        """Return the drawing as PNG, at twice the size in pixels."""
        width, height = 2 * self.width, 2 * self.height
        drawer = drawing_module().MolDraw2DCairo(width, height, width, height - 2 * _LEGEND)
        data = bytes(self._draw_molecule(drawer, 2))
        image = Image.open(io.BytesIO(data)).convert("RGB")
        draw = ImageDraw.Draw(image)
        left, top, right, bottom = (2 * edge for edge in self._scale_box)
        for place, color in self._ramp(right - left + 1):
            x = left + place * (right - left)
            draw.line([(x, top), (x, bottom)], fill=color)
        draw.rectangle((left, top, right, bottom), outline=(118, 118, 118))
        font = ImageFont.truetype(findfont("DejaVu Sans"), 22)
        anchors = ("lt", "mt", "rt") if len(self.ends) == 3 else ("lt", "rt")
        places = np.linspace(left, right, len(self.ends)).tolist()
        for anchor, x, end in zip(anchors, places, self.ends, strict=True):
            draw.text((x, bottom + 10), end, _INK, font, anchor)
        for y, words in self._instead:
            draw.text((width / 2, 2 * y), words, _INK, font, "ms")
        points = 22
        while points > 10 and draw.textlength(self.caption, font) > width - 24:
            points -= 1
            font = font.font_variant(size=points)
        draw.text((width / 2, bottom + 46), self.caption, _INK, font, "mt")
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the drawing to a file, ``.svg`` or ``.png``; an existing one is replaced.

        Raises:
            InputError: Another file extension, or a path that cannot be written.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in (".svg", ".png"):
            raise InputError(
                f"{path}: got the file extension {path.suffix!r}, expected .svg or .png"
            )
        try:
            write_file(path, self.svg().encode() if ending == ".svg" else self.png())
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error

    @property
    def _instead(self) -> list[tuple[int, str]]:
        """Lines of text in place of a molecule that is not drawn, each with its baseline."""
        if laid_out(self.molecule) is not None:
            return []
        middle = (self.height - _LEGEND) // 2
        return [(middle + 18 * place, words) for place, words in enumerate(NOT_DRAWN)]

    @property
    def _scale_box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of the color scale."""
        middle, half = self.width // 2, min(130, self.width // 2 - 10)
        top = self.height - _LEGEND + 6
        return middle - half, top, middle + half, top + _BAR

    def _ramp(self, steps: int) -> list[tuple[float, tuple[int, int, int]]]:
        """Return positions from 0 to 1 along the scale, each with its color."""
        ramp = []
        for place in np.linspace(0.0, 1.0, steps).tolist():
            color = score_color(2 * place - 1 if self.signed else place, 1.0, signed=self.signed)
            red, green, blue = (round(255 * part) for part in color)
            ramp.append((place, (red, green, blue)))
        return ramp

    def _colors(self, scores: Iterable[tuple[int, float]]) -> dict[int, Color]:
        return {
            place: score_color(score, self.limit, signed=self.signed)
            for place, score in scores
            if abs(score) > _FAINT * self.limit
        }

    def _draw_molecule(self, drawer: Any, scale: int) -> Any:
        if (mol := laid_out(self.molecule)) is None:
            drawer.ClearDrawing()
            drawer.FinishDrawing()
            return drawer.GetDrawingText()
        _set_options(drawer, scale, padding=0.1)
        indices = [mol.GetBondBetweenAtoms(*pair).GetIdx() for pair in self.bonds]
        of_atoms = self._colors(enumerate(self.atom_scores.tolist()))
        of_bonds = self._colors(zip(indices, self.bond_scores.tolist(), strict=True))
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


def molecule_outline(molecule: Molecule) -> Outline | None:
    """Return a structure as lines, for the page to color; None if it cannot be drawn."""
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
    return Outline(
        float(drawer.Width()),
        float(drawer.Height()),
        [(round(point.x, 1), round(point.y, 1)) for point in atoms],
        paths,
    )


def _set_options(drawer: Any, scale: int, padding: float) -> None:
    options = drawer.drawOptions()
    options.padding = padding
    options.prepareMolsBeforeDrawing = False
    options.useBWAtomPalette()
    options.fixedBondLength = _BOND * scale
    options.bondLineWidth = 2 * scale
    options.minFontSize, options.maxFontSize = 7 * scale, 17 * scale
    options.highlightBondWidthMultiplier = 10
    options.fillHighlights = options.continuousHighlight = options.atomHighlightsAreCircles = True
