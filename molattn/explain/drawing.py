"""Drawings of a molecule with atoms and bonds colored by score, as SVG and PNG."""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from matplotlib.font_manager import findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rdkit.Geometry import Point2D

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
_STEPS = 40  # of color in the scale
_BOND = 34.0  # pixels, at most: small molecules are not enlarged
_RADIUS = 0.4  # in Å, where a bond is 1.5 Å
_FAINT = 0.02  # of the limit; scores below are not drawn
_INK, _FRAME = (24, 32, 42), (0.46, 0.46, 0.46)
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
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
        text = str(self._draw(drawing_module().MolDraw2DSVG, 1))
        text = text.replace("encoding='iso-8859-1'", "encoding='utf-8'", 1)
        name = escape(f"{written(self.molecule)}: {self.caption}", {"'": "&apos;", '"': "&quot;"})
        text = text.replace("<!-- END OF HEADER -->", f"<title>{name}</title>", 1)
        lines = "".join(
            f'<text font-family="sans-serif" font-size="{size:.1f}" fill="#18202a" '
            f'text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
            for x, y, anchor, size, words in self._lines
        )
        return text.replace("</svg>", f"{lines}</svg>")

    def png(self) -> bytes:
        """Return the drawing as PNG, at twice the size in pixels."""
        data = bytes(self._draw(drawing_module().MolDraw2DCairo, 2))
        image = Image.open(io.BytesIO(data)).convert("RGB")
        draw, file = ImageDraw.Draw(image), io.BytesIO()
        for x, y, anchor, size, words in self._lines:
            font = ImageFont.truetype(findfont("DejaVu Sans"), 1.8 * size)
            draw.text((2 * x, 2 * y), words, _INK, font, _ANCHORS[anchor])
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
    def _lines(self) -> list[tuple[float, float, str, float, str]]:
        """Lines of text: place, anchor, size and words."""
        left, right, top = self._scale_box
        middle, at = self.width / 2, (self.height - _LEGEND) // 2
        aligned = ("start", "middle", "end") if len(self.ends) == 3 else ("start", "end")
        places = np.linspace(left, right, len(self.ends)).tolist()
        lines = [
            (x, top + 27, anchor, 12.0, end)
            for x, anchor, end in zip(places, aligned, self.ends, strict=True)
        ]
        size = min(12.0, (self.width - 16) / (0.56 * max(1, len(self.caption))))
        lines.append((middle, top + 45, "middle", size, self.caption))
        if laid_out(self.molecule) is None:
            lines += [(middle, at + 18 * k, "middle", 12.0, one) for k, one in enumerate(NOT_DRAWN)]
        return lines

    @property
    def _scale_box(self) -> tuple[float, float, float]:
        """Left, right and top of the color scale."""
        half = min(130.0, self.width / 2 - 10)
        return self.width / 2 - half, self.width / 2 + half, self.height - _LEGEND + 6.0

    def _draw(self, kind: Callable[..., Any], scale: int) -> Any:
        """Draw the molecule and the color scale below it."""
        width, height = scale * self.width, scale * self.height
        drawer = kind(width, height, width, height - scale * _LEGEND)
        _set_options(drawer, scale, padding=0.1)
        if (mol := laid_out(self.molecule)) is None:
            drawer.ClearDrawing()
        else:
            self._draw_molecule(drawer, mol)
        self._draw_scale(drawer, scale)
        drawer.FinishDrawing()
        return drawer.GetDrawingText()

    def _draw_molecule(self, drawer: Any, mol: Any) -> None:
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

    def _draw_scale(self, drawer: Any, scale: int) -> None:
        left, right, top = self._scale_box

        def rectangle(x: float, end: float, color: Color, filled: bool) -> None:
            drawer.SetFillPolys(filled)
            drawer.SetColour(color)
            corners = Point2D(scale * x, scale * top), Point2D(scale * end, scale * (top + 12))
            drawer.DrawRect(*corners, True)

        drawer.SetLineWidth(scale)
        edges = np.linspace(left, right, _STEPS + 1).tolist()
        for step, (x, end) in enumerate(pairwise(edges)):
            score = (step + 0.5) / _STEPS
            score = 2 * score - 1 if self.signed else score
            rectangle(x, end, score_color(score, 1.0, signed=self.signed), True)
        rectangle(left, right, _FRAME, False)

    def _colors(self, scores: Iterable[tuple[int, float]]) -> dict[int, Color]:
        return {
            index: score_color(score, self.limit, signed=self.signed)
            for index, score in scores
            if abs(score) > _FAINT * self.limit
        }


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
