"""Molecules as SVG."""

from rdkit.Chem.Draw import rdMolDraw2D

from molattn.chem.parse import parse_accepted_smiles

__all__ = ["ATOM_COLORS", "draw_molecule"]

ATOM_COLORS = {
    "nitrogen": "#1F4FD8",
    "oxygen": "#C81E1E",
    "sulfur": "#8A6100",
    "phosphorus": "#B4530A",
    "halogen": "#1A7F37",
}
"""Colors of the elements that are not drawn in black."""
_KINDS = {7: "nitrogen", 8: "oxygen", 15: "phosphorus", 16: "sulfur"} | dict.fromkeys(
    (9, 17, 35, 53), "halogen"
)


def draw_molecule(smiles: str, width: int = 250, height: int = 180) -> str:
    """Draw a molecule as SVG, in pixels, with a transparent background."""
    drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.maxFontSize = 16
    options.fixedBondLength = 28  # at most, so that small molecules are not magnified
    options.useBWAtomPalette()
    options.updateAtomPalette({number: _rgb(ATOM_COLORS[kind]) for number, kind in _KINDS.items()})
    rdMolDraw2D.PrepareAndDrawMolecule(drawer, parse_accepted_smiles(smiles))
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


def _rgb(color: str) -> tuple[float, ...]:
    return tuple(int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
