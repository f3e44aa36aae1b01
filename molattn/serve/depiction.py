"""Structures as SVG."""

from functools import lru_cache
from xml.sax.saxutils import escape

from rdkit import Chem

from molattn.chem.draw import NOT_DRAWN, draw_molecule
from molattn.chem.limits import read_molecule
from molattn.config import MoleculeLimits

__all__ = ["depict"]

_CACHED_LENGTH = 300  # characters of a SMILES; hostile ones would fill the memory


def depict(smiles: str, width: int, height: int, limits: MoleculeLimits) -> str:
    """Draw a molecule, with a line of text in its place if it is too large to draw.

    Args:
        smiles: The molecule.
        width: Width in pixels.
        height: Height in pixels.
        limits: Limits of the molecule.

    Raises:
        SmilesError: It is not a molecule, or beyond a limit.
    """
    if len(smiles) <= _CACHED_LENGTH:
        return _cached(smiles, width, height, limits)
    return _drawn(smiles, width, height, limits)


def _drawn(smiles: str, width: int, height: int, limits: MoleculeLimits) -> str:
    read_molecule(smiles, limits, Chem.Mol.GetNumAtoms)
    drawn = draw_molecule(smiles, width, height)
    if drawn is not None:
        return drawn
    lines = "".join(
        f'<text x="50%" y="{height // 2 + 18 * place - 6}" text-anchor="middle" '
        f'font-family="sans-serif" font-size="12">{escape(words)}</text>'
        for place, words in enumerate(NOT_DRAWN)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}px" height="{height}px" '
        f'viewBox="0 0 {width} {height}">{lines}</svg>'
    )


_cached = lru_cache(maxsize=1024)(_drawn)
